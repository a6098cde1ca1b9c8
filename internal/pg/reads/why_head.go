package reads

import (
	"fmt"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/sequencer"
)

// explainHead lists what is in the way of the head, in the order in which a person would remove it.
func (x *explain) explainHead() error {
	if held, err := x.quarantined(); held || err != nil {
		return err
	}
	if x.flying {
		if held, err := x.unknown(); held || err != nil {
			return err
		}
		if parked, err := x.parked(); parked || err != nil {
			return err
		}
	}
	first := len(x.blockers)
	if err := x.explainPhase(); err != nil {
		return err
	}
	if err := x.punctual(first); err != nil || !x.flying {
		return err
	}
	_, err := x.suspended(x.head.ID) // it holds before the head would go out again
	return err
}

// punctual keeps what is said from the first blocker of the phase on from promising something in the past. Where the moment
// of a step has come it is now. A head that is in its state for longer than that may last (see the view postern.overdue) does not
// move: so it is said, by when it should have, and which lever ends that.
func (x *explain) punctual(first int) error {
	var due *time.Time
	var what, node *string
	if err := x.s.Pool().QueryRow(x.ctx, `SELECT min(due), min(what), min(node) FROM postern.overdue WHERE queue_id = $1`, x.q.ID).
		Scan(&due, &what, &node); err != nil {
		return db.Known(err)
	}
	for i := first; i < len(x.blockers); i++ {
		b := &x.blockers[i]
		switch past := b.Next != nil && !b.Next.At.After(x.now); {
		case due == nil && past:
			b.Next.At = x.now
		case due != nil && (past || b.Kind == "in_worker"):
			x.overdue(b, *due, *what, node)
			return nil
		}
	}
	if due != nil {
		x.add(Blocker{Object: pg.TxPath(x.head.ID)})
		x.overdue(&x.blockers[len(x.blockers)-1], *due, *what, node)
	}
	return nil
}

// overdue makes b say that the head should have moved on.
func (x *explain) overdue(b *Blocker, due time.Time, what string, node *string) {
	was := b.Detail
	b.Kind, b.Since, b.Next, b.Lane, x.moving = "overdue", due, nil, nil, false
	b.Detail = fmt.Sprintf("it should have left %s by now: %s", x.q.Phase, what)
	if node != nil {
		b.Detail += ", which hands back within two minutes what it lost: if it does not, restart it or bury it, and the next one asks the worker first"
		b.Levers = append([]Lever{{"POST", "/nodes/" + *node + "/bury", "system admin"}}, b.Levers...)
	}
	if was != "" {
		b.Detail += " (" + was + ")"
	}
	if len(b.Levers) == 0 {
		b.Levers = []Lever{x.lever(x.head.ID, "abandon", "admin")}
	}
}

// quarantined adds that the head is in quarantine, with who entered it and why; one that is with its worker ends as it would. The
// object names the scope as the audit does. The levers are those of the scope in the order in which they are pulled: look, ask
// the workers where something may be lost, release.
func (x *explain) quarantined() (bool, error) {
	if x.q.Phase == outbox.PhaseDispatching && x.q.Node != 0 || !x.s.Quarantined(x.context, x.head.Type) {
		return false, nil
	}
	scopes, err := x.s.QuarantineScopes(x.ctx)
	if err != nil {
		return false, err
	}
	for _, v := range scopes {
		if c := x.s.Context(v.Context); v.Context != "" && (c == nil || c.ID != x.context) || v.Type != "" && v.Type != x.head.Type {
			continue
		}
		what := "nothing of it leaves"
		if x.flying {
			what = "nothing of it leaves, and its worker is not asked"
		}
		levers := []Lever{{"GET", "/quarantine", "system admin"}}
		if v.Lost() && !v.Copy() && (v.ReconciledAt == nil || v.Open > 0) {
			levers = append(levers, Lever{"POST", "/quarantine/reconcile", "system admin"})
		}
		x.add(Blocker{
			Kind:   "quarantined",
			Object: v.Object(),
			Since:  v.EnteredAt,
			Detail: pg.Because(fmt.Sprintf("%s is in quarantine, entered by %s: %s", v.Quarantine, v.Actor, what), v.Reason),
			Levers: append(levers, Lever{"POST", "/quarantine/release", "system admin"}),
		})
	}
	return len(x.blockers) > 0 && x.blockers[len(x.blockers)-1].Kind == "quarantined", nil
}

