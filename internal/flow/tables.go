package flow

import "github.com/postern-dev/postern/internal/machine"

// Tables lists the machines of jobs.
func Tables() []machine.Table { return []machine.Table{Flow, Job, Try} }

// Meanings says in one line what each state means, under "table.state".
var Meanings = map[string]string{
	"flow.dispatched":                "Stored, or started while no runner has taken one of its jobs yet.",
	"flow.waiting_for_prerequisites": "Started. Each job that could be the first waits for a prerequisite to be met.",
	"flow.started":                   "A runner has taken a job of it.",
	"flow.finished":                  "All its jobs have finished. Its result is made of theirs.",
	"flow.error": "A job of it is in error, or it was cancelled. What had not started does not, and what " +
		"runs is stopped.",
	"job.dispatched": "Stored, or posted with nothing that it waits for: the next runner of its type " +
		"that has room takes it.",
	"job.waiting_for_prerequisites": "Posted. Another job that it needs has not ended, or a prerequisite was not met " +
		"when it was posted.",
	"job.started":       "A runner holds a try of it, or it will be tried again.",
	"job.finished":      "Ended, with a result.",
	"job.error":         "Ended without one. Its error says why; what its last try left is kept.",
	"job_try.Offered":   "It stands in the lane of its script type. A runner that asks takes the oldest.",
	"job_try.Held":      "A runner executes it, under a fence.",
	"job_try.Finished":  "The script ended well. Its result is recorded.",
	"job_try.Failed":    "The script failed, took too long or was stopped, or its runners were lost.",
	"job_try.Withdrawn": "No runner held it when its job ended.",
	"job_try.Sent":      "A message carries its job to another installation, which has not said how it ended.",
}
