package batches

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/processor"
)

// submission is the core transaction of a batch's execution (S4.6): of the type that its function names, in a queue of
// its own, and never retried, since that is the processor's, or, where the whole batch is a message to one (S4.14),
// again and again, since that knows it by its name. Its uid names the run, and begins as no client's may.
func (v *Batch) submission(contextID int32) *pg.Submission {
	typ, retries := v.Actions.Functions()[v.Index].ContractAddress, 0
	if v.DeliverAs != "" {
		typ, retries = v.DeliverAs, alwaysAgain
	}
	data := v.Payload()
	hash := sha256.Sum256(append([]byte("processor\x00"+typ+"\x00"), data...))
	return &pg.Submission{Held: true, ContextID: contextID, Queue: fmt.Sprintf("processor:%s:%d", v.Processor, v.ID), UID: v.runUID(),
		Hash: hash[:], Actor: v.Initiator, Poster: outbox.ByProcessors, Type: typ, Data: data, MaxRetries: &retries}
}

func (v *Batch) runUID() string { return fmt.Sprintf(":processor:%d:%d", v.ID, v.Runs) }

// batchOf returns the batch whose execution a transaction is, 0 if it is none.
func batchOf(t *pg.Transaction) (id int64) {
	_, _ = fmt.Sscanf(t.UID, ":processor:%d:", &id)
	return id
}

// redrivesNoBatch refuses to redrive an execution of a batch, beside which what it sends would go out once more: it is
// tried again by its processor, and what has ended is sent anew as a batch.
func (s *Store) redrivesNoBatch(ctx context.Context, contextID int32, t *pg.Transaction) error {
	id := batchOf(t)
	if id == 0 {
		return nil
	}
	list, err := s.batches(ctx, ` WHERE b.batch_id = $1 AND p.context_id = $2`, id, contextID)
	if err != nil {
		return err
	}
	refusal := fault.New(fault.Conflict, "wrong_state", "transaction %s executed batch %d, which retention has dropped: send a new batch", t.ID, id)
	if len(list) == 0 {
		return refusal
	}
	v := list[0]
	path, lever := fmt.Sprintf("/processors/%s/batches/%d", v.Processor, id), "POST /processors/"+v.Processor+"/batches"
	switch {
	case v.State != processor.Done:
		refusal.Detail = fmt.Sprintf("transaction %s executes batch %d, which is %s and goes on by itself: POST /processors/%s/tick looks at it now, /evict ends it (%s/why)",
			t.ID, id, v.State, v.Processor, path)
		lever = "POST /processors/" + v.Processor + "/tick"
	default:
		if v.Label != "" {
			lever = "POST /authorizations/" + v.Label + "/send"
		}
		refusal.Detail = fmt.Sprintf("transaction %s executed batch %d, which has ended: %s sends it anew", t.ID, id, lever)
	}
	return refusal.With("batch", path).With("lever", lever)
}

// submit posts the execution that a tick has begun. An execution that the core refuses for good has failed.
// AdvanceProcessor brings on one that the core cannot take now.
func (s *Store) submit(ctx context.Context, contextID int32, v *Batch) error {
	err := error(nil)
	if v.DeliverAs == "" {
		err = s.executesAtomically(ctx, contextID, v.Actions)
	}
	if err == nil {
		err = s.post(ctx, v.submission(contextID))
	}
	switch fault.KindOf(err) {
	case "":
		s.RingHere()
		return nil
	case fault.Retry, fault.Internal:
		s.Log.Warn("post the execution of a batch", "processor", v.Processor, "batch", v.ID, "error", err)
		return nil
	}
	return s.finish(ctx, contextID, v, v.refused(fault.As(err).Detail))
}

func (s *Store) post(ctx context.Context, sub *pg.Submission) error {
	_, err := s.executions.Submit(ctx, sub)
	return err
}

