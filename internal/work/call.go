package work

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/sequencer"
	"github.com/postern-dev/postern/internal/telemetry"
	"github.com/postern-dev/postern/internal/twin"
)

// step does with the worker what the lease is at, and decides what comes of it: send it, ask about it, or
// ask about its earlier attempts. nil means that ctx ended and nothing is known.
func (e *Engine) step(ctx context.Context, l *pg.Lease) *pg.Answer {
	var a *pg.Answer
	switch {
	case e.withheld(l):
		f := l.Flight(l.Dispatcher.DefaultMaxRetries())
		return &pg.Answer{Lease: l, StartedAt: time.Now(), Step: sequencer.Withheld(f, l.Resume, l.Dispatcher.Dispatcher)}
	case l.Phase != outbox.PhaseDispatching:
		a = e.elapsed(ctx, l)
	case l.Resume && !twin.Planted("sent_again_unasked"):
		a = e.ask(ctx, l, nil)
	default:
		a = e.send(ctx, l)
	}
	for ctx.Err() == nil && a.Step.Err == nil && a.Step.Then == sequencer.ThenAsk && a.Step.Delay == 0 && !e.withheld(l) {
		unclear, verdict, gate := a.Unclear, a.Verdict, a.Gate
		a = e.ask(ctx, l, unclear)
		a.Verdict, a.Gate = verdict, gate
		if a.Step.Then == sequencer.ThenBack && unclear != nil { // its answer is why it waits again: one row tells it
			a.StartedAt = unclear.StartedAt
		} else {
			a.Unclear = unclear
		}
	}
	if a.Step.Err != nil {
		e.Log.Error("a decision that the machine does not know: the transaction stays as it is", "tx", l.ID(), "error", a.Step.Err)
		return nil
	}
	if ctx.Err() != nil && !a.Step.State.Terminal() && !a.Step.KeepHash {
		return nil
	}
	return a
}

// withheld says whether nothing may go out for a lease, since its type was put into quarantine behind it. It is asked
// right before each call: what a heartbeat tells others is that it knows the quarantine by which this decides.
func (e *Engine) withheld(l *pg.Lease) bool {
	return e.Store.Quarantined(l.Dispatcher.ContextID, l.Task.Type)
}

// send dispatches the transaction once.
func (e *Engine) send(ctx context.Context, l *pg.Lease) *pg.Answer {
	call := e.call(l)
	var span *telemetry.Span
	if e.Traces != nil {
		span = e.Traces.Dispatch(call.Traceparent, call.Type, call.ID.String(), call.Queue, call.Account, call.Attempt)
		call.Traceparent = span.Traceparent()
	}
	var got outbox.Answer
	inside := e.workers[l.Dispatcher.WorkerURL]
	if inside != nil {
		if got = inside(ctx, l, call); ctx.Err() != nil { // cut off: the next owner calls again under the same token
			got = outbox.Answer{Class: outbox.ClassAmbiguous, StartedAt: got.StartedAt, Elapsed: got.Elapsed}
		}
	} else if err := e.mayProbe(ctx, l); err != nil {
		now := time.Now()
		got = outbox.Answer{
			Class:     outbox.ClassBlocked,
			Scope:     outbox.ScopeWorker,
			Code:      fault.CodeOf(err),
			Message:   fault.As(err).Detail,
			Unsent:    true,
			StartedAt: now,
		}
	} else {
		got = e.Worker.Dispatch(remote.Signed(ctx, l.Dispatcher.Secret), call)
	}
	span.Done(string(got.Class), got.Message)
	e.Metrics.Called(l.Task.Type, got.Class, got.Elapsed)
	f := l.Flight(l.Dispatcher.DefaultMaxRetries())
	if got.Class != "" || len(got.Result.Done) == 0 {
		f.MaxRetries = e.maxRetries(ctx, l)
	}
	a := &pg.Answer{Lease: l, Result: got.Result, StartedAt: got.StartedAt,
		Step: sequencer.Dispatched(f, got, l.Dispatcher.Dispatcher, rand.Float64())}
	if a.Step.Then == sequencer.ThenAsk {
		got.Message = a.Step.Message
		a.Unclear = &got
	}
	if got.Code == codeRefused && got.Unsent {
		switch {
		case inside != nil: // of one tool: its event waits alone, and other tools are called
			a.Gate = sequencer.MovePass
			return a
		case e.leaveToOthers(ctx, l): // the worker may be well, and another node calls it now
			a.Step.Blocks, a.Step.Delay, a.Gate = "", 0, sequencer.MovePass
			return a
		}
	}
	if ctx.Err() == nil { // else it is we who broke off
		a.Verdict, a.Gate = e.breakers.hear(l, got)
	}
	return a
}

// mayProbe looks before a call that is the probe of a closed gate whether it might get through, where the call could
// leave an outcome that cannot be found out: a transaction would be held for each probe. One that may be repeated is
// the probe itself, and a worker that says what it knows of a token can be asked.
func (e *Engine) mayProbe(ctx context.Context, l *pg.Lease) error {
	if !l.Probe && !l.ProbeSender || l.Dispatcher.Idempotent {
		return nil
	}
	signed := remote.Signed(ctx, l.Dispatcher.Secret)
	return e.Worker.Alive(signed, l.WorkerURL(), l.Task.Type, l.Dispatcher.Mute())
}

