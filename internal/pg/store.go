package pg

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/safe"
	"github.com/postern-dev/postern/internal/wire"
)

// Store is the database as the rest of Postern sees it. It is safe for concurrent use.
type Store struct {
	pool  *pgxpool.Pool
	Looks *pgxpool.Pool // pool, unless LookThrough has said otherwise
	Conf  *conf
	Log   *slog.Logger

	writers writers // at once, by pool

	// Doorbell is told of a transaction that makes work ready, and inserts the wake-up for other processes into it, which begin
	// hands out; nil for none. It is called at most once per transaction, before its commit.
	Doorbell func(ctx context.Context, begin func(context.Context) (pgx.Tx, error)) error
	// Ring wakes this process after a commit that made work ready or set a timer; nil for none.
	Ring func()
	// Count is told, after the commit, of each transaction that was accepted or has ended; nil: it is not told.
	Count func(typ string, entered outbox.State)

	ended atomic.Pointer[func(outbox.ID)] // nil: no request waits here
	taker atomic.Pointer[Taker]           // nil: each post waits for a claim
	takes atomic.Bool                     // an ingest is taking

	// beforeCommit, set by tests of pairs of statements, runs when everything is written and nothing is
	// committed; an error rolls back.
	beforeCommit func(ctx context.Context, pid uint32) error

	witness *Witness // remembers what was acknowledged; nil: nothing does

	clock     atomic.Pointer[clock]
	moving    sync.Mutex                  // held while the clock is moved
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
	blocking []string // names of pools that block a sender after a failure, unless somebody says otherwise
	tellers  []Teller
}

// AnswerWithin is longer than any statement takes that is not meant to take long: the server ends it after 30 s. A
// caller with a deadline of its own gives no less, unless the answer is of no use to it later: the end of a context
// closes the connection, and a slow database would lose all its connections so. The watch finds a dead connection
// sooner.
const AnswerWithin = 40 * time.Second

// Connect opens a pool for url with the settings that our statements want: nested loops over indexes (an
// array of keys is estimated at a thousand rows and would be hashed against all queues; a table, or the
// partition of a day, that was empty when its plan was made would be read whole for each key until
// autovacuum has analyzed it), no bitmaps (they read all versions of a row, or all that waits in a lane, where an index in its
// order finds the few that are asked for first), nothing memoized (which keeps all rows that share a part of the key), no parallel workers (starting them takes longer than all but a look at a
// whole table). No setting keeps an EXISTS that is part of an expression from being hashed, for which its table is read whole if statistics say
// that it is small: those of statements that look for a few rows have an OFFSET 0. Besides, UTC, no JIT, and a doubt flag for commits whose standby was not waited for. What a process does all the time
// is said by parts: connections are made ready for that.
//
// No wait is without an end: the package watch closes connections that the server does not answer on, and asks those that rest once a
// second. What the server keeps of a connection that is dead to us ends soon, too, so that the rows are free which it has locked: a
// transaction in which nothing comes after 4 s, and, where the network is gone, any session after as long. A session that is asked nothing
// for 10 s has lost its client, and takes a place from others.
func Connect(ctx context.Context, url string, conns int32, parts ...Part) (*pgxpool.Pool, error) {
	return (*Witness)(nil).Connect(ctx, url, conns, parts...)
}

func poolConfig(url string, conns int32, parts ...Part) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	if conns > 0 { // also fewer than the pool_min_conns of the URL
		cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = conns, min(conns, cfg.MinConns), min(conns, cfg.MinIdleConns)
	}
	for name, value := range map[string]string{
		"application_name": "postern", "timezone": "UTC", "jit": "off", "synchronous_commit": "on",
		"enable_hashjoin": "off", "enable_mergejoin": "off", "enable_seqscan": "off", "enable_material": "off",
		"enable_bitmapscan": "off", "enable_memoize": "off", "plan_cache_mode": "force_generic_plan",
		"max_parallel_workers_per_gather": "0",
		"lock_timeout":                    "5s", "statement_timeout": "30s",
		"idle_in_transaction_session_timeout": "4s", "idle_session_timeout": "10s",
		"tcp_user_timeout": "4s", "tcp_keepalives_idle": "2", "tcp_keepalives_interval": "1", "tcp_keepalives_count": "3",
	} {
		if _, set := cfg.ConnConfig.RuntimeParams[name]; !set {
			cfg.ConnConfig.RuntimeParams[name] = value
		}
	}
	cfg.ConnConfig.OnNotice = func(c *pgconn.PgConn, n *pgconn.Notice) {
		if doubt, ok := c.CustomData()["doubt"].(*atomic.Pointer[pgconn.Notice]); ok && warns(n) {
			doubt.Store(n)
		}
	}
	closes := cfg.ConnConfig.OnPgError
	cfg.ConnConfig.OnPgError = func(c *pgconn.PgConn, e *pgconn.PgError) bool {
		return closes(c, e) && !fatal(e) // closes knows the severity in English
	}
	var part Part
	for _, p := range parts {
		part |= p
	}
	if cfg.MaxConnLifetimeJitter == 0 { // those that were opened together shall not end together
		cfg.MaxConnLifetimeJitter = cfg.MaxConnLifetime / 6
	}
	if part != 0 && cfg.MinConns == 0 { // those that end, by their age or with the server, are opened anew before anybody needs them
		cfg.MinConns = cfg.MaxConns
	}
	cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		c.PgConn().CustomData()["doubt"] = new(atomic.Pointer[pgconn.Notice])
		// The pool calls this in a goroutine of its own. A connection whose practice panics may still serve the next
		// caller.
		err := safe.Try("practice of a connection", func() error { return part.practise(ctx, c) })
		if _, ok := err.(*safe.Panic); ok && !c.IsClosed() && !c.PgConn().IsBusy() { //nolint:errorlint // as Try returns it
			return nil
		}
		return err
	}
	cfg.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool {
		return seen(p.Conn.PgConn().Conn()) != wire.Quiet
	}
	return cfg, nil
}