// mayExecute refuses functions that a batch could not call here: those of a type that others than processors post to,
// and an atomic list that no worker promises. Where the batch goes to another installation, that judges.
func (s *Store) mayExecute(ctx context.Context, contextID int32, a processor.Actions) error {
	if err := s.executesAtomically(ctx, contextID, a); err != nil {
		return err
	}
	name := "non_atomic"
	if a.Atomic != nil {
		name = "atomic"
	}
	for i, f := range a.Functions() {
		at := fmt.Sprintf("/actions_config/%s/functions/%d/contract_address", name, i)
		if err := s.postedByBatches(ctx, contextID, f.ContractAddress, at); err != nil {
			if p, gone := s.Processor(ctx, contextID, a.Domain()); gone == nil && p.DeliverAs != "" {
				return nil
			}
			return err
		}
	}
	return nil
}

// postedByBatches refuses the type at a place in a request if its dispatcher admits no batches, or its name is that of
// another system.
func (s *Store) postedByBatches(ctx context.Context, contextID int32, typ, at string) error {
	if by := outbox.SystemOf(typ); by != outbox.Anyone && by != outbox.ByProcessors {
		return fault.At(at, "type %q takes no batches: it is posted by Postern alone", fault.Clip(typ))
	}
	admits := func(d *pg.Dispatcher) bool { return d.MayPost(outbox.ByProcessors) == nil }
	if ok, err := s.freshDispatcher(ctx, contextID, typ, admits); err != nil || ok {
		return err
	}
	known, err := s.freshDispatcher(ctx, contextID, typ, func(*pg.Dispatcher) bool { return true })
	if err != nil || !known {
		return err
	}
	return fault.At(at, "type %q takes no batches: want one whose dispatcher has posted_by anyone or processors",
		fault.Clip(typ))
}

// executesAtomically refuses an atomic batch that no worker promises to execute all or not at all: the types of all its
// functions have the capability, and one worker. Another installation refuses it for a batch that goes there whole.
func (s *Store) executesAtomically(ctx context.Context, contextID int32, a processor.Actions) error {
	if a.Atomic == nil {
		return nil
	}
	var first, last *pg.Dispatcher
	promises := func(d *pg.Dispatcher) bool { last = d; return d.Atomic() }
	joins := func(d *pg.Dispatcher) bool {
		return promises(d) && d.WorkerURL == first.WorkerURL && d.Pool == first.Pool
	}
	for i, f := range a.Functions() {
		is := joins
		if first == nil {
			is = promises
		}
		last = nil
		ok, err := s.freshDispatcher(ctx, contextID, f.ContractAddress, is)
		switch {
		case err != nil:
			return err
		case ok:
			first = cmp.Or(first, last)
			continue
		}
		if p, err := s.Processor(ctx, contextID, a.Domain()); err == nil && p.DeliverAs != "" {
			return nil
		}
		at := fmt.Sprintf("/actions_config/atomic/functions/%d/contract_address", i)
		if last != nil && last.Atomic() {
			return fault.At(at, "type %q has another worker or pool than type %q: an atomic batch goes to one worker, in one call",
				fault.Clip(f.ContractAddress), first.Type)
		}
		return fault.At(at, "type %q executes nothing atomically: want one whose dispatcher has the capability atomic",
			fault.Clip(f.ContractAddress))
	}
	return nil
}

// knowsType refuses a type as which batches are to be delivered and that has no dispatcher; "" is none.
func (s *Store) knowsType(ctx context.Context, contextID int32, typ string) error {
	if typ == "" {
		return nil
	}
	known, err := s.freshDispatcher(ctx, contextID, typ, func(*pg.Dispatcher) bool { return true })
	if err == nil && !known {
		err = fault.At("/deliver_as", "type %q has no dispatcher: PUT /dispatchers/%[1]s first, with the worker_url of the other installation", fault.Clip(typ))
	}
	if err != nil {
		return err
	}
	return s.postedByBatches(ctx, contextID, typ, "/deliver_as")
}

