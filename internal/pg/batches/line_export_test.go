package batches

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/processor"
)

// PutInLine puts a new id into a line and returns it: nothing of a batch but where it stands.
func (s *Store) PutInLine(ctx context.Context, contextID int32, name string, prio processor.Priority,
	spot processor.Spot) (id int64, err error) {
	err = s.onProcessor(ctx, contextID, name, func(t *db.Txn, h *heldProcessor) error {
		b := &pgx.Batch{}
		b.Queue(`SELECT nextval('postern.batch_id')`).QueryRow(func(row pgx.Row) error { return row.Scan(&id) })
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		b = &pgx.Batch{}
		if _, err := h.put(ctx, t, b, prio, spot, id); err != nil {
			return err
		}
		h.saveLines(b)
		return t.Commit(ctx, b)
	})
	return id, err
}

// TakeFromLine takes the id at a position out of a line, and returns it.
func (s *Store) TakeFromLine(ctx context.Context, contextID int32, name string, prio processor.Priority,
	position int64) (id int64, err error) {
	err = s.onProcessor(ctx, contextID, name, func(t *db.Txn, h *heldProcessor) error {
		if err := h.lines[prio].CanRemove(position); err != nil {
			return err
		}
		v, err := h.at(ctx, t, prio, position)
		if err != nil {
			return err
		}
		id = v.Batch
		b := &pgx.Batch{}
		h.take(b, prio, v.Place)
		h.saveLines(b)
		return t.Commit(ctx, b)
	})
	return id, err
}
