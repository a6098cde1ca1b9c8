package pg

import (
	"cmp"
	"math"
	"slices"
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
	hold       int32 // the lane that is held for it: itself, or the one that it shares
	free       int   // senders that it could take now, by a look without locks
	front      front
}

// openLanesSQL finds the lanes with work. Of those whose fronts are known ($5) it looks for the first row behind them;
// between them ($3, $4) it walks from lane to lane along the key of ready, $8 of them at most: all parts step on
// together, and a last row of kind cut says up to which lane each has come, so that the next look goes on there. So
// its cost is the number of lanes with work, not of queues, and is bounded. A paused or removed dispatcher, a paused
// context, a gate that has not passed, and a held exclusive lane are closed; so is one whose senders all lie in a
// paused pool. A drained sender is free for what names it.
const openLanesSQL = `
WITH RECURSIVE l(lane, upto) AS (
	SELECT (SELECT r.lane FROM postern.ready r WHERE r.lane > g.after AND r.lane < g.upto ORDER BY r.lane LIMIT 1), g.upto
		FROM ROWS FROM (unnest($3::int[]), unnest($4::int[])) g(after, upto)
	UNION ALL
	SELECT (SELECT r.lane FROM postern.ready r WHERE r.lane > l.lane AND r.lane < l.upto ORDER BY r.lane LIMIT 1), l.upto FROM l WHERE l.lane IS NOT NULL
), w AS (SELECT lane, upto FROM l LIMIT $8), f AS (
	SELECT w.lane, (SELECT r.since FROM postern.ready r WHERE r.lane = w.lane AND r.prio = 0 AND r.since >= w.high ORDER BY r.since LIMIT 1) AS high,
		(SELECT r.since FROM postern.ready r WHERE r.lane = w.lane AND r.prio = 1 AND r.since >= w.low ORDER BY r.since LIMIT 1) AS low
	FROM (SELECT lane, timestamptz '-infinity' AS high, timestamptz '-infinity' AS low FROM w WHERE lane IS NOT NULL
		UNION ALL SELECT k.lane, k.high, k.low FROM ROWS FROM (unnest($5::int[]), unnest($6::timestamptz[]), unnest($7::timestamptz[])) k(lane, high, low)) w
)
SELECT n.lane_id, coalesce(n.shared, n.lane_id), n.kind,
	coalesce(n.dispatcher_id, 0), coalesce(n.pool_id, 0), coalesce(n.sender_id, 0),
	coalesce(d.gate_failures, 0) > 0, coalesce(d.pool_id, 0),
	CASE WHEN d.pool_id IS NULL AND n.sender_id IS NULL OR n.kind = 'exclusive' THEN 0 ELSE (SELECT count(*) FROM (SELECT FROM postern.sender s
		WHERE CASE WHEN n.sender_id IS NULL THEN s.pool_id = n.pool_id AND NOT s.draining ELSE s.sender_id = n.sender_id END AND s.queue_id IS NULL AND NOT s.paused
			AND s.removed_at IS NULL AND (s.blocked_until IS NULL OR s.blocked_until <= coalesce($1::timestamptz, clock_timestamp()))
			AND NOT EXISTS (SELECT FROM postern.pool p WHERE p.pool_id = s.pool_id AND p.paused) LIMIT $2) f) END,
	f.high, f.low
FROM f JOIN postern.lane n ON n.lane_id = f.lane
LEFT JOIN postern.dispatcher d ON d.dispatcher_id = n.dispatcher_id
WHERE (f.high IS NOT NULL OR f.low IS NOT NULL) AND n.holder IS NULL
	AND (n.shared IS NULL OR (SELECT g.holder FROM postern.lane g WHERE g.lane_id = n.shared) IS NULL)
	AND (n.kind = 'resume' OR NOT d.paused AND d.removed_at IS NULL
	AND NOT EXISTS (SELECT FROM postern.context c WHERE c.context_id = d.context_id AND c.paused)
	AND (d.gate_until IS NULL OR d.gate_until <= coalesce($1::timestamptz, clock_timestamp())))
UNION ALL SELECT min(s.last), 0, 'cut', 0, 0, 0, false, 0, 0, NULL, NULL
	FROM (SELECT max(lane) AS last FROM w GROUP BY upto HAVING count(lane) = count(*)) s HAVING min(s.last) IS NOT NULL`

// lanesAtOnce is how many lanes a claim walks through, besides those whose fronts are known.
const lanesAtOnce = 1000

// needs says whether what stands in the lane goes out by a sender: all of a type with a pool, and what is pinned to one
// (S2.9), also where its type has no pool any more.
func (l *openLane) needs() bool { return l.poolOf != 0 || l.sender != 0 }

