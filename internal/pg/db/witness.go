package db

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/watch"
	"github.com/postern-dev/postern/internal/twin"
)

// Witness remembers the newest commits that a process was told of, and looks for them whenever a connection is opened,
// before anything else is done on it. All are there: the server is the same as before, or one that lost nothing, and
// the process goes on. One is missing: the database went back in time (a restore, a failover that lost something, an
// old primary), the memory of the process may be wrong, and no connection is opened any more. Store.Lost tells of it.
//
// A commit is remembered once it was acknowledged, by one row that it wrote: either all rows of a commit are there or
// none. A commit that ended as commit_unknown is not remembered. A server that loses commits loses the end of its log,
// so that the newest of our commits in the log tells of all. It is not known which one that is, since commits that are
// under way side by side are acknowledged in any order. But a ring as long as the pools have connections contains it: a
// commit that was acknowledged later and yet stands earlier in the log was under way at the same time, and each
// connection has one such commit at most.
type Witness struct {
	mu     sync.Mutex
	ring   []Acked
	next   int
	beat   Acked    // the newest heartbeat of this process's node
	before sighting // the server that was last admitted, with the highest timeline that was seen

	hosts  []*pgconn.Config // of the URL, if it names several
	asking sync.Mutex
	asked  time.Time
	told   survey

	loss atomic.Pointer[Loss]
	gone chan struct{} // closed when something is lost
}

// leastRing is how many commits are remembered at least.
const leastRing = 32

// Acked is a commit that was acknowledged, by one row that it wrote.
type Acked struct {
	kind ackedKind
	id   int64 // of the queue, or of the node
	n    int64 // the position, the fence, or the number of the heartbeat
	day  outbox.Day
	at   time.Time // by the database
}

// Accepted is the commit that accepted a transaction at a moment.
func Accepted(id outbox.ID, at time.Time) Acked {
	return Acked{kind: ackedTask, id: id.Queue, n: id.Seq, day: id.Day, at: at}
}

// Ended is the commit that ended a transaction.
func Ended(id outbox.ID, at time.Time) Acked {
	return Acked{kind: ackedOutcome, id: id.Queue, n: id.Seq, day: id.Day, at: at}
}

// Leased is the commit that gave a queue a fence.
func Leased(queue, fence int64, at time.Time) Acked {
	return Acked{kind: ackedLease, id: queue, n: fence, at: at}
}

type ackedKind int

const (
	ackedTask    ackedKind = 1 + iota // the row is there, unless its day was dropped
	ackedOutcome                      // likewise
	ackedLease                        // the queue's fence does not fall; its row may go
	ackedBeat                         // the node's count of heartbeats does not fall; its row stays for a day longer
)

// Loss is what is known of commits that are gone.
type Loss struct {
	Server      string    // where they are missing
	Newest      time.Time // when the newest of them was made
	From, Until time.Time // commits between them may be missing; zero From: not known
}

// NewWitness remembers nothing yet.
func NewWitness() *Witness {
	return &Witness{ring: make([]Acked, leastRing), gone: make(chan struct{})}
}

// Loss is what was found missing, nil for nothing.
func (w *Witness) Loss() *Loss {
	if w == nil {
		return nil
	}
	return w.loss.Load()
}

// Err says what happened, as the reason of a quarantine and the end of a process.
func (l *Loss) Err() *fault.Error {
	return fault.New(fault.Retry, "database_went_back",
		"the database at %s went back in time: a commit of %s that it had acknowledged is gone",
		l.Server, l.Newest.UTC().Format(time.RFC3339Nano))
}

