package events_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg/events"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// An event that ended long ago goes, with its history and the records of its messages. An event that has not ended
// stays, and so does the last event of a source: an inclusive cursor brings it again, and it is not stored a second
// time.
func TestRetentionForgetsEventsAndNotWhereASourceIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Source(func(s *leader.Source) { s.OnUndecodable = "dead" })
	n := w.Node("n")
	store := func(cursor string, ids ...int) { // all but 2 end at once
		t.Helper()
		w.Later(time.Second)
		page := pageOf(cursor, false, ids...)
		for i := range page.Items {
			if it := &page.Items[i]; it.Identity != "2" {
				it.Undecoded, it.FQN = "it names no tool", ""
			}
		}
		_, err := w.S.Events.StorePage(w.Ctx, w.look(w.S, n), page)
		w.Must(err)
	}
	are := func(when, want string) {
		t.Helper()
		w.Retain()
		if got := w.events(); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	store(`"1"`, 1)
	store(`"2"`, 1, 2)
	store(`"3"`, 2, 3)
	c := w.Conduit(w.S, nil)
	pgworld.Sent(t, c, "a", "b")
	held := pgworld.Received(t, c, n, 1)[0]
	_, err := c.Ack(w.Ctx, held.ID, held.Fence)
	w.Must(err)
	are("at once", "1 Dead, 2 Queued, 3 Dead")
	w.Ahead(31 * 24 * time.Hour)
	are("a month later", "2 Queued, 3 Dead")
	var moves, ends int
	w.Scan(`SELECT (SELECT count(*) FROM postern.event_move), (SELECT count(*) FROM postern.channel_message_end)`, &moves, &ends)
	if moves != 2 || ends != 0 || w.Lies() == "" {
		t.Errorf("%d moves, %d records of messages, messages %q", moves, ends, w.Lies())
	}
	store(`"4"`, 3, 4) // the boundary comes again
	store(`"5"`, 4, 5)
	are("with something newer", "2 Queued, 4 Dead, 5 Dead")
	_, err = w.S.Events.RewindSource(w.Ctx, w.By, "log", nil)
	w.Must(err)
	w.Ahead(31 * 24 * time.Hour)
	are("rewound", "2 Queued, 4 Dead, 5 Dead")
}

// An event that the cursor brings again is known however old it is: also where the cursor stands still, and where a
// rewind has stored the events before it anew.
func TestWhatTheCursorBringsAgainIsKept(t *testing.T) {
	t.Parallel()
	for name, story := range map[string]func(store func(after time.Duration, cursor string, more bool, want events.Stored, ids ...int), rewind func()){
		"the last page has no cursor": func(store func(time.Duration, string, bool, events.Stored, ...int), _ func()) {
			store(0, "null", false, events.Stored{New: 1}, 1)
			store(20, "null", false, events.Stored{New: 1, Known: 1}, 1, 2)
			store(11, "null", false, events.Stored{Known: 2}, 1, 2)
		},
		"the cursor stands": func(store func(time.Duration, string, bool, events.Stored, ...int), _ func()) {
			store(0, `"2"`, false, events.Stored{New: 2}, 1, 2)
			store(20, `"2"`, false, events.Stored{New: 1, Known: 1}, 2, 3)
			store(11, `"2"`, false, events.Stored{Known: 2}, 2, 3)
		},
		"rewound over what is known": func(store func(time.Duration, string, bool, events.Stored, ...int), rewind func()) {
			store(0, `"2"`, false, events.Stored{New: 2}, 1, 2)
			store(0, `"3"`, false, events.Stored{New: 1}, 3)
			store(31, `"3"`, false, events.Stored{Known: 1}, 3)
			rewind()
			store(0, `"3"`, false, events.Stored{New: 2, Known: 1}, 1, 2, 3)
			store(0, `"3"`, false, events.Stored{Known: 1}, 3)
		},
		"rewound, page by page": func(store func(time.Duration, string, bool, events.Stored, ...int), rewind func()) {
			store(0, `"2"`, false, events.Stored{New: 2}, 1, 2)
			store(0, `"3"`, false, events.Stored{New: 1}, 3)
			store(31, `"3"`, false, events.Stored{Known: 1}, 3)
			rewind()
			store(0, `"2"`, true, events.Stored{New: 2, More: true}, 1, 2)
			store(0, `"3"`, false, events.Stored{Known: 1}, 3)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Source(func(s *leader.Source) { s.OnUndecodable = "dead" })
			n := w.Node("n")
			story(func(after time.Duration, cursor string, more bool, want events.Stored, ids ...int) {
				t.Helper()
				w.Later(time.Second)
				w.Ahead(after * 24 * time.Hour)
				w.Retain()
				page := pageOf(cursor, more, ids...)
				for i := range page.Items { // they end at once
					page.Items[i].Undecoded, page.Items[i].FQN = "it names no tool", ""
				}
				if cursor == "null" {
					page.Cursor = nil
				}
				got, err := w.S.Events.StorePage(w.Ctx, w.look(w.S, n), page)
				got.Dead = 0
				if w.Must(err); got != want {
					t.Errorf("page %v: %+v, want %+v", ids, got, want)
				}
			}, func() {
				_, err := w.S.Events.RewindSource(w.Ctx, w.By, "log", nil)
				w.Must(err)
			})
		})
	}
}

