package pg_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// A pair of statements is tried on two connections: A runs and stays open between its last write and its commit, B
// runs, and then A commits or rolls back. The rows of the database afterwards, and the answers of both, must be those
// of one of the two after the other. This file runs pairs; pairs_ops_test.go has the statements, pairs_stages_test.go
// the states in which they meet.

// op is one statement of the hot path.
type op struct {
	name string
	run  func(a *arena, s *stores.Store) string // it returns the answer
	// skips says that it takes only rows that no other holds, and so never waits. Its next round finds the rows that it
	// left out: it is run again before the comparison.
	skips bool
	// held is which of its commits is held open; the first if 0.
	held int
}

// arena is one stage: a state that can be brought again, a second store, and the leases that are in hand.
type arena struct {
	*world
	b              *stores.Store
	poolB, monitor *pgxpool.Pool
	pidB           uint32
	n1, n2         pg.Node
	ids            []outbox.ID
	lease          *pg.Lease             // of queue q, held by n1
	other          *pg.Lease             // of queue p
	answers        map[string]*pg.Answer // to lease, by what the worker said; decided once
	alone          map[string]end
	kept           *kept
	sound          map[string]bool // the states in which the invariants are known to hold
}

// end is what a run left: the rows, and what A and B said.
type end struct {
	sight
	said [2]string
}

func (e end) is(other end) bool { return e.rows == other.rows && e.said == other.said }

func newArena(t *testing.T) *arena {
	w := newWorld(t)
	w.atNoon()
	a := &arena{world: w, answers: map[string]*pg.Answer{}, alone: map[string]end{}, sound: map[string]bool{}}
	a.Dispatcher("T", func(d *outbox.Dispatcher) { d.Pool = "p" })
	a.Sender("p", "acct-1", "acct-2", "acct-3")
	a.n1, a.n2 = a.Node("n1"), a.Node("n2")
	a.Post("r", "T", "r1") // queue r has been used, and is empty
	a.Settle(a.Answer(a.Claim(a.n1, pgworld.Everything())[0], pgworld.Done()))
	return a
}

// ready ends the setting of the stage.
func (a *arena) ready() {
	a.T.Helper()
	pgworld.HoldsTrue(a.T, a.Ctx, a.S.Pool())
	a.monitor = a.Second(2)
	a.poolB = a.Second(1)
	var err error
	a.b, err = stores.Open(a.Ctx, a.poolB, slog.New(slog.DiscardHandler))
	a.Must(err)
	a.b.SetNow(&a.Now)
	oneDay(a.T, a.world)
	a.kept = keep(a.T, a.Ctx, a.S.Pool())
	a.Must(a.poolB.QueryRow(a.Ctx, `SELECT pg_backend_pid()`).Scan(&a.pidB))
}

// after runs ops one after the other from the stage on.
func (a *arena) after(ops ...op) end {
	a.T.Helper()
	var key string
	for _, o := range ops {
		key += o.name + ";"
	}
	if e, known := a.alone[key]; known {
		return e
	}
	a.kept.back(a.T, a.Ctx)
	var e end
	for i, o := range ops {
		e.said[i] = o.run(a, a.S)
	}
	e.sight = a.kept.look(a.T, a.Ctx)
	a.alone[key] = e
	return e
}

