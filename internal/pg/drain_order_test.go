package pg_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// call is one submit: when it was called, and when the COMMIT behind it had returned.
type call struct {
	uid, queue string
	session    int
	called     time.Time
	committed  time.Time // zero: rolled back
}

// Sixteen sessions submit to three queues and commit in shuffled order, after random sleeps, and roll some back, while
// two processes drain, a third posts what HTTP would, and one transaction stays open all the time. A transaction whose
// submit had committed before the submit of another one of its queue was called goes out before it. None is skipped,
// and none goes out twice.
func TestSixteenSessionsThatCommitInShuffledOrder(t *testing.T) {
	t.Parallel()
	const sessions, transactions, most = 16, 12, 4
	w := newWorld(t)
	w.S.SetNow(nil)
	w.Dispatcher("T", nil)
	app := w.app(sessions + 2)
	long := w.Begin(app)
	w.Must(w.submit(long, "q0", "T", "long"))

	stop, cancel := context.WithCancel(w.Ctx)
	var draining sync.WaitGroup
	for _, s := range []*stores.Store{w.S, w.Other().S} {
		draining.Go(func() {
			d := pg.NewDrainer(s.Store)
			for stop.Err() == nil {
				if _, err := d.Once(w.Ctx); err != nil {
					t.Errorf("drain: %v", err)
				}
				time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
			}
		})
	}
	calls := make([][]call, sessions)
	var sessionsEnd sync.WaitGroup
	for session := range sessions {
		sessionsEnd.Go(func() {
			nap := func() { time.Sleep(time.Duration(rand.IntN(8)) * time.Millisecond) }
			for n := range transactions {
				var mine []call
				commit := rand.IntN(4) > 0
				err := pgx.BeginFunc(w.Ctx, app, func(tx pgx.Tx) error {
					for i := range 1 + rand.IntN(most) {
						c := call{uid: fmt.Sprintf("s%d.%d.%d", session, n, i), queue: fmt.Sprint("q", rand.IntN(3)),
							session: session, called: time.Now()}
						if err := w.submit(tx, c.queue, "T", c.uid); err != nil {
							return err
						}
						mine = append(mine, c)
						nap()
					}
					if !commit {
						return pgworld.ErrRolledBack
					}
					return nil
				})
				switch at := time.Now(); {
				case err == nil:
					for i := range mine {
						mine[i].committed = at
					}
				case !errors.Is(err, pgworld.ErrRolledBack):
					t.Errorf("session %d: %v", session, err)
				}
				calls[session] = append(calls[session], mine...)
				nap()
			}
		})
	}
	sessionsEnd.Wait()
	cancel()
	draining.Wait()
	w.drainAll(w.S)
	w.Must(long.Commit(w.Ctx))
	w.drainAll(w.S)
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())

	all := slices.Concat(calls...)
	place := map[string]int{}
	for i, uid := range w.work(w.Node("n")) {
		if _, twice := place[uid]; twice {
			t.Errorf("%s went out twice", uid)
		}
		place[uid] = i
	}
	committed := 1 // long
	for _, c := range all {
		at, out := place[c.uid]
		t.Logf("%s %s called %s committed %s went out %d", c.uid, c.queue, c.called.Format("05.000000"),
			c.committed.Format("05.000000"), at)
		if out != !c.committed.IsZero() {
			t.Errorf("%s of %s: committed is %v, went out is %v", c.uid, c.queue, !c.committed.IsZero(), out)
		}
		if !c.committed.IsZero() {
			committed++
		}
	}
	if len(place) != committed {
		t.Errorf("%d went out, %d were committed", len(place), committed)
	}
	pairs := 0
	for i, a := range all {
		for j, b := range all {
			if a.queue != b.queue || a.committed.IsZero() || b.committed.IsZero() {
				continue
			}
			sameTransaction := a.committed.Equal(b.committed) && a.session == b.session && i < j
			if sameTransaction || a.committed.Before(b.called) {
				pairs++
				if place[a.uid] > place[b.uid] {
					t.Errorf("%s had committed at %s before %s was called at %s, and went out behind it",
						a.uid, a.committed, b.uid, b.called)
				}
			}
		}
	}
	for uid, at := range place { // the transaction that stayed open all the time comes last in its queue
		if at > place["long"] && w.ByUID(uid).Queue == "q0" {
			t.Errorf("%s went out behind what was committed last", uid)
		}
	}
	if pairs < committed {
		t.Errorf("only %d pairs were compared", pairs)
	}
}

// A round stops where holding data against schemas takes long, while its queues are locked; the next goes on in order.
func TestARoundEndsWhereJudgingTakesLong(t *testing.T) {
	defer pg.JudgeFor(-1)() // not beside others
	w := newWorld(t)
	w.Dispatcher("T", func(d *outbox.Dispatcher) { d.Schema = []byte(`{"required": ["uid"]}`) })
	tx := w.Begin(w.app(1))
	for _, uid := range []string{"a", "b", "c"} {
		w.Must(w.submit(tx, "q", "T", uid))
	}
	w.Must(w.submit(tx, "r", "T", "d"))
	w.Must(tx.Commit(w.Ctx))
	d := pg.NewDrainer(w.S.Store)
	for i := range 4 {
		if out, err := d.Once(w.Ctx); err != nil || out.Rows != 1 || out.More != (i < 3) {
			t.Errorf("round %d: %+v, %v", i, out, err)
		}
	}
	w.Same(w.uids("q"), "a", "b", "c")
	if w.ByUID("d").State != outbox.WAITING {
		t.Error(w.ByUID("d").State)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}
