package doctor_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/pg/doctor"
	"github.com/postern-dev/postern/internal/pgtest"
)

// Heads that stand still make one line for each cause, with its lever as a command; so do paused things and bad ends.
func TestEachCauseIsOneLineWithItsLever(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, plant := range []string{
		`INSERT INTO postern.stuck (queue_id, context_id, as_of, queue, id, uid, type, state, since,
				blocker, object, blocker_detail, lever)
			SELECT i, 2, clock_timestamp(), 'q' || i, gen_random_uuid(), 'u' || i, 'PAY', 'WAITING',
				clock_timestamp() - i * interval '1 h',
				'no_free_sender', '/pools/p', 'its pool p has no senders', 'PUT /senders/ACCOUNT {"pool":"p"}'
			FROM generate_series(1, 7) i`,
		`INSERT INTO postern.stuck (queue_id, context_id, as_of, queue, id, uid, type, state, since,
				blocker, object, blocker_detail)
			VALUES (8, 2, clock_timestamp(), 'r', '00000000-0000-0000-0000-000000000008', 'r1', 'PAY', 'WAITING',
				clock_timestamp() - interval '5 h',
				'no_node_for_type', '/nodes', 'no live process works on type PAY')`,
		// a sample from before the quarantine was released
		`INSERT INTO postern.stuck (queue_id, context_id, as_of, queue, id, uid, type, state, since,
				blocker, object, blocker_detail, lever)
			VALUES (9, 2, clock_timestamp(), 's', '00000000-0000-0000-0000-000000000009', 's1', 'PAY', 'DISPATCHING',
				clock_timestamp() - interval '5 h', 'quarantined', '/quarantine',
				'everything is in quarantine', 'POST /quarantine/reconcile {"reason":"..."}')`,
		`INSERT INTO postern.task (queue_id, seq, day, context_id, type, data, created_at)
			SELECT i, 1, (clock_timestamp() AT TIME ZONE 'UTC')::date, 2, 'PAY', '{}', clock_timestamp()
			FROM generate_series(11, 14) i`,
		`INSERT INTO postern.outcome (queue_id, seq, day, context_id, state, done_at,
				error_class, error, was, attempt, retries, fence)
			SELECT t.queue_id, 1, t.day, 2, CASE WHEN t.queue_id = 11 THEN 'UNRESOLVED' ELSE 'FAILED' END,
				clock_timestamp(),
				CASE WHEN t.queue_id <= 13 THEN 'rejected' ELSE 'retry' END, 'no such account', 'DISPATCHING', 1, 0, 1
			FROM postern.task t`,
		`INSERT INTO postern.dispatcher (context_id, type, settings, paused)
			VALUES (2, 'PAY', '{"worker_url": "noop:"}', true)`,
		`INSERT INTO postern.audit (context_id, actor, via, action, object, reason)
			VALUES (2, 'ann', 'http', 'pause', '/dispatchers/PAY', 'a holiday')`,
	} {
		if _, err := db.Pool.Exec(t.Context(), plant); err != nil {
			t.Fatalf("%v: %s", err, plant)
		}
	}
	found, err := doctor.Database(t.Context(), db.URL, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ check, found, remedy string }{
		{"stuck queues", "7 heads of type PAY (context default) stand still for up to 7h00m: no free sender: its " +
			"pool p has no senders",
			`postern api PUT /senders/ACCOUNT -d '{"pool":"p"}'`},
		{"stuck queues", "1 head of type PAY (context default) stands still for 5h00m: no node for type",
			"postern why 00000000-0000-0000-0000-000000000008"},
		{"unresolved", "1 transaction of type PAY (context default) ended UNRESOLVED today: no such account",
			"postern ls state=UNRESOLVED type=PAY"},
		{"rejections", "the worker rejected 2 transactions of type PAY (context default) today: no such account",
			"postern ls state=FAILED error_class=rejected type=PAY"},
		{"paused", "dispatchers/PAY is paused by ann: a holiday (context default)",
			"postern resume dispatchers/PAY"},
	} {
		i := slices.IndexFunc(found, func(f doctor.Finding) bool {
			return f.Check == c.check && strings.HasPrefix(f.Found, c.found)
		})
		if i < 0 || found[i].Remedy != c.remedy {
			t.Errorf("%s is not told with %q: %+v", c.found, c.remedy, find(found, c.check))
		}
	}
	if n := len(find(found, "stuck queues")); n != 2 {
		t.Errorf("%d lines for two causes that stand: %+v", n, find(found, "stuck queues"))
	}
}