// findLanes adds the look for the lanes with work to b.
func (c *claim) findLanes(b *pgx.Batch) {
	known := make([]int32, 0, len(c.view.from))
	for lane := range c.view.from {
		known = append(known, lane)
	}
	if _, has := c.view.from[c.s.Conf.Resume]; !has { // is looked at in each claim, too
		known = append(known, c.s.Conf.Resume)
	}
	slices.Sort(known)
	after, upto := append([]int32{math.MinInt32}, known...), append(slices.Clone(known), math.MaxInt32)
	for i := range after {
		after[i] = min(max(after[i], c.view.behind), upto[i])
	}
	high, low := make([]pgtype.Timestamptz, len(known)), make([]pgtype.Timestamptz, len(known))
	for i, lane := range known {
		high[i], low[i] = c.view.of(lane).args()
	}
	args := []any{c.s.Clock(), c.room.Total, after, upto, known, high, low, lanesAtOnce + len(after)}
	b.Queue(openLanesSQL, args...).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			l := &openLane{}
			var high, low *time.Time
			err := rows.Scan(&l.id, &l.hold, &l.kind, &l.dispatcher, &l.pool, &l.sender, &l.probe, &l.poolOf,
				&l.free, &high, &low)
			if err != nil {
				return err
			}
			if l.kind == "cut" {
				c.cut = l.id
				continue
			}
			l.front = front{*cmp.Or(high, &time.Time{}), *cmp.Or(low, &time.Time{})}
			c.lanes = append(c.lanes, l)
		}
		return rows.Err()
	})
}

// candidatesSQL locks the queues that stand first in a lane. The ready row is compared with the locked row, since
// another claim may have taken and given back the queue after our snapshot: its entered_at has risen then.
var candidatesSQL = candidates("")

// exclusiveSQL is candidatesSQL for an exclusive lane, which holds queues that are pinned to a sender (S2.9) beside
// queues that any sender may take. It passes over those whose sender cannot be taken now, so that they do not keep the
// others from their turn. This reads senders without locks; a sender is taken later, behind its lock.
var exclusiveSQL = candidates(` AND NOT EXISTS (SELECT FROM postern.queue p
			JOIN postern.sender s ON s.sender_id = p.pin_sender_id
			WHERE p.queue_id = r.queue_id AND p.era >= r.era AND (s.queue_id IS NOT NULL OR s.paused OR s.removed_at IS NOT NULL
				OR s.blocked_until > coalesce($6::timestamptz, clock_timestamp())))`)

func candidates(and string) string {
	return ` FROM ` + newestQueue(false, `(SELECT * FROM (
		(SELECT r.prio, r.since, r.queue_id, r.era FROM postern.ready r
			WHERE r.lane = $1 AND r.prio = 0 AND r.since >= $4`+and+` ORDER BY r.since LIMIT $2)
		UNION ALL
		(SELECT r.prio, r.since, r.queue_id, r.era FROM postern.ready r
			WHERE r.lane = $1 AND r.prio = 1 AND r.since >= $5`+and+` ORDER BY r.since LIMIT $2)) r
		ORDER BY r.prio, r.since LIMIT $2) n`, `
	AND q.node_id IS NULL AND q.prio = n.prio AND q.entered_at = n.since
	AND CASE WHEN $3 THEN q.phase NOT IN ('IDLE', 'READY', 'HELD') ELSE q.phase = 'READY' AND q.lane = $1 AND NOT q.paused END`, "SKIP LOCKED") + `
	ORDER BY n.prio, n.since`
}

// resumableSQL is candidatesSQL for the lane resume while something is in quarantine: all types stand in it.
var resumableSQL = candidates(unquarantined)

const unquarantined = ` AND NOT EXISTS (` + quarantinedQueueSQL + ` WHERE q.queue_id = r.queue_id OFFSET 0)`

// typedSQL and typedResumableSQL are the same for a node that works on some types ($6) alone.
var (
	typedSQL          = candidates(ofTypes)
	typedResumableSQL = candidates(unquarantined + ofTypes)
)

const ofTypes = ` AND NOT EXISTS (` + queueOfOthersSQL + ` AND q.queue_id = r.queue_id AND o.type <> ALL ($6) OFFSET 0)`

// queueOfOthersSQL finds queues q that have something in flight, with the type o.type of it, which their lane tells.
const queueOfOthersSQL = `SELECT q.queue_id FROM postern.queue q
	JOIN postern.lane n ON n.lane_id = q.lane JOIN postern.dispatcher o ON o.dispatcher_id = n.dispatcher_id
	WHERE q.phase <> 'HELD'`

// lockLane locks at most n of the queues that stand first in a lane from a front on.
func (c *claim) lockLane(b *pgx.Batch, l *openLane, from front, n int) {
	if n <= 0 {
		return
	}
	high, low := from.args()
	text, args := candidatesSQL, []any{l.id, n, l.kind == "resume", high, low}
	switch {
	case l.kind == "exclusive":
		text, args = exclusiveSQL, append(args, c.s.Clock())
	case l.kind == "resume" && len(c.node.Types) > 0:
		text, args = typedSQL, append(args, c.node.Types)
		if c.quarantine.Any() {
			text = typedResumableSQL
		}
	case l.kind == "resume" && c.quarantine.Any():
		text = resumableSQL
	}
	b.Queue("SELECT "+QueueSelect+text, args...).Query(func(rows pgx.Rows) error {
		var list []*QueueRow
		err := collectQueues(rows, &list)
		c.candidates[l.id] = list
		return err
	})
}
