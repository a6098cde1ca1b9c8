package domains

import (
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/pg"
)

// Store keeps domains, intents and works. It is safe for concurrent use.
type Store struct {
	*pg.Store
	// Self is the id of the node of this process; nil: it has none, as one that only serves requests.
	Self func() int64
	// Left is told, after the commit, how long an intent or a work had been in a state that it left; nil: it is not.
	Left func(machine string, state coord.State, took time.Duration)
	// Stepped is told, after the commit, of each step; nil: it is not. It must not wait.
	Stepped func(Stepped)
	// Bell wakes the loops of domains in this process; nil: they look by the clock alone. It must not wait.
	Bell func()

	seats      sync.Map     // *kept by domain
	activities *pg.Ingester // public transactions
}

// Domains is a kind that most installations have none of: a domain that does not rest.
const Domains pg.Kind = "domains"

// New registers domains with a store that has not started.
func New(core *pg.Store) *Store {
	s := &Store{Store: core, activities: pg.NewIngester(core)}
	core.Make(domainsMade(s))
	core.RegisterKind(Domains, `EXISTS (SELECT FROM postern.coord_state WHERE due IS NOT NULL)
		OR EXISTS (SELECT FROM postern.coord_call WHERE kind <> 'height')`)
	return s
}

// heard tells of a step that is committed.
func (s *Store) heard(h *seat, out *Stepped) {
	if s.Left != nil {
		last := map[string]time.Time{}
		for _, m := range out.Moves {
			if since, ok := last[m.Machine+m.ID]; ok {
				s.Left(m.Machine, m.From, m.At.Sub(since))
			}
			last[m.Machine+m.ID] = m.At
		}
	}
	for _, m := range out.Moves {
		s.Log.Debug("transition", "machine", m.Machine, "domain", h.name, "intent", m.ID, "from", m.From, "on", m.On,
			"to", m.To,
			"reason", m.Reason)
	}
	if s.Stepped != nil {
		s.Stepped(*out)
	}
}

// ring wakes the loops of domains in this process, behind a commit that made work for them.
func (s *Store) ring() {
	if s.Bell != nil {
		s.Bell()
	}
}
