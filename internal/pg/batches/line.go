package batches

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/processor"
)

// The lines of a processor change under its lock only. A place that is read behind the lock therefore stays true
// until the commit, unless the same SQL transaction changes it. A SQL transaction changes a line once, except for a
// due tick: it may put the batch that it ends back into its line and then look for the first batch. A read does not
// see the effect of statements that are only queued. So deal and pastHigh send them before they read, and after a
// deal concluded sends them and reads the heads anew. Each read goes down the primary key of batch_place once. The
// front and the back need no read at all, since batch_line has the bounds and all places beyond them are free. Only
// a position is counted, from the nearer end: 50,000 entries at most in a line of 100,000.

// standing is a batch and where it stands.
type standing struct{ Place, Batch int64 }

const (
	placesUp = `SELECT place, batch_id FROM postern.batch_place
		WHERE processor_id = $1 AND priority = $2 AND place >= $3 AND place <= $4 ORDER BY place OFFSET $5 LIMIT $6`
	placesDown = `SELECT place, batch_id FROM postern.batch_place
		WHERE processor_id = $1 AND priority = $2 AND place >= $3 AND place <= $4 ORDER BY place DESC OFFSET $5 LIMIT $6`
)

// between reads up to n batches of a line between two places: from the lower one up, or from the upper one down.
func (h *heldProcessor) between(ctx context.Context, t *db.Txn, prio processor.Priority, sql string, low, high, pass, n int64) (list []standing, err error) {
	b := &pgx.Batch{}
	b.Queue(sql, h.ID, prio, low, high, pass, n).Query(func(rows pgx.Rows) (err error) {
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[standing])
		return err
	})
	err = t.Send(ctx, b)
	return list, err
}

// at returns the batch at a position that is there.
func (h *heldProcessor) at(ctx context.Context, t *db.Txn, prio processor.Priority, position int64) (standing, error) {
	l := h.lines[prio]
	pass, fromTail := l.Nearer(position)
	sql := placesUp
	if fromTail {
		sql = placesDown
	}
	list, err := h.between(ctx, t, prio, sql, l.Lowest, l.Highest, pass, 1)
	if err == nil && len(list) == 0 {
		err = fault.New(fault.Internal, "internal", "processor %q: its line %s has %d batches, and none at %d", h.Name, prio, l.Length, position)
	}
	if err != nil {
		return standing{}, err
	}
	return list[0], nil
}

// whereIs returns where a batch of this processor stands, or false if it stands in no line.
func (h *heldProcessor) whereIs(ctx context.Context, t *db.Txn, batch int64) (prio processor.Priority, place int64, found bool, err error) {
	b := &pgx.Batch{}
	b.Queue(`SELECT priority, place FROM postern.batch_place WHERE batch_id = $1 AND processor_id = $2`, batch, h.ID).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&prio, &place}, func() error { found = true; return nil })
		return err
	})
	err = t.Send(ctx, b)
	return prio, place, found, err
}

// put queues in b that a batch joins a line at a spot, and returns its place. Invalid "Index out of bounds"; NotFound,
// if the batch beside which it was to stand is not in this line.
func (h *heldProcessor) put(ctx context.Context, t *db.Txn, b *pgx.Batch, prio processor.Priority, spot processor.Spot, batch int64) (int64, error) {
	place, err := h.spot(ctx, t, b, prio, spot)
	if err != nil {
		return 0, err
	}
	h.lines[prio] = h.lines[prio].With(place)
	b.Queue(`INSERT INTO postern.batch_place (processor_id, priority, place, batch_id) VALUES ($1, $2, $3, $4)`, h.ID, prio, place, batch)
	return place, nil
}

// take queues in b that the batch at a place leaves its line.
func (h *heldProcessor) take(b *pgx.Batch, prio processor.Priority, place int64) {
	h.lines[prio] = h.lines[prio].Without(place)
	b.Queue(`DELETE FROM postern.batch_place WHERE processor_id = $1 AND priority = $2 AND place = $3`, h.ID, prio, place)
}

// saveLines queues in b what has changed of the lines.
func (h *heldProcessor) saveLines(b *pgx.Batch) {
	for _, prio := range processor.Priorities {
		if l := h.lines[prio]; l != h.stored[prio] {
			b.Queue(`UPDATE postern.batch_line SET length = $3, lowest = $4, highest = $5 WHERE processor_id = $1 AND priority = $2`,
				h.ID, prio, l.Length, l.Lowest, l.Highest)
		}
	}
}

// spot finds the place for a spot, and makes room there if there is none.
func (h *heldProcessor) spot(ctx context.Context, t *db.Txn, b *pgx.Batch, prio processor.Priority, spot processor.Spot) (int64, error) {
	l := h.lines[prio]
	if beside := spot.Before + spot.After; beside != 0 {
		line, place, found, err := h.whereIs(ctx, t, beside)
		if err != nil {
			return 0, err
		}
		if !found || line != prio {
			return 0, fault.New(fault.NotFound, "not_found", "batch %d does not stand in line %s of processor %q", beside, prio, fault.Clip(h.Name))
		}
		if spot.Before != 0 {
			return h.middle(ctx, t, b, prio, place-1, place)
		}
		return h.middle(ctx, t, b, prio, place, place+1)
	}
	if err := l.CanInsert(spot.Position); err != nil {
		return 0, err
	}
	switch spot.Position {
	case l.Length:
		if place, ok := l.Back(); ok {
			return place, nil
		}
		return h.deal(ctx, t, b, prio, l.Highest, l.Highest+1)
	case 0:
		if place, ok := l.Front(); ok {
			return place, nil
		}
		return h.deal(ctx, t, b, prio, l.Lowest-1, l.Lowest)
	}
	next, err := h.at(ctx, t, prio, spot.Position)
	if err != nil {
		return 0, err
	}
	return h.middle(ctx, t, b, prio, next.Place-1, next.Place)
}

