package actors

import "github.com/postern-dev/postern/internal/pg"

// Store keeps actors and API keys. It is safe for concurrent use.
type Store struct {
	*pg.Store
}

// New makes the actors of a store.
func New(core *pg.Store) *Store { return &Store{Store: core} }
