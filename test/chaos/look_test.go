package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// "nothing stands still": what is open past the limit has to grow less, in each queue that is in somebody's hands.
func TestWhatStandsStillIsTold(t *testing.T) {
	at := time.Now()
	seen := func(s, open int, inHand ...string) look {
		l := look{at: at.Add(time.Duration(s) * time.Second), open: open, inHand: map[string]bool{}}
		for _, what := range inHand {
			l.inHand[what] = true
		}
		return l
	}
	for name, c := range map[string]struct {
		looks []look
		still bool
	}{
		"all has ended":             {[]look{seen(0, 9), seen(61, 0)}, false},
		"one look":                  {[]look{seen(61, 1)}, true},
		"one stands":                {[]look{seen(0, 90), seen(40, 1), seen(50, 1), seen(61, 1)}, true},
		"a backlog drains":          {[]look{seen(0, 90), seen(40, 50), seen(50, 30), seen(61, 10)}, false},
		"it drained, and stands":    {[]look{seen(0, 90), seen(45, 10), seen(60, 10), seen(61, 10)}, true},
		"it grows":                  {[]look{seen(0, 90), seen(45, 10), seen(61, 20)}, true},
		"a queue stands among some": {[]look{seen(2, 90, "a"), seen(30, 50, "a", "b"), seen(61, 10, "a")}, true},
		"each queue has moved":      {[]look{seen(2, 90, "a"), seen(30, 50, "b"), seen(61, 10, "a", "b")}, false},
		"and before":                {[]look{seen(0, 90), seen(1, 80), seen(30, 50, "a"), seen(61, 10, "a")}, false},
	} {
		if why := standsStill(c.looks, time.Minute); (why != "") != c.still {
			t.Errorf("%s: it says %q", name, why)
		}
	}
}

// "every process works in the end": a look that begins within the time and ends behind it has found nothing.
func TestARecoveryThatTakesTooLongIsNone(t *testing.T) {
	most := 100 * time.Millisecond
	for takes, late := range map[time.Duration]int{0: 0, 2 * most: 1} {
		w := &world{times: map[string][]time.Duration{}, late: map[string]int{}}
		w.measured(t.Context(), "all", time.Now(), most, func(context.Context) bool { time.Sleep(takes); return true })
		if w.late["all"] != late || len(w.times["all"]) != 1-late {
			t.Errorf("one that takes %s of %s is late %d times: %v", takes, most, w.late["all"], w.times["all"])
		}
	}
}

// "nothing stands still": the end of a run is judged though what runs besides goes on, and one that makes no progress
// is found at the first look past the limit.
func (w *world) findsWhatIsOpen(t *testing.T, c *pgx.Conn) {
	t.Helper()
	w.wrong, w.client = map[string][]string{}, &client{}
	over := make(chan struct{})
	open := func(sql string) {
		if _, err := c.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	open(`CREATE TABLE postern.task_today PARTITION OF postern.task DEFAULT; ` + someTasks + someEnd)
	w.awaitEnd(t.Context(), time.Now(), 2*time.Second, over)
	if list := w.wrong["nothing stands still"]; len(list) != 1 {
		t.Errorf("two are open, and it finds %v", w.wrong)
	}
	open(`TRUNCATE postern.task, postern.outcome; DROP TABLE postern.task_today`)
	w.wrong = map[string][]string{}
	time.AfterFunc(3*time.Second, func() { close(over) })
	if w.awaitEnd(t.Context(), time.Now(), 2*time.Second, over); len(w.wrong) > 0 || !isClosed(over) {
		t.Errorf("nothing is open, and it finds %v", w.wrong)
	}
	for rows, want := range map[string]string{
		"": "[transaction 1/2 (T u2) is open]",
		`INSERT INTO postern.ready (queue_id, lane, prio, since) VALUES (1, 1, 1, now())`: "[]",
		`INSERT INTO postern.ready (queue_id, lane, prio, since) VALUES (1, 1, 1, now());
			UPDATE postern.queue SET node_id = 7`: "[transaction 1/2 (T u2) is open]",
		`INSERT INTO postern.dependency VALUES (1, 2, current_date, 1, 3, current_date, 0)`: "[]",
	} {
		open("BEGIN; " + loosen + someTasks + someEnd + someQueue + rows)
		list, err := listOf(t.Context(), c, inHandSQL)
		if open("ROLLBACK"); err != nil || fmt.Sprint(list) != want {
			t.Errorf("%s: in hand is %v, want %s %v", rows, list, want, err)
		}
	}
}
