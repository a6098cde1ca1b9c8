package pg

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/safe"
)

// Dispatcher is a type's settings with what the database adds to them.
type Dispatcher struct {
	outbox.Dispatcher
	ID        int32
	ContextID int32
	PoolID    int32 // 0 = the type needs no sender
	Paused    bool
	Draining  bool // it accepts nothing more
	Removed   bool
	Failures  int // of the gate: how often in a row it was closed
	GateUntil *time.Time
	GateWhy   string // the last answer
	GateSince *time.Time
	GateNode  string // whose call came to nothing last

	GateProbing bool // a probe is out
	Version     int64
	CreatedAt   time.Time
}

// laneKey says what a lane's heads need; see the table lane.
type laneKey struct {
	Dispatcher, Pool, Sender int32
	Exclusive                bool
	Value                    string
	Shared                   string // the lane of kind group that is held in its place
}

// laneMissing asks run to make the lane and to begin again: a lane is not made inside the transaction
// that needs it, so that nothing waits for a lane while it holds queues.
type laneMissing struct {
	conf *conf
	keys []laneKey
}

func (e *laneMissing) Error() string { return fmt.Sprintf("lanes %+v do not exist yet", e.keys) }

// Mend makes the lanes, each in a transaction of its own.
func (e *laneMissing) Mend(ctx context.Context) error {
	for _, k := range e.keys {
		if err := e.conf.ensureLane(ctx, e.conf.pool, k); err != nil {
			return err
		}
	}
	return nil
}

// Elsewhere is true: another process may make the same lane, and this one then waits for it.
func (e *laneMissing) Elsewhere() bool { return true }

// missing gathers the lanes that several decisions of one transaction lack, so that one more run is
// enough for all of them.
type missing struct {
	conf *conf
	keys []laneKey
}

// add keeps what err lacks, or returns it if it is something else.
func (m *missing) add(err error) error {
	var lane *laneMissing
	if !errors.As(err, &lane) {
		return err
	}
	m.conf, m.keys = lane.conf, append(m.keys, lane.keys...)
	return nil
}

// err is laneMissing for all of them, or nil if there are none.
func (m *missing) err() error {
	if len(m.keys) == 0 {
		return nil
	}
	return &laneMissing{m.conf, m.keys}
}

// confView is one reading of the configuration; it is never changed. A decision goes by one of them (effects has it):
// of two that are asked for one after the other, the second may lack what the first had.
type confView struct {
	begun    int64 // the how-manieth reading it is, by when they began
	contexts map[string]*Context
	tenants  map[int32]*Context // the same by id
	byID     map[int32]*Dispatcher
	byType   map[int32]map[string]*Dispatcher
	pools    map[int32]map[string]int32
	accounts map[int32]map[string]int32
	rules    map[int32]*poolRules // by pool
	poolOf   map[int32]int32      // of a sender, removed ones included
	stopped  map[int32]bool       // senders that are paused, drained, blocked or removed: whether they are drained
	versions map[int32]int64      // of senders
	kinds    Kinds

	quarantine Quarantined
}

// conf caches the configuration. Every process reads it again each second, and at once where it misses something or
// has changed it itself. Statements decide where it must be exact: claim reads the gates and flags of dispatchers and
// senders in SQL.
type conf struct {
	pool     *pgxpool.Pool // makes lanes
	view     atomic.Pointer[confView]
	readings atomic.Int64 // that have begun
	lanes    laneTable
	shared   sync.Map // ids of lanes that are known to be no exclusive ones -> laneKey
	schemas  sync.Map // ids of dispatchers -> *readSchema
	Resume   int32
	kinds    kinds
}

func newConf(pool *pgxpool.Pool) *conf {
	c := &conf{pool: pool}
	c.view.Store(&confView{})
	return c
}

// put makes v the present view, unless one that began to be read later is: that saw all that v saw, and perhaps
// what has been committed and answered since.
func (c *conf) put(v *confView) {
	for now := c.view.Load(); now.begun < v.begun; now = c.view.Load() {
		if c.view.CompareAndSwap(now, v) {
			return
		}
	}
}

