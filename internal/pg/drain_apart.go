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
