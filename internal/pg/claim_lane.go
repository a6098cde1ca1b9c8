package pg

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// openLane is a lane with work whose gates are open.
type openLane struct {
	id         int32
	kind       string
	dispatcher int32
	pool       int32
	sender     int32
	probe      bool
	poolOf     int32 // of the dispatcher
	free       int   // senders that it could take now, by a look without locks
	front      front
}

// front is from when on the ready rows of a lane are read, by their prio.
type front [2]time.Time

// args are the two as PostgreSQL has them: no time is the beginning of all.
func (f front) args() (high, low pgtype.Timestamptz) {
	at := func(t time.Time) pgtype.Timestamptz {
		if t.IsZero() {
			return pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
		}
		return pgtype.Timestamptz{Time: t, Valid: true}
	}
	return at(f[0]), at(f[1])
}

// fronts remembers where the first ready row of each lane stood when this process last looked. While some session
// holds an old snapshot, no ready row that was taken since can be removed, and who reads a lane from its beginning
// reads them all. As soon as that takes long, a claim begins where the one before found the first row.
//
// What lies before that is not lost. Rows become ready in the order of since, but for the time from a decision to its
// commit, for which slack is left; and a row that another claim has deleted and not committed still counts. What comes
// with a time of long ago (of a slow commit, or a queue that changes its lane) is found by a look from the beginning, for which
// claims take a bounded share of the time. Where it takes so long that each would be felt, LookBack looks beside them instead. The
// lane resume is always read from its beginning, since its queues keep their time.
type fronts struct {
	mu     sync.Mutex
	of     map[int32]front
	next   time.Time // when a look from the beginning is due
	aside  bool      // claims leave it to LookBack
	nearby time.Time // when it looks at a minute before the fronts
	all    time.Time // when it looks from the beginning
	turned int       // how often it has moved one back
}

const (
	frontsKept   = 16 // lanes
	frontsSlack  = 250 * time.Millisecond
	frontsCheap  = 5 * time.Millisecond   // a look from the beginning that takes no longer is taken always
	frontsShare  = 30                     // of the time, one part in so many
	frontsFelt   = 100 * time.Millisecond // what takes longer is LookBack's
	frontsNearby = time.Minute            // LookBack looks so far back more often
	frontsAside  = 60                     // one part in so many of the time for each of its two looks
)

// look is one look at ready: from where on it reads the lanes that are known. Others are read from the beginning.
type look struct {
	began  time.Time
	whole  bool // all lanes are read from the beginning
	from   map[int32]front
	turned int
}

func (l look) of(lane int32) front { return l.from[lane] }

// look begins a look. Where the deciding clock is moved by hand, times say nothing about order, and it is whole.
func (f *fronts) look(moved bool) look {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := look{began: time.Now(), from: make(map[int32]front, len(f.of)), turned: f.turned}
	l.whole = moved || !f.aside && !l.began.Before(f.next)
	for lane, at := range f.of {
		if l.whole {
			at = front{}
		}
		l.from[lane] = at
	}
	return l
}

// seen says where the first rows of the lanes stood. A lane that is not among them is closed or empty, and its front stays.
// So do all where one was moved back meanwhile: this look has not seen what lies there.
func (f *fronts) seen(l look, lanes []*openLane, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if took := time.Since(l.began); l.whole && took > frontsCheap {
		f.next = time.Now().Add(frontsShare * took)
		if took > frontsFelt && !f.aside {
			f.aside, f.nearby, f.all = true, time.Now(), time.Now().Add(frontsAside*took)
		}
	}
	if l.turned != f.turned {
		return
	}
	recent := now.Add(-frontsSlack)
	of := map[int32]front{}
	for _, n := range lanes {
		if n.kind == "resume" || len(of) == frontsKept {
			continue
		}
		at := n.front
		for prio, first := range at {
			if first.IsZero() || first.After(recent) {
				at[prio] = recent
			}
		}
		of[n.id] = at
	}
	for lane, at := range f.of {
		if _, has := of[lane]; !has && len(of) < frontsKept {
			of[lane] = at
		}
	}
	f.of = of
}

