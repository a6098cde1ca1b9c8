package actors

import (
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
)

// init registers what the constraints of the tables of this package mean.
func init() {
	db.Register(db.Tables{
		Constraints: map[string]fault.Kind{
			"one_actor_per_id":             fault.Conflict,
			"one_actor_per_public_key":     fault.Conflict,
			"public_key_has_32_bytes":      fault.Invalid,
			"public_key_is_of_an_actor":    fault.Conflict,
			"slot_of_a_key_is_one_of_two":  fault.Internal,
			"compromised_keys_are_retired": fault.Internal,
			"two_live_keys_at_most":        fault.Conflict,
			"one_use_per_nonce":            fault.Conflict,
			"one_row_per_spent_key":        fault.Internal,
			"one_actor_per_request_key":    fault.Conflict,
			"issuer_comes_with_subject":    fault.Invalid,
			"one_actor_per_subject":        fault.Conflict,
			"one_api_key_per_id":           fault.Internal,
			"one_api_key_per_prefix":       fault.Conflict,
			"role_of_a_key_is_known":       fault.Invalid,
			"one_api_key_per_request_key":  fault.Conflict,
			"older_hash_has_an_end":        fault.Internal,
			"one_session_per_cookie":       fault.Internal,
			"session_is_of_a_key":          fault.Conflict,
			"session_is_of_an_actor":       fault.Conflict,
			"session_is_of_one":            fault.Internal,

			"twenty_older_secrets_of_a_key_at_most": fault.Conflict,
		},
		Again: []string{"one_api_key_per_request_key", "one_actor_per_request_key"},
	})
}
