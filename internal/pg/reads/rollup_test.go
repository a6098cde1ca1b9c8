package reads_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// The figures of an hour count its transactions, in whatever order and however often they are rolled up.
func TestFiguresByTheHourAreThoseOfTheirTransactions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.At(w.Now.Truncate(24 * time.Hour).Add(10*time.Hour + 55*time.Minute))
	w.Dispatcher("T", func(d *outbox.Dispatcher) { d.Pool = "p" })
	w.Dispatcher("U", nil)
	w.Sender("p", "acct-1")
	n := w.Node("n")
	w.Post("q", "T", "a", "b", "c")
	w.Post("r", "U", "d")
	rollUp := func() {
		t.Helper()
		_, err := w.S.Reads.RollUp(w.Ctx)
		w.Must(err)
	}
	rollUp() // transactions that have not ended count as accepted
	w.Later(2 * time.Second)
	leases, started := w.Claim(n, pgworld.Everything()), w.Now
	w.Later(8 * time.Minute) // into the next hour
	went := 0
	for _, l := range leases {
		for l != nil {
			a := w.Answer(l, pgworld.Done())
			a.StartedAt = started
			l = w.Settle(a)[0].Next

			went++
		}
	}
	w.Post("q", "T", "e")
	if _, err := w.S.Cancel(w.Ctx, w.By, w.ByUID("e").ID); err != nil {
		t.Fatal(err)
	}
	rollUp()
	rollUp()
	w.Later(2 * time.Hour)
	rollUp()
	w.Same(w.Lines(`SELECT concat_ws(' ', extract(hour FROM hour AT TIME ZONE 'UTC'), type, accepted, done, failed, unresolved, cancelled, retries)
			FROM report.throughput_hourly ORDER BY hour, type`),
		"10 T 3 0 0 0 0 0", "10 U 1 0 0 0 0 0", "11 T 1 3 0 0 1 0", "11 U 0 1 0 0 0 0")
	w.Same(w.Lines(`SELECT concat_ws(' ', type, n, total_max, wait_p50 BETWEEN '2 s' AND '2.4 s', total_p95 BETWEEN '8 min' AND '9.6 min', total_p95 <= total_max)
			FROM report.latency_hourly ORDER BY type`), "T 4 00:08:02 t t t", "U 1 00:08:02 t t t")
	w.Same(w.Lines(`SELECT concat_ws(' ', machine, state, n, max) FROM report.time_in_state WHERE state = 'WAITING'`), "transaction WAITING 4 00:00:02")
	w.Same(w.Lines(`SELECT concat_ws(' ', type, error_class, error_code, n, sample_id = (SELECT id FROM postern.transaction('e'))) FROM report.failures`), "T  cancelled 1 t")
	w.Same(w.Lines(`SELECT concat_ws(' ', r.n, r.failed, r.busy > '0') FROM postern.rollup_sender r`), "3 0 t")
	w.Same(w.Lines(`SELECT sum(b)::text FROM postern.rollup_time t CROSS JOIN unnest(t.buckets) b WHERE t.state = '' AND t.type = ''`), fmt.Sprint(5))
	if went != 4 {
		t.Errorf("%d went out", went)
	}
}

func TestWhatStandsStillIsSampledWithItsBlockerAndLever(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	w.Post("paused", "T", "p1", "p2")
	_, err := w.S.PauseQueue(w.Ctx, w.By, "paused", true)
	w.Must(err)
	w.Post("", "T", "no node")
	later := w.Sub("later", "T", "later")
	later.NotBefore = w.Now.Add(time.Hour)
	w.Ingest(w.S, later)
	sample := func(want int) {
		t.Helper()
		if n, err := w.S.Reads.SampleStuck(w.Ctx); err != nil || n != want {
			t.Errorf("%d stand still, %v; want %d", n, err, want)
		}
	}
	sample(0)
	w.Later(11 * time.Minute)
	sample(2)
	w.Same(w.Lines(`SELECT concat_ws(' ', coalesce(queue, '-'), uid, type, state, blocker, age > '10 min', next_at IS NULL, lever, id = (SELECT id FROM postern.transaction(uid)))
			FROM report.stuck ORDER BY uid`),
		"- no node T WAITING no_live_node t t t", "paused p1 T WAITING queue_paused t t POST /queues/paused/resume t")
	_, err = w.S.PauseQueue(w.Ctx, w.By, "paused", false)
	w.Must(err)
	n := w.Node("n")
	l := w.Claim(n, pgworld.Everything())
	sample(0)
	w.Same(w.Lines(`SELECT concat_ws(' ', node, queues, as_of IS NOT NULL) FROM report.nodes`), fmt.Sprintf("n %d t", len(l)))
	for _, l := range l {
		for l != nil {
			l = w.Settle(w.Answer(l, pgworld.Done()))[0].Next
		}
	}
	sample(0)
	w.Same(w.Lines(`SELECT concat_ws(' ', node, queues, as_of) FROM report.nodes`), "n 0")
}
