package reads_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/reads"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/sequencer"
)

// heldAfter is the lease of a transaction whose call is answered with 500, and whose worker cannot be asked: it is
// held.
func (w *world) heldAfter(l *pg.Lease) {
	w.T.Helper()
	answer := outbox.Answer{Class: outbox.ClassAmbiguous, Code: "http_500", Message: "oops", StartedAt: l.Now()}
	a := w.Answer(l, answer)
	a.Unclear = &answer
	a.Step = sequencer.Asked(l.Flight(0), outbox.Status{State: outbox.StatusUnsupported}, l.Dispatcher.Dispatcher, 0.5)
	w.Settle(a)
}

// tells compares the events of the history of a transaction, and the answers of its attempts.
func (w *world) tells(id outbox.ID, events string, attempts ...string) {
	w.T.Helper()
	list, err := w.S.Reads.History(w.Ctx, w.ID, id)
	w.Must(err)
	var got []string
	for i, h := range list {
		if got = append(got, h.Event); i > 0 && h.At.Before(list[i-1].At) {
			w.T.Errorf("%s is older than %s before it", h.Event, list[i-1].Event)
		}
	}
	if s := strings.Join(got, " "); s != events {
		w.T.Errorf("the history is %s, want %s", s, events)
	}
	calls, err := w.S.Reads.Attempts(w.Ctx, w.ID, id, 0, 500)
	w.Must(err)
	got = nil
	for _, c := range calls {
		got = append(got, fmt.Sprintf("%d %s %s %t", c.Attempt.Attempt, c.Class, c.Code, c.Answered != nil))
	}
	w.Same(got, attempts...)
}

// A held transaction has one attempt, which was answered, and its history tells when it became held, and by whose
// word it went on or ended. The call that is made again is an attempt of its own there.
func TestTheHistoryOfWhatIsHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	id := w.Post("q", "T", "a")[0]
	n := w.Node("n")
	w.Later(time.Second)
	w.heldAfter(w.Claim(n, pgworld.Everything())[0])
	const held = "Posted SenderBound DispatchTimeout Unresolvable"
	w.tells(id, held, "1 ambiguous http_500 true")
	w.Later(time.Minute)
	_, err := w.S.WasNotDone(w.Ctx, w.By, id)
	w.Must(err)
	const again = held + " FoundNotDone"
	w.tells(id, again, "1 ambiguous http_500 true")
	w.Later(time.Minute)
	l := w.Claim(n, pgworld.Everything())[0]
	w.tells(id, again+" SenderBound", "1 ambiguous http_500 true", "1   false")
	w.Later(time.Second)
	w.heldAfter(l)
	const twice = again + " SenderBound DispatchTimeout Unresolvable"
	w.tells(id, twice, "1 ambiguous http_500 true", "1 ambiguous http_500 true")
	w.Later(time.Minute)
	_, err = w.S.WasDone(w.Ctx, w.By, id)
	w.Must(err)
	w.tells(id, twice+" FoundDone", "1 ambiguous http_500 true", "1 ambiguous http_500 true")
}

func TestACallEndsAfterItBeganWhateverTheClocksSay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	id := w.Post("q", "T", "a")[0]
	l := w.Claim(w.Node("n"), pgworld.Everything())[0]
	a := w.Answer(l, pgworld.Done())
	a.StartedAt = a.StartedAt.Add(time.Minute) // this process is ahead of the database
	w.Settle(a)
	h, err := w.S.Reads.History(w.Ctx, w.ID, id)
	w.Must(err)
	for i := range h[1:] {
		if h[i+1].At.Before(h[i].At) {
			t.Errorf("%s is older than %s before it", h[i+1].Event, h[i].Event)
		}
	}
	d, err := w.S.Reads.Attempts(w.Ctx, w.ID, id, 0, 500)
	w.Must(err)
	if len(d) != 1 || d[0].StartedAt.After(*d[0].Answered) {
		t.Errorf("%+v", d)
	}
}