// together runs x, held open, and y, and ends x. It returns what both left, whether y had to wait for x,
// and whether x was held at all (what has nothing to write does not commit).
func (a *arena) together(x, y op, commit bool) (e end, waited, held bool) {
	a.T.Helper()
	a.kept.back(a.T, a.Ctx)
	open, finish, pidA := make(chan struct{}), make(chan struct{}), uint32(0)
	n := 0
	a.S.HoldCommits(func(_ context.Context, pid uint32) error {
		if n++; n != max(x.held, 1) {
			return nil
		}
		pidA = pid
		close(open)
		<-finish
		if !commit {
			return pgworld.ErrRolledBack
		}
		return nil
	})
	defer a.S.HoldCommits(nil)
	saidA, saidB := make(chan string, 1), make(chan string, 1)
	go func() { saidA <- x.run(a, a.S) }()
	select {
	case <-open:
		held = true
	case e.said[0] = <-saidA:
	}
	go func() { saidB <- y.run(a, a.b) }()
	// most have an end before they are asked about
	for ended, pause := false, time.Millisecond; held && !waited && !ended; pause *= 2 {
		select {
		case b := <-saidB:
			saidB <- b
			ended = true
		case <-time.After(pause):
			a.Must(a.monitor.QueryRow(a.Ctx, `SELECT $1 = ANY (pg_blocking_pids($2::int))`, pidA, a.pidB).Scan(&waited))
		}
	}
	if held {
		close(finish)
		e.said[0] = <-saidA
	}
	e.said[1] = <-saidB
	a.S.HoldCommits(nil)
	e.sight = a.kept.look(a.T, a.Ctx)
	return e, waited, held
}

// pair tries x with y, and fails the test unless the end is that of one order.
func (a *arena) pair(t *testing.T, x, y op) {
	t.Helper()
	xy, yx := a.after(x, y), a.after(y, x)
	yx.said[0], yx.said[1] = yx.said[1], yx.said[0]
	got, waited, held := a.together(x, y, true)
	if !held {
		if !got.is(xy) {
			t.Errorf("%s, then %s is another thing the second time:%s", x.name, y.name, a.explain(xy, got))
		}
		return
	}
	if waited && y.skips {
		t.Errorf("%s waited for %s", y.name, x.name)
	}
	a.holdsTrue(got)
	if !got.is(xy) && !got.is(yx) && !(y.skips && a.foundLater(y, got, xy)) {
		t.Errorf("%s while %s is open (waited: %v) is neither order.\nthat after this would be:%s\nthis after that would be:%s",
			y.name, x.name, waited, a.explain(xy, got), a.explain(yx, got))
	}
	alone := a.after(y)
	got, waited, _ = a.together(x, y, false)
	if waited && y.skips {
		t.Errorf("%s waited for %s", y.name, x.name)
	}
	a.holdsTrue(got)
	if got.said[1] = alone.said[0]; got.rows != alone.rows && !(y.skips && a.foundLater(y, got, alone)) {
		t.Errorf("%s while %s is open and then rolled back (waited: %v) is not as if it had been alone:%s", y.name,
			x.name, waited, difference(alone.rows, got.rows))
	}
}

// foundLater says whether y, which skipped what was held, gets it in its next round.
func (a *arena) foundLater(y op, got, want end) bool {
	y.run(a, a.b)
	return a.kept.look(a.T, a.Ctx).rows == want.rows
}

// holdsTrue fails the test where an invariant does not hold of e. States of one stage that are the same to the last
// fence are asked about once.
func (a *arena) holdsTrue(e end) {
	a.T.Helper()
	if state := e.whole(); !a.sound[state] {
		pgworld.HoldsTrue(a.T, a.Ctx, a.monitor)
		a.sound[state] = !a.T.Failed()
	}
}

func (a *arena) explain(want, got end) string {
	return fmt.Sprintf("\n  said %q, want %q%s", got.said, want.said, difference(want.rows, got.rows))
}

func TestPairsOfStatementsEndAsOneAfterTheOther(t *testing.T) {
	for _, s := range stages {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			a := newArena(t)
			s.set(a)
			a.ready()
			list := s.ops(a)
			for _, x := range list {
				for _, y := range list {
					t.Run(x.name+" with "+y.name, func(t *testing.T) {
						sub := *a
						sub.world = a.world.in(t)
						sub.pair(t, x, y)
					})
				}
			}
		})
	}
}

// stale makes n1 one that Bury ends, while n2 lives.
func (a *arena) stale() {
	a.Later(11 * time.Second)
	_, err := a.S.Beat(a.Ctx, a.n2, pg.NodeLoad{})
	a.Must(err)
}