// freshDispatcher says whether a type has a dispatcher for which is holds; before it says no, it reads the
// configuration again. In a transaction of several changes it sees what those before it did.
func (s *Store) freshDispatcher(ctx context.Context, contextID int32, typ string, is func(*pg.Dispatcher) bool) (bool, error) {
	if db.JointOf(ctx) != nil {
		d, err := s.Dispatcher(ctx, contextID, typ)
		if fault.KindOf(err) == fault.NotFound {
			return false, nil
		}
		return err == nil && is(d), err
	}
	seen := func() bool {
		d := s.DispatcherOf(contextID, typ)
		return d != nil && !d.Removed && is(d)
	}
	if seen() {
		return true, nil
	}
	err := s.Refresh(ctx)
	return err == nil && seen(), err
}

// AdvanceProcessor brings on what needs no tick: an execution whose transaction has ended, was never posted or is not
// taken in time, callbacks that did not come in time, batches that expire while they wait for one, or whose ttl ends.
// It works while the processor is paused, and in any number of processes at once: each change looks again behind the
// lock of the processor.
func (s *Store) AdvanceProcessor(ctx context.Context, contextID int32, name string) error {
	// The processor is looked up first: a plan that began with the few that are being executed would read the index
	// entries that all the others have left behind.
	running, err := s.batches(ctx, ` WHERE b.processor_id = (SELECT x.processor_id FROM postern.processor x WHERE x.context_id = $1 AND x.name = $2)
		AND b.state = 'Executing'`, contextID, name)
	if err != nil {
		return err
	}
	for _, v := range running {
		if err := s.askExecution(ctx, contextID, v); err != nil {
			return err
		}
	}
	rows, err := s.Db(ctx).Query(ctx, `SELECT w.batch_id, w.sent FROM postern.processor p CROSS JOIN (SELECT coalesce($3::timestamptz, clock_timestamp())) n(now)
		CROSS JOIN LATERAL (SELECT b.batch_id, true AS sent FROM postern.batch b JOIN postern.batch_callback c USING (batch_id)
				WHERE b.processor_id = p.processor_id AND b.state = 'Waiting_Callback' AND (c.deadline < n.now OR b.expiration_time < n.now)
			UNION ALL SELECT b.batch_id, false FROM postern.batch b WHERE b.processor_id = p.processor_id AND b.state = 'Timed_Out' AND b.ttl <= n.now) w
		WHERE p.context_id = $1 AND p.name = $2 ORDER BY w.batch_id LIMIT 100`, contextID, name, s.Clock())
	if err != nil {
		return db.Known(err)
	}
	overdue, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
		ID   int64
		Sent bool
	}])
	if err != nil {
		return db.Known(err)
	}
	for _, v := range overdue {
		end := s.endTTL
		if v.Sent {
			end = s.overdue
		}
		if err := end(ctx, contextID, name, v.ID); err != nil {
			return err
		}
	}
	return nil
}

// askExecution asks what became of an execution's transaction. An outcome does not change, so that what is read here
// holds behind the lock as well.
func (s *Store) askExecution(ctx context.Context, contextID int32, v *Batch) error {
	sub := v.submission(contextID)
	var o outcome
	var late, limited bool
	err := s.Db(ctx).QueryRow(ctx, `SELECT `+outcomeColumns+lateSQL+`, `+limitedSQL+`
		FROM postern.idempotency i LEFT JOIN postern.outcome o USING (queue_id, seq, day)
		CROSS JOIN postern.processor p JOIN postern.batch x ON x.processor_id = p.processor_id JOIN postern.batch b ON b.batch_id = x.batch_id
		CROSS JOIN (SELECT coalesce($5::timestamptz, clock_timestamp())) n(now)
		WHERE i.context_id = $1 AND i.key = $2 AND i.body_hash = $3 AND x.batch_id = $4`, contextID, sub.UID, sub.Hash, v.ID, s.Clock()).Scan(append(o.fields(), &late, &limited)...)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return s.repost(ctx, contextID, v)
	case err != nil:
		return db.Known(err)
	case late:
		return s.takeBack(ctx, contextID, v, limited)
	case o.state == "":
		return nil
	}
	return s.finish(ctx, contextID, v, o.of(v))
}

