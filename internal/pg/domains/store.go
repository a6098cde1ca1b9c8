package domains

import (
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/deliveries"
	"github.com/postern-dev/postern/internal/pg/reads"
)

// Store keeps domains, intents and works. It is safe for concurrent use.
type Store struct {
	*pg.Store
	// Self is the id of the node of this process; nil: it has none, as one that only serves requests.
	Self func() int64
	// Left is told, after the commit, how long an intent or a work had been in a state that it left; nil: it is not.
	Left func(machine string, state coord.State, took time.Duration)
	// Ended is told, after the commit, how an intent ended; nil: it is not.
	Ended func(outcome string)
	// Counted is told, after the commit, what came of a message between nodes: delivered, refused, dropped by a domain
	// that is paused or full, taken, or ignored by the step that took it; nil: it is not.
	Counted func(kind coord.Kind, outcome string)
	// Stepped is told, after the commit, of each step; nil: it is not. It must not wait.
	Stepped func(Stepped)
	// Bell wakes the loops of domains in this process; nil: they look by the clock alone. It must not wait.
	Bell func()

	reads      *reads.Store
	deliveries *deliveries.Store
	seats      sync.Map // *kept by domain
	lines      sync.Map // chan struct{} by domain: one request at a time waits for its seat
}

// Kinds that most installations have none of: a domain that does not rest, and one that has other nodes.
const (
	Domains pg.Kind = "domains"
	Nodes   pg.Kind = "nodes"
)

// New registers domains with a store that has not started.
func New(core *pg.Store, r *reads.Store, told *deliveries.Store) *Store {
	s := &Store{Store: core, reads: r, deliveries: told}
	core.Make(domainsMade(s))
	core.RegisterKind(Domains, `EXISTS (SELECT FROM postern.coord_state WHERE due IS NOT NULL OR still)
		OR EXISTS (SELECT FROM postern.coord_call WHERE kind <> 'height')
		OR EXISTS (SELECT FROM postern.coord_in WHERE error = '')`)
	core.RegisterKind(Nodes, `EXISTS (SELECT FROM postern.domain d
		WHERE d.removed_at IS NULL AND jsonb_array_length(d.settings->'nodes') > 1)`)
	core.Judges(final)
	core.Needs("domains", `EXISTS (SELECT FROM postern.domain WHERE context_id = $1 AND removed_at IS NULL)`)
	return s
}

// heard tells of a step that is committed.
func (s *Store) heard(h *seat, out *Stepped) {
	if s.Left != nil {
		for _, l := range out.left {
			s.Left(l.machine, l.state, l.took)
		}
	}
	if s.Ended != nil {
		for _, r := range out.receipts {
			s.Ended(r.Outcome)
		}
	}
	for _, kind := range out.kinds {
		s.count(kind, "taken")
	}
	for _, i := range out.Ignored {
		s.count(coord.Kind(i.What), "ignored")
	}
	for _, m := range out.Moves {
		s.Log.Debug("transition", "machine", m.Machine, "domain", h.name, "intent", m.ID, "from", m.From, "on", m.On,
			"to", m.To,
			"reason", m.Reason)
	}
	if out.told {
		s.RingHere()
	}
	if s.Stepped != nil {
		s.Stepped(*out)
	}
}

// count tells what came of a message between nodes.
func (s *Store) count(kind coord.Kind, outcome string) {
	if s.Counted != nil && kind.Known() {
		s.Counted(kind, outcome)
	}
}

// ring wakes the loops of domains in this process, behind a commit that made work for them.
func (s *Store) ring() {
	if s.Bell != nil {
		s.Bell()
	}
}

// leaving is a state that an intent or a work has left.
type leaving struct {
	machine string
	state   coord.State
	took    time.Duration
}

// leavings says how long intents and works had been in the states that a step has them leave: from the row's since on,
// so that a restart loses nothing.
func leavings(old *coord.Domain, moves []coord.Move) (list []leaving) {
	last := map[string]time.Time{}
	for _, m := range moves {
		key := m.Machine + m.ID
		since, known := last[key]
		i, w := old.Intent(m.ID), old.Work(m.ID)
		switch {
		case known, m.ID == "":
		case m.Machine == coord.OriginatorTransaction.Name && i != nil:
			since = i.Since
		case m.Machine == coord.CoordinatorTransaction.Name && w != nil:
			since = w.Since
		}
		if last[key] = m.At; m.From != "" && m.ID != "" && !since.IsZero() {
			list = append(list, leaving{m.Machine, m.From, m.At.Sub(since)})
		}
	}
	return list
}
