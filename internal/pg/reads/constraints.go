package reads

import (
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
)

// init registers what the constraints of the tables of this package mean.
func init() {
	db.Register(db.Tables{
		Constraints: map[string]fault.Kind{
			"one_rolling_per_hour":    fault.Internal,
			"one_run_per_hour":        fault.Internal,
			"one_part_of_a_number":    fault.Internal,
			"one_rollup_per_hour":     fault.Internal,
			"one_rollup_of_times":     fault.Internal,
			"one_rollup_of_failures":  fault.Internal,
			"one_rollup_per_sender":   fault.Internal,
			"one_row_per_stuck_queue": fault.Internal,
		},
	})
}
