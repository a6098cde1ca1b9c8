package db

import (
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Made is where things are that requests make: under a key of the request, or a ref that their actor gives them.
type Made[T any] struct {
	Columns string
	From    string // the table, and the name that Columns call it
	As      string // that name
	Refs    string // a further condition of the rows that have refs
	Scan    pgx.RowToFunc[*T]
}

// Find adds to b a reading of what a request of an actor with a key has made, or to which it has given a ref; there is
// nil for none.
func (m Made[T]) Find(b *pgx.Batch, by By, ref *int64, key string, there **T) {
	*there = nil
	if ref == nil && key == "" {
		return
	}
	sql := fmt.Sprintf(`SELECT %[1]s
		FROM %[2]s
		WHERE (%[3]s.context_id, %[3]s.actor, %[3]s.request_key) = ($1, $2, $3)
		UNION ALL
		SELECT %[1]s
		FROM %[2]s
		WHERE (%[3]s.context_id, %[3]s.actor, %[3]s.ref) = ($1, $2, $4)%[4]s`, m.Columns, m.From, m.As, m.Refs)
	b.Queue(sql, by.Context, by.Actor, Nullable(key), ref).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, m.Scan)
		if err == nil && len(found) > 0 {
			*there = found[0]
		}
		return err
	})
}
