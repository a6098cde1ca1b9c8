package work

import (
	"context"
	"fmt"
	"sync"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/safe"
	"github.com/postern-dev/postern/internal/sequencer"
	"github.com/postern-dev/postern/internal/twin"
)

// How many transactions one part of a round asks about, how many workers at a time, and how many attempts of one.
const (
	reconcileAtOnce   = 64
	reconcileParallel = 16
	reconcileAttempts = 1000
	reconcileMute     = 3
	reconcileTries    = 5 // to record one answer: the end of another transaction may let this one go meanwhile
)

// Reconcile asks the workers about the next transactions that have not ended in a scope in quarantine, and returns how
// its round stands. A transaction that a worker did in the lost time is recorded, as if a node had resumed it and
// asked. One that the worker never saw waits for the release. One that the worker says nothing of is open. A part that
// is broken off is asked about again.
func Reconcile(ctx context.Context, s *stores.Store, worker remote.Worker, by db.By,
	q pg.Quarantine, anew bool) (*pg.QuarantinedScope, error) {
	v, err := s.ReconcileRound(ctx, by, q, anew)
	if err != nil {
		return nil, err
	}
	part, err := s.NextUnended(ctx, v, reconcileAtOnce)
	if err != nil {
		return nil, err
	}
	r := &reconciler{s: s, worker: worker, mute: map[string]int{}}
	r.found.Part, r.found.Last = part, len(part) < reconcileAtOnce
	var all sync.WaitGroup
	slots := make(chan struct{}, reconcileParallel)
	for len(part) > 0 {
		n := 1
		for n < len(part) && part[n].ID.Queue == part[0].ID.Queue {
			n++
		}
		queue := part[:n]
		part = part[n:]
		slots <- struct{}{}
		all.Go(safe.Func("reconcile a queue", func() {
			defer func() { <-slots }()
			if err := safe.Try("reconcile a queue", func() error { r.queue(ctx, queue); return nil }); err != nil {
				r.fail(err) // the part is asked about again
			}
		}))
	}
	all.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if r.err != nil {
		return nil, r.err
	}
	if err := s.ReconcileStep(ctx, v, r.found); err != nil {
		return nil, err
	}
	return s.QuarantinedScope(ctx, q)
}

// reconciler is one part of a round while it is asked about.
type reconciler struct {
	s      *stores.Store
	worker remote.Worker

	mu    sync.Mutex
	found pg.Reconciliation
	err   error
	// how often in a row a worker did not answer: after a few times it is not asked again in this part
	mute map[string]int
}

// queue asks about transactions of one queue, in their order: the end of one lets the next be recorded.
func (r *reconciler) queue(ctx context.Context, list []*pg.Unended) {
	moved := false
	for _, u := range list {
		if moved {
			if err := r.s.Reread(ctx, u); err != nil {
				r.fail(err)
				return
			}
		}
		ok, err := r.one(ctx, u)
		if err != nil {
			r.fail(err)
			return
		}
		moved = moved || ok
	}
}

// one asks about one transaction, and says whether what was found has moved it.
func (r *reconciler) one(ctx context.Context, u *pg.Unended) (moved bool, err error) {
	if u.Goes && u.Busy {
		r.open(u, pg.OpenBusy, "a node has it in hand")
		return false, nil
	}
	attempt, last, none := r.ask(ctx, u)
	nothing := none.State == outbox.StatusUnknown || none.State == outbox.StatusUnsupported && u.Dispatcher.Idempotent
	switch {
	case ctx.Err() != nil:
		return false, nil
	case attempt == 0 && nothing:
		if moved, err = r.hash(ctx, u); err != nil || moved {
			break
		}
		r.count(&r.found.Unknown)
		return false, nil
	case attempt == 0 && none.State == outbox.StatusUnsupported:
		r.open(u, pg.OpenUnsupported, none.Message)
		return false, nil
	case attempt == 0 || none.State == outbox.StatusUnreachable:
		r.open(u, pg.OpenUnreachable, none.Message)
		return false, nil
	case !u.Goes:
		r.open(u, pg.OpenAhead,
			fmt.Sprintf("its worker knows attempt %d (%s), but what stands before it in its queue has not ended",
				attempt, last.State))
		return false, nil
	default:
		moved, err = r.token(ctx, u, attempt, last)
	}
	if err == nil && moved {
		r.count(&r.found.Moved)
	}
	return moved, err
}

