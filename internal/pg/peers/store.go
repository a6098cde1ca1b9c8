package peers

import "github.com/postern-dev/postern/internal/pg"

// Store keeps peers. It is safe for concurrent use.
type Store struct {
	*pg.Store
}

// Peers is a kind that most installations have none of.
const Peers pg.Kind = "peers"

// New registers peers with a store that has not started.
func New(core *pg.Store) *Store {
	s := &Store{Store: core}
	core.RegisterKind(Peers, `EXISTS (SELECT FROM postern.peer p WHERE p.url <> '' AND p.removed_at IS NULL)`)
	return s
}