// Connect opens a pool for url. The witness looks at each connection before it is used; nil: nothing does. Pools of one
// process share the witness. practise makes a new connection ready for its statements; nil: nothing does. The pool has
// the settings that our statements want: nested loops over indexes (an array of keys is estimated at a thousand rows
// and would be hashed against all queues; a table, or the partition of a day, that was empty when its plan was made
// would be read whole for each key until autovacuum has analyzed it), no bitmaps (they read all versions of a row, or
// all that waits in a lane, where an index in its order finds the few that are asked for first), nothing memoized
// (which keeps all rows that share a part of the key), no parallel workers (starting them takes longer than all but a
// look at a whole table). No setting keeps an EXISTS that is part of an expression from being hashed, for which its
// table is read whole if statistics say that it is small: those of statements that look for a few rows have an OFFSET
// 0. Besides, UTC, no JIT, and a doubt flag for commits whose standby was not waited for.
//
// No wait is without an end: the package watch closes connections that the server does not answer on, and asks those
// that rest once a second. The server soon ends its side of a connection that is dead to us, too, so that the rows that
// it has locked are free: a transaction in which no statement comes for 4 s, and, where the network is gone, any
// session after as long. It also ends a session in which no statement comes for 10 s: that has lost its client, and
// takes a place from others.
func (w *Witness) Connect(ctx context.Context, url string, conns int32, practise Practice) (*pgxpool.Pool, error) {
	cfg, err := poolConfig(url, conns, practise)
	if err != nil {
		return nil, err
	}
	if w != nil {
		w.attend(cfg)
	}
	if twin.Planted("wait_without_deadline") {
		return pgxpool.NewWithConfig(ctx, cfg)
	}
	watched := watch.Configure(cfg.ConnConfig)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err == nil {
		watched.Rests(pool, askOrPractise(practise))
	}
	return pool, err
}

// attend has the connections of a pool looked at. It is asked before target_session_attrs is, which may take a
// connection that it does not prefer without asking anybody again.
func (w *Witness) attend(cfg *pgxpool.Config) {
	w.mu.Lock()
	for len(w.ring) < 2*int(cfg.MaxConns) { // both pools of a process
		w.ring = append(w.ring, Acked{})
	}
	if w.hosts == nil {
		w.hosts = hostsOf(&cfg.ConnConfig.Config)
	}
	w.mu.Unlock()
	next := cfg.ConnConfig.ValidateConnect
	cfg.ConnConfig.ValidateConnect = func(ctx context.Context, c *pgconn.PgConn) error {
		if err := w.admit(ctx, c); err != nil {
			return err
		}
		if next != nil {
			return next(ctx, c)
		}
		return nil
	}
}

