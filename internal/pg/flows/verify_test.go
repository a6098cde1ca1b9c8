package flows_test

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg/verify"
)

// Each planted violation is one that no constraint refuses; it is found by the invariant that it is of.
func TestWhatIsWrongWithJobsAndFlowsIsSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("a")
	f, jobs := w.chain()
	v := w.one("a")
	_, err := w.S.Flows.End(w.Ctx, w.ID, v.ID, v.Fence, finished("1"))
	w.Must(err)
	w.settleEnd()
	_, err = w.S.Flows.Advance(w.Ctx)
	w.Must(err)
	w.post(0)
	w.one("a")
	if found, err := verify.Violations(w.Ctx, w.S.Pool()); err != nil || len(found) > 0 {
		t.Fatalf("%v %v", found, err)
	}
	second := `'` + jobs[1].ID.String() + `'`
	for _, c := range []struct{ invariant, plant string }{
		{"jobs start in order", `UPDATE postern.job SET started_at = created_at WHERE job_id = ` + second},
		{"jobs have one result", `DELETE FROM postern.job_try WHERE state = 'Finished'`},
		{"jobs have one result", `DELETE FROM postern.outcome`},
		{"jobs have one result", `UPDATE postern.job_try SET result = '{"n": "2"}' WHERE state = 'Finished'`},
		{"flows end whole", `UPDATE postern.flow SET was = 'started', status = 'finished', ended_at = created_at
			WHERE flow_id = '` + f.ID.String() + `'`},
		{"flows end whole", `WITH f AS (UPDATE postern.flow SET was = 'started', status = 'error',
				ended_at = created_at - interval '1 hour')
			UPDATE postern.job_try SET was = 'Held', state = 'Offered', runner_id = NULL, ended_at = NULL
			WHERE state = 'Finished'`},
		{"runners that are gone hold nothing", `UPDATE postern.runner SET seen_at = seen_at - interval '1 hour'`},
	} {
		tx, err := w.S.Pool().Begin(w.Ctx)
		w.Must(err)
		if tag, err := tx.Exec(w.Ctx, c.plant); err != nil || tag.RowsAffected() == 0 {
			t.Errorf("%s: %v %v", c.plant, tag, err)
		}
		i := slices.IndexFunc(verify.Invariants, func(v verify.Invariant) bool { return v.Name == c.invariant })
		rows, _ := tx.Query(w.Ctx, verify.Invariants[i].SQL)
		if found, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(found) == 0 {
			t.Errorf("%q was not seen by %s: %v", c.plant, c.invariant, err)
		}
		w.Must(tx.Rollback(w.Ctx))
	}
}
