package flows

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// jobMaker is the Maker of the transactions of jobs.
type jobMaker struct{ s *Store }

// jobsMade describes their maker.
func jobsMade(s *Store) pg.Made {
	return pg.Made{
		Maker:  jobMaker{s},
		As:     outbox.ByAdmin,
		Owns:   func(typ, _ string) bool { return strings.HasPrefix(typ, flow.TypePrefix) },
		Awaits: `SELECT d.queue_id, d.seq, d.day FROM postern.job_due d`,
	}
}

// May leads cancel and abandon to the job, which stops the runner besides. All else is the transaction's own.
func (m jobMaker) May(by db.By, lever string, t *pg.Task) error {
	if lever != "cancel" && lever != "abandon" || by.Via == "jobs" {
		return nil
	}
	return fault.New(fault.Conflict, "wrong_state", "transaction %s carries a job, which its runner may be "+
		"executing: cancel the job "+
		"(GET /jobs?tx=%s finds it)", t.ID, t.ID).With("lever", "POST /jobs/{id}/cancel")
}

// Redrive refuses: a second execution is a new job, which has a result of its own.
func (m jobMaker) Redrive(context.Context, db.By, *pg.Transaction, pg.Redrive, pg.Repost) (pg.Accepted, error) {
	return pg.Accepted{}, fault.New(fault.Conflict, "wrong_state",
		"a transaction that carries a job is not redriven: redrive its flow, or post the job anew").
		With("lever", "POST /jobs")
}

// Moved has the job know the new place.
func (m jobMaker) Moved(b *pgx.Batch, t *pg.Task) {
	old, err := outbox.ParseID(t.MovedFrom)
	if err != nil {
		return
	}
	b.Queue(`UPDATE postern.job SET queue_id = $3, seq = $4, day = $5, tx_id = $6::text::uuid
		WHERE (queue_id, seq) = ($1, $2)`,
		old.Queue, old.Seq, t.ID.Queue, t.ID.Seq, t.ID.Day.Time(), txID(t))
}

// Forget removes jobs that ended.
func (m jobMaker) Forget(ctx context.Context, before time.Time) error {
	if !m.s.Has(Jobs) {
		return nil
	}
	return m.s.forgetJobs(ctx, before)
}

// Ended names the job.
func (m jobMaker) Ended(t *pg.Transaction) string {
	if id, ok := flow.JobOfUID(t.UID); ok {
		return "it carried job " + id.String()
	}
	return "it carried a job"
}

// forgetJobs removes jobs that ended before a time, with their tries and what these wrote, in chunks, and then flows
// that have no job any more. One whose transaction has not ended stays, and so do the jobs of a flow, or of a message,
// that has not: its result tells how each did, and a peer counts what they wrote. What a subscription is still to be
// told of stays, since the telling reads its row: one statement sees one moment, and the event goes from fanout to
// delivery in one commit.
func (s *Store) forgetJobs(ctx context.Context, before time.Time) error {
	if err := s.InChunks(ctx, func(atOnce int) (int, error) {
		tag, err := s.Exec(ctx, fmt.Sprintf(forgetJobsSQL, cmp.Or(s.KeptSQL, "false")), before, atOnce)
		return int(tag.RowsAffected()), err
	}); err != nil {
		return err
	}
	return s.InChunks(ctx, func(atOnce int) (int, error) {
		tag, err := s.Exec(ctx, `WITH old AS MATERIALIZED (
				SELECT f.flow_id
				FROM postern.flow f
				WHERE f.ended_at < $1
					AND NOT EXISTS (SELECT FROM postern.job j WHERE j.flow_id = f.flow_id)
					AND NOT postern.to_be_told(f.flow_id, f.flow_id, true)
				ORDER BY f.ended_at
				LIMIT $2),
			steps AS (DELETE FROM postern.flow_step s USING old WHERE s.object = old.flow_id)
			DELETE FROM postern.flow f USING old WHERE f.flow_id = old.flow_id`, before, atOnce)
		return int(tag.RowsAffected()), err
	})
}

const forgetJobsSQL = `WITH old AS MATERIALIZED (
		SELECT j.job_id
		FROM postern.job j
		WHERE j.ended_at < $1
			AND NOT j.tx_open
			AND NOT postern.to_be_told(j.job_id, coalesce(j.flow_id, j.job_id), false)
			AND NOT EXISTS (
				SELECT FROM postern.flow f
				WHERE f.flow_id = j.flow_id AND (f.ended_at IS NULL OR f.ended_at >= $1))
			AND NOT %s
		ORDER BY j.ended_at
		LIMIT $2),
	tries AS MATERIALIZED (SELECT t.try_id FROM postern.job_try t JOIN old USING (job_id)),
	logs AS (DELETE FROM postern.try_log l USING tries WHERE l.try_id = tries.try_id),
	late AS (DELETE FROM postern.try_late l USING tries WHERE l.try_id = tries.try_id),
	gone AS (DELETE FROM postern.job_try t USING tries WHERE t.try_id = tries.try_id),
	steps AS (DELETE FROM postern.flow_step s USING old WHERE s.object = old.job_id),
	edges AS (DELETE FROM postern.job_edge e USING old WHERE e.job_id = old.job_id),
	needs AS (DELETE FROM postern.job_need n USING old WHERE n.job_id = old.job_id)
	DELETE FROM postern.job j USING old WHERE j.job_id = old.job_id`
