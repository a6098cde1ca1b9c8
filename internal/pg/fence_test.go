package pg_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// late is a way to lose a lease: afterwards the fence has risen, and maybe somebody else has the queue.
var late = []struct {
	name string
	lose func(a *arena, id outbox.ID)
}{
	{"after a release", func(a *arena, _ outbox.ID) {
		a.stale()
		_, err := a.S.Bury(a.Ctx)
		a.Must(err)
		_, err = a.S.Release(a.Ctx)
		a.Must(err)
	}},
	{"after a release and a claim", func(a *arena, _ outbox.ID) {
		_, err := a.S.GiveUpAll(a.Ctx, a.n1)
		a.Must(err)
		a.Claim(a.n2, pgworld.Everything())
		a.Later(time.Minute)
		_, err = a.S.Beat(a.Ctx, a.n2, pg.NodeLoad{})
		a.Must(err)
		_, err = a.S.Wake(a.Ctx, a.n2, 10, 10)
		a.Must(err)
	}},
	{"after an abandon", func(a *arena, id outbox.ID) {
		_, _ = a.S.Cancel(a.Ctx, a.By, id) // a transaction in RETRY can be abandoned only while its cancel is pending
		_, err := a.S.Abandon(a.Ctx, a.By, id)
		a.Must(err)
	}},
	{"after an abandon and a claim of the next", func(a *arena, id outbox.ID) {
		_, _ = a.S.Cancel(a.Ctx, a.By, id)
		_, err := a.S.Abandon(a.Ctx, a.By, id)
		a.Must(err)
		a.Claim(a.n2, pgworld.Everything())
	}},
}

// TestALateAnswerChangesNothing lets each kind of answer come under a lease that was lost in each way: all
// rows stay as they are, besides the one that keeps the late answer.
func TestALateAnswerChangesNothing(t *testing.T) {
	held := []struct {
		name string
		set  func(a *arena)
		ops  func(a *arena) []op
	}{
		{"of a dispatch", func(a *arena) { a.flying(1, "a", "b", "c") }, func(a *arena) []op {
			return a.dispatched("done", "back", "accepted", "failed", "rejected", "blocked", "ambiguous", "held")
		}},
		{"of a probe", func(a *arena) { a.probing() }, func(a *arena) []op {
			return a.dispatched("done", "back", "accepted", "failed", "rejected", "blocked", "ambiguous", "held",
				"left")
		}},
		{"of a shared lane", func(a *arena) { // another type takes it once it is free, and a late answer must not free it again
			a.sharing()
			a.flying(0, "a", "b")
			a.Post("r", "U", "z")
		}, func(a *arena) []op {
			return a.dispatched("done", "back", "accepted", "failed", "rejected", "blocked", "ambiguous", "held")
		}},
		{"of a shared lane", func(a *arena) { // another type takes it later, and a late answer must not free it again
			a.sharing()
			a.flying(0, "a", "b")
			a.Post("r", "U", "z")
		}, func(a *arena) []op {
			return a.dispatched("done", "back", "accepted", "failed", "rejected", "blocked", "ambiguous", "held")
		}},
		{"of a delay", func(a *arena) {
			a.failing()
			_, err := a.S.Beat(a.Ctx, a.n1, pg.NodeLoad{})
			a.Must(err)
			w, err := a.S.Wake(a.Ctx, a.n1, 10, 10)
			a.Must(err)
			a.lease = w.Leases[0]
		}, func(a *arena) []op { return []op{a.elapsed()} }},
	}
	for _, h := range held {
		for _, l := range late {
			t.Run(h.name+" "+l.name, func(t *testing.T) {
				t.Parallel()
				a := newArena(t)
				h.set(a)
				ops := h.ops(a)
				l.lose(a, a.lease.ID())
				k := keep(t, a.Ctx, a.S.Pool())
				for _, o := range ops {
					k.back(t, a.Ctx)
					a.unchanged(o.name, func() {
						if said := o.run(a, a.S); said != "fenced=true" {
							t.Errorf("%s: %s", o.name, said)
						}
					})
				}
				if h.name == "of a delay" {
					return
				}
				// and the node that was cut off has nothing to give up
				a.unchanged("give up", func() {
					n, left, err := a.S.GiveUp(a.Ctx, a.n1, []pg.Fenced{{Queue: a.lease.ID().Queue, Fence: a.lease.Fence}})
					if err != nil || n != 0 || len(left) > 0 {
						t.Error(n, left, err)
					}
				})
			})
		}
	}
}

