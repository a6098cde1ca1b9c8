package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Watch reads transactions of any context by id, without their bodies, in one statement: for a caller that waits for
// several at once and may see each. One that does not exist is missing from the map.
func (s *Store) Watch(ctx context.Context, ids []outbox.ID) (map[outbox.ID]*Transaction, error) {
	var queues, seqs []int64
	var days []time.Time
	for _, id := range ids {
		queues, seqs, days = append(queues, id.Queue), append(seqs, id.Seq), append(days, id.Day.Time())
	}
	rows, err := s.Pool().Query(ctx, TransactionSelect+`
		FROM ROWS FROM (unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::date[])) n(queue_id, seq, day)
		`+TxOf("n"), queues, seqs, days)
	if err != nil {
		return nil, db.Known(err)
	}
	defer rows.Close()
	out := make(map[outbox.ID]*Transaction, len(ids))
	for rows.Next() {
		t, err := ScanTransaction(rows, false)
		if err != nil {
			return nil, err
		}
		out[t.ID] = t
	}
	if err := rows.Err(); err != nil || len(out) == len(ids) {
		return out, db.Known(err)
	}
	return out, follow(ctx, s.Pool(), ids, out, func(ids []outbox.ID) (map[outbox.ID]*Transaction, error) { return s.Watch(ctx, ids) })
}

// endedSQL says of each id whether it has ended, and whether that was by a move to another place.
const endedSQL = `SELECT n.queue_id, n.seq, n.day - '1970-01-01', n.salt, coalesce(o.error_code = '` + codeMoved + `', false)
	FROM ROWS FROM (unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::date[]), unnest($4::int[])) n(queue_id, seq, day, salt)
	CROSS JOIN LATERAL (SELECT o.error_code FROM postern.outcome o WHERE (o.queue_id, o.seq, o.day) = (n.queue_id, n.seq, n.day) OFFSET 0) o`

const unendedSQL = `SELECT EXISTS (SELECT FROM postern.task t WHERE (t.queue_id, t.seq, t.day, postern.salt(t.created_at, t.moved_from), t.context_id) = ($1, $2, $3, $4, $5))
	AND NOT EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq, o.day) = ($1, $2, $3))`

// Open says whether a transaction of a context has not ended, where its id says, by two reads of an index. False means
// nothing: it may have been moved, or not exist.
func (s *Store) Open(ctx context.Context, contextID int32, id outbox.ID) (open bool, err error) {
	err = s.ofDays(s.Db(ctx), unendedSQL, []outbox.ID{id}, func(sql string) (bool, error) {
		return true, s.Db(ctx).QueryRow(ctx, sql, id.Queue, id.Seq, id.Day.Time(), id.Salt, contextID).Scan(&open)
	})
	return open, db.Known(err)
}

// Ended says which transactions have ended, by a read of an index for each, where Watch puts the whole of it
// together: for a caller that waits for very many ends. Those that were moved are elsewhere.
func (s *Store) Ended(ctx context.Context, ids []outbox.ID) (ended map[outbox.ID]bool, elsewhere []outbox.ID, err error) {
	c := db.Columns{N: len(ids)}
	for _, id := range ids {
		c.Add(id.Queue, id.Seq, id.Day.Time(), id.Salt)
	}
	ended = map[outbox.ID]bool{}
	err = s.ofDays(s.Pool(), endedSQL, ids, func(sql string) (bool, error) {
		rows, err := s.Pool().Query(ctx, sql, c.Args()...)
		if err != nil {
			return false, err
		}
		var id outbox.ID
		var moved bool
		_, err = pgx.ForEachRow(rows, []any{&id.Queue, &id.Seq, &id.Day, &id.Salt, &moved}, func() error {
			if moved {
				elsewhere = append(elsewhere, id)
			} else {
				ended[id] = true
			}
			return nil
		})
		return true, err
	})
	return ended, elsewhere, db.Known(err)
}
