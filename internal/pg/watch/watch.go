package watch

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"net"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/safe"
)

const (
	lookEvery   = 250 * time.Millisecond // at all links
	askEvery    = time.Second            // those that rest
	suspectFrom = time.Second            // how long a link waits until the server is asked after it
	againAfter  = 2 * time.Second        // and again, while the server works on it
	alarmFor    = 5 * time.Second        // after a link was closed others are suspected sooner, by
	alarmFrom   = 250 * time.Millisecond // how long they wait
	// for an answer that the server has given, and as long as the question after it took
	graceLeast  = 250 * time.Millisecond
	openWithin  = 10 * time.Second // a connection, where the URL does not say it
	probeWithin = 4 * time.Second  // a connection that asks after others
	limitMargin = 5 * time.Second  // added to the server's own timeout, where it cannot be asked after a wait
	limitMost   = 10 * time.Minute // where the server has none
)

// Watch watches the connections of one configuration. It works while there are any.
type Watch struct {
	cfg  *pgx.ConnConfig
	dial pgconn.DialFunc
	open opening

	waits atomic.Int32 // callers that wait for a connection of the pool

	mu      sync.Mutex
	links   map[*link]bool
	running bool
	loops   safe.Loops
	pool    *pgxpool.Pool
	ask     func(context.Context, *pgx.Conn) error

	answers chan answer
	probes  int // that are under way
	probed  time.Time
	asked   time.Time // those that rest
	alarmed time.Time // a link was closed
}

// answer is what a connection that was opened to ask after others was told.
type answer struct {
	began time.Time
	works map[string]bool // sessions that the server works on
	err   error
}

// Configure has what is connected with cfg be watched. It takes over the dialling, the tracer, and what is done
// after a connect and when a context ends.
func Configure(cfg *pgx.ConnConfig) *Watch {
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = openWithin
	}
	w := &Watch{dial: cfg.DialFunc, links: map[*link]bool{}, answers: make(chan answer, 8)}
	w.open.slots = make(chan struct{}, openAtOnce)
	w.cfg = cfg.Copy()
	cfg.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler { return ender{c} }
	w.cfg.BuildContextWatcherHandler = cfg.BuildContextWatcherHandler
	w.cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		l, err := w.connect(ctx, network, address, func() {})
		if err != nil {
			return nil, err
		}
		return l, nil
	}
	w.cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	cfg.DialFunc = w.opened
	cfg.BuildFrontend = frontend(cfg.BuildFrontend)
	cfg.Tracer = tracer{&w.open, &w.waits}
	cfg.AfterConnect = w.identify
	return w
}

// Rests has the connections that rest in a pool be asked, by a ping or by whatever else has an answer.
func (w *Watch) Rests(pool *pgxpool.Pool, ask func(context.Context, *pgx.Conn) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pool, w.ask = pool, ask
}

// errCancel is what pgx gets instead of a connection for a cancel request.
var errCancel = errors.New("no cancel request is sent: it would end a commit's wait for its standby")

// connect dials, unless it is asked to dial for a cancel request.
func (w *Watch) connect(ctx context.Context, network, address string, onClose func()) (*link, error) {
	if network == noCancel {
		return nil, errCancel
	}
	conn, err := w.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &link{Conn: conn, onClose: onClose}, nil
}

// opened dials a link that is watched.
func (w *Watch) opened(ctx context.Context, network, address string) (net.Conn, error) {
	if network == noCancel {
		return nil, errCancel
	}
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok {
		if err := a.begin(ctx); err != nil {
			return nil, err
		}
	}
	var l *link
	l, err := w.connect(ctx, network, address, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.links, l)
	})
	if err != nil {
		return nil, err
	}
	l.limit.Store(int64(limitMost))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.links[l] = true
	if !w.running {
		w.running = true
		go w.loops.Run(context.Background(), "watch", func(context.Context) { w.run() })
	}
	return l, nil
}

