package peers

import (
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
)

// init registers what the constraints of the tables of this package mean.
func init() {
	db.Register(db.Tables{
		Constraints: map[string]fault.Kind{
			"one_row_per_peer":          fault.Internal,
			"peer_name_fits_a_type":     fault.Invalid,
			"one_installation_per_name": fault.Conflict,
			"one_secret_per_peer":       fault.Internal,
			"secret_is_of_a_peer":       fault.Internal,
			"secret_before_has_an_end":  fault.Internal,
			"secret_older_has_an_end":   fault.Internal,
		},
	})
}
