package pg_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
)

// TestTheSaltInSQLIsTheSaltInGo, of what arrived at any time, and of what was moved.
func TestTheSaltInSQLIsTheSaltInGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	from := outbox.ID{Queue: 0x7abcdef1234, Seq: 0xfedcba9876, Day: 20000, Salt: 0x3fffff}.String()
	for _, moved := range []string{"", from, outbox.ID{Queue: 1, Seq: 1}.String()} {
		for _, at := range []time.Time{time.UnixMicro(0), time.UnixMicro(1), time.UnixMicro(1<<22 - 1), time.Date(2026, 3, 29, 2, 30, 0, 123456000, time.UTC), time.Now()} {
			var salt int
			var micros int64
			w.must(w.s.Pool().QueryRow(w.ctx, `SELECT postern.salt($1, nullif($2, '')::uuid), postern.micros($1)`, at, moved).Scan(&salt, &micros))
			if want := outbox.SaltOf(at, moved); salt != want || micros != at.UnixMicro() {
				t.Errorf("%s from %q: %d and %d us in SQL, %d and %d in Go", at, moved, salt, micros, want, at.UnixMicro())
			}
		}
	}
}

// TestAnIDOfALostTransactionIsNoneOfAnother: the place is taken, by what arrived at another time.
func TestAnIDOfALostTransactionIsNoneOfAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	id := w.post("q", "T", "a")[0]
	lost := id
	lost.Salt ^= 1
	look := func(id outbox.ID) (codes [6]string) {
		_, err := w.s.Transaction(w.ctx, w.id, id)
		codes[0] = fault.CodeOf(err)
		_, err = w.s.PostedBy(w.ctx, w.id, id)
		codes[1] = fault.CodeOf(err)
		_, err = w.s.Attempts(w.ctx, w.id, id)
		codes[2] = fault.CodeOf(err)
		if open, err := w.s.Open(w.ctx, w.id, id); err != nil || !open {
			codes[3] = "not_found"
		}
		var n int
		w.must(w.s.Pool().QueryRow(w.ctx, `SELECT count(*) FROM postern.place_of($1, $2)`, w.id, id.String()).Scan(&n))
		if n == 0 {
			codes[4] = "not_found"
		}
		_, err = w.s.Cancel(w.ctx, w.by, id)
		codes[5] = fault.CodeOf(err)
		return codes
	}
	for i, code := range look(lost) {
		if code != "not_found" {
			t.Errorf("look-up %d of a lost id: %q", i, code)
		}
	}
	for i, code := range look(id) {
		if code != "" {
			t.Errorf("look-up %d of the id: %q", i, code)
		}
	}
}

// TestFencesAndPositionsGoByTheClock, by one where it stands, and never down where it is set back.
func TestFencesAndPositionsGoByTheClock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	n := w.node("n")
	var was int64
	for _, to := range []time.Duration{0, 0, time.Hour, -2 * time.Hour} {
		w.later(to)
		w.post("q", "T", fmt.Sprint("at ", was))
		lease := w.claim(n, everything())[0]
		if lease.Fence <= was || lease.Fence < w.now.UnixMilli() {
			t.Errorf("after %s fence %d follows %d, at %d", to, lease.Fence, was, w.now.UnixMilli())
		}
		was = lease.Fence
		w.settle(w.answer(lease, done()))
	}
}

// TestNumbersOfBatchesLeapWhenAProcessStarts, once there are any, and never back.
func TestNumbersOfBatchesLeapWhenAProcessStarts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	next := func() (n int64) {
		w.must(w.s.Pool().QueryRow(w.ctx, `SELECT nextval('postern.batch_id')`).Scan(&n))
		return n
	}
	w.must(w.s.Leap(w.ctx))
	if n := next(); n != 1 {
		t.Errorf("the first is %d", n)
	}
	before := time.Since(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)).Milliseconds()
	w.must(w.s.Leap(w.ctx))
	if n := next(); n < before-60_000 || n > before+600_000 || n >= 1<<40 {
		t.Errorf("it leaps to %d at %d", n, before)
	}
	_, err := w.s.Pool().Exec(w.ctx, `SELECT setval('postern.batch_id', 1::bigint << 40)`)
	w.must(err)
	w.must(w.s.Leap(w.ctx))
	if n := next(); n != 1<<40+1 {
		t.Errorf("it fell to %d", n)
	}
}
