package pg_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	pgreads "github.com/postern-dev/postern/internal/pg/reads"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

func TestWhatIsMovedToAnotherQueueGoesOutThere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		arrange func(w *world)
		to      *pg.Place
		want    string // the uids that go out, in the order of each queue
	}{
		"to its end":                 {nil, nil, "a c | x y b"},
		"first of what waits":        {nil, &pg.Place{}, "a c | b x y"},
		"the head":                   {func(w *world) { w.Lever(w.S.Cancel(w.Ctx, w.By, w.UID("a"))) }, nil, "c | x y b"},
		"into an empty one":          {func(w *world) { w.cancelled("x", "y") }, nil, "a c | b"},
		"the last of its queue":      {func(w *world) { w.cancelled("a", "c") }, nil, " | x y b"},
		"behind what was placed":     {func(w *world) { w.Lever(w.S.Move(w.Ctx, w.By, w.UID("y"), pg.Place{})) }, nil, "a c | y x b"},
		"out of a place of its own":  {func(w *world) { w.Lever(w.S.Move(w.Ctx, w.By, w.UID("b"), pg.Place{})) }, nil, "a c | x y b"},
		"suspended, and so it stays": {func(w *world) { w.Lever(w.S.Suspend(w.Ctx, w.By, w.UID("b"))) }, &pg.Place{}, "a c | "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Dispatcher("T", nil)
			w.Post("p", "T", "a", "b", "c")
			w.Post("q", "T", "x", "y")
			if c.arrange != nil {
				c.arrange(w)
			}
			was := w.UID("b")
			now := w.MoveTo("b", "q", c.to)
			if w.UID("b") != now || now == was {
				t.Errorf("its uid names %s, moved to %s", w.UID("b"), now)
			}
			byQueue := map[string][]string{}
			order := w.run(w.Node("n"))
			for _, uid := range order {
				tx, err := w.S.Transaction(w.Ctx, w.ID, w.UID(uid))
				w.Must(err)
				byQueue[tx.Queue] = append(byQueue[tx.Queue], uid)
			}
			if got := strings.Join(byQueue["p"], " ") + " | " + strings.Join(byQueue["q"], " "); got != c.want {
				t.Errorf("went out %s, want %s", got, c.want)
			}
			pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
		})
	}
}

func (w *world) cancelled(uids ...string) {
	for _, u := range uids {
		w.Lever(w.S.Cancel(w.Ctx, w.By, w.UID(u)))
	}
}

func TestTheOldIDOfWhatWasMovedLeadsToTheNewOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	first := w.Post("p", "T", "ok-a")[0]
	line := w.Subscribe(outbox.Subscription{Name: "s", Kind: "pull"})
	_, err := w.S.Suspend(w.Ctx, w.By, first)
	w.Must(err)
	w.Later(time.Second)
	second := w.MoveTo("ok-a", "q", nil)
	w.Later(time.Second)
	third := w.MoveTo("ok-a", "r", nil)
	for _, id := range []outbox.ID{first, second, third} {
		tx, err := w.S.Transaction(w.Ctx, w.ID, id)
		w.Must(err)
		if tx.ID != third || tx.MovedFrom != second.String() || tx.Queue != "r" || tx.State != outbox.WAITING || !tx.Suspended {
			t.Errorf("%s reads %+v", id, tx)
		}
	}
	list, _, err := w.S.Reads.ListTransactions(w.Ctx, w.ID, pgreads.ListFilter{Limit: 10})
	w.Must(err)
	if len(list) != 1 || list[0].ID != third {
		t.Errorf("the list shows %d: %+v", len(list), list)
	}
	if _, err := w.S.Cancel(w.Ctx, w.By, first); fault.CodeOf(err) != "wrong_state" || !strings.Contains(err.Error(), second.String()) {
		t.Errorf("the old one is told %v", err)
	}
	w.Lever(w.S.Resume(w.Ctx, w.By, third))
	w.Later(time.Second)
	w.run(w.Node("n"))
	past, err := w.S.Reads.History(w.Ctx, w.ID, first)
	w.Must(err)
	var told []string
	for _, x := range past {
		told = append(told, x.Event)
	}
	if got := strings.Join(told, " "); got != "Posted suspend move move resume SenderBound Completed" {
		t.Errorf("its history is %s", got)
	}
	var outcomes string
	w.Scan(`SELECT string_agg(state, ' ' ORDER BY done_at) FROM postern.tx`, &outcomes)
	if outcomes != "DONE" {
		t.Errorf("psql sees %s", outcomes)
	}
	w.Number(w.S, line.ID)
	w.Same(w.Feed(line.ID, 0), "r/ok-a done")
}