func (x *explain) explainPhase() error {
	switch x.q.Phase {
	case outbox.PhaseIdle, outbox.PhaseReady:
		return x.ready()
	case outbox.PhaseHeld:
		if x.q.Paused {
			if err := x.paused(); err != nil {
				return err
			}
		}
		if _, err := x.suspended(x.head.ID); err != nil {
			return err
		}
		if err := x.dependencies(x.head.ID); err != nil {
			return err
		}
		if !x.q.Blocked.IsZero() && !x.q.NotBefore.IsZero() {
			return x.blocked()
		}
		if !x.q.NotBefore.IsZero() {
			x.add(Blocker{Kind: "not_before", Object: pg.TxPath(x.head.ID), Since: x.head.CreatedAt, Detail: "its own not_before",
				Next: &NextStep{x.q.NotBefore, "it may go out"}, Levers: []Lever{x.lever(x.head.ID, "cancel", "executor")}})
		}
		x.needNode()
	case outbox.PhaseDispatching:
		return x.dispatching()
	case outbox.PhaseInclusion, outbox.PhaseWaitingInclusion:
		x.inclusion()
	case outbox.PhaseRetry, outbox.PhaseDelay:
		return x.delay()
	}
	return nil
}

func (x *explain) lever(id outbox.ID, verb, role string) Lever {
	return Lever{"POST", pg.TxPath(id) + "/" + verb, role}
}

// needNode adds that no process is there for the next step.
func (x *explain) needNode() bool {
	if x.live > 0 {
		return false
	}
	b := Blocker{Kind: "no_live_node", Object: "/nodes", Since: x.since, Detail: "no process that dispatches is alive: start one"}
	var last *time.Time
	var draining *string
	if x.s.Pool().QueryRow(x.ctx, `SELECT max(heartbeat_at), min(name) FILTER (WHERE draining AND dead_at IS NULL AND heartbeat_at + ttl >= coalesce($1::timestamptz, clock_timestamp()))
		FROM postern.node`, x.s.LeaseNow()).Scan(&last, &draining) == nil && last != nil {
		b.Since = *last
	}
	if draining != nil {
		b.Object, b.Detail = "/nodes/"+*draining, "every process that dispatches is draining: resume one, or start another"
		b.Levers = []Lever{{"POST", b.Object + "/resume", "system admin"}}
	}
	x.add(b)
	return true
}

// paused says who paused the queue, or that a failure did.
func (x *explain) paused() error {
	b := Blocker{Kind: "queue_paused", Object: "/queues/" + x.name, Since: x.since, Detail: "paused after a failure (on_failure: pause)",
		Levers: []Lever{{"POST", "/queues/" + x.name + "/resume", "admin"}}}
	return x.pausedBy(b)
}

// pausedBy adds a blocker that ends with a resume of its object, with who paused it if somebody did.
func (x *explain) pausedBy(b Blocker) error {
	var actor, reason string
	err := x.s.Pool().QueryRow(x.ctx, `SELECT actor, reason, at FROM postern.audit WHERE context_id = $1 AND object = $2 AND action = 'pause'
		AND at >= coalesce((SELECT max(at) FROM postern.audit WHERE context_id = $1 AND object = $2 AND action = 'resume'), '-infinity')
		ORDER BY at DESC LIMIT 1`, x.context, b.Object).Scan(&actor, &reason, &b.Since)
	switch {
	case err == nil:
		what := "paused"
		if before, _, ok := strings.Cut(b.Detail, " is paused"); ok {
			what = before + " is paused"
		}
		b.Detail = pg.Because(what+" by "+actor, reason)
	case !db.IsNoRows(err):
		return db.Known(err)
	}
	x.add(b)
	return nil
}

