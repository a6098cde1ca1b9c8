package events

import (
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
)

// init registers what the constraints of the tables of this package mean.
func init() {
	db.Register(db.Tables{
		Newest: map[string]string{
			"event": `SELECT e.status AS state
				FROM postern.event e
				WHERE e.context_id = $1
				ORDER BY e.context_id, e.created_at DESC, e.event_id DESC
				LIMIT $2`,
		},
		Constraints: map[string]fault.Kind{
			"tool_health_is_known":         fault.Internal,
			"tool_signature_is_known":      fault.Internal,
			"one_tool_per_fqn":             fault.Conflict,
			"table_source_has_one":         fault.Invalid,
			"source_kind_is_known":         fault.Invalid,
			"source_start_is_known":        fault.Invalid,
			"on_undecodable_is_known":      fault.Invalid,
			"source_state_is_known":        fault.Internal,
			"one_source_per_name":          fault.Conflict,
			"one_event_per_number":         fault.Internal,
			"event_retries_not_below_zero": fault.Invalid,
			"events_grow_stale_later":      fault.Invalid,
			"an_event_keeps_its_rules":     fault.Internal,
			"event_outcome_is_known":       fault.Internal,
			"event_follows_the_machine":    fault.Internal,
			"one_move_at_a_time":           fault.Internal,
			"one_drop_per_event":           fault.Internal,
			"one_event_per_identity":       fault.Internal,
		},
	})
}