// middle finds a place between those who stand at or below before and at or above after.
func (h *heldProcessor) middle(ctx context.Context, t *db.Txn, b *pgx.Batch, prio processor.Priority, before, after int64) (int64, error) {
	l := h.lines[prio]
	down, err := h.between(ctx, t, prio, placesDown, l.Lowest, before, 0, 1)
	if err != nil {
		return 0, err
	}
	up, err := h.between(ctx, t, prio, placesUp, after, l.Highest, 0, 1)
	if err != nil {
		return 0, err
	}
	place, ok := int64(0), false
	switch {
	case len(down) == 0:
		place, ok = l.Front()
	case len(up) == 0:
		place, ok = l.Back()
	default:
		place, ok = processor.Between(down[0].Place, up[0].Place)
	}
	if ok {
		return place, nil
	}
	return h.deal(ctx, t, b, prio, before, after)
}

// deal gives new places to some batches around a spot, and returns the one that is left free for the new batch.
// It begins with 32 on each side and looks at eight times as many until there is room: the whole line in the end.
func (h *heldProcessor) deal(ctx context.Context, t *db.Txn, b *pgx.Batch, prio processor.Priority, before, after int64) (int64, error) {
	l := h.lines[prio]
	h.dealt = true
	if err := sendQueued(ctx, t, b); err != nil { // statements queued in b may remove places that are read here
		return 0, err
	}
	for reach := int64(32); ; reach *= 8 {
		down, err := h.between(ctx, t, prio, placesDown, l.Lowest, before, 0, reach+1)
		if err != nil {
			return 0, err
		}
		up, err := h.between(ctx, t, prio, placesUp, after, l.Highest, 0, reach+1)
		if err != nil {
			return 0, err
		}
		var w processor.Window
		if int64(len(down)) > reach {
			w.Before, down = &down[reach].Place, down[:reach]
		}
		if int64(len(up)) > reach {
			w.After, up = &up[reach].Place, up[:reach]
		}
		slices.Reverse(down)
		w.N = int64(len(down) + 1 + len(up))
		places, ok := w.Deal()
		if !ok {
			continue
		}
		free := len(down)
		var ids, to, from []int64
		for i, v := range slices.Concat(down, up) {
			if i >= free {
				i++
			}
			ids, from, to = append(ids, v.Batch), append(from, v.Place), append(to, places[i])
		}
		// taken away as a whole before any is put again: two places would meet halfway otherwise
		b.Queue(`DELETE FROM postern.batch_place WHERE processor_id = $1 AND priority = $2 AND place = ANY ($3)`, h.ID, prio, from)
		b.Queue(`INSERT INTO postern.batch_place (processor_id, priority, place, batch_id) SELECT $1, $2, n.place, n.batch_id
			FROM ROWS FROM (unnest($3::bigint[]), unnest($4::bigint[])) n(place, batch_id)`, h.ID, prio, to, ids)
		if w.Before == nil {
			l.Lowest = places[0]
		}
		if w.After == nil {
			l.Highest = places[len(places)-1]
		}
		h.lines[prio] = l
		return places[free], nil
	}
}

// Standing returns the ids of the batches in a part of a line, in the order that the range asks for, a page at
// most; and how long the line is. Both are of one moment. Invalid "Invalid range".
func (s *Store) Standing(ctx context.Context, contextID int32, name string, prio processor.Priority, r processor.Range) (ids []int64, length int64, err error) {
	err = pgx.BeginTxFunc(ctx, s.Pool(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		var id int32
		var l processor.Line
		err := tx.QueryRow(ctx, `SELECT p.processor_id, l.length, l.lowest, l.highest FROM postern.processor p
			JOIN postern.batch_line l ON l.processor_id = p.processor_id AND l.priority = $3
			WHERE p.context_id = $1 AND p.name = $2 AND p.removed_at IS NULL`, contextID, name, prio).Scan(&id, &l.Length, &l.Lowest, &l.Highest)
		if errors.Is(err, pgx.ErrNoRows) {
			return noProcessor(name)
		}
		if err != nil {
			return err
		}
		if r, err = r.Within(l); err != nil {
			return err
		}
		length = l.Length
		if r.From == r.To {
			return nil
		}
		sql, pass := placesUp, r.From
		if _, fromTail := l.Nearer(r.To - 1); fromTail {
			sql, pass = placesDown, l.Length-r.To
		}
		rows, err := tx.Query(ctx, sql, id, prio, l.Lowest, l.Highest, pass, r.To-r.From)
		if err != nil {
			return err
		}
		list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[standing])
		for _, v := range list {
			ids = append(ids, v.Batch)
		}
		if (sql == placesDown) != r.Desc {
			slices.Reverse(ids)
		}
		return err
	})
	return ids, length, db.Known(err)
}
