package pg

import (
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
)

// init registers what the constraints of the tables of this package mean.
func init() {
	db.Register(db.Tables{
		Constraints: constraints,
		Again:       []string{"one_transaction_per_key"},
		Days: map[string]string{
			"task":    "one_task_per_position",
			"outcome": "one_outcome_per_transaction",
			"attempt": "one_row_per_attempt_and_step",
		},
	})
}

// constraints says what the violation of each constraint of the tables of the core means.
var constraints = map[string]fault.Kind{
	"one_store":                        fault.Internal,
	"one_store_only":                   fault.Internal,
	"one_row_per_epoch":                fault.Internal,
	"epoch_fits_into_an_id":            fault.Internal,
	"one_context_per_name":             fault.Conflict,
	"context_depth_is_positive":        fault.Invalid,
	"member_is_an_actor":               fault.Conflict,
	"role_of_a_member_is_known":        fault.Invalid,
	"one_member_per_role":              fault.Internal,
	"sql_role_is_known":                fault.Invalid,
	"one_sql_role_per_context":         fault.Conflict,
	"one_pool_per_name":                fault.Conflict,
	"after_failure_is_known":           fault.Invalid,
	"one_dispatcher_per_type":          fault.Conflict,
	"one_secret_per_dispatcher":        fault.Internal,
	"one_sender_per_account":           fault.Conflict,
	"one_queue_per_sender":             fault.Internal,
	"one_lane_per_need":                fault.Internal,
	"lane_kind_is_known":               fault.Internal,
	"lane_has_what_its_kind_says":      fault.Internal,
	"one_lane_per_holder":              fault.Internal,
	"only_exclusive_lanes_are_held":    fault.Internal,
	"one_queue_per_name":               fault.Conflict,
	"one_name_per_queue":               fault.Internal,
	"priority_is_high_or_med":          fault.Invalid,
	"queue_depth_is_positive":          fault.Invalid,
	"when_full_is_known":               fault.Invalid,
	"on_failure_is_known":              fault.Invalid,
	"one_epoch_of_a_node":              fault.Internal,
	"one_quarantine_per_id":            fault.Internal,
	"one_quarantine_per_scope":         fault.Internal,
	"one_unreconciled_per_transaction": fault.Internal,
	"unreconciled_is_known":            fault.Internal,
	"one_row_per_queue":                fault.Internal,
	"queue_by_era":                     fault.Internal,
	"a_queue_keeps_its_rules":          fault.Internal,
	"phase_follows_the_machine":        fault.Internal,
	"in_flight_has_a_position":         fault.Internal,
	"idle_is_empty":                    fault.Internal,
	"head_follows_tail_by_one":         fault.Internal,
	"position_lies_in_queue":           fault.Internal,
	"next_lies_in_queue":               fault.Internal,
	"sender_is_held_in_flight_only":    fault.Internal,
	"owner_has_an_epoch":               fault.Internal,
	"owner_has_work_in_flight":         fault.Internal,
	"waiting_has_a_lane":               fault.Internal,
	"one_place_in_a_lane":              fault.Internal,
	"one_timer_per_queue":              fault.Internal,
	"node_kind_is_known":               fault.Internal,
	"one_task_per_position":            fault.Internal,
	"one_outcome_per_transaction":      fault.Internal,
	"an_outcome_keeps_its_rules":       fault.Internal,
	"outcome_follows_the_machine":      fault.Internal,
	"one_row_per_attempt_and_step":     fault.Internal,
	"step_is_known":                    fault.Internal,
	"mark_kind_is_known":               fault.Internal,
	"one_mark_of_a_kind":               fault.Conflict,
	"placed_has_a_rank":                fault.Internal,
	"one_row_per_dependency":           fault.Internal,
	"one_ripple_per_end":               fault.Internal,
	"one_retention":                    fault.Internal,
	"one_retention_only":               fault.Internal,
	"one_load_per_node":                fault.Internal,
	"one_redrive_per_transaction":      fault.Conflict,
	"one_transaction_per_key":          fault.Conflict,
	"one_staged_row_per_uid":           fault.Conflict,
}
