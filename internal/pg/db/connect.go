package db

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/pg/session"
	"github.com/postern-dev/postern/internal/pg/watch"
	"github.com/postern-dev/postern/internal/safe"
	"github.com/postern-dev/postern/internal/wire"
)

// poolConfig is the configuration of a pool. practise makes a new connection ready for what it is used for; nil:
// nothing does.
func poolConfig(url string, conns int32, practise Practice) (*pgxpool.Config, error) {
	said, err := session.Parse(url)
	if err != nil {
		return nil, err
	}
	cfg := said.Config
	if conns > 0 { // also fewer than the pool_min_conns of the URL
		cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = conns, min(conns, cfg.MinConns), min(conns, cfg.MinIdleConns)
	}
	for name, value := range map[string]string{
		"application_name": "postern", "jit": "off",
		"enable_hashjoin": "off", "enable_mergejoin": "off", "enable_seqscan": "off", "enable_material": "off",
		"enable_bitmapscan": "off", "enable_memoize": "off", "plan_cache_mode": "force_generic_plan",
		"max_parallel_workers_per_gather": "0",
		"lock_timeout":                    "5s", "statement_timeout": "30s",
		"idle_in_transaction_session_timeout": "4s", "idle_session_timeout": "10s",
		"tcp_user_timeout": "4s", "tcp_keepalives_idle": "2",
		"tcp_keepalives_interval": "1", "tcp_keepalives_count": "3",
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
	if cfg.MaxConnLifetimeJitter == 0 { // those that were opened together shall not end together
		cfg.MaxConnLifetimeJitter = cfg.MaxConnLifetime / 6
	}
	// those that end, by their age or with the server, are opened anew before anybody needs them
	if practise != nil && cfg.MinConns == 0 {
		cfg.MinConns = cfg.MaxConns
	}
	cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		c.PgConn().CustomData()["doubt"] = new(atomic.Pointer[pgconn.Notice])
		if practise == nil {
			return nil
		}
		return practised(ctx, c, practise)
	}
	cfg.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool {
		return seen(p.Conn.PgConn().Conn()) != wire.Quiet
	}
	said.Settle()
	return cfg, nil
}

// practised has a connection practise, and notes whether it has more to do. The pool calls this in a goroutine of its
// own. A connection whose practice panics may still serve the next caller.
func practised(ctx context.Context, c *pgx.Conn, practise Practice) error {
	var whole bool
	err := safe.Try("practice of a connection", func() (err error) {
		whole, err = practise(ctx, c, watch.Wanted(c))
		return err
	})
	if _, ok := err.(*safe.Panic); ok && !c.IsClosed() && !c.PgConn().IsBusy() { //nolint:errorlint // as Try returns it
		return nil
	}
	c.PgConn().CustomData()["practises"] = err == nil && !whole
	return err
}

// askOrPractise pings a connection that rests, or has it go on with its practice, which the server answers as well. One
// connection of a process practises at a time: after a restart of the server all have to.
func askOrPractise(practise Practice) func(context.Context, *pgx.Conn) error {
	var one sync.Mutex
	return func(ctx context.Context, c *pgx.Conn) error {
		if more, _ := c.PgConn().CustomData()["practises"].(bool); more && one.TryLock() {
			defer one.Unlock()
			return practised(ctx, c, practise)
		}
		return c.Ping(ctx)
	}
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

// AnswerWithin is longer than any statement takes that is not meant to take long: the server ends it after 30 s. A
// caller with a deadline of its own gives no less, unless the answer is of no use to it later: the end of a context
// closes the connection, and a slow database would lose all its connections so. The watch finds a dead connection
// sooner.
const AnswerWithin = 40 * time.Second

// Practice makes a new connection ready for what it is used for, before it is used, or goes on with that. It ends soon
// when the connection is wanted, and says whether it has done all.
type Practice func(ctx context.Context, c *pgx.Conn, wanted func() bool) (whole bool, err error)

// OpenWithin bounds what a connection takes to open, and to practise, and a process to open its own.
const OpenWithin = 10 * time.Second

// Fill returns when all connections that the pool may have are open, and have practised. A caller that finds no free
// connection opens one and waits for that, 50 to 100 ms on a busy machine, even if another comes free meanwhile:
// without Fill each burst of the first seconds would. An error of the database is left to the first caller that needs
// it. Returned is how many are open.
func Fill(ctx context.Context, pool *pgxpool.Pool) (opened int) {
	ctx, cancel := context.WithTimeout(watch.Patient(ctx), OpenWithin)
	defer cancel()
	var opening sync.WaitGroup
	most := pool.Config().MaxConns
	held := make(chan *pgxpool.Conn, most)
	for range most {
		opening.Go(safe.Func("opening of connections", func() {
			if c, err := pool.Acquire(ctx); err == nil {
				held <- c
			}
		}))
	}
	opening.Wait()
	close(held)
	for c := range held {
		c.Release()
		opened++
	}
	return opened
}