// Of what is pushed the last push is known, however old what it brought again is.
func TestWhatWasPushedLastIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Source(func(s *leader.Source) { s.Kind, s.URL = "push", "" })
	for _, ids := range [][]int{{0}, {1}, {1, 2}} {
		_, err := w.S.Events.PushEvents(w.Ctx, w.By, "log", pageOf("", false, ids...).Items, nil)
		w.Must(err)
		_, err = w.S.Pool().Exec(w.Ctx, `UPDATE postern.event SET was = 'Active', status = 'Dead' WHERE status = 'Queued'`)
		w.Must(err)
		w.Ahead(31 * 24 * time.Hour)
	}
	_, err := w.S.Retain(w.Ctx, pgworld.AMonth)
	w.Must(err)
	if got := w.events(); got != "1 Dead, 2 Dead" {
		t.Errorf("%s are left", got)
	}
}

// An outcome that its event has not heard of outlives its day, and does not keep the day from being dropped. The same
// holds where the process that posted the call died before the event knew of it, so that only the uid of the call says
// that the tool was called.
func TestWhatAnEventGoesByOutlivesItsDay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.Node("n")
	id := w.pushed(1)[0]
	w.leads(n)
	w.answered(n, toolSays)
	knows := func(queue any) {
		t.Helper()
		_, err := w.S.Pool().Exec(w.Ctx, `UPDATE postern.event SET tool_queue = CASE WHEN $1 THEN t.queue_id END, tool_seq = CASE WHEN $1 THEN t.seq END,
			tool_day = CASE WHEN $1 THEN t.day END, tool_id = CASE WHEN $1 THEN 'known' ELSE '' END FROM postern.task t`, queue)
		w.Must(err)
	}
	w.Ahead(32 * 24 * time.Hour)
	knows(false)
	_, err := w.S.Retain(w.Ctx, pgworld.AMonth)
	w.Must(err)
	knows(true)
	kept := func(when string) {
		t.Helper()
		if left := w.Retain(); left != 0 {
			t.Errorf("%s: %d days are left, held by %q", when, left, w.HeldBy())
		}
		w.Same(w.Lines(`SELECT replace(i.key, $1, 'ID') || ' ' || o.state FROM postern.idempotency i JOIN postern.outcome_old o USING (queue_id, seq, day)`, id.String()), "event:ID:tool:1 DONE")
	}
	kept("nobody has heard")
	w.leads(n) // there is no dispatcher of results: the answer of the tool is still needed
	kept("the result waits")
	w.Dispatcher(leader.TypeResult, nil)
	w.leads(n)
	if data := w.Lines(`SELECT (data -> 'output')::text FROM postern.task WHERE type = 'leader.result'`); len(data) != 1 || w.event(id).Result == "" {
		t.Errorf("%v, %+v", data, w.event(id))
	}
	w.Retain()
	w.Same(w.Lines(`SELECT state FROM postern.outcome_old`))
}

