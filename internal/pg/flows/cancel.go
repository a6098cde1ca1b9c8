package flows

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Cancel ends a job that has not started, and has the runner of one that has stop it. What it returns then is kept on
// the job. A job that has ended stays as it is.
func (s *Store) Cancel(ctx context.Context, by db.By, id uuid.UUID) (r pg.LeverResult, err error) {
	r, err = s.cancel(ctx, by, id)
	if err == nil && r.Changed {
		if err := s.TakeBack(ctx); err != nil {
			s.Log.Warn("take back the transactions of jobs that have ended: the next look does", "error", err)
		}
		s.ring()
	}
	return r, err
}

// CancelAll cancels jobs one after the other. The next look takes back what carries them: a look for each of them would
// read all of them.
func (s *Store) CancelAll(ctx context.Context, by db.By, ids []uuid.UUID) error {
	for _, id := range ids {
		if _, err := s.cancel(ctx, by, id); err != nil {
			return err
		}
	}
	if len(ids) > 0 {
		s.ring()
	}
	return nil
}

// cancel is Cancel without the look that takes back what carries the job.
func (s *Store) cancel(ctx context.Context, by db.By, id uuid.UUID) (r pg.LeverResult, err error) {
	err = s.onJob(ctx, by.Context, id, func(t *db.Txn, l *locked, j *Job) error {
		r = pg.LeverResult{State: string(j.Status)}
		if err := by.Seen(j.Tag()); err != nil {
			return err
		}
		if j.Status.Ended() || j.StopAt != nil {
			r.Pending, r.At = !j.Status.Ended(), stopsAt
			return t.Rollback(ctx)
		}
		b := &pgx.Batch{}
		c := change{on: flow.JobAborted, by: by.Actor, detail: by.Reason, now: l.now,
			code: flow.CodeCancelled, text: pg.Because("cancelled", by.Reason)}
		if err := s.moveJob(b, j, c); err != nil {
			return err
		}
		r.Changed, r.State = true, string(j.Status)
		if !j.Status.Ended() {
			r.Pending, r.At = true, stopsAt
		} else {
			endNeeds(b, []uuid.UUID{id}, c)
			if j.Flow != nil {
				if err := s.goOn(b, l, l.flows[*j.Flow], 0, []*Job{j}); err != nil {
					return err
				}
			}
		}
		s.AuditIn(b, by, "cancel", "/jobs/"+id.String())
		return t.Commit(ctx, b)
	})
	return r, err
}

const stopsAt = "when its runner has stopped the script"

// TakeBack takes back what carries jobs that have ended, or are to stop: offers are withdrawn, transactions that wait
// are cancelled. It is repeated until none is left: what a runner, or the core, has in hand just now is left to the
// next look.
func (s *Store) TakeBack(ctx context.Context) error {
	if db.JointOf(ctx) != nil { // of a trial
		return nil
	}
	s.heard()
	list, err := s.toTakeBack(ctx)
	if err != nil || len(list) == 0 {
		return err
	}
	if err := s.withdraw(ctx, list); err != nil {
		return err
	}
	if err := s.recall(ctx, list); err != nil {
		return err
	}
	for _, j := range list {
		if err := s.cancelTransaction(ctx, j); err != nil {
			return err
		}
	}
	return nil
}

// takenBackAtOnce is how many jobs one look reads that have ended, and how many that are to stop.
const takenBackAtOnce = 1000

// taken is up to where the looks of TakeBack have come, as looked is: the transactions of some jobs stay out for as
// long as their context is in quarantine, and these keep no other job from being read.
type taken struct {
	mu          sync.Mutex
	ended, stop place
}

// place is where a look has ended in the order of a time of jobs.
type place struct {
	at time.Time
	id uuid.UUID
}

// toTakeBack reads what TakeBack needs of jobs that have ended and of those that are to stop, of either kind those
// behind the look before.
func (s *Store) toTakeBack(ctx context.Context) (list []*Job, err error) {
	s.taken.mu.Lock()
	defer s.taken.mu.Unlock()
	for _, k := range []struct {
		by, where string
		at        *place
	}{
		{"j.ended_at", "j.tx_open AND j.ended_at IS NOT NULL", &s.taken.ended},
		{"j.stop_at", "j.stop_at IS NOT NULL AND j.ended_at IS NULL", &s.taken.stop},
	} {
		rows, err := s.Db(ctx).Query(ctx, `SELECT j.job_id, j.context_id, coalesce(j.peer, ''),
				coalesce(j.tx_id::text, ''), j.error, `+k.by+`
			FROM postern.job j
			WHERE `+k.where+` AND j.queue_id IS NOT NULL AND (`+k.by+`, j.job_id) > ($1, $2)
			ORDER BY `+k.by+`, j.job_id
			LIMIT $3`, k.at.at, k.at.id, takenBackAtOnce)
		if err != nil {
			return nil, db.Known(err)
		}
		var j Job
		var at time.Time
		n := 0
		if _, err := pgx.ForEachRow(rows, []any{&j.ID, &j.context, &j.Peer, &j.Tx, &j.Error, &at}, func() error {
			one := j
			list, n = append(list, &one), n+1
			return nil
		}); err != nil {
			return nil, db.Known(err)
		}
		if *k.at = (place{at, j.ID}); n < takenBackAtOnce {
			*k.at = place{}
		}
	}
	return list, nil
}

// withdraw ends the offers of jobs.
func (s *Store) withdraw(ctx context.Context, jobs []*Job) error {
	ids := make([]uuid.UUID, len(jobs))
	for i, j := range jobs {
		ids[i] = j.ID
	}
	var queues []int64
	err := s.Run(ctx, func(t *db.Txn) error {
		queues = nil
		var list []*Try
		var now time.Time
		b := &pgx.Batch{}
		b.Queue(`SELECT `+tryColumns+`
			FROM postern.job_try t
			WHERE t.job_id = ANY ($1) AND t.state = 'Offered'
			ORDER BY t.try_id
			FOR UPDATE OF t SKIP LOCKED`, ids).Query(collectTries(&list))
		b.Queue(`SELECT coalesce($1::timestamptz, clock_timestamp())`,
			s.LeaseNow()).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if len(list) == 0 {
			return t.Rollback(ctx)
		}
		b = &pgx.Batch{}
		for _, v := range list {
			if _, err := s.move(b, v, flow.TryWithdrawn, ending{code: flow.CodeCancelled,
				text: "its job has ended"}, now); err != nil {
				return err
			}
			queues = append(queues, v.queue)
		}
		return t.Commit(ctx, b)
	})
	if err == nil && len(queues) > 0 {
		s.hasten(ctx, queues...)
	}
	return err
}

// cancelTransaction cancels the transaction of a job that has ended, where it can be.
func (s *Store) cancelTransaction(ctx context.Context, j *Job) error {
	id, err := outbox.ParseID(j.Tx)
	if err != nil {
		return nil
	}
	by := db.By{Context: j.context, Actor: "postern", Via: "jobs",
		Reason: pg.Because("job "+j.ID.String()+" has ended", j.Error)}
	_, err = s.Store.Cancel(ctx, by, id)
	switch fault.KindOf(err) {
	case "", fault.Conflict, fault.NotFound: // it is in hand, and its worker refuses it; or it has ended
		return nil
	}
	return err
}
