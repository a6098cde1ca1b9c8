package pg_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/outbox"
)

// lines reads a query of one text column.
func (w *world) lines(sql string, args ...any) (list []string) {
	w.t.Helper()
	rows, err := w.s.Pool().Query(w.ctx, sql, args...)
	w.must(err)
	list, err = pgx.CollectRows(rows, pgx.RowTo[string])
	w.must(err)
	return list
}

// What is rolled up is what happened, in whatever order and however often it is rolled up.
func TestFiguresByTheHourAreThoseOfTheirTransactions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.at(w.now.Truncate(24 * time.Hour).Add(10*time.Hour + 55*time.Minute))
	w.dispatcher("T", func(d *outbox.Dispatcher) { d.Pool = "p" })
	w.dispatcher("U", nil)
	w.sender("p", "acct-1")
	n := w.node("n")
	w.post("q", "T", "a", "b", "c")
	w.post("r", "U", "d")
	rollUp := func() {
		t.Helper()
		_, err := w.s.RollUp(w.ctx)
		w.must(err)
	}
	rollUp() // what is under way counts as accepted
	w.later(2 * time.Second)
	leases, started := w.claim(n, everything()), w.now
	w.later(8 * time.Minute) // into the next hour
	went := 0
	for _, l := range leases {
		for l != nil {
			a := w.answer(l, done())
			a.StartedAt = started
			l = w.settle(a)[0].Next

			went++
		}
	}
	w.post("q", "T", "e")
	if _, err := w.s.Cancel(w.ctx, w.by, w.byUID("e").ID); err != nil {
		t.Fatal(err)
	}
	rollUp()
	rollUp()
	w.later(2 * time.Hour)
	rollUp()
	w.same(w.lines(`SELECT concat_ws(' ', extract(hour FROM hour AT TIME ZONE 'UTC'), type, accepted, done, failed, unresolved, cancelled, retries)
			FROM report.throughput_hourly ORDER BY hour, type`),
		"10 T 3 0 0 0 0 0", "10 U 1 0 0 0 0 0", "11 T 1 3 0 0 1 0", "11 U 0 1 0 0 0 0")
	w.same(w.lines(`SELECT concat_ws(' ', type, n, total_max, wait_p50 BETWEEN '2 s' AND '2.4 s', total_p95 BETWEEN '8 min' AND '9.6 min', total_p95 <= total_max)
			FROM report.latency_hourly ORDER BY type`), "T 4 00:08:02 t t t", "U 1 00:08:02 t t t")
	w.same(w.lines(`SELECT concat_ws(' ', machine, state, n, max) FROM report.time_in_state WHERE state = 'WAITING'`), "transaction WAITING 4 00:00:02")
	w.same(w.lines(`SELECT concat_ws(' ', type, error_class, error_code, n, sample_id = (SELECT id FROM postern.transaction('e'))) FROM report.failures`), "T  cancelled 1 t")
	w.same(w.lines(`SELECT concat_ws(' ', r.n, r.failed, r.busy > '0') FROM postern.rollup_sender r`), "3 0 t")
	w.same(w.lines(`SELECT sum(b)::text FROM postern.rollup_time t CROSS JOIN unnest(t.buckets) b WHERE t.state = '' AND t.type = ''`), fmt.Sprint(5))
	if went != 4 {
		t.Errorf("%d went out", went)
	}
}

func TestWhatStandsStillIsSampledWithItsBlockerAndLever(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	w.post("paused", "T", "p1", "p2")
	_, err := w.s.PauseQueue(w.ctx, w.by, "paused", true)
	w.must(err)
	w.post("", "T", "no node")
	later := w.sub("later", "T", "later")
	later.NotBefore = w.now.Add(time.Hour)
	w.ingest(w.s, later)
	sample := func(want int) {
		t.Helper()
		if n, err := w.s.SampleStuck(w.ctx); err != nil || n != want {
			t.Errorf("%d stand still, %v; want %d", n, err, want)
		}
	}
	sample(0)
	w.later(11 * time.Minute)
	sample(2)
	w.same(w.lines(`SELECT concat_ws(' ', coalesce(queue, '-'), uid, type, state, blocker, age > '10 min', next_at IS NULL, lever, id = (SELECT id FROM postern.transaction(uid)))
			FROM report.stuck ORDER BY uid`),
		"- no node T WAITING no_live_node t t t", "paused p1 T WAITING queue_paused t t POST /queues/paused/resume t")
	_, err = w.s.PauseQueue(w.ctx, w.by, "paused", false)
	w.must(err)
	n := w.node("n")
	l := w.claim(n, everything())
	sample(0)
	w.same(w.lines(`SELECT concat_ws(' ', node, queues, as_of IS NOT NULL) FROM report.nodes`), fmt.Sprintf("n %d t", len(l)))
	for _, l := range l {
		for l != nil {
			l = w.settle(w.answer(l, done()))[0].Next
		}
	}
	sample(0)
	w.same(w.lines(`SELECT concat_ws(' ', node, queues, as_of) FROM report.nodes`), "n 0")
}
