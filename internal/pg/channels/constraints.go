package channels

import (
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
)

// init registers what the constraints of the tables of this package mean.
func init() {
	db.Register(db.Tables{
		Constraints: map[string]fault.Kind{
			"channel_capacity_is_positive":          fault.Invalid,
			"channel_retries_are_positive":          fault.Invalid,
			"channel_waits_are_positive":            fault.Invalid,
			"one_channel_per_name":                  fault.Conflict,
			"channel_message_state_is_known":        fault.Internal,
			"only_active_channel_messages_are_held": fault.Internal,
			"one_channel_message_per_id":            fault.Internal,
			"channel_message_end_is_known":          fault.Internal,
			"one_end_per_life":                      fault.Internal,
		},
	})
}
