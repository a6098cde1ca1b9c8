package labels

import (
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Store keeps labels, and makes applies. It is safe for concurrent use.
type Store struct {
	*pg.Store
}

// New makes the labels of a store.
func New(core *pg.Store) *Store { return &Store{Store: core} }

// init registers what the constraint of the table of this package means.
func init() {
	db.Register(db.Tables{Constraints: map[string]fault.Kind{"one_row_per_label_and_thing": fault.Internal}})
}