// LookBack looks for ready rows before where claims begin to read, where claims do not do so themselves. Call it about once a
// second, beside them: it takes a bounded share of the time, however long a look takes, and returns at once when none is due.
// First what became ready in the minute before: that costs the same however old the snapshot is that is held.
func (s *Store) LookBack(ctx context.Context) error {
	f := &s.fronts
	f.mu.Lock()
	began := time.Now()
	whole := !began.Before(f.all)
	if !f.aside || !whole && began.Before(f.nearby) {
		f.mu.Unlock()
		return nil
	}
	var lanes []int32
	var from, to [2][]pgtype.Timestamptz
	for lane, at := range f.of {
		lanes = append(lanes, lane)
		for prio, t := range at {
			first := front{t.Add(-frontsNearby)}
			if whole || t.IsZero() {
				first = front{}
			}
			begin, _ := first.args()
			end, _ := front{t}.args()
			from[prio], to[prio] = append(from[prio], begin), append(to[prio], end)
		}
	}
	f.mu.Unlock()

	back := map[int32]front{}
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT set_config('statement_timeout', '0', true)`); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, lookBackSQL, lanes, from[0], to[0], from[1], to[1])
		if err != nil {
			return err
		}
		var lane int32
		var high, low *time.Time
		_, err = pgx.ForEachRow(rows, []any{&lane, &high, &low}, func() error {
			back[lane] = front{*cmp.Or(high, &time.Time{}), *cmp.Or(low, &time.Time{})}
			return nil
		})
		return err
	})
	f.back(whole, time.Since(began), back, err)
	if len(back) > 0 && s.Ring != nil {
		s.Ring()
	}
	return err
}

// lookBackSQL is led by the key of ready from one time to another, in each lane and prio.
const lookBackSQL = `SELECT b.* FROM (SELECT k.lane,
		(SELECT r.since FROM postern.ready r WHERE r.lane = k.lane AND r.prio = 0 AND r.since >= k.from0 AND r.since < k.to0 ORDER BY r.since LIMIT 1) AS high,
		(SELECT r.since FROM postern.ready r WHERE r.lane = k.lane AND r.prio = 1 AND r.since >= k.from1 AND r.since < k.to1 ORDER BY r.since LIMIT 1) AS low
	FROM ROWS FROM (unnest($1::int[]), unnest($2::timestamptz[]), unnest($3::timestamptz[]), unnest($4::timestamptz[]), unnest($5::timestamptz[])) k(lane, from0, to0, from1, to1)
	) b WHERE high IS NOT NULL OR low IS NOT NULL`

// back says what a LookBack found, and how long it took. Claims begin there, once: what is free is taken then.
func (f *fronts) back(whole bool, took time.Duration, found map[int32]front, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if next := time.Now().Add(frontsAside * took); whole {
		f.all, f.aside = next, err != nil || took > frontsFelt
	} else {
		f.nearby = next
	}
	for lane, first := range found {
		at, known := f.of[lane]
		for prio, t := range first {
			if known && !t.IsZero() && t.Before(at[prio]) {
				at[prio] = t
				f.of[lane] = at
				f.turned++
			}
		}
	}
}

// openLanesSQL finds the lanes with work. Of those whose fronts are known ($5) it looks for the first row behind them; between
// them ($3, $4) it walks from lane to lane along the key of ready. So its cost is the number of lanes with work, not of
// queues. A paused or removed dispatcher, a paused context, a gate that has not passed, and
// a held exclusive lane are closed; so is one whose senders all lie in a paused pool. A drained sender is free for what names it.
const openLanesSQL = `
WITH RECURSIVE l(lane, upto) AS (
	SELECT (SELECT r.lane FROM postern.ready r WHERE r.lane > g.after AND r.lane < g.upto ORDER BY r.lane LIMIT 1), g.upto
		FROM ROWS FROM (unnest($3::int[]), unnest($4::int[])) g(after, upto)
	UNION ALL
	SELECT (SELECT r.lane FROM postern.ready r WHERE r.lane > l.lane AND r.lane < l.upto ORDER BY r.lane LIMIT 1), l.upto FROM l WHERE l.lane IS NOT NULL
), f AS (
	SELECT w.lane, (SELECT r.since FROM postern.ready r WHERE r.lane = w.lane AND r.prio = 0 AND r.since >= w.high ORDER BY r.since LIMIT 1) AS high,
		(SELECT r.since FROM postern.ready r WHERE r.lane = w.lane AND r.prio = 1 AND r.since >= w.low ORDER BY r.since LIMIT 1) AS low
	FROM (SELECT lane, timestamptz '-infinity' AS high, timestamptz '-infinity' AS low FROM l WHERE lane IS NOT NULL
		UNION ALL SELECT k.lane, k.high, k.low FROM ROWS FROM (unnest($5::int[]), unnest($6::timestamptz[]), unnest($7::timestamptz[])) k(lane, high, low)) w
)
SELECT n.lane_id, n.kind, coalesce(n.dispatcher_id, 0), coalesce(n.pool_id, 0), coalesce(n.sender_id, 0),
	coalesce(d.gate_failures, 0) > 0, coalesce(d.pool_id, 0),
	CASE WHEN d.pool_id IS NULL OR n.kind = 'exclusive' THEN 0 ELSE (SELECT count(*) FROM (SELECT FROM postern.sender s
		WHERE CASE WHEN n.sender_id IS NULL THEN s.pool_id = n.pool_id AND NOT s.draining ELSE s.sender_id = n.sender_id END AND s.queue_id IS NULL AND NOT s.paused
			AND s.removed_at IS NULL AND (s.blocked_until IS NULL OR s.blocked_until <= coalesce($1::timestamptz, clock_timestamp()))
			AND NOT EXISTS (SELECT FROM postern.pool p WHERE p.pool_id = s.pool_id AND p.paused) LIMIT $2) f) END,
	f.high, f.low
FROM f JOIN postern.lane n ON n.lane_id = f.lane
LEFT JOIN postern.dispatcher d ON d.dispatcher_id = n.dispatcher_id
WHERE (f.high IS NOT NULL OR f.low IS NOT NULL) AND n.holder IS NULL AND (n.kind = 'resume' OR NOT d.paused AND d.removed_at IS NULL
	AND NOT EXISTS (SELECT FROM postern.context c WHERE c.context_id = d.context_id AND c.paused)
	AND (d.gate_until IS NULL OR d.gate_until <= coalesce($1::timestamptz, clock_timestamp())))
LIMIT 1000`

// findLanes adds the look for the lanes with work to b.
func (c *claim) findLanes(b *pgx.Batch) {
	known := make([]int32, 0, len(c.look.from))
	for lane := range c.look.from {
		known = append(known, lane)
	}
	slices.Sort(known)
	after, upto := append([]int32{math.MinInt32}, known...), append(slices.Clone(known), math.MaxInt32)
	high, low := make([]pgtype.Timestamptz, len(known)), make([]pgtype.Timestamptz, len(known))
	for i, lane := range known {
		high[i], low[i] = c.look.of(lane).args()
	}
	b.Queue(openLanesSQL, c.s.now(), c.room.Total, after, upto, known, high, low).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			l := &openLane{}
			var high, low *time.Time
			if err := rows.Scan(&l.id, &l.kind, &l.dispatcher, &l.pool, &l.sender, &l.probe, &l.poolOf, &l.free, &high, &low); err != nil {
				return err
			}
			l.front = front{*cmp.Or(high, &time.Time{}), *cmp.Or(low, &time.Time{})}
			c.lanes = append(c.lanes, l)
		}
		return rows.Err()
	})
}

// candidatesSQL locks the queues that stand first in a lane. What the ready row says is compared with
// the locked row, since another claim may have taken and given back the queue after our snapshot: its
// entered_at has risen then.
var candidatesSQL = ` FROM ` + newestQueue(false, `(SELECT * FROM (
		(SELECT r.prio, r.since, r.queue_id, r.era FROM postern.ready r WHERE r.lane = $1 AND r.prio = 0 AND r.since >= $4 ORDER BY r.since LIMIT $2)
		UNION ALL
		(SELECT r.prio, r.since, r.queue_id, r.era FROM postern.ready r WHERE r.lane = $1 AND r.prio = 1 AND r.since >= $5 ORDER BY r.since LIMIT $2)) r
		ORDER BY r.prio, r.since LIMIT $2) n`, `
	AND q.node_id IS NULL AND q.prio = n.prio AND q.entered_at = n.since
	AND CASE WHEN $3 THEN q.phase NOT IN ('IDLE', 'READY', 'HELD') ELSE q.phase = 'READY' AND q.lane = $1 AND NOT q.paused END`, "SKIP LOCKED") + `
	ORDER BY n.prio, n.since`

// lockLane locks at most n of the queues that stand first in a lane from a front on.
func (c *claim) lockLane(b *pgx.Batch, l *openLane, from front, n int) {
	if n <= 0 {
		return
	}
	high, low := from.args()
	b.Queue("SELECT "+queueSelect+candidatesSQL, l.id, n, l.kind == "resume", high, low).Query(func(rows pgx.Rows) error {
		var list []*queueRow
		err := collectQueues(rows, &list)
		c.candidates[l.id] = list
		return err
	})
}
