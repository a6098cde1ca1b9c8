package flows

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Replay is what the runner of the last try of a job was given, so that somebody executes it elsewhere. It changes
// nothing but the audit, which says who has read the environment. Outcomes besides: NotFound; Conflict "wrong_state"
// where no runner was given anything.
func (s *Store) Replay(ctx context.Context, by db.By, id uuid.UUID) (v *Taken, err error) {
	j, err := s.Job(ctx, by.Context, id)
	if err != nil {
		return nil, err
	}
	err = s.Run(ctx, func(t *db.Txn) error {
		var tries []*Try
		b := &pgx.Batch{}
		b.Queue(`SELECT `+tryColumns+`
			FROM postern.job_try t
			WHERE t.job_id = $1 AND t.runner_id IS NOT NULL
			ORDER BY t.attempt DESC
			LIMIT 1`, id).Query(collectTries(&tries))
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if len(tries) == 0 {
			return fault.New(fault.Conflict, "wrong_state",
				"no runner has executed job %s: there is nothing to replay", id).With("lever", "GET /jobs/{id}/why")
		}
		v = &Taken{Try: tries[0], Posted: j}
		if err := s.provide(ctx, t, []*Taken{v}); err != nil {
			return err
		}
		b = &pgx.Batch{}
		s.AuditIn(b, by, "replay", "/jobs/"+id.String())
		return t.Commit(ctx, b)
	})
	return v, err
}
