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
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/safe"
)

// quietly keeps what panics on purpose off standard error.
func quietly(t *testing.T) { t.Cleanup(safe.Hear(func(*safe.Panic) {})) }

// idle fails the test unless the store holds no connection, and none of its sessions a lock.
func (w *world) idle() {
	w.T.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		var open int
		w.Must(w.S.Pool().QueryRow(w.Ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()`).Scan(&open))
		if open == 0 && w.S.Pool().Stat().AcquiredConns() == 0 {
			return
		}
		if time.Now().After(end) {
			w.T.Fatalf("%d transactions are open, %d connections held", open, w.S.Pool().Stat().AcquiredConns())
		}
	}
}

// A panic in the middle of a transaction, or behind its commit, is answered as unknown: it holds no connection and no
// lock, and a repetition under the same key is one transaction.
func TestAPanicInATransactionIsAnsweredAsUnknown(t *testing.T) {
	quietly(t)
	for name, hurt := range map[string]func(w *world, on bool){
		"before the commit": func(w *world, on bool) {
			w.S.HoldCommits(nil)
			if on {
				w.S.HoldCommits(func(context.Context, uint32) error { panic("before the commit") })
			}
		},
		"behind the commit": func(w *world, on bool) {
			w.S.Ring = nil
			if on {
				w.S.Ring = func() { panic("behind the commit") }
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.Dispatcher("T", nil)
			n := w.Node("n")
			in := pg.NewIngester(w.S.Store)
			hurt(w, true)
			var posts sync.WaitGroup
			for i := range 20 {
				posts.Go(func() {
					if _, err := in.Submit(w.Ctx, w.Sub(fmt.Sprint("q", i), "T",
						fmt.Sprint("u", i))); fault.CodeOf(err) != "commit_unknown" {
						t.Error(err)
					}
				})
			}
			posts.Wait()
			_, err := w.S.Ingest(w.Ctx, []*pg.Submission{w.Sub("another", "T", "v")}, true)
			if fault.CodeOf(err) != "commit_unknown" {
				t.Error(err)
			}
			w.idle()
			hurt(w, false)
			ids := map[outbox.ID]bool{}
			for i := range 20 {
				a, err := in.Submit(w.Ctx, w.Sub(fmt.Sprint("q", i), "T", fmt.Sprint("u", i)))
				if w.Must(err); a.Replay != (name == "behind the commit") {
					t.Errorf("%+v", a)
				}
				ids[a.ID] = true
			}
			leases := w.Claim(n, pgworld.Everything())
			hurt(w, true)
			settler := pg.NewSettler(w.S.Store)
			for _, l := range leases[:5] {
				posts.Go(func() {
					if _, err := settler.Settle(w.Ctx, w.Answer(l, pgworld.Done())); name == "before the commit" &&
						fault.CodeOf(err) != "commit_unknown" {
						t.Error(err)
					}
				})
			}
			posts.Wait()
			if name == "before the commit" {
				d := outbox.DefaultDispatcher()
				d.Type, d.WorkerURL = "U", "http://127.0.0.1:1/"
				if _, err := w.S.PutDispatcher(w.Ctx, w.By, d, 0); fault.CodeOf(err) != "commit_unknown" {
					t.Error("put:", err)
				}
				if _, err := w.S.MoveTo(w.Ctx, w.By, leases[7].ID(), "elsewhere", nil); err == nil {
					t.Error("a move was done")
				}
			}
			hurt(w, false)
			w.idle()
			_, err = w.S.GiveUpAll(w.Ctx, n)
			w.Must(err)
			for len(w.work(n)) > 0 {
			}
			for id := range ids {
				if w.State(id) != outbox.DONE {
					t.Error(id, w.State(id))
				}
			}
			pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
		})
	}
}

// It is unknown how a claim ended if the program panicked behind it. The error says which queues the node may own.
func TestAPanicInAClaimSaysWhatMayBeOwned(t *testing.T) {
	quietly(t)
	w := newWorld(t)
	w.Dispatcher("T", nil)
	w.Post("q", "T", "a")
	n := w.Node("n")
	w.S.HoldCommits(func(context.Context, uint32) error { panic("in a claim") })
	_, _, err := w.S.Claim(w.Ctx, n, pgworld.Everything())
	w.S.HoldCommits(nil)
	d, ok := err.(*pg.Doubtful)
	if !ok || len(d.Queues) != 1 {
		t.Fatalf("%#v", err)
	}
	for left := d.Queues; len(left) > 0; { // as long as PostgreSQL has not seen that the session has ended
		_, left, err = w.S.GiveUp(w.Ctx, d.Node, left)
		w.Must(err)
	}
	if got := w.work(n); len(got) != 1 {
		t.Error(got)
	}
}
