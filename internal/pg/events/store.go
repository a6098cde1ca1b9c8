package events

import (
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/channels"
	"github.com/postern-dev/postern/internal/pg/reads"
)

// Store keeps sources, events and tools. It is safe for concurrent use.
type Store struct {
	*pg.Store
	Reads    *reads.Store
	Channels *channels.Store
	// SourceSchemas are those of this database that sources of kind postgres_table may read. To be set before anything
	// runs.
	SourceSchemas []string
	compiled      compiled // definitions of tools
}

// New registers events with a store that has not started.
func New(core *pg.Store, r *reads.Store, c *channels.Store) *Store {
	s := &Store{Store: core, Reads: r, Channels: c}
	c.Dropped = drop
	core.Make(eventsMade(s))
	core.RegisterKind(Sources, `EXISTS (SELECT FROM postern.source)`)
	core.RegisterKind(Tools, `EXISTS (SELECT FROM postern.tool WHERE removed_at IS NULL)`)
	core.PoolBlocks(leader.PoolOfResults)
	return s
}
