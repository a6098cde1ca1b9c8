package reads_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/help"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/sequencer"
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

// A fixed delay lasts as long as it says, whatever cap there may be.
func TestAFixedDelayIsNotStuckBeforeItsTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", func(d *outbox.Dispatcher) {
		d.Retry.Kind, d.Retry.Initial = "fixed", outbox.Duration(50*time.Hour)
		d.Retry.Cap = outbox.Duration(time.Minute)
	})
	w.Post("q", "T", "a")
	w.Settle(w.Answer(w.Claim(w.Node("n"), pgworld.Everything())[0], pgworld.Failed()))
	w.Later(2 * time.Hour)
	w.Exec(`UPDATE postern.node SET heartbeat_at = $1`, w.Now)
	w.Exec(`UPDATE postern.queue SET attempt = 2`)
	if stuck, err := w.S.Reads.SampleStuck(w.Ctx); err != nil || stuck != 0 {
		t.Errorf("%d stand, %v", stuck, err)
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
	w.Same(w.Lines(`SELECT concat_ws(' | ', cause, type, n, detail, lever, help) FROM report.causes ORDER BY cause`),
		`no_free_sender | S | 3 | its pool p has no senders: give it an account that signs`+
			` | PUT /senders/ACCOUNT {"pool":"p"} | docs/errors.md#why-no_free_sender`,
		"paused | 1 | queues/held up is paused by test: because | POST /queues/held%20up/resume"+
			" | docs/errors.md#why-queue_paused")
}

// Each cause names the paragraph of docs/errors.md that tells of it, and the page has that paragraph.
func TestEachCauseNamesItsParagraph(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	w.Exec(`UPDATE postern.dispatcher SET paused = true`)
	w.Exec(`INSERT INTO postern.pool (context_id, name, paused) SELECT context_id, 'p', true FROM postern.dispatcher`)
	w.Exec(`UPDATE postern.context SET paused = true`)
	paragraphs := map[string]bool{}
	for _, e := range help.Errors(help.Why) {
		paragraphs[help.Link(help.Why, e.Name)] = true
	}
	links := w.Lines(`SELECT DISTINCT help FROM report.causes ORDER BY help`)
	w.Same(links, help.Link(help.Why, "context_paused"), help.Link(help.Why, "dispatcher_paused"),
		help.Link(help.Why, "no_free_sender"))
	for _, link := range append(links, help.Link(help.Why, "rejected_today"), help.Link(help.Why, "unresolved_today")) {
		if !paragraphs[link] {
			t.Errorf("internal/help has no paragraph for %s", link)
		}
	}
}

// A head that stands for a cause which time alone does not end is in the sample as soon as it stands: a worker that is
// away, or that does not say what came of a call, a call that came to nothing, a state that lasts for too long, and an
// outcome that an operator has to tell. Its age is since it first was head. Others are there after ten minutes.
func TestWhatIsStuckByItsCauseIsInTheSampleAtOnce(t *testing.T) {
	t.Parallel()
	causes := []string{"worker_unreachable", "queue_blocked", "status_unreachable", "overdue"}
	for _, c := range pgworld.Stands {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			id := w.Stood(c)
			y, err := w.S.Reads.Why(w.Ctx, w.ID, id)
			w.Must(err)
			kind := y.Blockers[0].Kind
			untold := kind == "outcome_unknown" &&
				(y.Blockers[0].Next == nil || strings.Contains(y.Summary, "when it was asked last"))
			want := []string{}
			if untold || slices.Contains(causes, kind) {
				want = append(want, kind)
			}
			n, err := w.S.Reads.SampleStuck(w.Ctx)
			w.Must(err)
			got := w.Lines(`SELECT blocker FROM postern.stuck WHERE uid = 'a'`)
			if n != len(want) || !slices.Equal(got, want) {
				t.Errorf("%d are stuck, %q, want %q: %s", n, got, want, y.Summary)
			}
			var early int
			w.Scan(`
				SELECT count(*)
				FROM postern.stuck s
				JOIN postern.task t USING (uid)
				WHERE s.since <> t.created_at AND s.blocker <> 'overdue'`, &early)
			if early > 0 {
				t.Error("it is not old since it first was head")
			}
		})
	}
}

