package pg_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// What a node has leased is listed by its name, also from page to page, and is none of another one's.
func TestQueuesAreListedByTheNodeThatHoldsThem(t *testing.T) {
	t.Parallel()
	w := pgworld.New(t)
	w.Dispatcher("T", func(d *outbox.Dispatcher) { d.Slots = 10 })
	one, two := w.Node("one"), w.Node("two")
	for _, q := range []string{"a", "b", "c"} {
		w.Post(q, "T", q)
	}
	w.Claim(one, pgworld.Everything())
	w.Post("d", "T", "d")
	w.Claim(two, pgworld.Everything())
	w.Post("e", "T", "e")
	of := func(f pg.QueueFilter) (names []string, next string) {
		t.Helper()
		if f.Limit == 0 {
			f.Limit = 10
		}
		list, next, err := w.S.Queues(w.Ctx, w.ID, f)
		w.Must(err)
		for _, q := range list {
			names = append(names, q.Name)
		}
		return names, next
	}
	all, _ := of(pg.QueueFilter{Node: "one"})
	w.Same(all, "a", "b", "c")
	first, next := of(pg.QueueFilter{Node: "one", Limit: 2})
	rest, end := of(pg.QueueFilter{Node: "one", Limit: 2, After: next})
	w.Same(append(first, rest...), "a", "b", "c")
	other, _ := of(pg.QueueFilter{Node: "two", Prefix: "d", Stuck: time.Nanosecond})
	w.Same(append(other, end), "d", "")
	none, _ := of(pg.QueueFilter{Node: "three"})
	w.Same(none)
}

// A page looks at so many names, also where few begin as it asks, and the pages together list each once.
func TestAPageOfQueuesLooksAtSoManyNames(t *testing.T) {
	t.Parallel()
	w := pgworld.New(t)
	w.Dispatcher("T", nil)
	for _, q := range []string{"a", "b1", "b2", "b3", "c", "d", "e", "f"} {
		w.Post(q, "T", q)
	}
	var names []string
	pages := 0
	for f := (pg.QueueFilter{Prefix: "b", Limit: 9, Examined: 2}); ; pages++ {
		list, next, err := w.S.Queues(w.Ctx, w.ID, f)
		w.Must(err)
		for _, q := range list {
			names = append(names, q.Name)
		}
		if f.After = next; next == "" {
			break
		}
	}
	w.Same(names, "b1", "b2", "b3")
	if pages != 3 {
		t.Errorf("%d pages before the last, want 3", pages)
	}
}