// Refresh reads the configuration again, in one round trip.
func (s *Store) Refresh(ctx context.Context) error {
	v := &confView{
		begun:    s.Conf.readings.Add(1),
		contexts: map[string]*Context{}, tenants: map[int32]*Context{}, byID: map[int32]*Dispatcher{}, byType: map[int32]map[string]*Dispatcher{},
		pools: map[int32]map[string]int32{}, accounts: map[int32]map[string]int32{},
		rules: map[int32]*poolRules{}, poolOf: map[int32]int32{}, stopped: map[int32]bool{},
		versions: map[int32]int64{},
	}
	var at time.Time
	b := &pgx.Batch{}
	b.Queue(contextsSQL, "").Query(func(rows pgx.Rows) error {
		list, err := scanContexts(rows)
		for _, c := range list {
			v.contexts[c.Name], v.tenants[c.ID] = c, c
		}
		return err
	})
	v.readDispatchers(b)
	v.readNames(b)
	v.readPools(b, s.Clock())
	if s.Conf.Resume == 0 {
		each(b, `SELECT lane_id FROM postern.lane WHERE kind = 'resume'`, []any{&s.Conf.Resume}, func() {})
	}
	s.Conf.kinds.read(b, v)
	s.ReadNow(b, &at) // before the snapshots of what tellers read
	s.ReadStandby(b)
	var done []func(time.Time)
	for _, t := range s.tellers {
		done = append(done, t.Read(b))
	}
	if err := s.Looks.SendBatch(ctx, b).Close(); err != nil {
		return db.Known(err)
	}
	s.Conf.put(v)
	for _, read := range done {
		read(at)
	}
	s.Conf.tell()
	return nil
}

// readDispatchers reads the dispatchers; the tenants are read before.
func (v *confView) readDispatchers(b *pgx.Batch) {
	b.Queue(dispatchersSQL, 0, "").Query(func(rows pgx.Rows) error {
		list, err := scanDispatchers(rows)
		for _, d := range list {
			if c := v.tenants[d.ContextID]; c != nil && c.Paused { // a node that works through a queue stops here
				d.Paused = true
			}
			v.byID[d.ID] = d
			if v.byType[d.ContextID] == nil {
				v.byType[d.ContextID] = map[string]*Dispatcher{}
			}
			v.byType[d.ContextID][d.Type] = d
		}
		return err
	})
}

// readNames reads the ids of pools and senders by their names.
func (v *confView) readNames(b *pgx.Batch) {
	var of, id int32
	var name string
	for sql, into := range map[string]map[int32]map[string]int32{
		`SELECT context_id, name, pool_id FROM postern.pool`:                                 v.pools,
		`SELECT context_id, account, sender_id FROM postern.sender WHERE removed_at IS NULL`: v.accounts,
	} {
		each(b, sql, []any{&of, &name, &id}, func() {
			if into[of] == nil {
				into[of] = map[string]int32{}
			}
			into[of][name] = id
		})
	}
}

// KeepFresh reads the configuration once a second until ctx ends, so that what another process changed is
// known here soon. So are spans of days that another process makes, before they begin.
func (s *Store) KeepFresh(ctx context.Context) {
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		err := cmp.Or(s.Refresh(ctx), s.KeepSpans(ctx, s.dayNow()))
		if safe.Passed(ctx, err); err != nil && ctx.Err() == nil {
			s.Log.Warn("read the configuration", "error", err)
		}
	}
}

// DispatcherOf returns the dispatcher of a type, removed ones included, or nil if there never was one.
func (s *Store) DispatcherOf(contextID int32, typ string) *Dispatcher {
	return s.Conf.view.Load().dispatcherOf(contextID, typ)
}

func (v *confView) dispatcherOf(contextID int32, typ string) *Dispatcher {
	return v.byType[contextID][typ]
}

// maxDepth is the limit of a queue that names none of its own.
func (v *confView) maxDepth(contextID int32) int {
	if c := v.tenants[contextID]; c != nil {
		return c.MaxDepth
	}
	return 10000
}

// need returns the lane that a queue's head of this type must stand in. An exclusive dispatcher has a
// lane per value, whatever pool or sender its heads need, since one may be in flight over all of them. The name of such
// a lane begins with what the dispatcher says, so that Relane finds the lanes of what it said before.
func (c *conf) need(d *Dispatcher, queuePool, pin int32, data json.RawMessage) laneKey {
	k := laneKey{Dispatcher: d.ID}
	if value, ok := d.ExclusiveValue(data); ok {
		k.Exclusive = true
		if d.Exclusive != "type" {
			k.Value = d.Exclusive.Prefix() + value
		}
		if group := d.Exclusive.Group(); group != "" {
			k.Shared = fmt.Sprintf("%d/%s %s", d.ContextID, group, value)
		}
		return k
	}
	switch {
	case pin != 0:
		k.Sender = pin
	case d.PoolID != 0 && queuePool != 0:
		k.Pool = queuePool
	default:
		k.Pool = d.PoolID
	}
	return k
}

