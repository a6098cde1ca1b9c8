package messages

import (
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
)

// init registers what the constraints of the tables of this package mean.
func init() {
	db.Register(db.Tables{
		Newest: map[string]string{
			"message": `SELECT m.status AS state
		FROM postern.message m
		WHERE m.context_id = $1
		ORDER BY m.created_at DESC, m.message_id DESC
		LIMIT $2`,
		},
		Constraints: map[string]fault.Kind{
			"one_row_per_message":             fault.Internal,
			"message_type_is_known":           fault.Invalid,
			"message_format_is_known":         fault.Invalid,
			"a_message_keeps_its_rules":       fault.Internal,
			"a_message_that_ended_has_a_time": fault.Internal,
			"an_error_has_a_code":             fault.Internal,
			"acknowledged_is_delivered":       fault.Internal,
			"message_follows_the_machine":     fault.Internal,
			"a_message_has_two_ends":          fault.Internal,
			"timeouts_are_lengths":            fault.Invalid,
			"one_message_per_ref":             fault.Conflict,
			"one_message_per_request_key":     fault.Conflict,
			"one_message_per_peer_and_ref":    fault.Conflict,
			"one_message_per_peer_message":    fault.Conflict,
			"one_message_per_envelope":        fault.Conflict,
			"one_sent_message_per_envelope":   fault.Conflict,
			"one_result_per_message":          fault.Conflict,
			"one_row_per_stopped_message":     fault.Internal,
			"one_row_per_message_step":        fault.Internal,
			"one_row_per_late_word":           fault.Internal,
			"one_row_per_message_line":        fault.Internal,
		},
		Again: []string{"one_message_per_ref", "one_message_per_request_key", "one_message_per_peer_and_ref",
			"one_message_per_peer_message", "one_message_per_envelope", "one_sent_message_per_envelope"},
	})
}
