package flows

import (
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
)

// init registers what the constraints of the tables of this package mean.
func init() {
	db.Register(db.Tables{
		Newest: newest,
		Constraints: map[string]fault.Kind{
			"runner_type_is_known":            fault.Invalid,
			"runner_has_slots":                fault.Invalid,
			"runner_ttl_is_long_enough":       fault.Invalid,
			"one_runner_per_name":             fault.Conflict,
			"an_end_has_a_time":               fault.Internal,
			"finished_has_a_result":           fault.Internal,
			"job_follows_the_machine":         fault.Internal,
			"a_try_that_ended_has_a_time":     fault.Internal,
			"a_runner_holds_it":               fault.Internal,
			"no_runner_holds_what_is_offered": fault.Internal,
			"try_follows_the_machine":         fault.Internal,
			"flow_follows_the_machine":        fault.Internal,
			"one_row_per_flow":                fault.Internal,
			"a_flow_keeps_its_rules":          fault.Internal,
			"one_flow_per_ref":                fault.Conflict,
			"one_flow_per_request_key":        fault.Conflict,
			"one_job_per_ref_of_a_flow":       fault.Conflict,
			"one_row_per_need":                fault.Internal,
			"one_need_per_name":               fault.Conflict,
			"one_need_per_transaction":        fault.Internal,
			"one_row_per_job":                 fault.Internal,
			"a_job_keeps_its_rules":           fault.Internal,
			"one_job_per_ref":                 fault.Conflict,
			"one_job_per_request_key":         fault.Conflict,
			"one_job_per_transaction":         fault.Internal,
			"one_row_per_edge":                fault.Internal,
			"one_row_per_ended_job":           fault.Internal,
			"one_row_per_try":                 fault.Internal,
			"one_try_per_token":               fault.Internal,
			"a_try_keeps_its_rules":           fault.Internal,
			"one_success_per_job":             fault.Conflict,
			"one_row_per_stale_fence":         fault.Internal,
			"stream_is_known":                 fault.Invalid,
			"one_row_per_piece":               fault.Internal,
			"machine_is_of_jobs":              fault.Internal,
			"one_row_per_flow_step":           fault.Internal,
		},
		Again: []string{"one_job_per_ref", "one_flow_per_ref", "one_job_per_request_key", "one_flow_per_request_key"},
	})
}

// newest says how the newest flows, jobs and tries of a context are found, for their counts by state.
var newest = map[string]string{
	"flow": `SELECT f.status AS state
		FROM postern.flow f
		WHERE f.context_id = $1
		ORDER BY f.created_at DESC, f.flow_id DESC
		LIMIT $2`,
	"job": `SELECT j.status AS state
		FROM postern.job j
		WHERE j.context_id = $1
		ORDER BY j.created_at DESC, j.job_id DESC
		LIMIT $2`,
	"job_try": `SELECT t.state
		FROM (SELECT j.job_id, j.created_at
			FROM postern.job j
			WHERE j.context_id = $1
			ORDER BY j.created_at DESC, j.job_id DESC
			LIMIT $2) j
		CROSS JOIN LATERAL (SELECT t.state
			FROM postern.job_try t
			WHERE t.job_id = j.job_id
			LIMIT $2) t
		LIMIT $2`,
}