func TestDependenciesGoAlongWithWhatIsMoved(t *testing.T) {
	t.Parallel()
	for _, uid := range []string{"ok-b", "bad-b"} {
		w := newWorld(t)
		w.Dispatcher("T", nil)
		w.Post("p", "T", "ok-a")
		w.after("q", uid, "ok-a")
		w.after("r", "ok-c", uid)
		w.MoveTo(uid, "s", nil)
		w.MoveTo("ok-c", "t", nil)
		w.MoveTo("ok-a", "u", nil)
		order, want := w.run(w.Node("n")), []string{"ok-a", uid, "ok-c"}
		state := "ok-c DONE"
		if uid == "bad-b" {
			want, state = want[:2], "ok-c FAILED"
		}
		if !slices.Equal(order, want) || w.states("ok-c") != state {
			t.Errorf("%v went out, and %s", order, w.states("ok-c"))
		}
		pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	}
}

func TestAMoveToAnotherQueueThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	w.Post("p", "T", "a", "b")
	w.after("q", "x", "b")
	w.Post("q", "T", "y")
	w.Post("d", "T", "z")
	w.Lever(w.S.DrainQueue(w.Ctx, w.By, "d"))
	_, err := w.S.PutQueue(w.Ctx, w.By, pg.Queue{Name: "f", Priority: "Med", WhenFull: "refuse", OnFailure: "continue", MaxDepth: 1}, 0)
	w.Must(err)
	w.Post("f", "T", "full")
	l := w.Claim(w.Node("n"), pgworld.Everything())
	out := l[slices.IndexFunc(l, func(l *pg.Lease) bool { return l.Task.UID == "a" })].ID()
	y := w.UID("y")
	for _, c := range []struct {
		id    outbox.ID
		queue string
		to    *pg.Place
		code  string
	}{
		{w.UID("b"), "q", nil, "dependency_cycle"}, // x, which would go out before it, depends on it
		{w.UID("b"), "q", &pg.Place{After: &y}, "dependency_cycle"},
		{w.UID("x"), "p", &pg.Place{}, "dependency_cycle"}, // b, on which it depends, would go out behind it
		{w.UID("b"), "d", nil, "queue_draining"},
		{w.UID("b"), "f", nil, "queue_full"},
		{w.UID("b"), "p", nil, "wrong_state"},
		{out, "q", nil, "wrong_state"},
		{w.UID("b"), "s", &pg.Place{Before: &y}, "invalid"}, // y is in q
	} {
		if _, err := w.S.MoveTo(w.Ctx, w.By, c.id, c.queue, c.to); fault.CodeOf(err) != c.code {
			t.Errorf("%s to %s: %v, want %s", c.id, c.queue, err, c.code)
		}
		pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	}
	w.MoveTo("b", "q", &pg.Place{}) // b closes no circle ahead of x, which depends on it
	w.MoveTo("x", "p", nil)
}

// Each of these moves is sound alone, and both close a circle: in queue p x would wait for the dependent of y, in q y
// for that of x. The second waits for the first to commit, and sees it.
func TestOfTwoMovesAtOnceThatCloseACircleOneIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	w.Post("p", "T", "head-p", "x")
	w.Post("q", "T", "head-q", "y")
	w.after("p", "needs-y", "y")
	w.after("q", "needs-x", "x")
	o := w.Other()
	x, y := w.UID("x"), w.UID("y")
	held, finish := pgworld.Hold(w.S, 1)
	first, second := make(chan error, 1), make(chan error, 1)
	needsY, needsX := w.UID("needs-y"), w.UID("needs-x")
	go func() {
		_, err := w.S.Move(w.Ctx, w.By, needsY, pg.Place{Before: &x})
		first <- err
	}()
	<-held
	go func() {
		_, err := o.S.Move(w.Ctx, w.By, needsX, pg.Place{Before: &y})
		second <- err
	}()
	w.AwaitBlocked(o.PID)
	finish(nil)
	w.Must(<-first)
	if err := <-second; fault.CodeOf(err) != "dependency_cycle" {
		t.Errorf("the second one: %v", err)
	}
	order := w.run(w.Node("n"))
	if len(order) != 6 {
		t.Errorf("only these went out: %v", order)
	}
}
