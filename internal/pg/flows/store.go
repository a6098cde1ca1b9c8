package flows

import (
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/reads"
)

// Store keeps jobs, tries and runners. It is safe for concurrent use.
type Store struct {
	*pg.Store
	// Ended is told that a try has ended here, or that a job is due; nil: looks go by the clock alone. It
	// must not wait.
	Ended func()
	bells bells
	reads *reads.Store
	fronts
}

// Jobs and Runners are kinds that most installations have none of.
const Jobs pg.Kind = "jobs"

// New registers jobs with a store that has not started.
func New(core *pg.Store, reads *reads.Store) *Store {
	s := &Store{Store: core, reads: reads}
	core.Make(jobsMade(s))
	core.Tell(teller{s})
	core.RegisterKind(Jobs, `EXISTS (SELECT FROM postern.job)`)
	return s
}

// ring tells this process that a try has ended or a job is due.
func (s *Store) ring() {
	if s.Ended != nil {
		s.Ended()
	}
}
