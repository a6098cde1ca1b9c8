package watch_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/chaos/proxy"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/watch"
	"github.com/postern-dev/postern/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// soon is how long a test waits for what should take a few seconds.
const soon = 25 * time.Second

// through opens a pool that reaches a database through a proxy.
func through(t *testing.T, conns int32) (*pgtest.DB, *proxy.Proxy, *pgxpool.Pool) {
	t.Helper()
	db := pgtest.New(t)
	p := proxy.New(t, db.URL)
	return db, p, open(t, db, p, conns)
}

// open opens a pool through a proxy.
func open(t *testing.T, db *pgtest.DB, p *proxy.Proxy, conns int32) *pgxpool.Pool {
	t.Helper()
	pool, err := pg.Connect(t.Context(), p.URL(db.URL), conns)
	must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fill has a pool open all of its connections.
func fill(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	db.Fill(t.Context(), pool)
	if n := pool.Stat().TotalConns(); n != pool.Config().MaxConns {
		t.Fatalf("%d connections are open", n)
	}
}

// until waits for what should come soon.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(soon); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			all := make([]byte, 1<<16)
			t.Logf("%s", all[:runtime.Stack(all, true)])
			t.Fatalf("not within %s: %s", soon, what)
		}
	}
}

// A statement whose answer never comes ends soon, though its context does not, in whichever direction the connection
// says nothing any more; the next has a connection, and the server is asked to cancel nothing.
func TestAnAnswerThatNeverComesIsNotWaitedFor(t *testing.T) {
	for name, way := range map[string]proxy.Way{"neither": proxy.BothWays, "answers": proxy.ToClient,
		"questions": proxy.ToServer} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, p, pool := through(t, 3)
			fill(t, pool)
			var held []*pgxpool.Conn
			for range 3 {
				c, err := pool.Acquire(t.Context())
				must(t, err)
				held = append(held, c)
			}
			p.Swallow(way)
			began := time.Now()
			var all sync.WaitGroup
			for _, c := range held {
				all.Go(func() {
					defer c.Release()
					if _, err := c.Exec(context.Background(), "SELECT 1"); err == nil {
						t.Error("a connection answers that says nothing")
					}
				})
			}
			all.Wait()
			if took := time.Since(began); took > soon {
				t.Errorf("it was waited for %s", took)
			}
			_, err := pool.Exec(t.Context(), "SELECT 1")
			must(t, err)
			t.Logf("the next was answered after %s", time.Since(began))
			if n := p.Cancels(); n > 0 {
				t.Errorf("%d cancel requests were sent", n)
			}
		})
	}
}

// Under TLS it is the same: dead connections are found, the end of a context cancels nothing, and who listens may stop.
func TestConnectionsUnderTLSAreWatched(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	p := proxy.NewTLS(t, db.URL)
	pool := open(t, db, p, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := pool.Exec(ctx, "SELECT pg_sleep(10)"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a statement whose context has ended: %v", err)
	}
	c, err := pool.Acquire(t.Context())
	must(t, err)
	defer c.Release()
	soon, stop := context.WithTimeout(t.Context(), 2500*time.Millisecond)
	defer stop()
	if _, err := watch.Notification(soon, c.Conn()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it waited until %v", err)
	}
	_, err = c.Exec(t.Context(), "SELECT 1")
	must(t, err)
	p.Swallow(proxy.BothWays)
	if _, err := c.Exec(context.Background(), "SELECT 1"); err == nil {
		t.Error("a connection answers that says nothing")
	}
	if n := p.Cancels(); n > 0 {
		t.Errorf("%d cancel requests were sent", n)
	}
}

// An answer that breaks off in its middle is not waited for either.
func TestAnAnswerThatBreaksOffIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	_, p, pool := through(t, 1)
	rows, err := pool.Query(t.Context(), "SELECT repeat('x', 1000) FROM generate_series(1, 200000)")
	must(t, err)
	defer rows.Close()
	if !rows.Next() {
		t.Fatal(rows.Err())
	}
	p.Swallow(proxy.ToClient)
	for rows.Next() {
	}
	if rows.Err() == nil {
		t.Error("an answer has an end that was swallowed")
	}
	_, err = pool.Exec(t.Context(), "SELECT 1")
	must(t, err)
}

