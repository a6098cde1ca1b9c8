package channels

import (
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
)

// init registers what the constraints of the tables of this package mean.
func init() {
	db.Register(db.Tables{
		Newest: map[string]string{
			"channel_message": `SELECT x.state
				FROM (SELECT c.channel_id
					FROM postern.channel c
					WHERE c.context_id = $1
					LIMIT $3) c
				CROSS JOIN (VALUES ('Queued'), ('Offered'), ('Active')) s(state)
				CROSS JOIN LATERAL (SELECT m.state, m.updated_at
					FROM postern.channel_message m
					WHERE m.channel_id = c.channel_id AND m.state = s.state
					ORDER BY m.updated_at DESC
					LIMIT $2) x
				ORDER BY x.updated_at DESC
				LIMIT $2`,
		},
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
