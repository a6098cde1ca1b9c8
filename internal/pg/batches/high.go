package batches

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/processor"
)

// coolsSQL says whether the batch b of the processor p cools, as processor.Batch.Cools does.
const coolsSQL = `(coalesce(b.cooldown_until > n.now, false) OR coalesce(b.cooldown_height > p.height, false))`

// holdsMedSQL says whether Med waits for the batch b, which stands in High: for one that could run or has expired,
// and, unless the processor is fair, for one that cools after a failure (S4.10). Med does not wait for one that could
// not run because its contract was away when it was tried last: neither while it cools because of that, nor longer,
// while the worker is still left alone because others have tried it. One that was not tried yet has its try.
const holdsMedSQL = `(coalesce(b.expiration_time < n.now, false) OR NOT CASE
		WHEN ` + coolsSQL + ` THEN p.fair OR b.left_alone
		ELSE b.left_alone AND EXISTS (SELECT FROM postern.dispatcher d
			WHERE d.context_id = b.context_id
				AND d.type = coalesce(
					b.actions #>> ARRAY['non_atomic', 'functions', b.position::text, 'contract_address'],
					b.actions #>> '{atomic,functions,0,contract_address}')
				AND ` + gateClosedSQL + `) END)`

// firstHoldingMedSQL is the first batch in the line h of the processor p for which Med waits, and whether it cools.
// Its cost is the number of those before it, whose contracts are away, or which cool in a fair processor.
const firstHoldingMedSQL = `SELECT b.batch_id, b.updated_at, ` + coolsSQL + ` AS cools
	FROM postern.batch_place l
	JOIN postern.batch b ON b.batch_id = l.batch_id
	WHERE l.processor_id = p.processor_id AND l.priority = 0 AND l.place >= h.lowest AND ` + holdsMedSQL + `
	ORDER BY l.place
	LIMIT 1`

// ofHighSQL looks for that batch of the processor $1 at the time $2, from the place $3 on.
const ofHighSQL = `SELECT f.batch_id
	FROM postern.processor p
	CROSS JOIN (SELECT coalesce($2::timestamptz, clock_timestamp()), $3::bigint) n(now, lowest)
	CROSS JOIN LATERAL (SELECT coalesce(n.lowest, l.lowest) AS lowest
		FROM postern.batch_line l
		WHERE l.processor_id = p.processor_id AND l.priority = 0) h
	CROSS JOIN LATERAL (` + firstHoldingMedSQL + `) f
	WHERE p.processor_id = $1`

// pastHigh says whether Med waits for no batch of High, and then looks at the head of Med. It is asked only where the
// head of High cools in a fair processor, or was left alone: no other tick pays for it. It sends the statements in b
// before, since they may put the batch that was executed back into High. The lines change under the lock of the
// processor, which this tick holds; gates do not: one that opens or closes at this moment is seen by the next tick.
func (h *heldProcessor) pastHigh(ctx context.Context, t *db.Txn, b *pgx.Batch, a *sight) (bool, error) {
	if err := sendQueued(ctx, t, b); err != nil {
		return false, err
	}
	past := true
	look := &pgx.Batch{}
	look.Queue(ofHighSQL, h.ID, h.now, h.lines[processor.High].Lowest).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{new(int64)}, func() error { past = false; return nil })
		return err
	})
	if a.heads[processor.Med] == nil {
		h.lookAtHead(look, processor.Med, a)
	}
	err := t.Send(ctx, look)
	return past, err
}

// holdsMed is the batch of High for which Med waits, nil if there is none.
func (x *whyBatch) holdsMed() (*Batch, error) {
	var id int64
	err := x.s.Db(x.ctx).QueryRow(x.ctx, ofHighSQL, x.p.ID, x.facts.Now, nil).Scan(&id)
	if db.IsNoRows(err) {
		return nil, nil
	}
	if err != nil {
		return nil, db.Known(err)
	}
	return x.s.Batch(x.ctx, x.context, x.p.Name, id)
}

// sendQueued sends what is queued in b, so that the next read sees it.
func sendQueued(ctx context.Context, t *db.Txn, b *pgx.Batch) error {
	err := t.Send(ctx, b)
	b.QueuedQueries = nil
	return err
}
