package reads

import "github.com/postern-dev/postern/internal/pg"

// Store reads for people. It is safe for concurrent use.
type Store struct {
	*pg.Store
}

// New makes the reads of a store.
func New(core *pg.Store) *Store { return &Store{Store: core} }
