package reads

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// lineSQL finds what of a queue has not ended, in the order in which it goes out: those that keep their position by the
// key of tasks, as many as are wanted, and the few that were placed by their marks.
const lineSQL = `SELECT x.queue_id, x.seq, x.day - '1970-01-01', x.salt
	FROM postern.queue_name n
	JOIN postern.queue q USING (queue_id)
	CROSS JOIN LATERAL ((SELECT t.queue_id, t.seq, t.day, postern.salt(t.created_at, t.moved_from) AS salt,
			t.seq::numeric AS rank
		FROM postern.task t
		WHERE t.queue_id = q.queue_id AND t.seq >= q.head_seq AND t.day >= q.head_day
			AND NOT EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq, o.day) = (t.queue_id, t.seq, t.day))
			AND NOT EXISTS (SELECT FROM postern.mark p
				WHERE (p.queue_id, p.seq, p.kind) = (t.queue_id, t.seq, 'placed'))
		ORDER BY t.seq
		LIMIT $3)
		UNION ALL
		SELECT t.queue_id, t.seq, t.day, postern.salt(t.created_at, t.moved_from), p.rank
		FROM postern.mark p
		JOIN postern.task t ON (t.queue_id, t.seq) = (p.queue_id, p.seq)
		WHERE p.queue_id = q.queue_id AND p.kind = 'placed' AND p.seq >= q.head_seq AND t.day >= q.head_day
			AND NOT EXISTS (SELECT FROM postern.outcome o
				WHERE (o.queue_id, o.seq, o.day) = (t.queue_id, t.seq, t.day))) x
	WHERE n.context_id = $1 AND n.name = $2
	ORDER BY x.rank, x.seq
	LIMIT $3`

// Line returns what of a queue goes out next, the first first, up to most; NotFound where there is no such queue.
func (s *Store) Line(ctx context.Context, contextID int32, name string, most int) (list []*pg.Transaction, err error) {
	rows, err := s.Pool().Query(ctx, lineSQL, contextID, name, most)
	if err != nil {
		return nil, db.Known(err)
	}
	var ids []outbox.ID
	var id outbox.ID
	if _, err := pgx.ForEachRow(rows, []any{&id.Queue, &id.Seq, &id.Day, &id.Salt}, func() error {
		ids = append(ids, id)
		return nil
	}); err != nil {
		return nil, db.Known(err)
	}
	if len(ids) == 0 {
		_, err := s.Queue(ctx, contextID, name)
		return nil, err
	}
	found, err := s.Transactions(ctx, contextID, ids)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if t := found[id]; t != nil && t.DoneAt == nil { // it may have ended meanwhile
			list = append(list, t)
		}
	}
	return list, nil
}