// token records what a worker says of the last attempt that it knows. Where that is a hash, the worker is asked about
// it at once, as a node would at its first poll, since the transactions behind it are recorded only once it has ended.
func (r *reconciler) token(
	ctx context.Context, u *pg.Unended, attempt int, said outbox.Status,
) (moved bool, err error) {
	for try := 0; try < reconcileTries && !moved; try++ {
		moved, err = r.s.Reconciled(ctx, u, attempt, r.maxRetries(ctx, u), said)
		if err == nil { // behind what moved, and behind what somebody else has changed
			err = r.s.Reread(ctx, u)
		}
		if err != nil || !moved && (!u.Goes || u.Busy || attempt < u.Attempt) {
			break
		}
	}
	switch {
	case err != nil:
		return false, err
	case !moved:
		r.open(u, pg.OpenBusy, "it changed while its worker was asked")
		return false, nil
	}
	_, err = r.hash(ctx, u)
	return true, err
}

// hash asks about the hash that a transaction waits for, if it waits for one, and records its end.
func (r *reconciler) hash(ctx context.Context, u *pg.Unended) (moved bool, err error) {
	l, err := r.s.Submitted(ctx, u)
	if err != nil || l == nil || twin.Planted("hash_not_asked") {
		return false, err
	}
	asked := remote.Signed(ctx, u.Dispatcher.Secret)
	said := r.worker.StatusBatch(asked, l.WorkerURL(), u.Type, l.Hashes()[:1])
	if ctx.Err() != nil {
		return false, nil
	}
	return r.s.ReconciledHash(ctx, u, l, r.maxRetries(ctx, u), said[0])
}

// ask asks for one token after the other, until one is unknown to every worker that may have it. attempt is the highest
// that one knows, 0 for none, and known what it says of that; none is the answer that ended it.
func (r *reconciler) ask(ctx context.Context, u *pg.Unended) (attempt int, known, none outbox.Status) {
	for n := u.Attempt; n < u.Attempt+reconcileAttempts && ctx.Err() == nil; n++ {
		var got outbox.Status
		if got, none = r.askAll(ctx, u, n); got.State == "" {
			return attempt, known, none
		}
		attempt, known = n, got
	}
	return attempt, known, outbox.Status{State: outbox.StatusUnreachable,
		Message: "its worker knows every token that it is asked for"}
}

// askAll asks every worker that may have a token. known has no state where none knows it; none is then what says least.
func (r *reconciler) askAll(ctx context.Context, u *pg.Unended, attempt int) (known, none outbox.Status) {
	none.State = outbox.StatusUnknown
	for _, url := range u.URLs {
		switch st := r.status(ctx, u, url, attempt); st.State {
		case outbox.StatusPending, outbox.StatusIncluded, outbox.StatusFailed:
			return st, none
		case outbox.StatusUnknown:
		case outbox.StatusUnsupported:
			if none.State == outbox.StatusUnknown {
				none = st
			}
		default:
			none = st
		}
	}
	return known, none
}

// status asks one worker, unless it has not answered for a few times.
func (r *reconciler) status(ctx context.Context, u *pg.Unended, url string, attempt int) outbox.Status {
	if u.Dispatcher.Mute() {
		return outbox.Unasked()
	}
	r.mu.Lock()
	mute := r.mute[url] >= reconcileMute
	r.mu.Unlock()
	if mute {
		return outbox.Status{State: outbox.StatusUnreachable,
			Message: fmt.Sprintf("its worker did not answer %d questions before this one", reconcileMute)}
	}
	st := r.worker.Status(remote.Signed(ctx, u.Dispatcher.Secret), url, u.Type, u.Token(attempt), "")
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mute[url]++; st.State != outbox.StatusUnreachable {
		r.mute[url] = 0
	}
	return st
}

func (r *reconciler) maxRetries(ctx context.Context, u *pg.Unended) int {
	own, d := u.MaxRetries, &u.Dispatcher.Dispatcher
	if own != nil || d.Retry.MaxRetries != nil {
		return sequencer.MaxRetries(own, d, nil)
	}
	worker, _ := r.worker.MaxRetries(ctx, u.URLs[0], u.Type) // one that does not say gets the default
	return sequencer.MaxRetries(nil, d, worker)
}

func (r *reconciler) open(u *pg.Unended, why, detail string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found.Open = append(r.found.Open, pg.Unreconciled{ID: u.ID, Type: u.Type, Why: why, Detail: detail})
}

func (r *reconciler) count(n *int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*n++
}

func (r *reconciler) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}