// ready explains a head that may go and that no node has.
func (x *explain) ready() error {
	lane, err := x.lane()
	if err != nil {
		return err
	}
	first := len(x.blockers)
	if x.q.Paused {
		if err := x.paused(); err != nil {
			return err
		}
	}
	if err := x.dispatcherHolds(); err != nil {
		return err
	}
	if x.d != nil && !x.d.Removed {
		if lane.holder != 0 {
			if err := x.exclusive(lane.holder); err != nil {
				return err
			}
		}
		if x.d.PoolID != 0 || x.q.Pin != 0 {
			if err := x.senders(); err != nil {
				return err
			}
		}
	}
	if len(x.blockers) == first && x.live > 0 && x.d.PoolID == 0 && x.q.Pin == 0 {
		if err := x.slots(); err != nil {
			return err
		}
	}
	if x.needNode(); len(x.blockers) == first {
		x.moving = true
		detail := fmt.Sprintf("%d others of its lane go first", lane.view.Ahead)
		if lane.view.Ahead == 0 {
			detail = "nothing is in its way: it goes out with the next claim"
		}
		x.add(Blocker{Kind: "lane_turn", Object: "/dispatchers/" + x.head.Type, Since: x.since, Detail: detail})
	}
	for i := first; i < len(x.blockers); i++ {
		x.blockers[i].Lane = &lane.view
	}
	return nil
}

// dispatcherHolds adds what closes the lane of the type.
func (x *explain) dispatcherHolds() error {
	object := "/dispatchers/" + x.head.Type
	switch {
	case x.d == nil || x.d.Removed:
		x.add(Blocker{Kind: "no_dispatcher", Object: object, Since: x.since, Detail: "type " + x.head.Type + " has no dispatcher",
			Levers: []Lever{{"PUT", object, "admin"}}})
		return nil
	case x.d.Paused:
		b := Blocker{Kind: "dispatcher_paused", Object: object, Since: x.since, Detail: "paused", Levers: []Lever{{"POST", object + "/resume", "admin"}}}
		if err := x.pausedBy(b); err != nil {
			return err
		}
	}
	if c := x.s.ContextByID(x.context); c != nil && c.Paused {
		at := "/contexts/" + c.Name
		if err := x.pausedBy(Blocker{Kind: "context_paused", Object: at, Since: x.since, Detail: "paused", Levers: []Lever{{"POST", at + "/resume", "admin"}}}); err != nil {
			return err
		}
	}
	if g := x.d.GateUntil; g != nil && g.After(x.now) {
		b := Blocker{Kind: "worker_unreachable", Object: object, Since: x.since, Next: &NextStep{*g, "one probe goes out"}, Levers: []Lever{{"PATCH", object, "admin"}}} // another worker_url
		b.Detail = fmt.Sprintf("calls to %s come to nothing (%d tries in a row)", x.d.WorkerURL, x.d.Failures)
		b.Detail = pg.Because(b.Detail, x.d.GateWhy)
		if x.d.GateProbing {
			b.Next.What = "a probe is out; without an answer by then, another goes out"
		}
		x.add(b)
	}
	return nil
}

// exclusive names who is in flight in the lane that one queue holds at a time.
func (x *explain) exclusive(holder int64) error {
	b := Blocker{Kind: "exclusive_busy", Object: "/dispatchers/" + x.head.Type, Since: x.since, Detail: "another one with the same exclusive value is in flight"}
	t, err := pg.ScanTask(x.s.Pool().QueryRow(x.ctx, `SELECT `+pg.TaskSelect+` FROM postern.queue q JOIN postern.task t ON t.queue_id = q.queue_id AND t.seq >= q.cur_seq AND t.day >= q.head_day
		WHERE q.queue_id = $1 AND NOT EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq, o.day) = (t.queue_id, t.seq, t.day))
		ORDER BY t.seq LIMIT 1`, holder))
	switch {
	case err == nil:
		b.Object, b.Since = pg.TxPath(t.ID), t.CreatedAt
		b.Detail = fmt.Sprintf("transaction %s is in flight, and %s lets one go at a time (%s)", t.ID, x.head.Type, x.d.Exclusive)
	case !db.IsNoRows(err):
		return db.Known(err)
	}
	x.add(b)
	return nil
}