// A statement that the server works on for long is waited for, and so is one that it answers slowly: no connection is
// lost.
func TestASlowServerLosesNoConnection(t *testing.T) {
	t.Parallel()
	_, p, pool := through(t, 4)
	fill(t, pool)
	opened := p.Opened()
	for name, wait := range map[string]func() string{
		"work":    func() string { return "SELECT pg_sleep(6)" },
		"network": func() string { p.Delay(3 * time.Second); return "SELECT 1" },
	} {
		var all sync.WaitGroup
		sql := wait()
		for range 4 {
			all.Go(func() {
				c, err := pool.Acquire(t.Context())
				if err != nil {
					t.Error(name, err)
					return
				}
				defer c.Release()
				for range 2 {
					if _, err := c.Exec(t.Context(), sql); err != nil {
						t.Error(name, err)
					}
				}
			})
		}
		all.Wait()
		p.Delay(0)
	}
	if n := pool.Stat().NewConnsCount(); n != 4 {
		t.Errorf("%d connections were opened in all, want the first 4", n)
	}
	t.Logf("%d connections asked after others", p.Opened()-opened)
}

// A long statement that a narrow network takes bit by bit moves, though the server waits for it: while it is written,
// and while the last of it lies in the buffers of this machine.
func TestALongStatementOnANarrowNetworkArrives(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"written": 6 << 20, "buffered": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, p, pool := through(t, 1)
			fill(t, pool)
			p.Rate(size / 5) // five seconds for all of it
			var n int
			must(t, pool.QueryRow(t.Context(), `SELECT length($1::text)`, strings.Repeat("x", size)).Scan(&n))
			if opened := pool.Stat().NewConnsCount(); n != size || opened != 1 {
				t.Errorf("%d of %d bytes arrived, on %d connections", n, size, opened)
			}
		})
	}
}

// starved is a connection of a process that does not go on for a while when it has written.
type starved struct {
	net.Conn
	closed atomic.Bool
}

func (s *starved) Write(b []byte) (int, error) {
	n, err := s.Conn.Write(b)
	time.Sleep(100 * time.Millisecond)
	return n, err
}

func (s *starved) Close() error {
	s.closed.Store(true)
	return s.Conn.Close()
}

// A connection whose client computes for seconds is not closed, though pgx has begun to read on it beside a slow write,
// and has come to the end of the answer before the write returned.
func TestAClientThatComputesLosesNoConnection(t *testing.T) {
	t.Parallel()
	cfg, err := pgx.ParseConfig(pgtest.New(t).URL)
	must(t, err)
	var conn *starved
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if conn == nil {
			conn = &starved{Conn: c}
			return conn, err
		}
		return c, err // asks after the first
	}
	watch.Configure(cfg)
	c, err := pgx.ConnectConfig(t.Context(), cfg)
	must(t, err)
	defer func() { _ = c.Close(context.Background()) }()
	tx, err := c.Begin(t.Context())
	must(t, err)
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end) && !conn.closed.Load(); {
		time.Sleep(50 * time.Millisecond)
	}
	must(t, tx.Commit(t.Context()))
}

// The end of a context closes the socket at once, so that the place in the pool is free, and the server goes on with
// what it was asked: nothing is cancelled.
func TestTheEndOfAContextCancelsNothing(t *testing.T) {
	t.Parallel()
	db, p, pool := through(t, 1)
	_, err := db.Pool.Exec(t.Context(), "CREATE TABLE public.done (n int)")
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := pool.Exec(ctx, "WITH w AS (SELECT pg_sleep(3)) INSERT INTO public.done SELECT 1 FROM w")
		ended <- err
	}()
	until(t, "the server sleeps", func() bool {
		var n int
		must(t,
			db.Pool.QueryRow(t.Context(),
				"SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = $1",
				db.Name).Scan(&n))
		return n == 1
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("a statement whose context has ended: %v", err)
	}
	_, err = pool.Exec(t.Context(), "SELECT 1")
	must(t, err)
	until(t, "the server has done what it was asked", func() bool {
		var n int
		must(t, db.Pool.QueryRow(t.Context(), "SELECT count(*) FROM public.done").Scan(&n))
		return n == 1
	})
	if n := p.Cancels(); n > 0 {
		t.Errorf("%d cancel requests were sent", n)
	}
}

// A connection that rests is found out before anybody needs it.
func TestWhatRestsIsAsked(t *testing.T) {
	t.Parallel()
	_, p, pool := through(t, 4)
	fill(t, pool)
	p.Swallow(proxy.BothWays)
	until(t, "the dead connections are gone", func() bool { return pool.Stat().TotalConns() == 0 })
}

