package domains

import (
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
)

// newest are the states of the seats of domains, of intents, and of the works that are a part of an image, which the
// settings of a domain bound.
var newest = map[string]string{
	"originator": `SELECT s.originator AS state
		FROM postern.domain d
		JOIN postern.coord_state s ON s.domain_id = d.domain_id
		WHERE d.context_id = $1 AND d.removed_at IS NULL
		LIMIT $2`,
	"coordinator": `SELECT s.coordinator AS state
		FROM postern.domain d
		JOIN postern.coord_state s ON s.domain_id = d.domain_id
		WHERE d.context_id = $1 AND d.removed_at IS NULL
		LIMIT $2`,
	"originator_transaction": `SELECT x.state
		FROM (SELECT d.domain_id
			FROM postern.domain d
			WHERE d.context_id = $1 AND d.removed_at IS NULL
			LIMIT $3) d
		CROSS JOIN LATERAL (SELECT i.state, i.created_at
			FROM postern.coord_intent i
			WHERE i.domain_id = d.domain_id
			ORDER BY i.seq DESC
			LIMIT $2) x
		ORDER BY x.created_at DESC
		LIMIT $2`,
	"coordinator_transaction": `SELECT x.state
		FROM (SELECT d.domain_id
			FROM postern.domain d
			WHERE d.context_id = $1 AND d.removed_at IS NULL
			LIMIT $3) d
		CROSS JOIN LATERAL (SELECT w.state, w.since
			FROM postern.coord_work w
			WHERE w.domain_id = d.domain_id AND w.held
			LIMIT $2) x
		ORDER BY x.since DESC
		LIMIT $2`,
}

// init registers what the constraints of the tables of this package mean.
func init() {
	db.Register(db.Tables{
		Newest: newest,
		Constraints: map[string]fault.Kind{
			"one_domain_per_name":              fault.Conflict,
			"one_seat_per_domain":              fault.Internal,
			"domain_height_is_not_negative":    fault.Invalid,
			"one_row_per_intent":               fault.Internal,
			"one_intent_per_seq":               fault.Internal,
			"an_intent_keeps_its_rules":        fault.Internal,
			"receipt_comes_with_the_end":       fault.Internal,
			"receipt_says_what_the_state_says": fault.Internal,
			"intent_follows_the_machine":       fault.Internal,
			"one_row_per_permit":               fault.Internal,
			"what_has_ended_is_closed":         fault.Internal,
			"one_open_permit_per_intent":       fault.Internal,
			"one_work_per_intent":              fault.Internal,
			"a_work_keeps_its_rules":           fault.Internal,
			"work_follows_the_machine":         fault.Internal,
			"one_assembling_per_domain":        fault.Internal,
			"one_spender_per_state":            fault.Internal,
			"one_activity_per_generation":      fault.Internal,
			"part_is_known":                    fault.Internal,
			"one_row_per_part":                 fault.Internal,
			"kind_of_call_is_known":            fault.Internal,
			"one_call_per_key":                 fault.Internal,
			"one_row_per_coord_step":           fault.Internal,
			"one_message_per_slot":             fault.Internal,
			"one_message_out_per_slot":         fault.Internal,
		},
	})
}