// TestALatePollChangesNothing: a poll has no owner and no fence of its own, but the phase that it was
// made for is over.
func TestALatePollChangesNothing(t *testing.T) {
	t.Parallel()
	for _, over := range []string{"abandoned", "included", "dropped"} {
		t.Run(over, func(t *testing.T) {
			a := newArena(t)
			a.flying(0, "a", "b")
			a.Settle(a.Answer(a.lease, outbox.Answer{Result: outbox.Result{Hash: "0xab"}}))
			a.Later(time.Minute)
			w, err := a.S.Wake(a.Ctx, a.n1, 10, 10)
			a.Must(err)
			a.lease = w.Polls[0]
			ops := a.polled("included", "dropped")
			if over == "abandoned" {
				_, err = a.S.Abandon(a.Ctx, a.By, a.ids[0])
				a.Must(err)
			} else {
				answered(over).run(a, a.S)
			}
			for _, o := range ops {
				a.unchanged(o.name, func() {
					if said := o.run(a, a.S); said != "fenced=true" {
						t.Errorf("%s: %s", o.name, said)
					}
				})
			}
			a.unchanged("put off", func() {
				a.Must(a.S.Polled(a.Ctx, []int64{a.ids[0].Queue}, []time.Duration{time.Hour}, []string{""}))
			})
		})
	}
}

// TestAPollThatDiedWithItsNodeIsAskedAgainWithinTheTTL: a poll has no owner that could be buried, only its timer.
func TestAPollThatDiedWithItsNodeIsAskedAgainWithinTheTTL(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	a.flying(0, "a")
	a.Settle(a.Answer(a.lease, outbox.Answer{Result: outbox.Result{Hash: "0xab"}}))
	a.Must(a.setTimer(a.Now))
	polls := func(n pg.Node) int {
		w, err := a.S.Wake(a.Ctx, n, 10, 10)
		a.Must(err)
		return len(w.Polls)
	}
	if n := polls(a.n1); n != 1 {
		t.Fatalf("n1 polls %d", n)
	}
	a.Later(a.n1.TTL - time.Millisecond)
	if n := polls(a.n2); n != 0 {
		t.Errorf("a second waiter for one transaction: %d", n)
	}
	a.Later(time.Millisecond)
	if n := polls(a.n2); n != 1 {
		t.Errorf("nobody asks after the TTL of the node that did: %d", n)
	}
}

// TestABuriedNodeTakesNothing: its statements under its old epoch leave all rows as they are.
func TestABuriedNodeTakesNothing(t *testing.T) {
	t.Parallel()
	for _, types := range [][]string{nil, {"T"}, {"U"}} {
		t.Run(strings.Join(types, ""), func(t *testing.T) { buriedTakesNothing(t, types) })
	}
}

// buriedTakesNothing does what a node of these types does under the epoch at which it was buried.
func buriedTakesNothing(t *testing.T, types []string) {
	a := newArena(t)
	a.failing() // a delay that is due
	a.n1.Types = types
	a.Post("r", "T", "z")
	_, err := a.S.Bury(a.Ctx)
	a.Must(err)
	a.unchanged("claim", func() {
		if l := a.Claim(a.n1, pgworld.Everything()); len(l) != 0 {
			t.Errorf("claimed %s", leases(l))
		}
	})
	a.unchanged("beat", func() {
		if alive, err := a.S.Beat(a.Ctx, a.n1, pg.NodeLoad{}); alive || err != nil {
			t.Error(alive, err)
		}
	})
	w, err := a.S.Wake(a.Ctx, a.n1, 10, 10)
	a.Must(err)
	if len(w.Leases) != 0 || a.State(a.ids[0]) != outbox.RETRY {
		t.Errorf("woke %s", leases(w.Leases))
	}
	a.Later(time.Second)
	w, err = a.S.Wake(a.Ctx, a.n2, 10, 10)
	a.Must(err)
	if len(w.Leases) != 1 {
		t.Errorf("the live node woke %s", leases(w.Leases))
	}
	pgworld.HoldsTrue(t, a.Ctx, a.S.Pool())
}

