package pg_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
)

// moveTo moves what a uid names and returns its new id.
func (w *world) moveTo(uid, queue string, to *pg.Place) outbox.ID {
	w.t.Helper()
	r, err := w.s.MoveTo(w.ctx, w.by, w.uid(uid), queue, to)
	w.must(err)
	holdsTrue(w.t, w.ctx, w.s.Pool())
	return *r.Moved
}

func TestWhatIsMovedToAnotherQueueGoesOutThere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		arrange func(w *world)
		to      *pg.Place
		want    string // what goes out, in the order of each queue
	}{
		"to its end":                 {nil, nil, "a c | x y b"},
		"first of what waits":        {nil, &pg.Place{}, "a c | b x y"},
		"the head":                   {func(w *world) { w.lever(w.s.Cancel(w.ctx, w.by, w.uid("a"))) }, nil, "c | x y b"},
		"into an empty one":          {func(w *world) { w.cancelled("x", "y") }, nil, "a c | b"},
		"the last of its queue":      {func(w *world) { w.cancelled("a", "c") }, nil, " | x y b"},
		"behind what was placed":     {func(w *world) { w.lever(w.s.Move(w.ctx, w.by, w.uid("y"), pg.Place{})) }, nil, "a c | y x b"},
		"out of a place of its own":  {func(w *world) { w.lever(w.s.Move(w.ctx, w.by, w.uid("b"), pg.Place{})) }, nil, "a c | x y b"},
		"suspended, and so it stays": {func(w *world) { w.lever(w.s.Suspend(w.ctx, w.by, w.uid("b"))) }, &pg.Place{}, "a c | "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.dispatcher("T", nil)
			w.post("p", "T", "a", "b", "c")
			w.post("q", "T", "x", "y")
			if c.arrange != nil {
				c.arrange(w)
			}
			was := w.uid("b")
			now := w.moveTo("b", "q", c.to)
			if w.uid("b") != now || now == was {
				t.Errorf("its uid names %s, moved to %s", w.uid("b"), now)
			}
			byQueue := map[string][]string{}
			order := w.run(w.node("n"))
			for _, uid := range order {
				tx, err := w.s.Transaction(w.ctx, w.id, w.uid(uid))
				w.must(err)
				byQueue[tx.Queue] = append(byQueue[tx.Queue], uid)
			}
			if got := strings.Join(byQueue["p"], " ") + " | " + strings.Join(byQueue["q"], " "); got != c.want {
				t.Errorf("went out %s, want %s", got, c.want)
			}
			holdsTrue(t, w.ctx, w.s.Pool())
		})
	}
}

func (w *world) cancelled(uids ...string) {
	for _, u := range uids {
		w.lever(w.s.Cancel(w.ctx, w.by, w.uid(u)))
	}
}

func TestTheOldIDOfWhatWasMovedLeadsToTheNewOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	first := w.post("p", "T", "ok-a")[0]
	line := w.subscribe(outbox.Subscription{Name: "s", Kind: "pull"})
	_, err := w.s.Suspend(w.ctx, w.by, first)
	w.must(err)
	w.later(time.Second)
	second := w.moveTo("ok-a", "q", nil)
	w.later(time.Second)
	third := w.moveTo("ok-a", "r", nil)
	for _, id := range []outbox.ID{first, second, third} {
		tx, err := w.s.Transaction(w.ctx, w.id, id)
		w.must(err)
		if tx.ID != third || tx.MovedFrom != second.String() || tx.Queue != "r" || tx.State != outbox.WAITING || !tx.Suspended {
			t.Errorf("%s reads %+v", id, tx)
		}
	}
	list, _, err := w.s.List(w.ctx, w.id, pg.ListFilter{Limit: 10})
	w.must(err)
	if len(list) != 1 || list[0].ID != third {
		t.Errorf("the list shows %d: %+v", len(list), list)
	}
	if _, err := w.s.Cancel(w.ctx, w.by, first); fault.CodeOf(err) != "wrong_state" || !strings.Contains(err.Error(), second.String()) {
		t.Errorf("the old one is told %v", err)
	}
	w.lever(w.s.Resume(w.ctx, w.by, third))
	w.later(time.Second)
	w.run(w.node("n"))
	past, err := w.s.History(w.ctx, w.id, first)
	w.must(err)
	var told []string
	for _, x := range past {
		told = append(told, x.Event)
	}
	if got := strings.Join(told, " "); got != "Posted suspend move move resume SenderBound Completed" {
		t.Errorf("its history is %s", got)
	}
	var outcomes string
	w.scan(`SELECT string_agg(state, ' ' ORDER BY done_at) FROM postern.tx`, &outcomes)
	if outcomes != "DONE" {
		t.Errorf("psql sees %s", outcomes)
	}
	w.number(w.s, line.ID)
	w.same(w.feed(line.ID, 0), "r/ok-a done")
}

