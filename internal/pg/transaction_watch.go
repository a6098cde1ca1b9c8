package pg

import (
	"context"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
)

// Watch reads transactions of any context by id, without their bodies, in one statement: for whoever
// waits for several of them at once and may see each. What does not exist is missing from the map.
func (s *Store) Watch(ctx context.Context, ids []outbox.ID) (map[outbox.ID]*Transaction, error) {
	var queues, seqs []int64
	var days []time.Time
	for _, id := range ids {
		queues, seqs, days = append(queues, id.Queue), append(seqs, id.Seq), append(days, id.Day.Time())
	}
	rows, err := s.pool.Query(ctx, transactionSelect+`
		FROM ROWS FROM (unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::date[])) n(queue_id, seq, day)
		`+txOf("n"), queues, seqs, days)
	if err != nil {
		return nil, known(err)
	}
	defer rows.Close()
	out := make(map[outbox.ID]*Transaction, len(ids))
	for rows.Next() {
		t, err := scanTransaction(rows, false)
		if err != nil {
			return nil, err
		}
		out[t.ID] = t
	}
	if err := rows.Err(); err != nil || len(out) == len(ids) {
		return out, known(err)
	}
	return out, follow(ctx, s.pool, ids, out, func(ids []outbox.ID) (map[outbox.ID]*Transaction, error) { return s.Watch(ctx, ids) })
}
