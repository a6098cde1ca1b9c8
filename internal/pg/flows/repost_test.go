package flows_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/pg"
)

// A job without a transaction is found behind very many that stay so while their context is in quarantine.
func TestAJobIsPostedBehindThoseThatCannotBe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := spec(1)
	j.Ref = nil
	_, err := w.S.Flows.PostJob(w.Ctx, w.By, j, "")
	w.Must(err)
	_, err = w.S.PutContext(w.Ctx, w.By, pg.Tenant{Context: pg.Context{Name: "shop", MaxDepth: 10}}, 0)
	w.Must(err)
	shop := w.S.Context("shop").ID
	left := func(in int32, count int, after time.Duration) {
		w.Exec(`INSERT INTO postern.job
			SELECT (jsonb_populate_record(j, jsonb_build_object('job_id', gen_random_uuid(), 'context_id', $1::int,
				'queue_id', NULL, 'seq', NULL, 'day', NULL, 'tx_id', NULL, 'updated_at', $3::timestamptz))).*
			FROM postern.job j, generate_series(1, $2)
			WHERE j.queue_id IS NOT NULL`, in, count, w.Now.Add(after))
	}
	left(shop, 2000, 0)
	left(w.ID, 1, time.Millisecond)
	w.Must(w.S.EnterQuarantine(w.Ctx, w.By, pg.Quarantine{Context: "shop", Reason: "test"}))
	w.Later(time.Minute)
	for range 2 {
		_, err := w.S.Flows.Repost(w.Ctx)
		w.Must(err)
	}
	w.Same(w.Lines(`SELECT count(*) || ' ' || count(*) FILTER (WHERE context_id = $1)
		FROM postern.job
		WHERE queue_id IS NULL`, shop), "2000 2000")
}
