package pg

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
)

// putAside takes out of rows what depends on others (S2.15), and what was staged behind it in its queue.
func (d *round) putAside(rows []stagedRow) (rest []stagedRow) {
	behind := map[nameKey]bool{}
	for _, r := range rows {
		key := nameKey{r.sub.ContextID, r.sub.Queue}
		switch {
		case behind[key]:
		case len(r.sub.DependsOn) > 0:
			d.dependents = append(d.dependents, r)
			behind[key] = key.name != ""
		default:
			rest = append(rest, r)
		}
	}
	return rest
}

func (d *round) add(more round) {
	d.Rows, d.Refused, d.More = d.Rows+more.Rows, d.Refused+more.Refused, d.More || more.More
	d.Failed = errors.Join(d.Failed, more.Failed)
	d.dependents = append(d.dependents, more.dependents...)
}

// drainDependents gives those their positions that come first in their queues and depend on others, each in a
// commit of its own. One that depends on what is staged itself waits for a later round. That round comes:
// submit accepts a dependency only on what was staged before or has its position, so that the oldest staged
// row of all depends on nothing that is staged.
func (d *Drainer) drainDependents(ctx context.Context, out *round) error {
	for _, r := range out.dependents {
		done, err := d.s.drainDependent(ctx, r)
		switch {
		case err == nil:
			out.add(done)
			out.More = true
			delete(d.sick, r.key())
		case fault.CodeOf(err) == "overloaded":
			out.More = true
		case ofAll(ctx, err):
			return err
		default:
			d.failed(r.key(), err, out)
		}
	}
	out.dependents = nil
	return nil
}

// drainDependent drains r if it still comes first in its queue. The queues of what it depends on are found
// before any is locked, and locked with its own in the order of their ids; whether r still comes first is
// asked behind the locks. That nothing is staged any more of what it depends on is asked before the places
// of these are: a drain moves a row from the one to the other in one commit, so that a row which is in
// neither does not exist.
func (s *Store) drainDependent(ctx context.Context, r stagedRow) (done round, err error) {
	if wait, err := s.dependsOnStaged(ctx, r); err != nil || wait {
		return done, err
	}
	subs := []*Submission{r.sub}
	if err := s.EnsureQueues(ctx, subs); err != nil {
		return done, err
	}
	deps, err := s.dependencies(ctx, subs)
	if err != nil {
		return done, err
	}
	s.Judge(r.sub)
	reread := false
	err = s.Run(ctx, func(t *db.Txn) error {
		done = round{}
		b := &pgx.Batch{}
		b.Queue(`SET LOCAL lock_timeout = '100ms'`)
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		in := &ingest{deps: deps, reread: &reread, s: s, e: newEffects(s), subs: subs, out: make([]Accepted, 1)}
		if err := in.load(ctx, t); err != nil {
			return err
		}
		first, err := r.lockFirst(ctx, t)
		if err != nil {
			return err
		}
		if !first {
			return t.Rollback(ctx)
		}
		if err := in.decide(ctx, t); err != nil {
			return err
		}
		if len(in.again) > 0 {
			return t.Rollback(ctx)
		}
		done.Rows = 1
		if refusal := in.out[0].Err; refusal != nil {
			done.Refused = 1
			if err := in.turnDown(ctx, t, r.sub, fault.As(refusal)); err != nil {
				return err
			}
		} else {
			in.depend()
		}
		b = &pgx.Batch{}
		b.Queue(`DELETE FROM postern.outbox o WHERE (o.context_id, o.uid, o.stage_id) = ($1, $2, $3)`,
			r.sub.ContextID, r.uid, r.number)
		if len(in.tasks) > 0 {
			in.write(b)
		}
		return in.e.commit(ctx, t, b)
	})
	if err != nil {
		done = round{}
	}
	return done, err
}

// dependsOnStaged says whether what a staged row depends on is staged itself.
func (s *Store) dependsOnStaged(ctx context.Context, r stagedRow) (staged bool, err error) {
	err = s.Pool().QueryRow(ctx, `SELECT EXISTS (
			SELECT FROM postern.outbox o
			WHERE o.context_id = $1 AND o.uid = ANY ($2) AND o.stage_id <> $3)`,
		r.sub.ContextID, r.sub.DependsOn, r.number).Scan(&staged)
	return staged, db.Known(err)
}

// lockFirst locks a staged row, if it is the first of its queue and no other process has it, and says so.
func (r stagedRow) lockFirst(ctx context.Context, t *db.Txn) (first bool, err error) {
	b := &pgx.Batch{}
	b.Queue(`SELECT o.stage_id
		FROM postern.outbox o
		WHERE (o.context_id, o.uid) = ($1, $2) AND o.stage_id = $3 AND NOT EXISTS (
			SELECT FROM postern.outbox p
			WHERE (p.queue, p.context_id) = (o.queue, o.context_id) AND p.stage_id < o.stage_id)
		FOR UPDATE SKIP LOCKED`,
		r.sub.ContextID, r.uid, r.number).Query(func(rows pgx.Rows) error {
		first = rows.Next()
		return rows.Err()
	})
	err = t.Send(ctx, b)
	return first, err
}