// identify asks a new connection which session of the server it is, by its number and its beginning, and for how long a
// statement may run. Behind a pooler it may be another with each statement, and has no name: then the server cannot be
// asked after it, as where it does not tell.
func (w *Watch) identify(ctx context.Context, c *pgconn.PgConn) error {
	l := linkOf(c)
	if l == nil {
		return nil
	}
	results, err := c.Exec(ctx, `SELECT pid, pid || '/' || extract(epoch FROM backend_start),
			extract(epoch FROM current_setting('statement_timeout')::interval)::bigint
		FROM pg_stat_get_activity(pg_backend_pid())`).ReadAll()
	if err != nil && c.IsClosed() {
		return err
	}
	session := ""
	if err == nil && len(results) == 1 && len(results[0].Rows) == 1 {
		row := results[0].Rows[0]
		if string(row[0]) == strconv.FormatUint(uint64(c.PID()), 10) {
			session = string(row[1])
		}
		if seconds, err := strconv.Atoi(string(row[2])); err == nil && seconds > 0 {
			l.limit.Store(int64(time.Duration(seconds)*time.Second + limitMargin))
		}
	}
	l.session.Store(&session)
	return nil
}

// run looks at all links until there are none.
func (w *Watch) run() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case a := <-w.answers:
			w.probes--
			if a.err == nil {
				w.judge(a, time.Now())
			}
			continue
		case <-tick.C:
		}
		if w.ends() {
			return
		}
		w.look(w.all(), time.Now())
	}
}

// look looks at all links once, and asks where that is due. Where one was closed, more are dead: all that rest are
// asked at once, and what waits is suspected sooner.
func (w *Watch) look(links []*link, now time.Time) {
	patience := suspectFrom
	if now.Sub(w.alarmed) < alarmFor {
		patience = alarmFrom
	}
	suspicious := false
	for _, l := range links {
		switch l.look(now, patience) {
		case suspected:
			suspicious = true
		case closed:
			w.alarmed, w.asked = now, time.Time{}
		}
	}
	if suspicious && now.Sub(w.probed) >= patience {
		w.probed = now
		w.probes++
		go safe.Run("probe of connections", func() { w.probe(now) })
	}
	if now.Sub(w.asked) >= askEvery {
		w.asked = now
		w.askResting(links, now)
	}
}

// ends says whether there is nothing left to watch. Then the loop that asks is over, and the next link starts another.
func (w *Watch) ends() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = len(w.links) > 0 || w.probes > 0
	return !w.running
}

// all lists the links.
func (w *Watch) all() []*link {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.links))
}

// verdict is what a look at a link says.
type verdict int

const (
	trusted   verdict = iota
	suspected         // the server is to be asked after it
	closed
)

// look notes how long a link has waited, and closes it where that is due.
func (l *link) look(now time.Time, patience time.Duration) verdict {
	v := &l.seen
	moves := l.moves.Load()
	if l.busy.Load() == 0 || l.listens.Load() {
		v.since, v.dead = time.Time{}, time.Time{}
		return trusted
	}
	sent := l.unsent()
	if v.since.IsZero() || v.moves != moves || v.sent > sent {
		v.moves, v.sent, v.since, v.known, v.dead = moves, sent, now, now, time.Time{}
		return trusted
	}
	v.sent = sent
	due := !v.dead.IsZero() && now.After(v.dead) || now.Sub(v.known) > time.Duration(l.limit.Load())
	switch {
	case due && l.talking():
		v.known, v.dead = now, time.Time{}
	case due:
		l.reset(errSilent)
		return closed
	case v.dead.IsZero() && now.Sub(v.since) >= patience && (v.known.Equal(v.since) || now.Sub(v.known) >= againAfter):
		return suspected
	}
	return trusted
}

// judge applies an answer of the server to the links that waited when it was asked, and still wait for the same. A link
// on which the server does not work is closed after a moment, which leaves time for an answer that is on its way.
func (w *Watch) judge(a answer, now time.Time) {
	for _, l := range w.all() {
		v := &l.seen
		if v.since.IsZero() || v.since.After(a.began) || v.moves != l.moves.Load() {
			continue
		}
		switch session := l.session.Load(); {
		case session != nil && *session == "":
		case session != nil && a.works[*session]:
			v.known, v.dead = now, time.Time{}
		case v.dead.IsZero():
			v.dead = now.Add(max(graceLeast, now.Sub(a.began)))
		}
	}
}

