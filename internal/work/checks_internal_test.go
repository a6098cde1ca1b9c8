package work

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/pgtest"
)

// Readiness drops where a job is due and no process begins it, whatever the reason.
func TestReadinessDropsWhereNobodyDoesTheJobs(t *testing.T) {
	t.Parallel()
	ctx, db := t.Context(), pgtest.New(t)
	e := New(Config{Store: db.Store(t, 2)})
	e.housekeeping.Store(true)
	for _, c := range []struct {
		name, job string
		says      string
	}{
		{"nothing is due", ``, ""},
		{"a job is due", `VALUES ('sweep', 'available', 'postern', now())`, ""},
		{"a job that others claim by", `VALUES ('dispatch', 'available', 'postern', now() - interval '1 h')`, ""},
		{"a job of a node", `VALUES ('sweep', 'available', 'node_7', now() - interval '1 h')`, ""},
		{"a job is done", `VALUES ('sweep', 'running', 'postern', now() - interval '1 h')`, ""},
		{"a job of tomorrow", `VALUES ('sweep', 'scheduled', 'postern', now() + interval '1 d')`, ""},
		{"nobody begins one", `VALUES ('sweep', 'available', 'postern', now() - interval '90 s')`,
			"a job sweep has been due for 9"},
		{"nobody wakes one", `VALUES ('rollup', 'scheduled', 'postern', now() - interval '90 s')`,
			"a job rollup has been due for 9"},
	} {
		if _, err := db.Pool.Exec(ctx, `TRUNCATE river.river_job`); err != nil {
			t.Fatal(err)
		}
		if c.job != "" {
			_, err := db.Pool.Exec(ctx, `INSERT INTO river.river_job (kind, args, max_attempts, state, queue,
					scheduled_at, created_at)
				SELECT v.kind, '{}', 1, v.state::river.river_job_state, v.queue, v.at, least(v.at, now())
				FROM (`+c.job+`) v(kind, state, queue, at)`)
			if err != nil {
				t.Fatal(err)
			}
		}
		got := e.checkJobs(ctx)
		if got.OK != (c.says == "") || !strings.HasPrefix(got.Detail, c.says) {
			t.Errorf("%s: %+v, want %q", c.name, got, c.says)
		}
	}
	db.Pool.Close()
	e.Store.Pool().Close()
	if got := e.checkJobs(ctx); got.OK || !strings.HasPrefix(got.Detail, "unknown") {
		t.Errorf("without a database: %+v", got)
	}
}