// A probe makes neither a head younger whose gate is closed, nor others of its lane.
func TestAProbeDoesNotBeginTheAgeOfAHeadAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	began := w.Now
	w.Post("q", "T", "a")
	w.Post("r", "T", "b")
	n := w.Node("n")
	for range 4 {
		l := w.Claim(n, pgworld.Room(1))
		if len(l) != 1 {
			t.Fatalf("%d go out", len(l))
		}
		w.Settle(w.Answer(l[0], pgworld.Lost()))
		w.Later(time.Minute) // its time is over, and the next probe has yet to go out
		w.Exec(`UPDATE postern.node SET heartbeat_at = $1`, w.Now)
	}
	_, err := w.S.Reads.SampleStuck(w.Ctx)
	w.Must(err)
	var since time.Time
	var heads int
	w.Scan(`SELECT n, since FROM report.causes WHERE cause = 'worker_unreachable'`, &heads, &since)
	if heads != 2 || !since.Equal(began) {
		t.Errorf("%d heads, since %s instead of %s", heads, since, began)
	}
}

// A head whose worker is at work on it is asked about for as long as that takes: it is stuck after twice the time that
// a call may take. Its timer is always ahead, and so is that of one that is watched: of that, answers that cannot be
// read are told after ten minutes.
func TestWhatIsAskedAboutIsStuckAfterItsTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	n := w.Node("n")
	w.Post("q", "T", "at work")
	w.Unread(w.Claim(n, pgworld.Everything())[0], sequencer.AtWork)
	watched := w.Post("r", "T", "watched")[0]
	w.Settle(w.Answer(w.Claim(n, pgworld.Everything())[0], pgworld.Hashed()))
	w.Must(w.S.Polled(w.Ctx, []int64{watched.Queue}, []time.Duration{time.Second}, []string{"HTTP 500"}))
	for _, step := range []struct {
		later time.Duration
		want  []string
	}{
		{time.Minute, nil},
		{10 * time.Minute, []string{"watched inclusion_pending"}},
		{10 * time.Minute, []string{"at work outcome_unknown", "watched inclusion_pending"}},
	} {
		w.Later(step.later)
		w.Exec(`UPDATE postern.node SET heartbeat_at = $1`, w.Now)
		w.Exec(`UPDATE postern.timer SET due_at = $1`, w.Now.Add(time.Second)) // as when it was asked again
		_, err := w.S.Reads.SampleStuck(w.Ctx)
		w.Must(err)
		w.Same(w.Lines(`SELECT concat_ws(' ', uid, blocker) FROM report.stuck ORDER BY uid`), step.want...)
	}
}

// Heads that are alike in their blocker alone are lines of their own: other types, other answers, what is held beside
// what is asked about, and what waits for another transaction.
func TestHeadsThatStandForDifferentCausesAreDifferentLines(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	w.Dispatcher("U", nil)
	n := w.Node("n")
	for i, c := range []struct{ typ, code string }{
		{"T", "http_404"},
		{"T", "http_404"},
		{"T", "http_403"},
		{"U", "http_404"},
	} {
		w.Post(fmt.Sprint("blocked ", i), c.typ, fmt.Sprint("b", i))
		a := w.Answer(w.Claim(n, pgworld.Everything())[0], outbox.Answer{
			Class:   outbox.ClassBlocked,
			Scope:   outbox.ScopeQueue,
			Code:    c.code,
			Message: "no",
		})
		a.Gate = sequencer.MoveNone
		w.Settle(a)
		w.Later(time.Millisecond)
	}
	w.Post("asked", "T", "asked")
	w.Unread(w.Claim(n, pgworld.Everything())[0], "HTTP 500")
	w.Post("held", "T", "held")
	w.Unasked(w.Claim(n, pgworld.Everything())[0])
	w.Later(3 * time.Second)
	w.Exec(`UPDATE postern.node SET heartbeat_at = $1`, w.Now)
	_, err := w.S.Reads.SampleStuck(w.Ctx)
	w.Must(err)
	w.Same(w.Lines(`
		SELECT concat_ws(' ', cause, type, n, substring(lever from '/([a-z-]+)( .*)?$'))
		FROM report.causes
		ORDER BY cause, type, n, lever`),
		"outcome_unknown T 1 abandon",
		"outcome_unknown T 1 was-done",
		"queue_blocked T 1 retry",
		"queue_blocked T 2 retry",
		"queue_blocked U 1 retry")
}
