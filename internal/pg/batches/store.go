package batches

import (
	"time"

	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/deliveries"
	"github.com/postern-dev/postern/internal/pg/reads"
	"github.com/postern-dev/postern/internal/processor"
)

// Store keeps processors and batches. It is safe for concurrent use.
type Store struct {
	*pg.Store
	Reads      *reads.Store
	Deliveries *deliveries.Store
	// BatchLeft is told, after the commit, how long a batch had been in a state that it left; nil: it is not told.
	BatchLeft  func(processor.State, time.Duration)
	executions *pg.Ingester // of batches: those that ticks have begun side by side are posted in common commits
}

// New registers batches with a store that has not started.
func New(core *pg.Store, r *reads.Store, d *deliveries.Store) *Store {
	s := &Store{Store: core, Reads: r, Deliveries: d, executions: pg.NewIngester(core)}
	core.Make(batchesMade(s))
	core.RegisterKind(Processors, `EXISTS (SELECT FROM postern.processor WHERE removed_at IS NULL)`)
	return s
}