var errUnasked = errors.New("the server was not asked")

// probe asks the server, on a new connection, on which of our sessions it works. It does not work on one that waits for
// us.
func (w *Watch) probe(began time.Time) {
	a := answer{began: began, works: map[string]bool{}, err: errUnasked} // as long as there is no answer
	defer func() { w.answers <- a }()
	ctx, cancel := context.WithTimeout(context.Background(), probeWithin)
	defer cancel()
	c, err := pgx.ConnectConfig(ctx, w.cfg.Copy())
	if err != nil {
		a.err = err
		return
	}
	defer func() { _ = c.Close(ctx) }()
	rows, err := c.Query(ctx, `SELECT pid || '/' || extract(epoch FROM backend_start) FROM pg_stat_activity
		WHERE usename = session_user
			AND state NOT LIKE 'idle%'
			AND wait_event_type IS DISTINCT FROM 'Client'`)
	if err != nil {
		a.err = err
		return
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, session := range list {
		a.works[session] = true
	}
	a.err = err
}

// askResting pings the connections of the pool that have rested since the last time. The watch finds out a connection
// that does not answer by its wait.
func (w *Watch) askResting(links []*link, now time.Time) {
	w.mu.Lock()
	pool, ask := w.pool, w.ask
	w.mu.Unlock()
	if pool == nil {
		return
	}
	for _, l := range links {
		moves := l.moves.Load()
		l.seen.resting = l.seen.rested == moves && l.busy.Load() == 0
		if l.seen.rested != moves && l.pinged.Load() != moves {
			l.used.Store(now.UnixNano())
		}
		l.seen.rested = moves
	}
	var pings sync.WaitGroup
	for _, c := range pool.AcquireAllIdle(context.Background()) {
		l := linkOf(c.Conn().PgConn())
		if l == nil || !l.seen.resting {
			c.Release()
			continue
		}
		pings.Go(safe.Func("ping", func() {
			defer c.Release()
			_ = ask(context.Background(), c.Conn())
			l.pinged.Store(l.moves.Load())
		}))
	}
	go safe.Run("order of the pool", func() {
		pings.Wait()
		lastUsedFirst(pool)
	})
}

// lastUsedFirst has a pool hand out the connection first that was used last: that has its plans, and a busy process
// works with few of them. The pool hands out what was given back last, which a ping would make one that rests.
func lastUsedFirst(pool *pgxpool.Pool) {
	idle := pool.AcquireAllIdle(context.Background())
	used := func(c *pgxpool.Conn) int64 {
		if l := linkOf(c.Conn().PgConn()); l != nil {
			return l.used.Load()
		}
		return 0
	}
	slices.SortStableFunc(idle, func(a, b *pgxpool.Conn) int { return cmp.Compare(used(a), used(b)) })
	for _, c := range idle {
		c.Release()
	}
}

// Notification waits for a notification, and asks each second whether the server is still there. ctx may end the wait,
// and the connection can be used on.
func Notification(ctx context.Context, c *pgx.Conn) (*pgconn.Notification, error) {
	for {
		n, err := listen(ctx, c)
		if err == nil || ctx.Err() != nil || !pgconn.Timeout(err) {
			return n, err
		}
		if err := c.Ping(context.WithoutCancel(ctx)); err != nil {
			return nil, err
		}
	}
}

func listen(ctx context.Context, c *pgx.Conn) (*pgconn.Notification, error) {
	if l := linkOf(c.PgConn()); l != nil {
		l.listens.Store(true)
		defer l.listens.Store(false)
	}
	soon, cancel := context.WithTimeout(ctx, askEvery)
	defer cancel()
	return c.WaitForNotification(soon)
}
