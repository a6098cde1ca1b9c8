package pg_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// crew takes posted queues for a node, and calls no worker.
type crew struct {
	node    pg.Node
	away    bool
	room    int
	asked   int
	open    int // commits that may lease
	started []*pg.Lease
	doubt   *pg.Doubtful
}

func (c *crew) Taking() (pg.Node, bool) { return c.node, !c.away }
func (c *crew) Begin() uint64           { c.open++; return uint64(c.open) }
func (c *crew) End(uint64)              { c.open-- }
func (c *crew) Reserve(*pg.Dispatcher) bool {
	c.asked++
	if c.room == 0 {
		return false
	}
	c.room--
	return true
}
func (c *crew) Release(*pg.Dispatcher) { c.room++ }
func (c *crew) Start(l []*pg.Lease)    { c.started = append(c.started, l...) }
func (c *crew) Doubt(d *pg.Doubtful)   { c.doubt = d }

// takenBy lets n take the queues that w posts to, with so many places.
func (w *world) takenBy(n pg.Node, seats int) *crew {
	c := &crew{node: n, room: seats}
	w.S.Take(c)
	w.T.Cleanup(func() { w.S.Take(nil) })
	return c
}

// opTake posts while n1 takes what is posted, and lets n1 claim what was left to claims: so the end is the same,
// whether something that is open kept it from being taken or not.
func opTake(name string, queues ...string) op {
	return op{name: name, run: func(a *arena, s *stores.Store) string {
		c := &crew{node: a.n1, room: 10}
		s.Take(c)
		defer s.Take(nil)
		var subs []*pg.Submission
		for i, q := range queues {
			subs = append(subs, a.Sub(q, "U", fmt.Sprint("t", i)))
		}
		out, err := s.Ingest(a.Ctx, subs, false)
		said := refusal(err)
		for _, o := range out {
			said += fmt.Sprintf(" %d/%d%s", o.ID.Queue, o.ID.Seq, refusal(o.Err))
		}
		more, _, err := s.Claim(a.Ctx, a.n1, pgworld.Everything())
		return fmt.Sprintf("%s takes %s%s, %d places left", said, leases(append(c.started, more...)), refusal(err), c.room+len(c.started))
	}}
}

var (
	takeOne = opTake("take", "q")
	takeTwo = opTake("take two", "r", "q", "q")
	pauseU  = lever("pause the type", 1, func(a *arena, s *stores.Store) (pg.LeverResult, error) {
		return s.PauseDispatcher(a.Ctx, a.By, "U", true)
	})
)

// A post that takes its queue meets every other statement as a post and a claim right behind it do.
func TestPairsOfATakingPost(t *testing.T) {
	for name, set := range map[string]func(a *arena){
		"idle": func(a *arena) { a.stale() },
		"of a live node": func(a *arena) {
		},
		"in hand": func(a *arena) {
			a.ids = a.Post("q", "U", "a")
			a.lease = a.Claim(a.n1, pgworld.Everything())[0]
			a.stale()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArena(t)
			a.Dispatcher("U", func(*outbox.Dispatcher) {})
			a.Post("q", "U", "first")
			a.Settle(a.Answer(a.Claim(a.n1, pgworld.Everything())[0], pgworld.Done()))
			set(a)
			a.ready()
			others := []op{claim, wake, release, reap, bury, beat, pause, hurry, pauseU, takeTwo}
			if a.lease != nil {
				others = append(others, a.dispatched("done", "back", "failed")...)
			} else { // a node gives up all that it holds only when it takes nothing any more
				others = append(others, giveUp)
			}
			for _, x := range []op{takeOne, takeTwo} {
				for _, y := range others {
					t.Run(x.name+" with "+y.name, func(t *testing.T) {
						sub := *a
						sub.world = a.world.in(t)
						sub.pair(t, x, y)
						x.skips = y.name == bury.name // a queue that it leaves to claims then is claimed later
						sub.pair(t, y, x)
					})
				}
			}
		})
	}
}