// A transaction that survived its day and ended since stays until its event has heard of it. All rows about it go with
// it.
func TestASurvivorIsKeptForTheEventThatGoesByIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.Node("n")
	id := w.pushed(1)[0]
	w.leads(n)
	w.Ahead(32 * 24 * time.Hour)
	if left := w.Retain(); left != 0 {
		t.Errorf("%d days are left, held by %q", left, w.HeldBy())
	}
	w.answered(n, toolSays)
	_, err := w.S.Pool().Exec(w.Ctx, `INSERT INTO postern.redrive (queue_id, seq, new_id) SELECT queue_id, seq, gen_random_uuid() FROM postern.outcome_old`)
	w.Must(err)
	of := func(when, want string) {
		t.Helper()
		w.Retain()
		w.Same(w.Lines(`SELECT concat_ws(' ', (SELECT count(*) FROM postern.outcome_old), (SELECT count(*) FROM postern.task_old),
			(SELECT count(*) FROM postern.redrive), (SELECT count(*) FROM postern.idempotency))`), want)
		if t.Failed() {
			t.Fatal(when)
		}
	}
	w.Ahead(32 * 24 * time.Hour)
	of("nobody has heard", "1 1 1 1")
	w.leads(n)
	of("there is no dispatcher of results", "1 1 1 1")
	w.Dispatcher(leader.TypeResult, nil)
	w.leads(n)
	if w.event(id).Result == "" {
		t.Errorf("%+v", w.event(id))
	}
	of("the result is posted", "0 0 0 1") // its own key
}

// The query of awaited ends reads only events that are Active, however many others there are.
func TestWhatIsAwaitedIsFoundByIndexes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Source(nil)
	for _, sql := range []string{`INSERT INTO postern.event (event_id, context_id, source_id, identity, json, status, created_at, updated_at, entered_at)
		SELECT gen_random_uuid(), 1, 1, i::text, '{}', (ARRAY['Queued', 'Dead'])[1 + i % 2], now(), now(), now() FROM generate_series(1, 3000) i`, `ANALYZE postern.event`} {
		_, err := w.S.Pool().Exec(w.Ctx, sql)
		w.Must(err)
	}
	tx := w.Begin(w.S.Pool())
	_, err := tx.Exec(w.Ctx, `SELECT count(*), pg_stat_force_next_flush() FROM (`+w.S.Awaited()+`) a`)
	w.Must(err)
	w.Must(tx.Commit(w.Ctx))
	w.Same(w.Lines(`SELECT indexrelname || ' ' || idx_scan FROM pg_stat_user_indexes WHERE relname = 'event' AND idx_scan > 0 ORDER BY 1`), "event_calling 2", "event_reporting 2")
}

// Events that stay are gone past once, and what lies behind any number of them goes: of every context.
func TestRetentionOfEventsGoesPastThoseThatStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Source(nil)
	for _, sql := range []string{
		`UPDATE postern.source SET kept_from = now()`, `INSERT INTO postern.context (name) VALUES ('another')`,
		`INSERT INTO postern.event (event_id, context_id, source_id, identity, json, status, created_at, updated_at, entered_at)
			SELECT gen_random_uuid(), 1 + i % 2, 1, i::text, '{}', CASE WHEN i % 5000 < 4200 THEN 'Queued' ELSE 'Dead' END, at, at, at
			FROM generate_series(1, 10000) i CROSS JOIN LATERAL (SELECT now() - interval '40 days' + i / 7 * interval '1 s') x(at)`,
	} {
		_, err := w.S.Pool().Exec(w.Ctx, sql)
		w.Must(err)
	}
	if _, err := w.S.Retain(w.Ctx, pgworld.AMonth); err != nil {
		t.Fatal(err)
	}
	w.Same(w.Lines(`SELECT concat_ws(' ', context_id, status, count(*)) FROM postern.event GROUP BY context_id, status ORDER BY 1`), "1 Queued 4200", "2 Queued 4200")
}
