package pg_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// TestTheSaltInSQLIsTheSaltInGo, of what arrived at any time, and of what was moved.
func TestTheSaltInSQLIsTheSaltInGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	from := outbox.ID{Queue: 0x7abcdef1234, Seq: 0xfedcba9876, Day: 20000, Salt: 0x3fffff}.String()
	for _, moved := range []string{"", from, outbox.ID{Queue: 1, Seq: 1}.String()} {
		for _, at := range []time.Time{time.UnixMicro(0), time.UnixMicro(1), time.UnixMicro(1<<22 - 1),
			time.Date(2026, 3, 29, 2, 30, 0, 123456000, time.UTC), time.Now()} {
			var salt int
			var micros int64
			w.Must(w.S.Pool().QueryRow(w.Ctx, `SELECT postern.salt($1, nullif($2, '')::uuid), postern.micros($1)`,
				at, moved).Scan(&salt, &micros))
			if want := outbox.SaltOf(at, moved); salt != want || micros != at.UnixMicro() {
				t.Errorf("%s from %q: %d and %d us in SQL, %d and %d in Go", at, moved,
					salt, micros, want, at.UnixMicro())
			}
		}
	}
}

// TestAnIDOfALostTransactionIsNoneOfAnother: the place is taken, by what arrived at another time.
func TestAnIDOfALostTransactionIsNoneOfAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	id := w.Post("q", "T", "a")[0]
	lost := id
	lost.Salt ^= 1
	look := func(id outbox.ID) (codes [6]string) {
		_, err := w.S.Transaction(w.Ctx, w.ID, id)
		codes[0] = fault.CodeOf(err)
		_, err = w.S.PostedBy(w.Ctx, w.ID, id)
		codes[1] = fault.CodeOf(err)
		_, err = w.S.Reads.Attempts(w.Ctx, w.ID, id, 0, 500)
		codes[2] = fault.CodeOf(err)
		if open, err := w.S.Open(w.Ctx, w.ID, id); err != nil || !open {
			codes[3] = "not_found"
		}
		var n int
		w.Must(w.S.Pool().QueryRow(w.Ctx, `SELECT count(*) FROM postern.place_of($1, $2)`, w.ID, id.String()).Scan(&n))
		if n == 0 {
			codes[4] = "not_found"
		}
		_, err = w.S.Cancel(w.Ctx, w.By, id)
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
	w.Dispatcher("T", nil)
	n := w.Node("n")
	var was int64
	for _, to := range []time.Duration{0, 0, time.Hour, -2 * time.Hour} {
		w.Later(to)
		w.Post("q", "T", fmt.Sprint("at ", was))
		lease := w.Claim(n, pgworld.Everything())[0]
		if lease.Fence <= was || lease.Fence < w.Now.UnixMilli() {
			t.Errorf("after %s fence %d follows %d, at %d", to, lease.Fence, was, w.Now.UnixMilli())
		}
		was = lease.Fence
		w.Settle(w.Answer(lease, pgworld.Done()))
	}
}

// TestNumbersOfBatchesLeapWhenAProcessStarts, once there are any, and never back.
func TestNumbersOfBatchesLeapWhenAProcessStarts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	next := func() (n int64) {
		w.Must(w.S.Pool().QueryRow(w.Ctx, `SELECT nextval('postern.batch_id')`).Scan(&n))
		return n
	}
	w.Must(w.S.Leap(w.Ctx))
	if n := next(); n != 1 {
		t.Errorf("the first is %d", n)
	}
	before := time.Since(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)).Milliseconds()
	w.Must(w.S.Leap(w.Ctx))
	if n := next(); n < before-60_000 || n > before+600_000 || n >= 1<<40 {
		t.Errorf("it leaps to %d at %d", n, before)
	}
	_, err := w.S.Pool().Exec(w.Ctx, `SELECT setval('postern.batch_id', 1::bigint << 40)`)
	w.Must(err)
	w.Must(w.S.Leap(w.Ctx))
	if n := next(); n != 1<<40+1 {
		t.Errorf("it fell to %d", n)
	}
}