// A post to a queue in which nothing waits leases the queue in the same commit, exactly as a claim would have leased
// it.
func TestAPostTakesItsQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("U", func(*outbox.Dispatcher) {})
	n := w.Node("n")
	ready := func() (n int) { w.Scan(`SELECT count(*) FROM postern.ready`, &n); return n }

	claimed := w.Post("claimed", "U", "a", "b")
	want := w.Claim(n, pgworld.Everything())[0]
	crew := w.takenBy(n, 10)
	posted := w.Post("q", "U", "c", "d")
	if len(crew.started) != 1 || crew.room != 9 || ready() != 0 {
		t.Fatalf("%d leases, %d places left, %d queues ready", len(crew.started), crew.room, ready())
	}
	got := crew.started[0]
	if got.ID() != posted[0] || got.Queue != "q" || got.Phase != want.Phase || got.Attempt != 1 || got.Fee != want.Fee || got.Resume || string(got.Task.Data) != `{"uid": "c"}` || string(want.Task.Data) != `{"uid": "a"}` {
		t.Errorf("taken %+v, claimed %+v", got, want)
	}
	var same bool
	w.Scan(`SELECT count(DISTINCT (to_jsonb(q) - '{queue_id,fence,entered_at,era,writes,tail_seq}'::text[])) = 1 FROM postern.queue q WHERE node_id IS NOT NULL`, &same)
	if !same {
		t.Errorf("rows of a queue that was taken and of one that was claimed differ:\n%v", w.Lines(`SELECT to_jsonb(q)::text FROM postern.queue q`))
	}
	if w.State(posted[0]) != outbox.DISPATCHING || w.State(posted[1]) != outbox.WAITING || w.State(claimed[1]) != outbox.WAITING {
		t.Errorf("%s, %s", w.State(posted[0]), w.State(posted[1]))
	}
	next := w.Settle(w.Answer(got, pgworld.Done()))[0].Next
	if next == nil || next.ID() != posted[1] {
		t.Fatalf("behind the one that was taken comes %+v", next)
	}
	w.Settle(w.Answer(next, pgworld.Done()))
	w.Post("", "U", "alone") // without a queue
	if len(crew.started) != 2 || crew.started[1].Queue != "" {
		t.Fatalf("%d leases", len(crew.started))
	}
	w.Settle(w.Answer(crew.started[1], pgworld.Done()))
	if w.Post("q", "U", "e"); len(crew.started) != 3 {
		t.Errorf("the queue is idle again, and what is posted there was not taken")
	}
	if w.Post("q", "U", "f"); len(crew.started) != 3 {
		t.Errorf("taken behind one that is in hand")
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

// A queue that a claim would not take, or that needs more than room, waits in its lane as ever.
func TestAPostLeavesToClaimsWhatNeedsMoreThanRoom(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(w *world, c *crew, sub *pg.Submission){
		"a node that takes nothing": func(_ *world, c *crew, _ *pg.Submission) { c.away = true },
		"no room":                   func(_ *world, c *crew, _ *pg.Submission) { c.room = 0 },
		"a node that was buried": func(w *world, c *crew, _ *pg.Submission) {
			w.Later(time.Minute)
			_, err := w.S.Bury(w.Ctx)
			w.Must(err)
		},
		"a node that drains": func(w *world, _ *crew, _ *pg.Submission) {
			_, err := w.S.DrainNode(w.Ctx, w.By, "n", true)
			w.Must(err)
		},
		"an older epoch":    func(_ *world, c *crew, _ *pg.Submission) { c.node.Epoch-- },
		"a pool":            func(w *world, _ *crew, sub *pg.Submission) { sub.Type = "P" },
		"an exclusive type": func(w *world, _ *crew, sub *pg.Submission) { sub.Type = "E" },
		"a time":            func(w *world, _ *crew, sub *pg.Submission) { sub.NotBefore = w.Now.Add(time.Hour) },
		"a type in pause":   func(w *world, _ *crew, _ *pg.Submission) { w.Must(drop(w.S.PauseDispatcher(w.Ctx, w.By, "U", true))) },
		"a pause of another": func(w *world, _ *crew, _ *pg.Submission) {
			w.Must(drop(w.Another(1).PauseDispatcher(w.Ctx, w.By, "U", true)))
		},
		"a queue in pause": func(w *world, c *crew, sub *pg.Submission) {
			_, err := w.S.PutQueue(w.Ctx, w.By, pg.Queue{Name: sub.Queue, Priority: "Normal", WhenFull: "refuse", OnFailure: "continue"}, 0)
			w.Must(err)
			w.Must(drop(w.S.PauseQueue(w.Ctx, w.By, sub.Queue, true)))
		},
		"a context in pause": func(w *world, _ *crew, _ *pg.Submission) {
			_, err := w.S.Pool().Exec(w.Ctx, `UPDATE postern.context SET paused = true`)
			w.Must(err)
		},
		"a worker that was away": func(w *world, _ *crew, _ *pg.Submission) {
			_, err := w.S.Pool().Exec(w.Ctx, `UPDATE postern.dispatcher SET gate_failures = 1`)
			w.Must(err)
		},
		"another that it depends on": func(w *world, c *crew, sub *pg.Submission) {
			c.away = true
			w.Post("other", "U", "on")
			c.away = false
			sub.DependsOn = []string{"on"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Dispatcher("U", func(*outbox.Dispatcher) {})
			w.Dispatcher("E", func(d *outbox.Dispatcher) { d.Exclusive = "type" })
			w.Dispatcher("P", func(d *outbox.Dispatcher) { d.Pool = "p" })
			c, sub := w.takenBy(w.Node("n"), 1), w.Sub("q", "U", "x")
			set(w, c, sub)
			seats := c.room
			out, err := w.S.Ingest(w.Ctx, []*pg.Submission{sub}, false)
			w.Must(err)
			w.Must(out[0].Err)
			if len(c.started) > 0 || c.room != seats || w.State(out[0].ID) == outbox.DISPATCHING {
				t.Errorf("%d leases, %d of %d places left, %s", len(c.started), c.room, seats, w.State(out[0].ID))
			}
			pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
		})
	}
}

func drop(_ pg.LeverResult, err error) error { return err }

// A post that is not stored is not called, and gives its place back. Where it is unknown whether it is stored, the
// queue is given up, and the node that has it next asks the worker first.
func TestAPostThatIsNotStoredIsNotCalled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("U", func(*outbox.Dispatcher) {})
	n := w.Node("n")
	c := w.takenBy(n, 3)
	idle := func(what string, places int) {
		t.Helper()
		if len(c.started) > 0 || c.doubt != nil || c.open != 0 || c.room != places || c.asked == 0 {
			t.Errorf("%s: %d leases, %d places left, asked for %d, doubt %v", what, len(c.started), c.room, c.asked, c.doubt)
		}
		c.asked = 0
	}
	out, err := w.S.Ingest(w.Ctx, []*pg.Submission{w.Sub("q", "U", "a"), w.Sub("q", "nobody", "b")}, true)
	if err != nil || out[1].Err == nil {
		t.Fatalf("%+v, %v", out, err)
	}
	idle("an atomic batch with one that is refused", 3)

	broken := errors.New("broken off")
	w.S.HoldCommits(func(context.Context, uint32) error { return broken })
	if _, err = w.S.Ingest(w.Ctx, []*pg.Submission{w.Sub("q", "U", "a")}, false); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	w.S.HoldCommits(nil)
	idle("a commit that fails", 3)

	w.unknownCommits(true)
	_, err = w.S.Ingest(w.Ctx, []*pg.Submission{w.Sub("q", "U", "a")}, false)
	w.unknownCommits(false)
	if fault.CodeOf(err) != "commit_unknown" || c.open != 0 || c.room != 3 || len(c.started) > 0 {
		t.Fatalf("%v, %d places left, %d leases", err, c.room, len(c.started))
	}
	if id := w.ByUID("a").ID; c.doubt == nil || len(c.doubt.Queues) != 1 || c.doubt.Queues[0].Queue != id.Queue || w.State(id) != outbox.DISPATCHING {
		t.Fatalf("doubt %v, and it is %s", c.doubt, w.State(id))
	}
	w.renounced(c.doubt)
	if l := w.Claim(w.Node("m"), pgworld.Everything()); len(l) != 1 || !l[0].Resume {
		t.Errorf("what was given up is claimed as %+v", l)
	}
	before := w.Lines(`SELECT q::text FROM postern.queue q`) // somebody has it under another fence
	w.renounced(c.doubt)
	w.Same(w.Lines(`SELECT q::text FROM postern.queue q`), before...)
}

