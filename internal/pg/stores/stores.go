// Package stores opens the store of the queues with those of all systems that post transactions of their own. Code that
// uses several of them takes a Store; code that uses one takes that one.
package stores

import (
	"context"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/actors"
	"github.com/postern-dev/postern/internal/pg/batches"
	"github.com/postern-dev/postern/internal/pg/channels"
	"github.com/postern-dev/postern/internal/pg/deliveries"
	"github.com/postern-dev/postern/internal/pg/domains"
	"github.com/postern-dev/postern/internal/pg/events"
	"github.com/postern-dev/postern/internal/pg/flows"
	"github.com/postern-dev/postern/internal/pg/labels"
	"github.com/postern-dev/postern/internal/pg/messages"
	"github.com/postern-dev/postern/internal/pg/peers"
	"github.com/postern-dev/postern/internal/pg/reads"
)

// Store is the database as the rest of Postern sees it. It is safe for concurrent use.
type Store struct {
	*pg.Store
	Reads         *reads.Store
	Messages      *messages.Store
	Installations *peers.Store
	Deliveries    *deliveries.Store
	Channels      *channels.Store
	Actors        *actors.Store
	Labels        *labels.Store
	Events        *events.Store
	Batches       *batches.Store
	Flows         *flows.Store
	Domains       *domains.Store
}

// Open makes the stores over a migrated database; the pool stays the caller's. See pg.Store.Start.
func Open(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) (*Store, error) {
	s := &Store{Store: pg.New(pool, log)}
	s.Reads = reads.New(s.Store)
	s.Channels = channels.New(s.Store)
	s.Actors = actors.New(s.Store)
	s.Labels = labels.New(s.Store)
	s.Installations = peers.New(s.Store)
	s.Deliveries = deliveries.New(s.Store)
	s.Batches = batches.New(s.Store, s.Reads, s.Deliveries)
	s.Events = events.New(s.Store, s.Reads, s.Channels)
	s.Flows = flows.New(s.Store, s.Reads, s.Deliveries)
	s.Messages = messages.New(s.Store, s.Reads, s.Flows, s.Installations, s.Deliveries)
	s.Domains = domains.New(s.Store, s.Reads, s.Deliveries)
	s.Installations.Used = s.Domains.NoNode
	s.Installations.Waits(domains.PeerWaits)
	return s, s.Start(ctx)
}