// dispatching explains a head whose worker is being called, or whose outcome is unknown.
func (x *explain) dispatching() error {
	id := x.head.ID
	abandon := []Lever{x.lever(id, "abandon", "admin")}
	if x.q.Node != 0 {
		var name string
		var alive bool
		err := x.s.Pool().QueryRow(x.ctx, `SELECT name, epoch = $2 AND dead_at IS NULL AND heartbeat_at + ttl >= coalesce($3::timestamptz, clock_timestamp()) FROM postern.node WHERE node_id = $1`,
			x.q.Node, x.q.NodeEpoch, x.s.LeaseNow()).Scan(&name, &alive)
		if err != nil && !db.IsNoRows(err) {
			return db.Known(err)
		}
		if alive {
			x.moving = true
			b := Blocker{Kind: "in_worker", Object: pg.TxPath(id), Since: x.since, Levers: abandon,
				Detail: fmt.Sprintf("attempt %d is with its worker, called by node %s under token %s", x.q.Attempt, name, x.head.Token(x.q.Attempt))}
			if x.d != nil && x.d.Timeouts.Dispatch > 0 {
				b.Next = &NextStep{x.since.Add(time.Duration(x.d.Timeouts.Dispatch)), "without an answer its outcome counts as unknown, and the worker is asked"}
			}
			x.add(b)
			return nil
		}
		x.resuming(fmt.Sprintf("its node %s is gone", name), abandon)
		return nil
	}
	if x.due == nil {
		x.resuming("its node is gone", abandon)
		return nil
	}
	if x.gateClosed() {
		x.add(Blocker{Kind: "status_unreachable", Object: "/dispatchers/" + x.head.Type, Since: x.since, Detail: pg.Because("the worker that has to be asked cannot be reached", x.d.GateWhy),
			Next: &NextStep{*x.due, "it is asked again"}, Levers: abandon})
	} else {
		x.add(Blocker{Kind: "outcome_unknown", Object: pg.TxPath(id), Since: x.since,
			Detail: fmt.Sprintf("nobody knows what came of attempt %d: the worker is asked for token %s before anything is sent again", x.q.Attempt, x.head.Token(x.q.Attempt)),
			Next:   &NextStep{*x.due, "the worker is asked"}, Levers: abandon})
	}
	x.moving = !x.needNode()
	return nil
}

// unknown adds that the head is held, and the reason.
func (x *explain) unknown() (bool, error) {
	if x.q.Marks == 0 || x.q.Node != 0 || x.due != nil {
		return false, nil
	}
	id := x.head.ID
	b := Blocker{Kind: "outcome_unknown", Object: pg.TxPath(id),
		Levers: []Lever{x.lever(id, "was-done", "admin"), x.lever(id, "was-not-done", "admin"), x.lever(id, "abandon", "admin")}}
	var reason string
	err := x.s.Pool().QueryRow(x.ctx, `SELECT reason, at FROM postern.mark WHERE (queue_id, seq, kind) = ($1, $2, 'unknown')`, id.Queue, id.Seq).
		Scan(&reason, &b.Since)
	if db.IsNoRows(err) {
		return false, nil
	}
	b.Detail = pg.Because("held until somebody says what came of it", reason)
	x.add(b)
	return true, db.Known(err)
}

func (x *explain) resuming(why string, levers []Lever) {
	x.add(Blocker{Kind: "resuming", Object: pg.TxPath(x.head.ID), Since: x.since, Levers: levers,
		Detail: fmt.Sprintf("%s: the next one asks the worker for token %s before it sends anything", why, x.head.Token(x.q.Attempt)),
		Lane:   &LaneView{Kind: "resume", Name: "resume"}})
	x.moving = !x.needNode()
}

func (x *explain) gateClosed() bool {
	return x.d != nil && x.d.GateUntil != nil && x.d.GateUntil.After(x.now)
}

// inclusion explains what was accepted and is watched.
func (x *explain) inclusion() {
	id := x.head.ID
	b := Blocker{Kind: "inclusion_pending", Object: pg.TxPath(id), Since: x.since, Detail: "accepted by its worker; not included yet"}
	if x.due != nil {
		b.Next = &NextStep{*x.due, "the worker is asked again"}
	}
	if x.d != nil {
		deadline := x.since.Add(time.Duration(x.d.Inclusion.Deadline))
		switch {
		case x.d.Inclusion.Deadline > 0 && !deadline.After(x.now):
			b.Kind, b.Levers = "inclusion_overdue", []Lever{x.lever(id, "abandon", "admin")}
			b.Detail = "not included by " + clockTime(deadline) + ": it is retried as soon as the worker answers"
			if !x.d.Replaceable {
				b.Detail = "not included by " + clockTime(deadline) + ", and replaceable: false holds it for an operator"
			}
		case x.gateClosed():
			b.Kind = "status_unreachable"
			b.Detail = pg.Because("the worker that has to be asked cannot be reached", x.d.GateWhy)
		}
	}
	x.add(b)
	x.moving = !x.needNode() && b.Kind == "inclusion_pending"
}

