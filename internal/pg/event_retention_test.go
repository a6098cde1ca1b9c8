package pg_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/leader"
)

// What ended long ago goes, with its history and the records of its messages. What has not ended stays, and so does what a source knows its
// place by: an inclusive cursor brings the last event again, and it is not stored a second time.
func TestRetentionForgetsEventsAndNotWhereASourceIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.source(func(s *leader.Source) { s.OnUndecodable = "dead" })
	n := w.node("n")
	store := func(cursor string, ids ...int) { // all but 2 end at once
		t.Helper()
		w.later(time.Second)
		page := pageOf(cursor, false, ids...)
		for i := range page.Items {
			if it := &page.Items[i]; it.Identity != "2" {
				it.Undecoded, it.FQN = "it names no tool", ""
			}
		}
		_, err := w.s.StorePage(w.ctx, w.look(w.s, n), page)
		w.must(err)
	}
	are := func(when, want string) {
		t.Helper()
		w.retain()
		if got := w.events(); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	store(`"2"`, 1, 2)
	store(`"3"`, 2, 3)
	c := w.conduit(w.s, nil)
	sent(t, c, "a", "b")
	w.must(c.Ack(w.ctx, received(t, c, n, 1)[0].ID, 1))
	are("at once", "1 Dead, 2 Queued, 3 Dead")
	w.ahead(31 * 24 * time.Hour)
	are("a month later", "2 Queued, 3 Dead")
	var moves, ends int
	w.scan(`SELECT (SELECT count(*) FROM postern.event_move), (SELECT count(*) FROM postern.message_end)`, &moves, &ends)
	if moves != 2 || ends != 0 || w.lies() == "" {
		t.Errorf("%d moves, %d records of messages, messages %q", moves, ends, w.lies())
	}
	store(`"4"`, 3, 4) // the boundary comes again
	are("with something newer", "2 Queued, 4 Dead")
	_, err := w.s.RewindSource(w.ctx, w.by, "log", nil)
	w.must(err)
	w.ahead(31 * 24 * time.Hour)
	are("rewound", "2 Queued, 4 Dead")
}

// An outcome that an event has not heard of is not dropped with its day.
func TestADayIsKeptForEventsThatHaveNotHeardOfIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node("n")
	id := w.pushed(1)[0]
	w.leads(n)
	w.answered(n, toolSays)
	w.ahead(32 * 24 * time.Hour)
	if left := w.retain(); left == 0 || w.heldBy() != "events wait that go by ends of this day" {
		t.Errorf("%d days are left, held by %q", left, w.heldBy())
	}
	w.leads(n) // there is no dispatcher of results: what the tool has answered is still needed
	if left := w.retain(); left == 0 || w.event(id).Outcome != leader.OutcomeSuccessful {
		t.Errorf("%d days are left: %+v", left, w.event(id))
	}
	w.dispatcher(leader.TypeResult, nil)
	w.leads(n)
	if left := w.retain(); left != 0 || w.event(id).Result == "" {
		t.Errorf("%d days are left, held by %q: %+v", left, w.heldBy(), w.event(id))
	}
}