// The server soon ends its session of a connection that is dead to us: the rows that it has locked are free.
func TestTheRowsOfADeadConnectionAreFreeSoon(t *testing.T) {
	t.Parallel()
	db, p, pool := through(t, 2)
	_, err := db.Pool.Exec(t.Context(), "CREATE TABLE public.locked AS SELECT 1 AS n")
	must(t, err)
	tx, err := pool.Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM public.locked FOR UPDATE")
	must(t, err)
	p.Swallow(proxy.BothWays)
	began := time.Now()
	if err := tx.Commit(context.Background()); err == nil {
		t.Error("a commit is answered that was swallowed")
	}
	until(t, "the row is free", func() bool {
		_, err := pool.Exec(t.Context(), "UPDATE public.locked SET n = n + 1")
		return err == nil
	})
	t.Logf("the row was free after %s", time.Since(began))
}

// A listener hears a notification, may stop waiting and use its connection on, and learns soon that the server is not
// there any more.
func TestWhoListensLearnsThatTheServerIsGone(t *testing.T) {
	t.Parallel()
	db, p, pool := through(t, 1)
	held, err := pool.Acquire(t.Context())
	must(t, err)
	c := held.Hijack()
	defer func() { _ = c.Close(context.Background()) }()
	_, err = c.Exec(t.Context(), "LISTEN word")
	must(t, err)
	time.AfterFunc(3*time.Second, func() { _, _ = db.Pool.Exec(context.Background(), "NOTIFY word, 'a'") })
	n, err := watch.Notification(t.Context(), c)
	if err != nil || n.Payload != "a" {
		t.Fatalf("%+v, %v", n, err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	if _, err := watch.Notification(ctx, c); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it waited until %v", err)
	}
	_, err = c.Exec(t.Context(), "SELECT 1")
	must(t, err)
	p.Swallow(proxy.BothWays)
	began := time.Now()
	if _, err := watch.Notification(context.Background(), c); err == nil {
		t.Error("it hears something that was swallowed")
	}
	if took := time.Since(began); took > soon {
		t.Errorf("it listened for %s", took)
	}
}

// Where new connections say nothing either, waits end with the server's own timeout at the latest, and all goes on soon
// after they can be opened again.
func TestAllGoesOnSoonAfterConnectionsCanBeOpenedAgain(t *testing.T) {
	t.Parallel()
	_, p, pool := through(t, 4)
	fill(t, pool)
	p.Mute()
	p.Swallow(proxy.BothWays)
	asked := make(chan error, 8)
	for range cap(asked) {
		go func() {
			_, err := pool.Exec(context.Background(), "SELECT 1")
			asked <- err
		}()
	}
	time.Sleep(8 * time.Second)
	p.Release()
	began := time.Now()
	until(t, "a statement is answered", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := pool.Exec(ctx, "SELECT 1")
		return err == nil
	})
	t.Logf("answered after %s", time.Since(began))
	for range cap(asked) {
		<-asked
	}
	if n := p.Cancels(); n > 0 {
		t.Errorf("%d cancel requests were sent", n)
	}
}

// A server that is not there is not stormed: after a failure no connection is tried for a moment, and a caller that
// asks for one is told so at once.
func TestAServerThatIsAwayIsNotStormed(t *testing.T) {
	t.Parallel()
	cfg, err := pgx.ParseConfig("postgres://nobody@127.0.0.1:1/nothing?sslmode=disable")
	must(t, err)
	dials := 0
	var mu sync.Mutex
	dial := cfg.DialFunc
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		mu.Lock()
		dials++
		mu.Unlock()
		return dial(ctx, network, address)
	}
	watch.Configure(cfg)
	tries := 0
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); tries++ {
		if c, err := pgx.ConnectConfig(t.Context(), cfg); err == nil {
			_ = c.Close(t.Context())
			t.Fatal("nothing listens there")
		}
		time.Sleep(time.Millisecond)
	}
	if dials == 0 || dials > 40 {
		t.Errorf("%d dials for %d tries in two seconds", dials, tries)
	}
}

// An attempt may need several sockets, as where TLS is tried first and the server has none. The failure of one socket
// is not a failure of the attempt, and begins no pause.
func TestAnotherSocketOfAnAttemptIsTriedAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	cfg, err := pgx.ParseConfig(strings.Replace(db.URL, "sslmode=disable", "sslmode=prefer", 1))
	must(t, err)
	if len(cfg.Fallbacks) == 0 {
		t.Fatalf("%s has no way but one", db.URL)
	}
	watch.Configure(cfg)
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			c, err := pgx.ConnectConfig(t.Context(), cfg)
			if err != nil {
				t.Error(err)
				return
			}
			_ = c.Close(t.Context())
		})
	}
	all.Wait()
}