// blocked explains a head that waits by itself, since its last call came to nothing: with what was answered, since when
// that is so, and when it is tried again.
func (x *explain) blocked() error {
	id := x.head.ID
	said, err := x.lastAnswer(id)
	if err != nil {
		return err
	}
	x.add(Blocker{
		Kind:   "queue_blocked",
		Object: pg.TxPath(id),
		Since:  x.q.Blocked,
		Detail: pg.Because("nothing was done, and it cannot be now", said),
		Next:   &NextStep{x.q.NotBefore, "it is tried again"},
		Levers: []Lever{{"PATCH", "/dispatchers/" + x.head.Type, "admin"}, x.lever(id, "cancel", "executor")},
	})
	if err := x.dispatcherHolds(); err != nil {
		return err
	}
	x.needNode()
	return nil
}

// lastAnswer is what was heard last of a transaction, with its code; "" if nothing was.
func (x *explain) lastAnswer(id outbox.ID) (string, error) {
	var code, message string
	err := x.s.Pool().QueryRow(x.ctx, `SELECT coalesce(code, ''), coalesce(error, '') FROM postern.attempt
		WHERE (queue_id, seq, day) = ($1, $2, $3) AND class IS NOT NULL AND step <> 'late'
		ORDER BY attempt DESC, answered_at DESC LIMIT 1`, id.Queue, id.Seq, id.Day.Time()).Scan(&code, &message)
	switch {
	case db.IsNoRows(err):
		return "", nil
	case err != nil:
		return "", db.Known(err)
	case code != "":
		return fmt.Sprintf("%s (%s)", message, code), nil
	}
	return message, nil
}

// delay explains what failed and goes out again.
func (x *explain) delay() error {
	id := x.head.ID
	b := Blocker{Kind: "retry_delay", Object: pg.TxPath(id), Since: x.since, Detail: fmt.Sprintf("attempt %d failed", x.q.Attempt),
		Levers: []Lever{x.lever(id, "retry", "admin"), x.lever(id, "cancel", "executor")}}
	said, err := x.lastAnswer(id)
	if err != nil {
		return err
	}
	b.Detail = pg.Because(b.Detail, said)
	var cancelling bool
	var account, firstFee string
	if err := x.s.Pool().QueryRow(x.ctx, `SELECT EXISTS (SELECT FROM postern.mark WHERE (queue_id, seq, kind) = ($1, $2, 'cancelling')),
			coalesce((SELECT account FROM postern.sender WHERE sender_id = $3), ''),
			coalesce((SELECT fee FROM postern.attempt WHERE (queue_id, seq, day) = ($1, $2, $4) AND fee <> '' AND step <> 'late'
				ORDER BY attempt, answered_at LIMIT 1), '')`, id.Queue, id.Seq, x.q.Sender, id.Day.Time()).Scan(&cancelling, &account, &firstFee); err != nil {
		return db.Known(err)
	}
	at := x.q.NotBefore
	if at.IsZero() && x.due != nil {
		at = *x.due
	}
	next := &NextStep{at, fmt.Sprintf("attempt %d", x.q.Attempt+1)}
	switch {
	case account != "":
		next.What += " by sender " + account
	case x.d != nil && x.d.PoolID != 0:
		next.What += " by another sender, since its own was taken back"
	}
	if x.d != nil {
		prev := x.q.Fee
		if prev == "" {
			prev = x.d.Fee.Initial
		}
		if fee := sequencer.Fee(x.d.Fee, firstFee, prev); fee != "" {
			next.What += " with fee " + fee
		}
	}
	if cancelling {
		next.What = "the worker is asked whether an earlier attempt got through; if none did it is CANCELLED"
		b.Detail += "; somebody wants it cancelled"
		b.Levers = []Lever{x.lever(id, "abandon", "admin")}
	}
	if !at.IsZero() {
		b.Next = next
	}
	x.add(b)
	x.needNode()
	return nil
}