// seen says what has become of a connection of the pool, under TLS if there is any.
func seen(conn net.Conn) wire.State {
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = t.NetConn()
	}
	if c, ok := conn.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			return wire.Look(raw)
		}
	}
	return wire.Unknown
}

// standbyDoubt returns where the connection keeps the last warning that its server sent.
func standbyDoubt(c *pgx.Conn) *atomic.Pointer[pgconn.Notice] {
	if f, ok := c.PgConn().CustomData()["doubt"].(*atomic.Pointer[pgconn.Notice]); ok {
		return f
	}
	return new(atomic.Pointer[pgconn.Notice])
}

// warns says whether a notice may be the one that a commit has not waited for its standby. Its text and its Severity
// are in the language of the server, so that only its class tells: warnings of that class with a commit are all taken
// for it.
func warns(n *pgconn.Notice) bool {
	return n.SeverityUnlocalized == "WARNING" && (n.Code == "01000" || n.Code == "57P01")
}

// New makes a store over a migrated database; the pool stays the caller's. Makers and tellers are registered with it before
// it starts.
func New(pool *pgxpool.Pool, log *slog.Logger) *Store {
	return &Store{pool: pool, Looks: pool, writers: writersOf(pool.Config().MaxConns), failAtOnce: failAtOnce, Conf: newConf(pool), Log: log}
}

// Start creates the partitions of the coming days and reads the configuration.
func (s *Store) Start(ctx context.Context) error {
	if _, err := s.EnsureDays(ctx); err != nil {
		return err
	}
	return s.Refresh(ctx)
}

// Leap has numbers that are drawn from sequences go on from the time, so that none is given again that was given in a time that
// this database has lost (docs/numbers.md). To be called by each process that starts, before it draws any.
func (s *Store) Leap(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, `SELECT postern.leap()`)
	return Known(err)
}

// Pool is the pool under the store.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// LookThrough gives the questions that a process asks all the time (deliveries, callbacks, staged rows, processors,
// the configuration) a pool of their own, of a connection or two. Behind a day that is made or dropped, each
// connection plans its next statements anew. In the large pool each of these questions would be planned in each
// connection, while other callers wait. LookThrough is called before anything runs.
func (s *Store) LookThrough(pool *pgxpool.Pool) { s.Looks = pool }

// Close closes the pools. It is for callers that have no use for them without the store.
func (s *Store) Close() {
	s.pool.Close()
	s.Looks.Close()
}

// OnEnd has f told, after the commit, of each transaction that this store has ended, as a hint: it hears neither of what other
// processes ended nor of what several joint moves did. f must not wait.
func (s *Store) OnEnd(f func(outbox.ID)) { s.ended.Store(&f) }

// HoldCommits has every transaction call hold between its writes and its commit, with the process id of its session; an
// error rolls it back. nil ends it. It is for tests of pairs of statements.
func (s *Store) HoldCommits(hold func(ctx context.Context, pid uint32) error) { s.beforeCommit = hold }

// EnsureDays creates the partitions of yesterday to three days ahead (each costs every statement some of its planning) and returns how many were missing.
func (s *Store) EnsureDays(ctx context.Context) (n int, err error) {
	err = s.pool.QueryRow(ctx, `SELECT postern.ensure_days((d AT TIME ZONE 'UTC')::date - 1, (d AT TIME ZONE 'UTC')::date + 3)
		FROM coalesce($1::timestamptz, clock_timestamp()) d`, s.Clock()).Scan(&n)
	return n, cmp.Or(lacking(s.role(), err), Known(err))
}

func (s *Store) RingHere() {
	if s.Ring != nil {
		s.Ring()
	}
}
