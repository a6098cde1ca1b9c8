package pg_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// TestAClaimReadsFewOfManyAttempts claims a head whose calls have come to nothing for a day. Of those that say the same
// the newest is read, and how many there are; what the first of them left behind is not lost.
func TestAClaimReadsFewOfManyAttempts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	id := w.Post("q", "T", "a")[0]
	n := w.Node("n")
	l := w.Claim(n, pgworld.Everything())[0]
	a := w.Answer(l, saysBlocked())
	a.Result.Members = []byte(`{"said": "once"}`)
	w.Settle(a)
	const calls = 3000
	for _, sql := range []string{
		`UPDATE postern.attempt
		SET nothing_done = NULL, class = 'ambiguous', step = 'unknown', data = '{"left": "behind"}', fence = 1`,
		`INSERT INTO postern.attempt (queue_id, seq, day, attempt, fence, step, class, code, error, nothing_done, answered_at)
		SELECT queue_id, seq, day, attempt, 1 + i, 'dispatch', 'blocked', 'BUSY', 'call ' || i, true,
			answered_at + i * interval '1 ms'
		FROM postern.attempt, generate_series(1, 3000) i`,
	} {
		_, err := w.S.Pool().Exec(w.Ctx, sql)
		w.Must(err)
	}
	w.Later(time.Hour)
	l = w.Claim(n, pgworld.Everything())[0]
	if len(l.Earlier) != 2 || l.Earlier[0].Error != "call 3000" || l.Earlier[0].Calls != calls {
		t.Fatalf("of %v %d attempts were read: %+v", id, len(l.Earlier), l.Earlier)
	}
	f := l.Flight(0)
	if !f.Called || !f.Again || string(l.Data()) != `{"left": "behind"}` ||
		string(l.Earlier[1].Members) != `{"said": "once"}` {
		t.Errorf("it was called: %t, again: %t, data %s, members %s", f.Called, f.Again, l.Data(), l.Earlier[1].Members)
	}
}
