package pg

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Store is the database as the rest of Postern sees it. It is safe for concurrent use.
type Store struct {
	*db.DB
	Conf *conf

	// Doorbell is told of a transaction that makes work ready, and inserts the wake-up for other processes into it,
	// which begin hands out; nil for none. It is called at most once per transaction, before its commit.
	Doorbell func(ctx context.Context, begin func(context.Context) (pgx.Tx, error)) error
	// Ring wakes this process after a commit that made work ready or set a timer; nil for none.
	Ring func()
	// Count is told, after the commit, of each transaction that was accepted or has ended; nil: it is not told.
	Count func(typ string, entered outbox.State)

	ended atomic.Pointer[func(outbox.ID)] // nil: no request waits here
	taker atomic.Pointer[Taker]           // nil: each post waits for a claim
	takes atomic.Bool                     // an ingest is taking

	Rolling   sync.Mutex                  // held while figures by the hour are written
	answered  answered                    // when it was last asked whether it is ready
	rippling  atomic.Bool                 // an end has not reached all its dependents
	lately    atomic.Pointer[[]*openLane] // had work when it last claimed, and need nothing but room
	fronts    fronts
	forgetful atomic.Int32 // for so many settlements what leases remember is not relied on
	broken    sync.Map     // ids of queues whose head has no body
	names     names

	failAtOnce int // dependents that an end takes along

	makers   []Made
	keeps    []keeping
	blocking []string // names of pools that block a sender after a failure, unless somebody says otherwise
	fits     judges
	tellers  []Teller
}

// Connect opens a pool for url, see Witness.Connect, without a witness. parts say what the process does all the time:
// each connection is made ready for the statements of these parts.
func Connect(ctx context.Context, url string, conns int32, parts ...Part) (*pgxpool.Pool, error) {
	return ConnectBy(ctx, nil, url, conns, parts...)
}

// ConnectBy is Connect with a witness that looks at each connection before it is used.
func ConnectBy(ctx context.Context, w *db.Witness, url string, conns int32, parts ...Part) (*pgxpool.Pool, error) {
	var all Part
	for _, p := range parts {
		all |= p
	}
	if all == 0 {
		return w.Connect(ctx, url, conns, nil)
	}
	return w.Connect(ctx, url, conns, all.practise)
}

// New makes a store over a migrated database; the pool stays the caller's. Makers and tellers are registered with it
// before it starts.
func New(pool *pgxpool.Pool, log *slog.Logger) *Store {
	s := &Store{DB: db.NewDB(pool, log), Conf: newConf(pool), failAtOnce: failAtOnce}
	s.keepAll()
	return s
}

// Start creates the partitions of the coming days and reads the configuration.
func (s *Store) Start(ctx context.Context) error {
	if _, err := s.EnsureDays(ctx); err != nil {
		return err
	}
	return s.Refresh(ctx)
}

// OnEnd has f told, after the commit, of each transaction that this store has ended, as a hint: it hears neither of
// what other processes ended nor of what several joint moves did. f must not wait.
func (s *Store) OnEnd(f func(outbox.ID)) { s.ended.Store(&f) }

// RingHere wakes the loops of this process, if it has any. It does not wait.
func (s *Store) RingHere() {
	if s.Ring != nil {
		s.Ring()
	}
}
