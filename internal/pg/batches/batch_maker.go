package batches

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// batchMaker is the Maker of the executions of batches.
type batchMaker struct{ s *Store }

// Processors is a kind that most installations have none of.
const Processors pg.Kind = "processors"

// batchesMade describes their maker.
func batchesMade(s *Store) pg.Made {
	return pg.Made{
		Maker:  batchMaker{s},
		As:     outbox.ByProcessors,
		Owns:   func(_, uid string) bool { return strings.HasPrefix(uid, runPrefix) },
		Awaits: awaitedByBatches,
	}
}

// runPrefix begins the uid of each execution, and no client's.
const runPrefix = ":processor:"

// awaitedByBatches are the places of the executions for which batches wait, by their uids. Served by
// one_execution_per_processor.
const awaitedByBatches = `SELECT i.queue_id, i.seq, i.day
	FROM (SELECT b.context_id, '` + runPrefix + `' || b.batch_id || ':' || b.run FROM postern.batch b WHERE b.state = 'Executing') k(context_id, key)
	CROSS JOIN LATERAL (
		SELECT x.queue_id, x.seq, x.day
		FROM postern.idempotency x
		WHERE (x.context_id, x.key) = (k.context_id, k.key) OFFSET 0) i`

// May refuses nothing: an end that a lever gives to an execution is an end for the batch like any other.
func (m batchMaker) May(db.By, string, *pg.Task) error { return nil }

// Redrive refuses: the processor tries again by itself, and what has ended is sent anew as a batch.
func (m batchMaker) Redrive(ctx context.Context, by db.By, _ *pg.Transaction, _ pg.Redrive,
	post pg.Repost) (pg.Accepted, error) {
	return post(ctx, func(ctx context.Context, t *pg.Transaction) error {
		return m.s.redrivesNoBatch(ctx, by.Context, t)
	})
}

// Moved changes nothing: a batch finds its execution by the uid, which moves along.
func (m batchMaker) Moved(*pgx.Batch, *pg.Task) {}

// Forget removes batches that ended.
func (m batchMaker) Forget(ctx context.Context, before time.Time) error {
	return m.s.forgetBatches(ctx, before)
}

// Ended names the batch.
func (m batchMaker) Ended(t *pg.Transaction) string {
	return fmt.Sprintf("it executed batch %d", batchOf(t))
}
