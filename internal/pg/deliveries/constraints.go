package deliveries

import (
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
)

// init registers what the constraints of the tables of this package mean.
func init() {
	db.Register(db.Tables{
		Constraints: map[string]fault.Kind{
			"event_is_known":               fault.Internal,
			"delivery_state_is_known":      fault.Internal,
			"one_delivery_per_endpoint":    fault.Internal,
			"cursors_are_of_subscriptions": fault.Internal,
			"subscription_kind_is_known":   fault.Invalid,
			"on_error_is_known":            fault.Invalid,
			"webhook_has_url_and_secret":   fault.Invalid,
			"one_subscription_per_name":    fault.Conflict,
			"one_rollup_per_subscription":  fault.Internal,
			"one_checkpoint_of_each":       fault.Internal,
			"one_fanout_per_subscription":  fault.Internal,
			"pending_has_a_next_time":      fault.Internal,
			"older_secret_has_an_end":      fault.Internal,

			"twenty_older_secrets_of_a_webhook_at_most": fault.Conflict,
		},
		Days: map[string]string{
			"delivery": "one_delivery_per_endpoint",
		},
	})
}
