package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

// bulkChunk is how many transactions one commit of a bulk changes: their queues are locked until then.
const bulkChunk = 100

// Pull is a lever on one transaction.
type Pull func(ctx context.Context, by db.By, id outbox.ID) (LeverResult, error)

// Pulled is what a lever did with one transaction of several, or why it refused.
type Pulled struct {
	ID outbox.ID
	LeverResult
	Refused *fault.Error
}

// Bulk pulls a lever on many transactions in the order of ids, in chunks of one commit each, and returns one result for
// each that was tried. A refusal concerns one transaction. An error, of the database for instance, ends the bulk: the
// transactions in the list have been done then. With dry nothing is kept.
func (s *Store) Bulk(ctx context.Context, by db.By, ids []outbox.ID, dry bool, pull Pull) (done []Pulled, err error) {
	for len(ids) > 0 {
		n := min(len(ids), bulkChunk)
		var part []Pulled
		if dry {
			tried, end := s.DryRun(ctx)
			part, err = pullEach(tried, by, ids[:n], pull)
			end()
		} else {
			err = s.Together(ctx, ids[:n], func(ctx context.Context) (err error) {
				part, err = pullEach(ctx, by, ids[:n], pull)
				return err
			})
			if fault.CodeOf(err) == "broken" { // each in a commit of its own waits for one queue at a time
				part, err = pullEach(ctx, by, ids[:n], pull)
				done = append(done, part...)
				part = nil
			}
		}
		if err != nil {
			return done, err
		}
		done, ids = append(done, part...), ids[n:]
	}
	return done, nil
}

// BulkApart is Bulk with a commit for each, for levers that may refuse after they have written something.
func (s *Store) BulkApart(ctx context.Context, by db.By, ids []outbox.ID, dry bool, pull Pull) (done []Pulled, err error) {
	for i := range ids {
		tried, end := ctx, func() {}
		if dry {
			tried, end = s.DryRun(ctx)
		}
		part, err := pullEach(tried, by, ids[i:i+1], pull)
		end()
		if done = append(done, part...); err != nil {
			return done, err
		}
	}
	return done, nil
}

func pullEach(ctx context.Context, by db.By, ids []outbox.ID, pull Pull) ([]Pulled, error) {
	var list []Pulled
	for _, id := range ids {
		r, err := pull(ctx, by, id)
		p := Pulled{ID: id, LeverResult: r}
		if err != nil {
			f := fault.As(err)
			if f.Kind == fault.Internal || f.Kind == fault.Retry && f.Code != "queue_full" && f.Code != "queue_draining" {
				return list, err
			}
			p.Refused = f
		}
		list = append(list, p)
	}
	return list, nil
}

// PurgeQueue cancels up to most transactions that wait in a queue, oldest first. A transaction in flight goes on. more
// says that some wait still. It leaves alone transactions that are posted after its begin, so that it ends also where
// posts come all the while.
func (s *Store) PurgeQueue(ctx context.Context, by db.By, name string, most int) (cancelled int, more bool, err error) {
	q, err := s.Queue(ctx, by.Context, name)
	if err != nil {
		return 0, false, err
	}
	if err := by.Seen(q.Version); err != nil {
		return 0, false, err
	}
	by.Match = nil // it was about the queue
	dry := db.JointOf(ctx) != nil
	begin, err := s.Now(ctx)
	if err != nil {
		return 0, false, err
	}
	if q.Head == nil {
		return 0, false, s.auditPurge(ctx, by, "/queues/"+name)
	}
	above := int64(0)
	for {
		ids, err := s.waiting(ctx, q.Head.Queue, above, begin, min(bulkChunk, most-cancelled+1))
		if err != nil {
			return cancelled, false, err
		}
		if len(ids) > most-cancelled {
			ids, more = ids[:most-cancelled], true
		}
		if len(ids) == 0 {
			return cancelled, more, s.auditPurge(ctx, by, "/queues/"+name)
		}
		above = ids[len(ids)-1].Seq
		done, err := s.Bulk(ctx, by, ids, dry, s.cancelWaits)
		for _, p := range done {
			if p.Changed {
				cancelled++
			}
		}
		if err != nil {
			return cancelled, true, err
		}
	}
}

// cancelWaits is Cancel of what waits; one that went out since it was looked for is left alone.
func (s *Store) cancelWaits(ctx context.Context, by db.By, id outbox.ID) (LeverResult, error) {
	t, err := s.Transaction(ctx, by.Context, id)
	if err != nil || t.State != outbox.WAITING {
		return LeverResult{}, err
	}
	return s.Cancel(ctx, by, t.ID)
}

// waiting returns transactions of a queue above a position that are neither ended nor in flight.
func (s *Store) waiting(ctx context.Context, queue, above int64, until time.Time, limit int) ([]outbox.ID, error) {
	rows, err := s.Db(ctx).Query(ctx, `SELECT t.queue_id, t.seq, t.day - '1970-01-01', postern.salt(t.created_at, t.moved_from) FROM postern.queue q
		JOIN postern.task t ON t.queue_id = q.queue_id AND t.seq >= q.head_seq AND t.day >= q.head_day
		WHERE q.queue_id = $1 AND t.seq > $2 AND t.created_at <= $3 AND t.seq IS DISTINCT FROM q.cur_seq
			AND NOT EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq, o.day) = (t.queue_id, t.seq, t.day))
		ORDER BY t.seq LIMIT $4`, queue, above, until, limit)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (id outbox.ID, err error) {
		return id, row.Scan(&id.Queue, &id.Seq, &id.Day, &id.Salt)
	})
	return list, db.Known(err)
}

// auditPurge keeps who purged what, beside the rows of what was cancelled.
func (s *Store) auditPurge(ctx context.Context, by db.By, object string) error {
	return s.Run(ctx, func(t *db.Txn) error {
		b := &pgx.Batch{}
		s.AuditIn(b, by, "purge", object)
		return t.Commit(ctx, b)
	})
}