func (w *world) renounced(d *pg.Doubtful, left ...pg.Fenced) {
	w.T.Helper()
	if _, got, err := w.S.GiveUp(w.Ctx, d.Node, d.Queues); err != nil || !slices.Equal(got, left) {
		w.T.Errorf("left are %v, %v", got, err)
	}
}

// A commit in doubt may still be under way: it is waited for, and a queue that begins with it is asked for again.
func TestWhatIsInDoubtIsGivenUpOnceItIsThere(t *testing.T) {
	t.Parallel()
	for _, queue := range []string{"q", ""} {
		w := newWorld(t)
		w.Dispatcher("U", func(*outbox.Dispatcher) {})
		n := w.Node("n")
		c := w.takenBy(n, 3)
		if queue != "" {
			w.Post(queue, "U", "first")
			w.Settle(w.Answer(c.started[0], pgworld.Done()))
		}
		other := w.Another(2)
		open, on, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		w.S.HoldCommits(func(context.Context, uint32) error { close(open); <-on; return nil })
		go func() {
			_, err := w.S.Ingest(w.Ctx, []*pg.Submission{w.Sub(queue, "U", "a")}, false)
			done <- err
		}()
		<-open
		var held pg.Fenced
		w.Must(w.Another(1).Pool().QueryRow(w.Ctx, `SELECT coalesce(max(queue_id), 0), coalesce(max(fence), 0) + 1 FROM postern.queue`).Scan(&held.Queue, &held.Fence))
		d := &pg.Doubtful{Node: n, Queues: []pg.Fenced{held}}
		if queue == "" {
			d.Queues[0].Queue++
		}
		if n, left, err := other.GiveUp(w.Ctx, n, d.Queues); err != nil || n != 0 || len(left) != 1 {
			t.Errorf("queue %q, of a commit that is under way: %d were given up, left are %v, %v", queue, n, left, err)
		}
		close(on)
		w.Must(<-done)
		if queue == "" {
			d.Queues = []pg.Fenced{{Queue: c.started[0].ID().Queue, Fence: c.started[0].Fence}}
		}
		if n, left, err := other.GiveUp(w.Ctx, n, d.Queues); err != nil || n != 1 || len(left) > 0 {
			t.Errorf("queue %q: %d were given up, left are %v, %v", queue, n, left, err)
		}
		w.S.HoldCommits(nil)
		if l := w.Claim(w.Node("m"), pgworld.Everything()); len(l) != 1 || !l[0].Resume {
			t.Errorf("queue %q: what was given up is claimed as %+v", queue, l)
		}
		pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	}
}