func TestDependenciesGoAlongWithWhatIsMoved(t *testing.T) {
	t.Parallel()
	for _, uid := range []string{"ok-b", "bad-b"} {
		w := newWorld(t)
		w.dispatcher("T", nil)
		w.post("p", "T", "ok-a")
		w.after("q", uid, "ok-a")
		w.after("r", "ok-c", uid)
		w.moveTo(uid, "s", nil)
		w.moveTo("ok-c", "t", nil)
		w.moveTo("ok-a", "u", nil)
		order, want := w.run(w.node("n")), []string{"ok-a", uid, "ok-c"}
		state := "ok-c DONE"
		if uid == "bad-b" {
			want, state = want[:2], "ok-c FAILED"
		}
		if !slices.Equal(order, want) || w.states("ok-c") != state {
			t.Errorf("%v went out, and %s", order, w.states("ok-c"))
		}
		holdsTrue(t, w.ctx, w.s.Pool())
	}
}

func TestAMoveToAnotherQueueThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	w.post("p", "T", "a", "b")
	w.after("q", "x", "b")
	w.post("q", "T", "y")
	w.post("d", "T", "z")
	w.lever(w.s.DrainQueue(w.ctx, w.by, "d"))
	_, err := w.s.PutQueue(w.ctx, w.by, pg.Queue{Name: "f", Priority: "Med", WhenFull: "refuse", OnFailure: "continue", MaxDepth: 1}, 0)
	w.must(err)
	w.post("f", "T", "full")
	l := w.claim(w.node("n"), everything())
	out := l[slices.IndexFunc(l, func(l *pg.Lease) bool { return l.Task.UID == "a" })].ID()
	y := w.uid("y")
	for _, c := range []struct {
		id    outbox.ID
		queue string
		to    *pg.Place
		code  string
	}{
		{w.uid("b"), "q", nil, "dependency_cycle"}, // x, which would go out before it, depends on it
		{w.uid("b"), "q", &pg.Place{After: &y}, "dependency_cycle"},
		{w.uid("x"), "p", &pg.Place{}, "dependency_cycle"}, // b, on which it depends, would go out behind it
		{w.uid("b"), "d", nil, "queue_draining"},
		{w.uid("b"), "f", nil, "queue_full"},
		{w.uid("b"), "p", nil, "wrong_state"},
		{out, "q", nil, "wrong_state"},
		{w.uid("b"), "s", &pg.Place{Before: &y}, "invalid"}, // y is in q
	} {
		if _, err := w.s.MoveTo(w.ctx, w.by, c.id, c.queue, c.to); fault.CodeOf(err) != c.code {
			t.Errorf("%s to %s: %v, want %s", c.id, c.queue, err, c.code)
		}
		holdsTrue(t, w.ctx, w.s.Pool())
	}
	w.moveTo("b", "q", &pg.Place{}) // before x nobody waits for anybody in vain
	w.moveTo("x", "p", nil)
}

// Each of these moves is sound alone, and both close a circle: in queue p x would wait for the dependent of y, in q y
// for that of x. The second waits for the first to commit, and sees it.
func TestOfTwoMovesAtOnceThatCloseACircleOneIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	w.post("p", "T", "head-p", "x")
	w.post("q", "T", "head-q", "y")
	w.after("p", "needs-y", "y")
	w.after("q", "needs-x", "x")
	o := w.other()
	x, y := w.uid("x"), w.uid("y")
	held, finish := hold(w.s, 1)
	first, second := make(chan error, 1), make(chan error, 1)
	needsY, needsX := w.uid("needs-y"), w.uid("needs-x")
	go func() {
		_, err := w.s.Move(w.ctx, w.by, needsY, pg.Place{Before: &x})
		first <- err
	}()
	<-held
	go func() {
		_, err := o.s.Move(w.ctx, w.by, needsX, pg.Place{Before: &y})
		second <- err
	}()
	w.awaitBlocked(o.pid)
	finish(nil)
	w.must(<-first)
	if err := <-second; fault.CodeOf(err) != "dependency_cycle" {
		t.Errorf("the second one: %v", err)
	}
	order := w.run(w.node("n"))
	if len(order) != 6 {
		t.Errorf("only these went out: %v", order)
	}
}
