package pg

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/backoff"
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
			out.More = out.More || !done.waits
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
		in := &ingest{deps: deps, staged: true, reread: &reread, s: s, e: newEffects(s), subs: subs,
			out: make([]Accepted, 1)}
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
			done.waits = in.stays
			return t.Rollback(ctx)
		}
		if done.Refused, err = in.endsOf(ctx, t, r.sub); err != nil {
			return err
		}
		done.Rows, b = 1, &pgx.Batch{}
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

// endsOf adds the marks of the only submission of this commit, or its end where it is refused; refused is 1 then.
func (in *ingest) endsOf(ctx context.Context, t *db.Txn, sub *Submission) (refused int, err error) {
	if refusal := in.out[0].Err; refusal != nil {
		return 1, in.turnDown(ctx, t, sub, fault.As(refusal))
	}
	in.depend()
	return 0, nil
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
		FOR UPDATE SKIP LOCKED`, r.sub.ContextID, r.uid, r.number).Query(func(rows pgx.Rows) error {
		first = rows.Next()
		return rows.Err()
	})
	err = t.Send(ctx, b)
	return first, err
}

// sickness is what a Drainer remembers of a queue, or of a row without one, that it could not write.
type sickness struct {
	failures int
	until    time.Time
}

// drainLoose drains rows without a queue one by one, and leaves alone those that cannot be written.
func (d *Drainer) drainLoose(ctx context.Context, name nameKey, out *round) error {
	where, args := d.looseWhere(name, 0)
	rows, err := d.s.Pool().Query(ctx, `SELECT o.stage_id, o.context_id, o.uid FROM postern.outbox o `+where+`
		ORDER BY o.context_id, o.stage_id LIMIT `+strconv.Itoa(drainRows), args...)
	if err != nil {
		return db.Known(err)
	}
	list, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (row stagedRow, err error) {
		row.sub = &Submission{}
		return row, r.Scan(&row.number, &row.sub.ContextID, &row.uid)
	})
	if err != nil {
		return db.Known(err)
	}
	for _, row := range list {
		_, err := d.drain(ctx, []nameKey{name}, true, row.number, out)
		if err != nil && ofAll(ctx, err) {
			return err
		}
		if key := row.key(); err != nil {
			d.failed(key, err, out)
		} else {
			delete(d.sick, key)
		}
	}
	return nil
}

// loose says whether rows of that queue are drained as those without one: it has no name, or none that a queue can
// have.
func loose(queue string) bool { return !wellNamed(queue, mostName) }

// looseWhere selects the rows of a queue that is loose, without those that are left alone; number selects one of them.
func (d *Drainer) looseWhere(name nameKey, number int64) (string, []any) {
	var sick db.Columns
	now := time.Now()
	for key, s := range d.sick {
		if uid, ok := strings.CutPrefix(key.name, looseRow); ok && now.Before(s.until) {
			sick.Add(key.context, uid)
		}
	}
	where, args := `WHERE o.queue IS NULL`, []any{}
	if name.name != "" {
		where, args = `WHERE (o.queue, o.context_id) = ($1, $2)`, []any{name.name, name.context}
	}
	if number != 0 {
		args = append(args, number)
		where += fmt.Sprintf(` AND o.stage_id = $%d`, len(args))
	}
	if sick.Cols != nil {
		n := len(args)
		args = append(args, sick.Args()...)
		where += fmt.Sprintf(` AND NOT EXISTS (
			SELECT FROM ROWS FROM (unnest($%d::int[]), unnest($%d::text[])) n(context_id, uid)
			WHERE (n.context_id, n.uid) = (o.context_id, o.uid))`, n+1, n+2)
	}
	return where, args
}

// looseRow begins the key of a row without a queue among those that are left alone; no queue is named so.
const looseRow = "\x00"

// key is under what a row is left alone.
func (r stagedRow) key() nameKey {
	if loose(r.queue) {
		return nameKey{r.sub.ContextID, looseRow + r.uid}
	}
	return nameKey{r.sub.ContextID, r.queue}
}

// A queue that cannot be written is left alone for so long, then for longer.
const sickFirst, sickMost = 100 * time.Millisecond, 10 * time.Second

// failed leaves a queue or a row alone for a while.
func (d *Drainer) failed(key nameKey, err error, out *round) {
	n := d.sick[key].failures + 1
	d.sick[key] = sickness{n, time.Now().Add(backoff.Doubling(n, sickFirst, sickMost))}
	what := "queue"
	name, row := strings.CutPrefix(key.name, looseRow)
	if row {
		what = "uid"
	}
	err = fmt.Errorf("%s %s of context %d: %w", what, fault.Clip(name), key.context, err)
	out.Failed = errors.Join(out.Failed, err)
}

// healthy lists the queues that are not left alone now. A queue that has been due for a minute is forgotten.
func (d *Drainer) healthy(names []nameKey) []nameKey {
	if len(d.sick) == 0 {
		return names
	}
	now := time.Now()
	for key, s := range d.sick {
		if now.After(s.until.Add(time.Minute)) {
			delete(d.sick, key)
		}
	}
	return slices.DeleteFunc(names, func(n nameKey) bool { return now.Before(d.sick[n].until) })
}

// recovered forgets that these queues could not be written.
func (d *Drainer) recovered(names []nameKey) {
	for _, n := range names {
		delete(d.sick, n)
	}
}