// unknownCommits lets every commit that writes a queue be one that no standby is known to have.
func (w *world) unknownCommits(on bool) {
	w.T.Helper()
	if !on {
		w.Exec(`DROP TRIGGER at_commit ON postern.queue`)
		return
	}
	w.Exec(`CREATE OR REPLACE FUNCTION public.at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		RAISE WARNING 'canceling wait for synchronous replication due to user request'; RETURN NULL; END $$`)
	w.Exec(`CREATE CONSTRAINT TRIGGER at_commit AFTER UPDATE ON postern.queue DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.at_commit()`)
}

// The lease of a post is fenced like any other.
func TestALateAnswerToWhatAPostTookChangesNothing(t *testing.T) {
	t.Parallel()
	for _, s := range late[:2] {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			a := newArena(t)
			a.Dispatcher("U", func(*outbox.Dispatcher) {})
			c := a.takenBy(a.n1, 1)
			id := a.Post("q", "U", "a")[0]
			s.lose(a, id)
			rows := func() []string {
				return slices.Concat(a.Lines(`SELECT q::text FROM postern.queue q ORDER BY 1`), a.Lines(`SELECT o::text FROM postern.outcome o ORDER BY 1`))
			}
			before := rows()
			if out := a.Settle(a.Answer(c.started[0], pgworld.Done())); !out[0].Fenced {
				t.Error("it was not fenced")
			}
			a.Same(rows(), before...)
		})
	}
}

// A claim, or a wake of timers, whose commit is unknown names the queues that it may have leased.
func TestADoubtfulClaimNamesItsQueues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("U", func(*outbox.Dispatcher) {})
	n := w.Node("n")
	id := w.Post("q", "U", "a")[0]
	w.unknownCommits(true)
	_, _, err := w.S.Claim(w.Ctx, n, pgworld.Everything())
	w.unknownCommits(false)
	var d *pg.Doubtful
	if !errors.As(err, &d) || d.Node.ID != n.ID || len(d.Queues) != 1 || d.Queues[0].Queue != id.Queue {
		t.Fatalf("%v names %+v", err, d)
	}
	if fault.CodeOf(err) != "commit_unknown" {
		t.Errorf("code %q", fault.CodeOf(err))
	}
	w.renounced(d)
	w.Later(time.Second)
	sub := w.Sub("r", "U", "later")
	sub.NotBefore = w.Now.Add(time.Second)
	w.Ingest(w.S, sub)
	w.Later(2 * time.Second)
	w.unknownCommits(true)
	_, err = w.S.Wake(w.Ctx, n, 10, 10) // it leases nothing
	w.unknownCommits(false)
	if fault.CodeOf(err) != "commit_unknown" || errors.As(err, &d) {
		t.Errorf("timers that lease nothing: %v", err)
	}
}
