// Package verify asks a database whether what must always be true of it is true. It only reads; each
// check is one statement, sees one snapshot, and holds at every commit, so that it can be asked of a
// database that works. It stands beside the store, which must not know it.
package verify

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Invariant is one sentence that is always true, and the statement that finds where it is not.
type Invariant struct {
	Name     string // a few words, by which tests know it
	Sentence string
	SQL      string // returns one text per violation, naming the row
}

// most is how many violations of one invariant are named.
const most = 10

// planFreely takes back what the store's connections pin for short statements: a check reads tables whole, for as
// long as that takes.
const planFreely = `SELECT set_config('enable_seqscan', 'on', true), set_config('enable_hashjoin', 'on', true), set_config('enable_mergejoin', 'on', true),
	set_config('enable_material', 'on', true), set_config('work_mem', '64MB', true), set_config('statement_timeout', '0', true)`

// DB is a pool, or a transaction.
type DB interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// Violations checks all invariants and returns a line for each violation, at most ten of one kind; none
// is a clean database. The error says that it could not be checked.
func Violations(ctx context.Context, db DB) ([]string, error) {
	var found []string
	b := &pgx.Batch{}
	b.Queue(planFreely) // until the batch, which is one SQL transaction, ends
	for _, v := range Invariants {
		b.Queue(fmt.Sprintf("SELECT v.found FROM (%s) v(found) LIMIT %d", v.SQL,
			most)).Query(func(rows pgx.Rows) error {
			list, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				return fmt.Errorf("invariant %s: %w", v.Name, err)
			}
			for _, f := range list {
				found = append(found, fmt.Sprintf("%s (%s): %s", v.Name, v.Sentence, f))
			}
			return nil
		})
	}
	return found, db.SendBatch(ctx, b).Close()
}
