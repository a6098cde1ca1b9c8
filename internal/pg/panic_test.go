package pg_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/safe"
)

// quietly keeps what panics on purpose off standard error.
func quietly(t *testing.T) { t.Cleanup(safe.Hear(func(*safe.Panic) {})) }

// idle fails the test unless the store holds no connection, and none of its sessions a lock.
func (w *world) idle() {
	w.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		var open int
		w.must(w.s.Pool().QueryRow(w.ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()`).Scan(&open))
		if open == 0 && w.s.Pool().Stat().AcquiredConns() == 0 {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("%d transactions are open, %d connections held", open, w.s.Pool().Stat().AcquiredConns())
		}
	}
}

// A panic in the middle of a transaction, or behind its commit, is answered as unknown: it holds no connection and no lock, and a
// repetition under the same key is one transaction.
func TestAPanicInATransactionIsAnsweredAsUnknown(t *testing.T) {
	quietly(t)
	for name, hurt := range map[string]func(w *world, on bool){
		"before the commit": func(w *world, on bool) {
			w.s.HoldCommits(nil)
			if on {
				w.s.HoldCommits(func(context.Context, uint32) error { panic("before the commit") })
			}
		},
		"behind the commit": func(w *world, on bool) {
			w.s.Ring = nil
			if on {
				w.s.Ring = func() { panic("behind the commit") }
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.dispatcher("T", nil)
			n := w.node("n")
			in := pg.NewIngester(w.s.Store)
			hurt(w, true)
			var posts sync.WaitGroup
			for i := range 20 {
				posts.Go(func() {
					if _, err := in.Submit(w.ctx, w.sub(fmt.Sprint("q", i), "T", fmt.Sprint("u", i))); fault.CodeOf(err) != "commit_unknown" {
						t.Error(err)
					}
				})
			}
			posts.Wait()
			_, err := w.s.Ingest(w.ctx, []*pg.Submission{w.sub("another", "T", "v")}, true)
			if fault.CodeOf(err) != "commit_unknown" {
				t.Error(err)
			}
			w.idle()
			hurt(w, false)
			ids := map[outbox.ID]bool{}
			for i := range 20 {
				a, err := in.Submit(w.ctx, w.sub(fmt.Sprint("q", i), "T", fmt.Sprint("u", i)))
				if w.must(err); a.Replay != (name == "behind the commit") {
					t.Errorf("%+v", a)
				}
				ids[a.ID] = true
			}
			leases := w.claim(n, everything())
			hurt(w, true)
			settler := pg.NewSettler(w.s.Store)
			for _, l := range leases[:5] {
				posts.Go(func() {
					if _, err := settler.Settle(w.ctx, w.answer(l, done())); name == "before the commit" && fault.CodeOf(err) != "commit_unknown" {
						t.Error(err)
					}
				})
			}
			posts.Wait()
			if name == "before the commit" {
				d := outbox.DefaultDispatcher()
				d.Type, d.WorkerURL = "U", "http://127.0.0.1:1/"
				if _, err := w.s.PutDispatcher(w.ctx, w.by, d, 0); fault.CodeOf(err) != "commit_unknown" {
					t.Error("put:", err)
				}
				if _, err := w.s.MoveTo(w.ctx, w.by, leases[7].ID(), "elsewhere", nil); err == nil {
					t.Error("a move was done")
				}
			}
			hurt(w, false)
			w.idle()
			_, err = w.s.GiveUpAll(w.ctx, n)
			w.must(err)
			for len(w.work(n)) > 0 {
			}
			for id := range ids {
				if w.state(id) != outbox.DONE {
					t.Error(id, w.state(id))
				}
			}
			holdsTrue(t, w.ctx, w.s.Pool())
		})
	}
}

// A claim of which nobody knows the end, since the program panicked behind it, says which queues the node may own.
func TestAPanicInAClaimSaysWhatMayBeOwned(t *testing.T) {
	quietly(t)
	w := newWorld(t)
	w.dispatcher("T", nil)
	w.post("q", "T", "a")
	n := w.node("n")
	w.s.HoldCommits(func(context.Context, uint32) error { panic("in a claim") })
	_, _, err := w.s.Claim(w.ctx, n, everything())
	w.s.HoldCommits(nil)
	d, ok := err.(*pg.Doubtful)
	if !ok || len(d.Queues) != 1 {
		t.Fatalf("%#v", err)
	}
	for left := d.Queues; len(left) > 0; { // as long as PostgreSQL has not seen that the session has ended
		_, left, err = w.s.GiveUp(w.ctx, d.Node, left)
		w.must(err)
	}
	if got := w.work(n); len(got) != 1 {
		t.Error(got)
	}
}
