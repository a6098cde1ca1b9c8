package flows

import (
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/deliveries"
	"github.com/postern-dev/postern/internal/pg/reads"
)

// Store keeps jobs, tries and runners. It is safe for concurrent use.
type Store struct {
	*pg.Store
	// Ended is told that a try has ended here, or that a job is due; nil: looks go by the clock alone. It
	// must not wait.
	Ended func()
	// Lapsed is told, after the commit, how many tries were taken back from a runner that was silent; nil: it is not.
	Lapsed func(int)
	// MessageEnded is told that a job of a message has ended here; nil: looks go by the clock alone. It must not wait.
	MessageEnded func()
	// CountDown adds to a commit, behind the locks of jobs, that one of a message has ended.
	CountDown func(b *pgx.Batch, message uuid.UUID)
	// KeptSQL says whether retention keeps the job j, which ended before the time $1, for its message; "": for none.
	KeptSQL string
	// Away carries tries to other installations; nil: there are none.
	Away       Away
	ofMessages atomic.Bool // jobs of messages may have ended since that was last told
	bells      bells
	reads      *reads.Store
	deliveries *deliveries.Store
	told       atomic.Bool // subscriptions may have heard since they were last waited for
	fronts
	looked looked
	taken  taken
}

// Jobs and Runners are kinds that most installations have none of.
const Jobs pg.Kind = "jobs"

// New registers jobs with a store that has not started.
func New(core *pg.Store, reads *reads.Store, told *deliveries.Store) *Store {
	s := &Store{Store: core, reads: reads, deliveries: told}
	core.Make(jobsMade(s))
	core.Tell(teller{s})
	core.RegisterKind(Jobs, `EXISTS (SELECT FROM postern.job)`)
	core.Needs("flows that have not ended", `EXISTS (SELECT FROM postern.flow
		WHERE context_id = $1 AND ended_at IS NULL)`)
	core.Needs("jobs that have not ended", `EXISTS (SELECT FROM postern.job
		WHERE context_id = $1 AND ended_at IS NULL)`)
	core.Needs("runners", `EXISTS (SELECT FROM postern.runner WHERE context_id = $1 AND removed_at IS NULL)`)
	return s
}

// ring tells this process that a try has ended or a job is due.
func (s *Store) ring() {
	if s.Ended != nil {
		s.Ended()
	}
}

// tellOf adds to b that subscriptions hear of the end of a job, in the commit of that end. Those of a flow are told in
// order: its row is locked before now is read. A job that was removed from its flow is not told.
func (s *Store) tellOf(b *pgx.Batch, j *Job, c change) {
	event := outbox.EventJobFinished
	switch {
	case !j.Status.Ended() || j.Removed:
		return
	case j.Status == flow.JobError:
		event = outbox.EventJobError
	}
	line := j.ID
	if j.Flow != nil {
		line = *j.Flow
	}
	s.tell(b, j.context, outbox.OfJob(j.ID, line, outbox.DayOf(c.now)), event, c)
}

// tellOfFlow is tellOf for a flow.
func (s *Store) tellOfFlow(b *pgx.Batch, f *Flow, c change) {
	switch f.Status {
	case flow.FlowFinished:
		s.tell(b, f.context, outbox.OfFlow(f.ID, outbox.DayOf(c.now)), outbox.EventFlowFinished, c)
	case flow.FlowError:
		s.tell(b, f.context, outbox.OfFlow(f.ID, outbox.DayOf(c.now)), outbox.EventFlowError, c)
	}
}

func (s *Store) tell(b *pgx.Batch, contextID int32, id outbox.ID, event outbox.Event, c change) {
	if s.deliveries.Subscribers.TellOf(b, c.now, contextID, id, event) {
		s.told.Store(true)
	}
}

// heard wakes the loops that deliver, where subscriptions may have heard of something that has committed, and the one
// that looks after messages.
func (s *Store) heard() {
	if s.ofMessages.Swap(false) && s.MessageEnded != nil {
		s.MessageEnded()
	}
	if s.told.Swap(false) {
		s.RingHere()
	}
}