// A page of attempts reads its own rows: of a call that was made again for a day, not all. The one in flight is on the
// last page.
func TestAPageOfAttemptsReadsItsOwnRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	id := w.Post("q", "T", "a")[0]
	n := w.Node("n")
	l := w.Claim(n, pgworld.Everything())[0]
	w.Settle(w.Answer(l, outbox.Answer{Class: outbox.ClassBlocked, Code: "BUSY", Message: "not now", Told: true}))
	_, err := w.S.Pool().Exec(w.Ctx, `
		INSERT INTO postern.attempt (queue_id, seq, day, attempt, fence, step, class, code, nothing_done, answered_at)
		SELECT queue_id, seq, day, attempt, fence + i, 'dispatch', 'blocked', 'call ' || i, true,
			answered_at + i * interval '1 ms'
		FROM postern.attempt, generate_series(1, 2000) i`)
	w.Must(err)
	w.Later(time.Hour)
	w.Claim(n, pgworld.Everything())
	for skip, want := range map[int]string{
		0:    "51 BUSY call 50",
		1000: "51 call 1000 call 1050",
		1990: "12 call 1990 ",
		-1:   "50 call 1952 ", // the last ones; the one in flight has no row
	} {
		list, err := w.S.Reads.Attempts(w.Ctx, w.ID, id, skip, 50)
		w.Must(err)
		if got := fmt.Sprintf("%d %s %s", len(list), list[0].Code, list[len(list)-1].Code); got != want {
			t.Errorf("behind %d there are %s, want %s", skip, got, want)
		}
	}
}

// A history reads the first calls and the last ones: of a transaction that was called for a month, not all. It says how
// many it leaves out. One that was called less often is whole.
func TestAHistoryReadsTheEndsOfManyCalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	id := w.Post("q", "T", "a")[0]
	n := w.Node("n")
	l := w.Claim(n, pgworld.Everything())[0]
	w.Settle(w.Answer(l, outbox.Answer{Class: outbox.ClassBlocked, Code: "BUSY", Message: "not now", Told: true}))
	more := func(from, to int) []reads.Transition {
		t.Helper()
		w.Exec(`
			INSERT INTO postern.attempt (queue_id, seq, day, attempt, fence, step, class, code, nothing_done,
				answered_at)
			SELECT queue_id, seq, day, attempt, fence + i, 'dispatch', 'blocked', 'call ' || i, true,
				answered_at + i * interval '1 ms'
			FROM postern.attempt, generate_series($1::int, $2) i
			WHERE code = 'BUSY'`, from, to)
		list, err := w.S.Reads.History(w.Ctx, w.ID, id)
		w.Must(err)
		return list
	}
	whole := more(1, 999)
	if len(whole) != 1+2*1000 || strings.Contains(fmt.Sprint(whole), "left out") {
		t.Errorf("1000 calls have %d transitions", len(whole))
	}
	list := more(1000, 3000)
	if len(list) != len(whole) {
		t.Fatalf("3001 calls have %d transitions", len(list))
	}
	const says = "2001 calls before this one are left out: GET /transactions/"
	if x := list[1001]; x.Event != "SenderBound" || x.From != "WAITING" || !strings.HasPrefix(x.Detail, says) {
		t.Errorf("%+v", x)
	}
	a, b := list[1000].Detail, list[1002].Detail
	if !strings.Contains(a, "call 499") || !strings.Contains(b, "call 2501") {
		t.Errorf("%s, then %s", a, b)
	}
	w.Later(time.Hour)
	l = w.Claim(n, pgworld.Everything())[0]
	w.Settle(w.Answer(l, pgworld.Done()))
	list, err := w.S.Reads.History(w.Ctx, w.ID, id)
	w.Must(err)
	if last := list[len(list)-1]; last.Event != "Completed" || last.From != "DISPATCHING" {
		t.Errorf("%+v", last)
	}
}