// repost posts the execution of a tick whose process died before it posted. Where retention has dropped the day on
// which it began, it may have been posted and have ended: then its end is unknown, and it is not executed again.
func (s *Store) repost(ctx context.Context, contextID int32, v *Batch) error {
	var since time.Time
	if err := s.Db(ctx).QueryRow(ctx, `SELECT r.since FROM postern.retained r`).Scan(&since); err != nil {
		return db.Known(err)
	}
	if v.UpdatedAt.Before(since) {
		return s.finish(ctx, contextID, v, ending{on: processor.ResultLost, text: "its transaction was dropped by retention before anybody asked how it ended"})
	}
	return s.submit(ctx, contextID, v)
}

// finish ends the execution of a run, unless that has been done: it compares state and run behind the lock, so that two
// that know of the same outcome count it once.
func (s *Store) finish(ctx context.Context, contextID int32, seen *Batch, e ending) error {
	return s.onProcessor(ctx, contextID, seen.Processor, func(t *db.Txn, h *heldProcessor) error {
		v, err := h.one(ctx, t, seen.ID)
		if err != nil {
			return err
		}
		if v.State != processor.Executing || v.Runs != seen.Runs {
			return t.Rollback(ctx)
		}
		b := &pgx.Batch{}
		if err := h.conclude(ctx, t, b, v, e); err != nil {
			return err
		}
		h.saveLines(b)
		return t.Commit(ctx, b)
	})
}

// conclude queues in b the end of the execution of a batch, which was read Executing behind the lock.
func (h *heldProcessor) conclude(ctx context.Context, t *db.Txn, b *pgx.Batch, v *Batch, e ending) error {
	facts := h.facts()
	facts.Error, facts.Unclear, facts.Result = e.text, e.unclear, e.result
	if e.on == processor.Unreached {
		away, err := h.leftAlone(ctx, t, v)
		if err != nil {
			return err
		}
		facts.Away = away
	}
	st, err := v.Decide(e.on, facts)
	if err != nil {
		return err
	}
	if st.State != processor.WaitingCallback {
		h.verdict(b, v, e.on == processor.Succeeded || e.result.Kind == processor.Executed, e.text)
	} else {
		b.Queue(`UPDATE postern.batch_callback SET deadline = $2 WHERE batch_id = $1`, v.ID, v.Actions.Confirmation(v.Index).Deadline(h.now))
	}
	if err := h.store(ctx, t, b, v, change{step: st, reason: e.text}); err != nil || st.State != processor.WaitingCallback {
		return err
	}
	return h.early(ctx, t, b, v)
}

// overdue ends the wait of a batch for a callback that did not come, or that came too late for its expiration.
func (s *Store) overdue(ctx context.Context, contextID int32, name string, id int64) error {
	return s.onProcessor(ctx, contextID, name, func(t *db.Txn, h *heldProcessor) error {
		v, err := h.one(ctx, t, id)
		if err != nil {
			return err
		}
		c, err := h.callback(ctx, t, id)
		if err != nil {
			return err
		}
		on := processor.CallbackDeadline
		switch {
		case v.State != processor.WaitingCallback || c == nil: // it has come meanwhile
			return t.Rollback(ctx)
		case v.Expiration != nil && v.Expiration.Before(h.now):
			on = processor.Expiry
		case !c.deadline.Before(h.now):
			return t.Rollback(ctx)
		}
		st, err := v.Decide(on, h.facts())
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		if on == processor.CallbackDeadline {
			h.verdict(b, v, false, "callback timed out")
		}
		if err := h.store(ctx, t, b, v, change{step: st}); err != nil {
			return err
		}
		h.saveLines(b)
		return t.Commit(ctx, b)
	})
}
