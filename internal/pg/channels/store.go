package channels

import (
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg"
)

// Store keeps channels. It is safe for concurrent use.
type Store struct {
	*pg.Store
	// Dropped adds to the SQL transaction that drops a message what others are to know of that; nil for nothing. To be
	// set before anything runs.
	Dropped func(b *pgx.Batch, channel int32, message, reason string)
}

// New makes the channels of a store.
func New(core *pg.Store) *Store { return &Store{Store: core} }
