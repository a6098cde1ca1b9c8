package reads_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// A head is old since it first was head, however often it was tried since: no attempt begins its age anew.
func TestAnAttemptDoesNotBeginTheAgeOfAHeadAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", func(d *outbox.Dispatcher) { d.Retry.Kind, d.Retry.Cap = "fixed", outbox.Duration(time.Minute) })
	ids := w.Post("q", "T", "a", "b")
	n := w.Node("n")
	l := w.Claim(n, pgworld.Everything())[0]
	w.Later(time.Minute)
	l = w.Settle(w.Answer(l, pgworld.Done()))[0].Next
	began := w.Now
	if l == nil || l.ID() != ids[1] {
		t.Fatalf("%+v", l)
	}
	w.Settle(w.Answer(l, pgworld.Failed()))
	for range 3 {
		w.Later(4 * time.Minute)
		w.Exec(`UPDATE postern.node SET heartbeat_at = $1`, w.Now)
		// as an attempt does
		w.Exec(`UPDATE postern.queue SET attempt = attempt + 1, retries = retries + 1, entered_at = $1`, w.Now)
	}
	stuck, err := w.S.Reads.SampleStuck(w.Ctx)
	w.Must(err)
	var since time.Time
	var n1 int
	w.Scan(`SELECT count(*), min(since) FROM report.stuck`, &n1, &since)
	if stuck != 1 || n1 != 1 || !since.Equal(began) {
		t.Errorf("%d, since %s instead of %s", stuck, since, began)
	}
}

// Heads that stand for one cause are one line of report.causes, with the lever of the oldest.
func TestHeadsThatStandForOneCauseAreOneLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Node("n")
	w.Dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "p" })
	for _, q := range []string{"q1", "q2", "q3"} {
		w.Post(q, "S", q)
		w.Later(time.Second)
	}
	w.Dispatcher("T", nil)
	w.Post("held up", "T", "h")
	_, err := w.S.PauseQueue(w.Ctx, w.By, "held up", true)
	w.Must(err)
	w.Later(time.Hour)
	w.Exec(`UPDATE postern.node SET heartbeat_at = $1`, w.Now)
	_, err = w.S.Reads.SampleStuck(w.Ctx)
	w.Must(err)
	w.Same(w.Lines(`SELECT concat_ws(' | ', cause, type, n, detail, lever) FROM report.causes ORDER BY cause`),
		`no_free_sender | S | 3 | its pool p has no senders: give it an account that signs`+
			` | PUT /senders/ACCOUNT {"pool":"p"}`,
		"paused | 1 | queues/held up is paused by test: because | POST /queues/held%20up/resume")
}
