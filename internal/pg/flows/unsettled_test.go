package flows_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/flow"
)

// Of tries and prerequisites that have ended and that the core may not be asked about, as those of a context in
// quarantine, more stand in front of one than a look reads: the look behind that finds it. One that has stood for
// longer than some seconds is not fresh, so that the loop goes by its clock.
func TestWhatIsNotSettledKeepsNoOtherFromBeingLookedAt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("a")
	w.post(0)
	stands := w.one("a")
	v, err := w.S.Flows.PostJob(w.Ctx, w.By, flow.Spec{Script: "1", ScriptType: "python", Timeout: time.Minute,
		Prerequisites: []string{"ok"}, NeedTimeout: time.Hour}, "")
	w.Must(err)
	w.offer()
	const crowd = 600
	w.Exec(`INSERT INTO postern.job_try (try_id, context_id, job_id, queue_id, seq, attempt, token, lane, was, state,
			runner_id, offered_at, ended_at)
		SELECT gen_random_uuid(), t.context_id, t.job_id, t.queue_id, t.seq, t.attempt, 'crowd ' || i, t.lane, 'Held',
			'Failed', t.runner_id, t.offered_at, $2::timestamptz - interval '1 hour'
		FROM postern.job_try t
		CROSS JOIN generate_series(1, $3::int) i
		WHERE t.try_id = $1`, stands.ID, w.Now, crowd)
	w.Exec(`INSERT INTO postern.job_need (job_id, n, name, deadline, met_at, queue_id, seq)
		SELECT gen_random_uuid(), 1, 'ok', $1, $1::timestamptz - interval '1 hour', i, 1000000000
		FROM generate_series(1, $2::int) i`, w.Now, crowd)
	w.Exec(`UPDATE postern.job_need SET queue_id = queue_id + 1000000, met_at = $2 WHERE job_id = $1`, v.ID, w.Now)
	w.Exec(`UPDATE postern.job_try SET was = state, state = 'Finished', ended_at = $2, result = '{}' WHERE try_id = $1`,
		stands.ID, w.Now)
	for i, want := range []struct{ open, fresh int }{{1000, 0}, {202, 2}, {1000, 0}, {202, 2}} {
		open, fresh, err := w.S.Flows.Unsettled(w.Ctx)
		if err != nil || open != want.open || fresh != want.fresh {
			t.Errorf("look %d reads %d, of them %d fresh (%v), want %d and %d", i+1, open, fresh, err, want.open,
				want.fresh)
		}
	}
	w.Later(time.Minute)
	for range 2 {
		if _, fresh, err := w.S.Flows.Unsettled(w.Ctx); err != nil || fresh != 0 {
			t.Errorf("after a minute %d are fresh (%v)", fresh, err)
		}
	}
}
