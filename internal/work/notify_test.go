package work_test

import (
	"testing"
	"time"
)

// TestARoleThatMayOnlyConnectStopsNoJobs forges what stops River's queues. Every role may notify on every channel.
func TestARoleThatMayOnlyConnectStopsNoJobs(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.engine("one", nil)
	worked := func(when string) {
		t.Helper()
		_, err := h.db.Pool.Exec(h.ctx, `INSERT INTO river.river_job (kind, args, queue, max_attempts)
			VALUES ('dispatch', '{}', 'postern', 1)`)
		h.must(err)
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			var left int
			h.must(h.db.Pool.QueryRow(h.ctx, `SELECT count(*) FROM river.river_job
				WHERE queue = 'postern' AND kind = 'dispatch' AND attempt = 0`).Scan(&left))
			if left == 0 {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s, %d jobs are not worked on", when, left)
			}
		}
	}
	worked("at first")

	forger := h.db.Stranger(t)
	for channel, payload := range map[string]string{
		"river.river_control":    `{"action":"pause","queue":"*"}`,
		"river.river_leadership": `{"action":"request_resign"}`,
		"river.river_insert":     `not JSON`,
	} {
		_, err := forger.Exec(h.ctx, `SELECT pg_notify($1, $2)`, channel, payload)
		h.must(err)
	}
	time.Sleep(200 * time.Millisecond) // it would be heard by now; where not, the test cannot fail
	worked("after the notifications")
}
