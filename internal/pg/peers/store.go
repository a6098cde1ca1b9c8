package peers

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Store keeps peers. It is safe for concurrent use.
type Store struct {
	*pg.Store
	waits []string // as Waits registers them
	// Removed ends what removed peers have, and is told behind the commit that removes one; nil: there is nothing.
	Removed func(context.Context) error
	// OpenAt counts the messages to a peer, and the jobs for it, that have not ended; nil: there are none. It reads
	// behind the lock of the peer's row.
	OpenAt func(ctx context.Context, t *db.Txn, contextID int32, name string) (messages, jobs int, err error)
	// Used refuses to remove a peer that others still need; nil: none does. It reads through q, behind the lock of the
	// peer's row where that is held.
	Used func(ctx context.Context, q Querier, contextID int32, name string) error
}

// Querier is a connection, or a pool of them.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func (s *Store) used(ctx context.Context, q Querier, contextID int32, name string) error {
	if s.Used == nil {
		return nil
	}
	return s.Used(ctx, q, contextID, name)
}

// Peers is a kind that most installations have none of.
const Peers pg.Kind = "peers"

// New registers peers with a store that has not started.
func New(core *pg.Store) *Store {
	s := &Store{Store: core}
	core.RegisterKind(Peers, `EXISTS (SELECT FROM postern.peer p WHERE p.url <> '' AND p.removed_at IS NULL)`)
	core.Needs("peers", `EXISTS (SELECT FROM postern.peer WHERE context_id = $1 AND removed_at IS NULL)`)
	return s
}