// admit lets a new connection be used, or says why not. It asks the server in one round trip.
func (w *Witness) admit(ctx context.Context, c *pgconn.PgConn) error {
	if l := w.Loss(); l != nil {
		return l.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, OpenWithin)
	defer cancel()
	all := w.remembered()
	here, missing, err := inspect(ctx, c, all)
	if err != nil {
		return unavailable(fmt.Errorf("look at the server: %w", err))
	}
	w.mu.Lock()
	before := w.before
	w.mu.Unlock()
	if err := judge(here, before, w.others(ctx)); err != nil {
		return err
	}
	if len(missing) > 0 && !twin.Planted("no_quarantine") {
		return w.lose(ctx, c, here, all, missing).Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.before.started == "" || here.system != w.before.system || here.timeline > w.before.timeline {
		w.before = here
	}
	return nil
}

// saw remembers a commit. It is called behind each that was acknowledged, and costs nothing that can be measured.
func (w *Witness) saw(a Acked) {
	if w == nil || a.kind == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ring[w.next] = a
	w.next = (w.next + 1) % len(w.ring)
}

// sawBeat remembers a heartbeat, and says whether its number is later than that of the last one: it is, unless the row
// was put back under an open connection.
func (w *Witness) sawBeat(a Acked) bool {
	if w == nil {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.beat.id == a.id && a.n <= w.beat.n && !twin.Planted("no_quarantine") {
		return false
	}
	w.beat = a
	return true
}

// remembered is a copy of what is remembered.
func (w *Witness) remembered() []Acked {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := append(slices.Clone(w.ring), w.beat)
	return slices.DeleteFunc(all, func(a Acked) bool { return a.kind == 0 })
}

// lose notes that commits are gone, and finds out since when, which is the newest commit that can be seen: one of
// ours, or the newest heartbeat of any process.
func (w *Witness) lose(ctx context.Context, c *pgconn.PgConn, here sighting, all []Acked, missing map[int]bool) *Loss {
	l := &Loss{Server: here.host}
	for i, a := range all {
		if missing[i] && a.at.After(l.Newest) {
			l.Newest = a.at
		}
	}
	for i, a := range all {
		if !missing[i] && a.at.Before(l.Newest) && a.at.After(l.From) {
			l.From = a.at
		}
	}
	r := c.ExecParams(ctx, sinceSQL, [][]byte{[]byte(asText(l.Newest))}, nil, nil, nil).Read()
	if r.Err == nil && len(r.Rows) == 1 {
		l.Until = micros(r.Rows[0][0])
		if at := micros(r.Rows[0][1]); at.After(l.From) {
			l.From = at
		}
	}
	return w.lost(l)
}

// sinceSQL tells the time, and that of the newest heartbeat before what is missing.
const sinceSQL = `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
		(extract(epoch FROM max(heartbeat_at)) * 1000000)::bigint
	FROM postern.node
	WHERE heartbeat_at <= $1::text::timestamptz`

func (w *Witness) lost(l *Loss) *Loss {
	if w.loss.CompareAndSwap(nil, l) {
		close(w.gone)
	}
	return w.Loss()
}

// setBack notes that the row of the node was put back under open connections, as a restore of a dump does it.
func (w *Witness) setBack(now Acked) error {
	w.mu.Lock()
	l := &Loss{Server: w.before.host, Newest: w.beat.at, Until: now.at}
	w.mu.Unlock()
	return w.lost(l).Err()
}

// micros is a time that a server tells as microseconds since 1970, zero where it tells none.
func micros(text []byte) time.Time {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMicro(n)
}

// missingSQL finds acknowledged commits whose rows are not there, and have not gone in one of the usual ways: with a
// day that retention drops, a queue that is removed or idle for long, a node that was dead for a day. Each is looked
// for by its key. A transaction that ended once more after its first end was lost has a later end.
const missingSQL = `SELECT w.i
	FROM ROWS FROM (unnest($1::int[]), unnest($2::bigint[]), unnest($3::bigint[]), unnest($4::date[]),
			unnest($5::timestamptz[]))
		WITH ORDINALITY w(kind, id, n, day, at, i)
	WHERE CASE w.kind
		WHEN 1 THEN w.day >= (SELECT since FROM postern.retained) AND NOT EXISTS (SELECT FROM postern.task t
			WHERE (t.queue_id, t.seq, t.day) = (w.id, w.n, w.day) AND t.created_at = w.at
			OFFSET 0)
		WHEN 2 THEN w.day >= (SELECT since FROM postern.retained) AND NOT EXISTS (SELECT FROM postern.outcome o
			WHERE (o.queue_id, o.seq, o.day) = (w.id, w.n, w.day) AND o.done_at <= w.at
			OFFSET 0)
		WHEN 3 THEN EXISTS (SELECT FROM postern.queue q WHERE q.queue_id = w.id AND q.fence < w.n OFFSET 0)
		ELSE NOT EXISTS (SELECT FROM postern.node n WHERE n.node_id = w.id AND n.beats >= w.n OFFSET 0)
			AND (w.at > clock_timestamp() - interval '1 day'
				OR EXISTS (SELECT FROM postern.node n WHERE n.node_id = w.id OFFSET 0))
	END`

// inspect asks a server who it is, and which of the commits it does not have, by their places in the list. One that
// does not tell its timeline, as some services do not, is asked for the rest.
func inspect(ctx context.Context, c *pgconn.PgConn, all []Acked) (here sighting, missing map[int]bool, err error) {
	results, err := ask(ctx, c, sightingSQL, all)
	if slices.Contains([]string{"42501", "42883", "0A000"}, SQLState(err)) {
		results, err = ask(ctx, c, plainSightingSQL, all)
	}
	if err != nil {
		return here, nil, err
	}
	if here, err = sightingOf(c, results[0]); err != nil || len(all) == 0 {
		return here, nil, err
	}
	missing = map[int]bool{}
	for _, row := range results[1].Rows {
		i, err := strconv.Atoi(string(row[0]))
		if err != nil {
			return here, nil, err
		}
		missing[i-1] = true
	}
	return here, missing, nil
}

// ask sends both questions in one round trip.
func ask(ctx context.Context, c *pgconn.PgConn, who string, all []Acked) ([]*pgconn.Result, error) {
	b := &pgconn.Batch{}
	b.ExecParams(who, nil, nil, nil, nil)
	if len(all) > 0 {
		b.ExecParams(missingSQL, columnsOf(all), nil, nil, nil)
	}
	return c.ExecBatch(ctx, b).ReadAll()
}

// columnsOf are commits as the arguments of missingSQL, in text: nothing is known yet of a connection that was just
// opened.
func columnsOf(all []Acked) [][]byte {
	var cols [5]strings.Builder
	for i, a := range all {
		sep := ","
		if i == 0 {
			sep = "{"
		}
		for j, v := range []string{strconv.Itoa(int(a.kind)), strconv.FormatInt(a.id, 10), strconv.FormatInt(a.n, 10),
			a.day.Time().Format(time.DateOnly), `"` + asText(a.at) + `"`} {
			cols[j].WriteString(sep + v)
		}
	}
	var args [][]byte
	for i := range cols {
		args = append(args, []byte(cols[i].String()+"}"))
	}
	return args
}

func asText(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.999999-07") }

// Inspect looks for the newest commits on a connection that is open already. A fault "database_went_back": one is
// missing.
func (db *DB) Inspect(ctx context.Context) error {
	return db.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		if db.witness == nil {
			return nil
		}
		all := db.witness.remembered()
		here, missing, err := inspect(ctx, c.Conn().PgConn(), all)
		if err != nil || len(missing) == 0 {
			return Known(err)
		}
		return db.witness.lose(ctx, c.Conn().PgConn(), here, all, missing).Err()
	})
}

// Lost is closed when the database was found to have gone back, and Loss says what is known of that; nil is never.
func (db *DB) Lost() <-chan struct{} {
	if db.witness == nil {
		return nil
	}
	return db.witness.gone
}

// Loss is what was found missing, nil for nothing.
func (db *DB) Loss() *Loss { return db.witness.Loss() }

// Rely has the store remember its commits in the witness of its pools. To be called before anything runs.
func (db *DB) Rely(w *Witness) { db.witness = w }

// WriteBeat writes a heartbeat, and has the witness remember it once it is durable: one whose standby was not waited
// for is none.
func (db *DB) WriteBeat(ctx context.Context, id *int64, sql string, args ...any) (wrote bool, err error) {
	a := Acked{kind: ackedBeat}
	durable, err := db.writeOne(ctx, sql, args, id, &a.n, &a.at)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if !durable {
		db.alone.doubt()
	}
	if a.id = *id; err == nil && durable && !db.witness.sawBeat(a) {
		err = db.witness.setBack(a)
	}
	return err == nil, Known(written(err))
}

// writeOne is exec for a statement that returns a row. It says besides whether the commit is as durable as it was
// asked to be.
func (db *DB) writeOne(ctx context.Context, sql string, args []any, row ...any) (durable bool, err error) {
	err = db.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		doubt := standbyDoubt(c.Conn())
		doubt.Store(nil)
		defer func() { durable = doubt.Load() == nil }()
		if db.beforeCommit == nil {
			return c.QueryRow(ctx, sql, args...).Scan(row...)
		}
		return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
			if err := tx.QueryRow(ctx, sql, args...).Scan(row...); err != nil {
				return err
			}
			return db.beforeCommit(ctx, tx.Conn().PgConn().PID())
		})
	})
	return durable, err
}