// lane returns the id of a lane, or laneMissing.
func (c *conf) lane(k laneKey) (int32, error) {
	if id, ok := c.lanes.id(k); ok {
		return id, nil
	}
	return 0, &laneMissing{c, []laneKey{k}}
}

// ensureLane makes the lane if it is not there, in a transaction of its own.
func (c *conf) ensureLane(ctx context.Context, pool *pgxpool.Pool, k laneKey) error {
	id, err := makeLane(ctx, pool, k)
	if errors.Is(err, pgx.ErrNoRows) { // the other one committed after our snapshot: the next round sees it
		return nil
	}
	if err != nil {
		return db.Known(err)
	}
	c.lanes.keep(k, id)
	if !k.Exclusive {
		c.shared.Store(id, k)
	}
	return nil
}

// laneTable remembers ids of lanes, which never change. An exclusive lane is there for each value that a field ever
// had, so it is bounded: one that is asked for is kept until half of lanesKept others have come.
type laneTable struct {
	mu         sync.Mutex
	young, old map[laneKey]int32
}

const lanesKept = 1 << 17

func (l *laneTable) id(k laneKey) (id int32, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id, known = l.young[k]; !known {
		if id, known = l.old[k]; known {
			l.add(k, id)
		}
	}
	return id, known
}

func (l *laneTable) keep(k laneKey, id int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(k, id)
}

// add is keep for a caller that holds l.mu.
func (l *laneTable) add(k laneKey, id int32) {
	if l.young == nil || len(l.young) >= lanesKept/2 {
		l.young, l.old = map[laneKey]int32{}, l.young
	}
	l.young[k] = id
}

// makeLane returns the id of a lane, which it makes if it is not there. A lane of a group is made once the lane that it
// shares is seen, which lasts for ever: no lane is removed. It looks first, since an insert that finds the lane takes
// a number of those that there are.
func makeLane(ctx context.Context, in db.Querier, k laneKey) (id int32, err error) {
	kind, value := "dispatcher", (*string)(nil)
	switch {
	case k.Exclusive:
		kind, value = "exclusive", &k.Value
	case k.Sender != 0:
		kind = "sender"
	}
	var shared int32
	if k.Shared != "" {
		err = in.QueryRow(ctx, `
			WITH had AS (SELECT lane_id FROM postern.lane
				WHERE dispatcher_id IS NULL AND pool_id IS NULL AND sender_id IS NULL AND value = $1),
			made AS (INSERT INTO postern.lane (kind, value) SELECT 'group', $1 WHERE NOT EXISTS (SELECT FROM had)
				ON CONFLICT DO NOTHING RETURNING lane_id)
			SELECT lane_id FROM had UNION ALL SELECT lane_id FROM made`, k.Shared).Scan(&shared)
		if err != nil {
			return 0, err
		}
	}
	err = in.QueryRow(ctx, k.sql(), kind, k.Dispatcher, k.Pool, k.Sender, value, shared).Scan(&id)
	return id, err
}

// sql finds or makes the lane. PostgreSQL finds nothing in the key of lanes by IS NOT DISTINCT FROM.
func (k laneKey) sql() string {
	pool, sender, value := "pool_id IS NULL", "sender_id IS NULL", "value IS NULL"
	if k.Pool != 0 {
		pool = "pool_id = $3"
	}
	if k.Sender != 0 {
		sender = "sender_id = $4"
	}
	if k.Exclusive {
		value = "value = $5"
	}
	return `WITH had AS (SELECT lane_id FROM postern.lane
			WHERE dispatcher_id = $2 AND ` + pool + ` AND ` + sender + ` AND ` + value + `),
		made AS (INSERT INTO postern.lane (kind, dispatcher_id, pool_id, sender_id, value, shared)
			SELECT $1, $2, nullif($3, 0), nullif($4, 0), $5, nullif($6, 0) WHERE NOT EXISTS (SELECT FROM had)
			ON CONFLICT DO NOTHING RETURNING lane_id)
		SELECT lane_id FROM had UNION ALL SELECT lane_id FROM made`
}
