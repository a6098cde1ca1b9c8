package deliveries

import "github.com/postern-dev/postern/internal/pg"

// Store keeps subscriptions and deliveries. It is safe for concurrent use.
type Store struct {
	*pg.Store
	Subscribers *subscribers
}

// New registers deliveries with a store that has not started.
func New(core *pg.Store) *Store {
	s := &Store{Store: core, Subscribers: newSubscribers()}
	core.Tell(s.Subscribers)
	return s
}