// TestReleaseChangesOwnerAndFenceOnly: S2.13; and the position that the outcomes show is written.
func TestReleaseChangesOwnerAndFenceOnly(t *testing.T) {
	t.Parallel()
	const keptSQL = `SELECT concat_ws(' ', phase, sender_id, attempt, retries, not_before, cur_seq, head_seq), fence FROM postern.queue WHERE queue_id = (SELECT queue_id FROM postern.queue_name WHERE name = 'q')`
	for name, set := range map[string]func(a *arena){
		"DISPATCHING": func(a *arena) { a.flying(0, "a", "b") },
		"DELAY": func(a *arena) {
			a.flying(0, "a", "b")
			a.Settle(a.Answer(a.lease, outbox.Answer{Class: outbox.ClassRetry, Code: "20203", After: time.Hour}))
			a.Must(a.setTimer(a.Now))
			_, err := a.S.Wake(a.Ctx, a.n1, 10, 10)
			a.Must(err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newArena(t)
			set(a)
			var before, after string
			var was, is int64
			a.Scan(keptSQL, &before, &was)
			if n, err := a.S.GiveUpAll(a.Ctx, a.n1); err != nil || n != 1 {
				t.Fatal(n, err)
			}
			if a.Scan(keptSQL, &after, &is); before != after || is != was+1 {
				t.Errorf("before: %s, fence %d; after: %s, fence %d", before, was, after, is)
			}
			pgworld.HoldsTrue(t, a.Ctx, a.S.Pool())
		})
	}
	t.Run("in the middle of a lazy run", func(t *testing.T) {
		a := newArena(t)
		a.flying(2, "a", "b", "c", "d")
		if n, err := a.S.GiveUpAll(a.Ctx, a.n1); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		l := a.Claim(a.n2, pgworld.Everything())
		if len(l) != 1 || !l[0].Resume || l[0].ID() != a.ids[2] || l[0].Attempt != 1 || l[0].Account != a.lease.Account {
			t.Errorf("resumed with %+v", l)
		}
		pgworld.HoldsTrue(t, a.Ctx, a.S.Pool())
	})
}

// TestACallThatWasCutOffStaysInTheHistory: both nodes are seen, each from when it had the transaction to when
// that was over (S2.13).
func TestACallThatWasCutOffStaysInTheHistory(t *testing.T) {
	t.Parallel()
	for code, release := range map[string]func(a *arena) (int, error){
		"handed_back": func(a *arena) (int, error) { return a.S.GiveUpAll(a.Ctx, a.n1) },
		"node_lost": func(a *arena) (int, error) {
			a.Later(time.Minute)
			if _, err := a.S.Beat(a.Ctx, a.n2, pg.NodeLoad{}); err != nil {
				return 0, err
			}
			if _, err := a.S.Bury(a.Ctx); err != nil {
				return 0, err
			}
			return a.S.Release(a.Ctx)
		},
	} {
		t.Run(code, func(t *testing.T) {
			a := newArena(t)
			a.flying(1, "a", "b") // b follows in a lazy run: the row says nothing of it
			first := a.lease
			if n, err := release(a); err != nil || n != 1 {
				t.Fatal(n, err)
			}
			second := a.Claim(a.n2, pgworld.Everything())[0]
			a.Settle(a.Answer(second, pgworld.Done()))
			list, err := a.S.Reads.Attempts(a.Ctx, a.ID, first.ID(), 0, 500)
			a.Must(err)
			if len(list) != 2 || list[0].Fence != first.Fence || list[0].Code != code || list[0].Node != a.n1.Name || list[0].Step != "unknown" ||
				list[1].Fence != second.Fence || list[1].Node != a.n2.Name || list[0].StartedAt.Before(first.Since.Add(-time.Microsecond)) {
				t.Errorf("attempts: %+v", list)
			}
			lines, err := a.S.Reads.History(a.Ctx, a.ID, first.ID())
			a.Must(err)
			var events []string
			for _, l := range lines {
				events = append(events, l.Event)
			}
			on := map[string]string{"handed_back": "Restarted", "node_lost": "NodeLost"}[code]
			if got := strings.Join(events, " "); got != "Posted SenderBound "+on+" Completed" {
				t.Error(got)
			}
			pgworld.HoldsTrue(t, a.Ctx, a.S.Pool())
		})
	}
}

// setTimer makes the timer of q due, as a sweep or a clock that was set may do.
func (a *arena) setTimer(at time.Time) error {
	_, err := a.S.Pool().Exec(a.Ctx, `UPDATE postern.timer SET due_at = $1`, at)
	return err
}

// unchanged fails the test if f changes any row but that of a late answer.
func (a *arena) unchanged(name string, f func()) {
	a.T.Helper()
	keepers := func() string {
		lines := strings.Split(see(a.T, a.Ctx, a.S.Pool()).rows, "\n")
		return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return strings.Contains(l, `"step":"late"`) }), "\n") + a.exactly()
	}
	before := keepers()
	f()
	if after := keepers(); before != after {
		a.T.Errorf("%s changed%s", name, difference(before, after))
	}
	pgworld.HoldsTrue(a.T, a.Ctx, a.S.Pool())
}

// exactly shows what look leaves out.
func (a *arena) exactly() (s string) {
	a.Scan(`SELECT coalesce(string_agg(E'\n' || concat_ws(' ', 'fence', queue_id, fence, entered_at), '' ORDER BY queue_id), '') FROM postern.queue`, &s)
	return s
}
