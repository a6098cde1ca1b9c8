package batches

import (
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
)

// init registers what the constraints of the tables of this package mean.
func init() {
	db.Register(db.Tables{
		Newest: map[string]string{
			"batch": `SELECT x.state
				FROM (SELECT p.processor_id
					FROM postern.processor p
					WHERE p.context_id = $1
					LIMIT $3) p
				CROSS JOIN LATERAL (SELECT b.state, b.batch_id
					FROM postern.batch b
					WHERE b.processor_id = p.processor_id
					ORDER BY b.batch_id DESC
					LIMIT $2) x
				ORDER BY x.batch_id DESC
				LIMIT $2`,
		},
		Constraints: map[string]fault.Kind{
			"one_batch_per_request_key":     fault.Conflict,
			"tick_interval_is_not_negative": fault.Invalid,
			"height_is_not_negative":        fault.Invalid,
			"deliver_within_not_negative":   fault.Invalid,
			"one_processor_per_name":        fault.Conflict,
			"line_is_high_or_med":           fault.Internal,
			"length_is_not_negative":        fault.Internal,
			"one_line_per_priority":         fault.Internal,
			"one_peer_per_name":             fault.Internal,
			"bounds_enclose":                fault.Internal,
			"one_place_per_batch":           fault.Internal,
			"one_batch_per_place":           fault.Internal,
			"running_is_not_negative":       fault.Internal,
			"one_authorization_per_label":   fault.Conflict,
			"spent_is_not_negative":         fault.Internal,
			"one_count_of_calls_per_actor":  fault.Internal,
			"one_row_per_batch":             fault.Internal,
			"a_batch_keeps_its_rules":       fault.Internal,
			"batch_is_high_or_med":          fault.Internal,
			"result_comes_with_the_end":     fault.Internal,
			"result_is_known":               fault.Internal,
			"batch_follows_the_machine":     fault.Internal,
			"what_was_executed_is_counted":  fault.Internal,
			"one_execution_per_processor":   fault.Internal,
			"one_row_per_run":               fault.Internal,
			"a_verdict_has_a_time":          fault.Internal,
			"one_success_per_action":        fault.Internal,
			"one_callback_per_batch":        fault.Internal,
			"one_row_per_step":              fault.Internal,
			"notices_are_of_timeouts":       fault.Internal,
			"one_step_per_notice":           fault.Internal,
		},
		Again: []string{"one_batch_per_request_key"},
	})
}
