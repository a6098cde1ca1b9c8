package channels

import "github.com/postern-dev/postern/internal/pg"

// Store keeps channels. It is safe for concurrent use.
type Store struct {
	*pg.Store
}

// New makes the channels of a store.
func New(core *pg.Store) *Store { return &Store{Store: core} }
