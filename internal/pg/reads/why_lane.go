package reads

import (
	"cmp"
	"fmt"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// laneFacts is the lane of a head that waits.
type laneFacts struct {
	view   LaneView
	holder int64
}

// lane reads the lane of the queue and how many stand before it.
func (x *explain) lane() (*laneFacts, error) {
	l := &laneFacts{}
	var value, account string
	err := x.s.Pool().QueryRow(x.ctx, `
		SELECT l.kind, coalesce(l.value, ''), coalesce(s.account, ''), coalesce(h.holder, 0),
			(SELECT count(*) FROM (SELECT FROM postern.ready r WHERE r.lane = $1 AND (r.prio, r.since, r.queue_id) < ($2, $3, $4) LIMIT 1000) n)
		FROM postern.lane l JOIN postern.lane h ON h.lane_id = coalesce(l.shared, l.lane_id)
		LEFT JOIN postern.sender s ON s.sender_id = l.sender_id WHERE l.lane_id = $1`,
		x.q.Lane, x.q.Prio, x.q.EnteredAt, x.q.ID).Scan(&l.view.Kind, &value, &account, &l.holder, &l.view.Ahead)
	if db.IsNoRows(err) { // idle, or its lane is not known yet
		l.view = LaneView{Kind: "dispatcher", Name: x.head.Type}
		return l, nil
	}
	l.view.Name = x.head.Type
	switch l.view.Kind {
	case "sender":
		l.view.Name += " " + account
	case "exclusive":
		if value != "" { // "" is all of the type
			l.view.Name += " " + value
		}
	}
	if x.d != nil {
		l.view.GateUntil, l.view.GateReason = x.d.GateUntil, x.d.GateWhy
	}
	return l, db.Known(err)
}

// senders adds what keeps the senders that the head could take.
func (x *explain) senders() error {
	pool := x.d.PoolID
	if x.q.Pool != 0 {
		pool = x.q.Pool
	}
	rows, err := x.s.Pool().Query(x.ctx, `SELECT s.account, p.name, p.paused, s.paused, s.draining AND $2 = 0, s.removed_at IS NOT NULL,
			CASE WHEN s.blocked_until = 'infinity' THEN '9999-12-31 23:59:59+00' WHEN s.blocked_until > $3 THEN s.blocked_until END,
			s.block_reason, s.gate_reason, s.worker_url, s.gate_failures, s.gate_since, s.gate_node,
			coalesce(s.queue_id, 0), coalesce(n.name, ''), s.bound_since
		FROM postern.sender s JOIN postern.pool p ON p.pool_id = s.pool_id
		LEFT JOIN postern.queue_name n ON n.queue_id = s.queue_id
		WHERE CASE WHEN $2 <> 0 THEN s.sender_id = $2 ELSE s.pool_id = $1 AND s.removed_at IS NULL END ORDER BY s.blocked_until NULLS FIRST, s.account LIMIT 10000`, pool, x.q.Pin, x.now)
	if err != nil {
		return db.Known(err)
	}
	defer rows.Close()
	var all []senderFacts
	for rows.Next() {
		var f senderFacts
		if err := rows.Scan(&f.account, &f.pool, &f.closed, &f.paused, &f.draining, &f.removed, &f.until, &f.reason,
			&f.said, &f.url, &f.failures, &f.closedAt, &f.node, &f.bound, &f.queue, &f.since); err != nil {
			return err
		}
		all = append(all, f)
	}
	if rows.Err() != nil {
		return db.Known(rows.Err())
	}
	if len(all) > 0 && all[0].closed {
		b := x.pause("no_free_sender", "pools", all[0].pool)
		b.Detail = "pool " + all[0].pool + " is paused"
		return x.pausedBy(b)
	}
	if x.q.Pin != 0 && len(all) > 0 {
		return x.pinned(all[0])
	}
	return x.pool(all)
}

type senderFacts struct {
	account, pool   string
	closed          bool // its pool is paused
	paused, removed bool
	draining        bool // and the head does not name it
	until           *time.Time
	reason          string
	said            string // by the worker, where that is the reason
	failures        int    // of its gate, which is closed since closedAt, by a call of node
	closedAt        *time.Time
	node            string
	url             string // its own address; "": that of its type is called
	bound           int64  // the queue that it serves
	queue           string
	since           *time.Time
}

func (f *senderFacts) object() string { return "/senders/" + f.account }

// blocked says why a sender that is free may not be used, "" if it may.
func (f *senderFacts) blocked() string {
	switch {
	case f.removed:
		return "it was removed"
	case f.paused:
		return "it is paused"
	case f.draining:
		return "it is drained, and takes only what names it"
	case f.until != nil && f.until.Before(pg.Forever.Add(-time.Hour)):
		text := "it is blocked until " + clockTime(*f.until)
		if f.closedAt != nil {
			text += " (" + tries(f.failures, f.closedAt, f.node) + ")"
		}
		return pg.Because(text, cmp.Or(f.said, f.reason))
	case f.until != nil:
		return pg.Because("it is blocked until somebody unblocks it", f.reason)
	}
	return ""
}

// kind tells a sender whose own worker is away from one that somebody blocked.
func (f *senderFacts) kind() string {
	if f.until != nil && f.reason == "worker_unreachable" && !f.paused && !f.draining && !f.removed {
		return "worker_unreachable"
	}
	return "sender_blocked"
}

// levers let the sender be used again: of one whose own worker is away, at once, or by another address.
func (f *senderFacts) levers() []Lever {
	switch {
	case f.removed:
		return []Lever{NewLever("PUT", "admin", "senders", f.account).With("pool", f.pool)}
	case f.paused, f.draining:
		return []Lever{NewLever("POST", "admin", "senders", f.account, "resume")}
	}
	list := []Lever{NewLever("POST", "admin", "senders", f.account, "unblock")}
	if f.kind() == "worker_unreachable" && f.url != "" {
		list = append(list, workerOfSender(f.account))
	}
	return list
}

// pinned explains the one sender that may take the head: the client named it, or it was called for this
// attempt, or an earlier one lies under its nonce (S2.9). Of what was called, cancel is a lever too: a redrive
// has another token.
func (x *explain) pinned(f senderFacts) error {
	b := Blocker{Object: f.object(), Since: x.since}
	only := "only " + f.account + " may take it"
	if x.head.SenderID == 0 {
		since := "it was called for it, and its worker alone would recognise the token"
		if x.q.Attempt > 1 {
			since = "it was called for this transaction before"
		}
		only = fmt.Sprintf("only %s may send attempt %d, since %s", f.account, x.q.Attempt, since)
	}
	switch why := f.blocked(); {
	case why != "":
		b.Kind, b.Detail, b.Levers = f.kind(), only+", and "+why, f.levers()
		if x.head.SenderID == 0 {
			b.Levers = append(b.Levers, leverOf(x.head.ID, "cancel", "executor"))
		}
		x.unblocks(&b, f)
		return x.unusable(b, f)
	case f.bound != 0:
		b.Kind, b.Detail = "pinned_sender_busy", only+", and it serves "+serves(f.queue)
		if f.since != nil {
			b.Since = *f.since
		}
		x.add(b)
		h, err := x.holder(`q.queue_id = $1`, f.bound)
		if err != nil {
			return err
		}
		return x.followHolder(h)
	}
	return nil
}

func serves(queue string) string {
	if queue == "" {
		return "unordered work"
	}
	return "queue " + queue
}

func (x *explain) unblocks(b *Blocker, f senderFacts) {
	if f.until != nil && f.until.Before(pg.Forever.Add(-time.Hour)) {
		b.Next = &NextStep{*f.until, f.account + " may be used again"}
	}
}

// pool explains a pool without a free sender.
func (x *explain) pool(all []senderFacts) error {
	var blocked []senderFacts
	var bound []int64
	for _, f := range all {
		switch {
		case f.bound != 0:
			bound = append(bound, f.bound)
		case f.blocked() != "":
			blocked = append(blocked, f)
		default:
			return nil
		}
	}
	switch {
	case len(all) == 0:
		return x.emptyPool()
	case len(bound) == 0:
		f := blocked[0]
		for _, g := range blocked { // the first that comes back
			if g.until != nil && !g.paused && !g.draining && (f.until == nil || f.paused || f.draining || g.until.Before(*f.until)) {
				f = g
			}
		}
		b := Blocker{Kind: f.kind(), Object: f.object(), Since: x.since, Levers: f.levers(),
			Detail: fmt.Sprintf("none of the %d senders of pool %s may be used; of %s: %s", len(all), f.pool, f.account, f.blocked())}
		if len(all) == 1 {
			b.Detail = fmt.Sprintf("the only sender of pool %s, %s, may not be used: %s", f.pool, f.account, f.blocked())
		}
		x.unblocks(&b, f)
		return x.unusable(b, f)
	}
	return x.allBound(all, bound, len(blocked))
}

// emptyPool adds that the pool of the head has no sender, with the request that gives it one: the last that it
// had, if it had one.
func (x *explain) emptyPool() error {
	id := x.d.PoolID
	if x.q.Pool != 0 {
		id = x.q.Pool
	}
	var pool, account string
	if err := x.s.Pool().QueryRow(x.ctx, `
		SELECT p.name, coalesce((SELECT account FROM postern.sender s
			WHERE s.pool_id = p.pool_id AND s.removed_at IS NOT NULL ORDER BY s.removed_at DESC LIMIT 1), '')
		FROM postern.pool p
		WHERE p.pool_id = $1`, id).Scan(&pool, &account); err != nil {
		return db.Known(err)
	}
	b := Blocker{
		Kind:   "no_free_sender",
		Object: "/pools/" + pool,
		Since:  x.since,
		Detail: "its pool " + pool + " has no senders",
	}
	if account == "" {
		account = AnyAccount
		b.Detail += ": give it an account that signs"
	}
	b.Levers = []Lever{NewLever("PUT", "admin", "senders", account).With("pool", pool)}
	x.add(b)
	return nil
}

// allBound adds that the senders of a pool serve other queues, with the one that does so for longest, and what
// that waits for.
func (x *explain) allBound(all []senderFacts, bound []int64, blocked int) error {
	b := Blocker{Kind: "no_free_sender", Object: "/pools/" + all[0].pool, Since: x.since}
	b.Detail = fmt.Sprintf("pool %s has %s: %d busy with other queues, %d blocked, paused or drained",
		all[0].pool, fault.Many(len(all), "sender"), len(bound), blocked)
	h, err := x.holder(`q.queue_id = ANY ($1)`, bound)
	if err != nil {
		return err
	}
	if h != nil {
		for _, f := range all {
			if f.bound == h.task.ID.Queue {
				b.Detail += "; " + f.account + " is held by " + x.named(h)
			}
		}
	}
	x.add(b)
	return x.followHolder(h)
}

// unusable adds that a sender may not be used; of one that is paused or drained with who did that, and why.
func (x *explain) unusable(b Blocker, f senderFacts) error {
	action := "drain"
	switch {
	case f.removed, !f.paused && !f.draining:
		x.add(b)
		return nil
	case f.paused:
		action = "pause"
	}
	var actor, reason string
	err := x.s.Pool().QueryRow(x.ctx, `SELECT actor, reason
		FROM postern.audit
		WHERE context_id = $1 AND object = $2 AND action = $3
		ORDER BY at DESC
		LIMIT 1`,
		x.context, b.Object, action).Scan(&actor, &reason)
	switch {
	case err == nil:
		if actor, err = x.who(actor); err != nil {
			return err
		}
		b.Detail = pg.Because(b.Detail+" (by "+actor+")", reason)
	case !db.IsNoRows(err):
		return db.Known(err)
	}
	x.add(b)
	return nil
}

// slots adds that each live node makes as many calls of a type without senders as it may: those of a dead one, until
// its queues are released, take no slot of the others.
func (x *explain) slots() error {
	takers, taken := 0, 0
	for _, n := range x.nodes {
		if n.takes(x.head.Type) && !n.draining {
			takers++
		}
	}
	most := x.d.Slots * takers
	if err := x.s.Pool().QueryRow(x.ctx, `SELECT coalesce(sum(least(c.calls, $2)), 0) FROM (SELECT q.node_id, count(*) AS calls FROM postern.queue q JOIN postern.lane l ON l.lane_id = q.lane
			WHERE q.node_id IS NOT NULL AND q.phase = 'DISPATCHING' AND l.dispatcher_id = $1 GROUP BY q.node_id) c
		JOIN postern.node n ON n.node_id = c.node_id AND n.dead_at IS NULL AND n.heartbeat_at + n.ttl >= coalesce($3::timestamptz, clock_timestamp())`,
		x.d.ID, x.d.Slots, x.s.LeaseNow()).Scan(&taken); err != nil {
		return db.Known(err)
	}
	if taken < most {
		return nil
	}
	b := Blocker{Kind: "no_free_slot", Object: "/dispatchers/" + x.head.Type, Since: x.since}
	b.Detail = fmt.Sprintf("%d of %d calls of type %s are in flight (slots %d, live nodes %d)",
		taken, most, x.head.Type, x.d.Slots, takers)
	h, err := x.holder(`q.phase = 'DISPATCHING' AND q.node_id IS NOT NULL
		AND q.lane IN (SELECT lane_id FROM postern.lane WHERE dispatcher_id = $1)`, x.d.ID)
	if err != nil {
		return err
	}
	if h != nil {
		b.Detail += "; the oldest is that of " + x.named(h)
	}
	x.add(b)
	return x.followHolder(h)
}