// ask asks the worker what became of a dispatch whose end was not seen, or whose answer, unclear, does not tell it.
func (e *Engine) ask(ctx context.Context, l *pg.Lease, unclear *outbox.Answer) *pg.Answer {
	started := time.Now()
	st := outbox.Unasked()
	if !l.Dispatcher.Mute() {
		signed := remote.Signed(ctx, l.Dispatcher.Secret)
		st = e.Worker.Status(signed, l.WorkerURL(), l.Task.Type, l.Task.Token(l.Attempt), "")
	}
	if st.Refused && e.leaveToOthers(ctx, l) {
		return leave(l, started)
	}
	f := l.Flight(e.maxRetries(ctx, l))
	f.NeverHeld = e.Store.HasMaker(l.Task)
	if unclear != nil {
		f.Unclear = sequencer.Unclear{
			Code:  unclear.Code,
			Why:   unclear.Message,
			Told:  unclear.Told,
			Until: unclear.Until,
		}
	}
	a := &pg.Answer{Lease: l, StartedAt: started, BlockHeight: st.BlockHeight,
		Step: sequencer.Asked(f, st, l.Dispatcher.Dispatcher, rand.Float64())}
	a.Result.Hash, a.Result.Nonce, a.Result.Done = st.Hash, st.Nonce, st.Done
	return a
}

// elapsed asks once more about earlier attempts, then decides about the next one (S2.5 rows 16 and 19).
func (e *Engine) elapsed(ctx context.Context, l *pg.Lease) *pg.Answer {
	started := time.Now()
	var earlier []outbox.Status
	if hashes := l.Hashes(); len(hashes) > 0 {
		earlier = e.Worker.StatusBatch(remote.Signed(ctx, l.Dispatcher.Secret), l.WorkerURL(), l.Task.Type, hashes)
		for i := range earlier {
			if earlier[i].Refused && e.leaveToOthers(ctx, l) {
				return leave(l, started)
			}
			if earlier[i].Hash == "" {
				earlier[i].Hash = hashes[i]
			}
		}
	}
	most, said := e.saidRetries(ctx, l)
	if !said { // no limit ends it that its worker alone knows, and is away (S2.5 row 14)
		most = max(most, l.Retries)
	}
	a := &pg.Answer{Lease: l, StartedAt: started,
		Step: sequencer.Elapsed(l.Flight(most), earlier, l.Dispatcher.Dispatcher, rand.Float64())}
	a.Result.Hash = a.Step.Hash
	for _, st := range earlier {
		if st.Hash == a.Step.Hash && a.Step.State == outbox.DONE {
			a.BlockHeight, a.Result.Nonce, a.Result.Done = st.BlockHeight, st.Nonce, st.Done
		}
	}
	return a
}

// maxRetries is how often this transaction may be retried (S2.9): its own number, the dispatcher's, the
// worker's, or the default.
func (e *Engine) maxRetries(ctx context.Context, l *pg.Lease) int {
	n, _ := e.saidRetries(ctx, l)
	return n
}

// saidRetries is maxRetries, and whether it is certain: false where the worker might name a number, and does not
// answer.
func (e *Engine) saidRetries(ctx context.Context, l *pg.Lease) (n int, certain bool) {
	own, d := l.Task.MaxRetries, &l.Dispatcher.Dispatcher
	if own != nil || d.Retry.MaxRetries != nil {
		return sequencer.MaxRetries(own, d, nil), true
	}
	worker, err := e.Worker.MaxRetries(ctx, l.WorkerURL(), l.Task.Type)
	if err != nil {
		e.Log.Debug("the worker does not say how often it wants retries", "type", l.Task.Type, "error", err)
	}
	return sequencer.MaxRetries(nil, d, worker), err == nil
}

// call is everything that the worker is told (S2.7).
func (e *Engine) call(l *pg.Lease) remote.Call {
	c := remote.Call{
		BaseURL: l.WorkerURL(), Type: l.Task.Type, ID: l.ID(), UID: l.Task.UID, Queue: l.Queue, Line: e.Store.LineOf(l.Queue, l.ID().Queue), Data: l.Data(), State: outbox.DISPATCHING,
		PostedAt: l.Task.CreatedAt, Account: l.Account, SenderWorkerURL: l.SenderURL, SenderState: string(outbox.BLOCKED),
		Attributes: l.SenderAttributes,
		Retries:    l.Retries, Attempt: l.Attempt, Fence: l.Fence, Position: l.ID().Seq, Fee: l.Fee,
		FeeFactor:      sequencer.FeeFactor(l.Dispatcher.Fee, l.Attempt),
		PreviousHashes: l.Hashes(), Nonce: l.Nonce(), Timeout: time.Duration(l.Dispatcher.Timeouts.Dispatch), Traceparent: l.Task.Traceparent,
	}
	if len(c.PreviousHashes) > 0 {
		c.Hash = c.PreviousHashes[0]
	}
	c.Before = before(l)
	return c
}

// before is what the worker answered last to a call of this transaction, nil where it has said nothing that is kept.
func before(l *pg.Lease) json.RawMessage {
	for _, p := range l.Earlier { // newest first
		if p.Step != "dispatch" || p.Hash == "" && len(p.Members) == 0 {
			continue
		}
		var problem json.RawMessage
		if p.Class != "" {
			problem, _ = json.Marshal(map[string]string{"class": string(p.Class), "code": p.Code, "message": p.Error})
		}
		return remote.Baton(p.Hash, p.Members, problem) // its data is that of the call
	}
	return nil
}
