package flows

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Need is a prerequisite of a job: somebody says that it is met, until its deadline.
type Need struct {
	N        int        `json:"n"`
	Name     string     `json:"name"`
	Deadline *time.Time `json:"deadline"` // nil: its job is not posted yet
	MetAt    *time.Time `json:"met_at"`
	MetBy    string     `json:"met_by"`
	EndedAt  *time.Time `json:"ended_at"` // when it was too late, or its job had ended
}

// setDeadlines adds to b until when the prerequisites of jobs may be met that are posted now.
func setDeadlines(b *pgx.Batch, jobs []uuid.UUID, now time.Time) {
	b.Queue(`UPDATE postern.job_need n
		SET deadline = $2::timestamptz + j.need_time
		FROM postern.job j
		WHERE n.job_id = ANY ($1) AND j.job_id = n.job_id AND n.deadline IS NULL`, jobs, now)
}

// needSubmission is the transaction of a prerequisite. No runner takes it: it ends when it is met, or too late.
func (j *Job) needSubmission(n int, name string) *pg.Submission {
	none := 0
	data, _ := json.Marshal(map[string]string{"job": j.ID.String(), "need": name}) // of strings
	sum := sha256.Sum256(append([]byte("need\x00"), data...))
	return &pg.Submission{
		Held:       true,
		ContextID:  j.context,
		UID:        flow.NeedUID(j.ID, n),
		Hash:       sum[:],
		Actor:      j.Actor,
		Poster:     outbox.ByAdmin,
		Type:       flow.TypeNeed,
		Data:       data,
		MaxRetries: &none,
	}
}

// Meet says that prerequisites of a job are met: all that are named, or none. Outcomes besides: Invalid for a name that
// the job does not wait for; Conflict "wrong_state" where the job has ended, or the time for one is over.
//
// A sweep that finds the deadline over waits for the lock of the row, and finds it met; or it was first, and this finds
// it ended.
func (s *Store) Meet(ctx context.Context, by db.By, id uuid.UUID, names []string) (changed bool, err error) {
	var queues []int64
	err = s.Run(ctx, func(t *db.Txn) error {
		changed, queues = false, nil
		l, err := s.lock(ctx, t, nil, nil, []uuid.UUID{id})
		if err != nil {
			return err
		}
		j := l.jobs[id]
		if j == nil || j.context != by.Context {
			return noJob(id.String())
		}
		found, of, err := s.lockNeeds(ctx, t, id)
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		for i, name := range names {
			n := found[name]
			switch {
			case n == nil:
				return fault.At(fmt.Sprintf("/met/%d", i), "job %s waits for no prerequisite %q", id, fault.Clip(name))
			case n.MetAt != nil:
				continue
			case j.Status.Ended(), n.EndedAt != nil, n.Deadline != nil && !n.Deadline.After(l.now):
				return fault.New(fault.Conflict, "wrong_state",
					"prerequisite %q is not waited for any more: job %s is %s", fault.Clip(name), id, j.Status)
			}
			n.MetAt, changed = &l.now, true
			b.Queue(`UPDATE postern.job_need SET met_at = $3, met_by = $4 WHERE (job_id, n) = ($1, $2)`, id, n.N, l.now,
				by.Actor)
			if q := of[name]; q != nil {
				queues = append(queues, *q)
			}
		}
		if !changed {
			return t.Rollback(ctx)
		}
		s.AuditIn(b, by, "met", "/jobs/"+id.String())
		return t.Commit(ctx, b)
	})
	if err == nil && changed {
		s.hasten(ctx, queues...)
		s.ring()
	}
	return changed, err
}

// lockNeeds locks the prerequisites of a job, and returns them by their names, with the queues of their transactions.
func (s *Store) lockNeeds(ctx context.Context, t *db.Txn, job uuid.UUID) (found map[string]*Need,
	of map[string]*int64, err error) {
	found, of = map[string]*Need{}, map[string]*int64{}
	b := &pgx.Batch{}
	b.Queue(`SELECT n.n, n.name, n.deadline, n.met_at, n.ended_at, n.queue_id
		FROM postern.job_need n
		WHERE n.job_id = $1
		ORDER BY n.n
		FOR UPDATE`, job).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			n, queue := &Need{}, new(int64)
			if err := rows.Scan(&n.N, &n.Name, &n.Deadline, &n.MetAt, &n.EndedAt, &queue); err != nil {
				return err
			}
			found[n.Name], of[n.Name] = n, queue
		}
		return rows.Err()
	})
	return found, of, t.Send(ctx, b)
}

// overdueNeeds ends prerequisites whose time is over, and returns how many.
func (s *Store) overdueNeeds(ctx context.Context) (int, error) {
	tag, err := s.Exec(ctx, `UPDATE postern.job_need n
		SET ended_at = coalesce($1::timestamptz, clock_timestamp())
		FROM (
			SELECT k.job_id, k.n
			FROM postern.job_need k
			WHERE k.deadline <= coalesce($1::timestamptz, clock_timestamp())
				AND k.met_at IS NULL
				AND k.ended_at IS NULL
			ORDER BY k.deadline
			LIMIT 500
			FOR UPDATE SKIP LOCKED) x
		WHERE (n.job_id, n.n) = (x.job_id, x.n)`, s.Clock())
	return int(tag.RowsAffected()), err // the look for those that are not settled has the core ask
}

// needStatuses reads what the core is told of prerequisites, by what it knows them by.
func (s *Store) needStatuses(ctx context.Context, hashes []string, found map[string]outbox.Status) error {
	var jobs []uuid.UUID
	var ns []int
	for _, h := range hashes {
		if job, n, ok := flow.NeedOf(h); ok {
			jobs, ns = append(jobs, job), append(ns, n)
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	rows, err := s.Db(ctx).Query(ctx, `SELECT n.job_id, n.n, n.name, n.met_at, n.met_by, n.ended_at
		FROM postern.job_need n
		JOIN ROWS FROM (unnest($1::uuid[]), unnest($2::int[])) x(job_id, n) ON (n.job_id, n.n) = (x.job_id, x.n)`,
		slices.Clone(jobs), ns)
	if err != nil {
		return db.Known(err)
	}
	var job uuid.UUID
	n := Need{}
	_, err = pgx.ForEachRow(rows, []any{&job, &n.N, &n.Name, &n.MetAt, &n.MetBy, &n.EndedAt}, func() error {
		hash := flow.NeedHash(flow.NeedUID(job, n.N))
		st := outbox.Status{State: outbox.StatusPending, Hash: hash}
		switch {
		case n.MetAt != nil:
			st.State, st.Confirmations = outbox.StatusIncluded, 1
			st.Done, _ = json.Marshal(map[string]string{"met_by": n.MetBy}) // of strings
		case n.EndedAt != nil:
			st.State, st.Final = outbox.StatusFailed, true
			st.FailureReason = fmt.Sprintf("prerequisite %q was not met in time, or its job had ended", n.Name)
		}
		found[hash] = st
		return nil
	})
	return db.Known(err)
}
