package flows

import (
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/flow"
)

// endFlow ends a flow in error, and adds to b what becomes of its jobs: one that needs root, the job whose failure
// ended the flow, has failed since that did; the others that have not started are aborted; those that run are stopped,
// and what they return is kept on them. l has the flow whole. root is nil where no job is the reason.
func (s *Store) endFlow(b *pgx.Batch, l *locked, f *Flow, on flow.Event, root *Job, c change) error {
	if root != nil {
		c.cause, c.code, c.text = &root.ID, root.Code, fmt.Sprintf("job %s failed: %s", root.name(), root.Error)
	}
	below := map[uuid.UUID]bool{}
	if root != nil {
		below = l.below(root.ID)
	}
	var ended []uuid.UUID
	for _, j := range l.open(f) {
		if j.Status == flow.JobStarted && j.StopAt != nil {
			continue
		}
		of := change{on: flow.JobAborted, by: c.by, detail: c.detail, now: c.now, code: flow.CodeFlowAborted,
			text: "flow aborted", cause: c.cause}
		if below[j.ID] {
			of.code, of.text = flow.CodeDependency, fmt.Sprintf("job %s, which it needs, failed", root.name())
			if j.Status == flow.JobWaiting {
				of.on = flow.JobImpossible
			}
		}
		if err := s.moveJob(b, j, of); err != nil {
			return err
		}
		ended = append(ended, j.ID)
	}
	endNeeds(b, ended, c)
	_, err := s.moveFlow(b, f, on, flow.Facts{}, c) // behind its jobs, as subscriptions are told
	return err
}

// endNeeds adds to b that prerequisites are not waited for any more, since their jobs have ended.
func endNeeds(b *pgx.Batch, jobs []uuid.UUID, c change) {
	if len(jobs) > 0 {
		b.Queue(`UPDATE postern.job_need
			SET ended_at = $2
			WHERE job_id = ANY ($1) AND met_at IS NULL AND ended_at IS NULL`, jobs, c.now)
	}
}

// name is what people call the job.
func (j *Job) name() string {
	switch {
	case j.Ref != nil:
		return fmt.Sprint(*j.Ref)
	case j.UID != "":
		return j.UID
	}
	return j.ID.String()
}

// goOn brings to a flow what became of some of its jobs in this commit.
func (s *Store) goOn(b *pgx.Batch, l *locked, f *Flow, finished int, failed []*Job) error {
	if f.Status.Ended() {
		return nil
	}
	c := change{now: l.now}
	if len(failed) > 0 {
		return s.endFlow(b, l, f, flow.FlowFailed, failed[0], c)
	}
	if finished == 0 {
		return nil
	}
	f.Finished += finished
	_, err := s.moveFlow(b, f, flow.FlowAdvanced, flow.Facts{Jobs: f.Jobs, Finished: f.Finished}, c)
	return err
}
