package reads

import (
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/twin"
)

// explainHead lists what is in the way of the head, in the order in which a person would remove it.
func (x *explain) explainHead() error {
	if held, err := x.quarantined(); held || err != nil {
		return err
	}
	if x.inFlight {
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
	if err := x.punctual(first); err != nil || !x.inFlight {
		return err
	}
	_, err := x.suspended(x.head.ID) // it holds before the head would go out again
	return err
}

// punctual keeps what is said from the first blocker of the phase on from promising something in the past.
// Where the moment of a step has come it is now. A head that is in its state for longer than that may last (see
// the view postern.overdue) does not move: so it is said, by when it should have, and which lever ends that.
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
		bury := NewLever("POST", "system admin", "nodes", *node, "bury")
		b.Levers = append([]Lever{bury}, b.Levers...)
	}
	if was != "" {
		b.Detail += " (" + was + ")"
	}
	if len(b.Levers) == 0 {
		b.Levers = []Lever{leverOf(x.head.ID, "abandon", "admin")}
	}
}

// quarantined adds that the head is in quarantine, with who entered it and why; one that is with its worker
// ends as it would. The object names the scope as the audit does. The levers are those of the scope in the
// order in which they are pulled: look, ask the workers where something may be lost, release.
func (x *explain) quarantined() (bool, error) {
	if x.q.Phase == outbox.PhaseDispatching && x.q.Node != 0 {
		return false, nil
	}
	what := "nothing of it leaves"
	if x.inFlight {
		what = "nothing of it leaves, and its worker is not asked"
	}
	return x.quarantines(x.head.Type, what)
}

// quarantines adds those that hold what a type of the context sends; what says what does not happen therefore.
func (x *explain) quarantines(typ, what string) (bool, error) {
	if !x.s.Quarantined(x.context, typ) {
		return false, nil
	}
	scopes, err := x.s.QuarantineScopes(x.ctx)
	if err != nil {
		return false, err
	}
	for _, v := range scopes {
		if c := x.s.Context(v.Context); v.Context != "" && (c == nil || c.ID != x.context) || v.Type != "" && v.Type != typ {
			continue
		}
		levers := []Lever{NewLever("GET", "system admin", "quarantine")}
		if v.Lost() && !v.Copy() && (v.ReconciledAt == nil || v.Open > 0) {
			levers = append(levers, ofScope(v.Quarantine, "reconcile"))
		}
		levers = append(levers, ofScope(v.Quarantine, "release"))
		actor, err := x.who(v.Actor)
		if err != nil {
			return false, err
		}
		x.add(Blocker{
			Kind:   "quarantined",
			Object: v.Object(),
			Since:  v.EnteredAt,
			Detail: pg.Because(fmt.Sprintf("%s is in quarantine, entered by %s: %s", v.Quarantine, actor, what), v.Reason),
			Levers: levers,
		})
	}
	return len(x.blockers) > 0 && x.blockers[len(x.blockers)-1].Kind == "quarantined", nil
}

// ofScope is a lever of what is in quarantine, which its body names.
func ofScope(q pg.Quarantine, verb string) Lever {
	l := NewLever("POST", "system admin", "quarantine", verb).With("reason", "...")
	if q.Context != "" {
		l = l.With("context", q.Context)
	}
	if q.Type != "" {
		l = l.With("type", q.Type)
	}
	return l
}

func (x *explain) explainPhase() error {
	switch x.q.Phase {
	case outbox.PhaseIdle, outbox.PhaseReady:
		return x.ready()
	case outbox.PhaseHeld:
		return x.held()
	case outbox.PhaseDispatching:
		return x.dispatching()
	case outbox.PhaseInclusion, outbox.PhaseWaitingInclusion:
		return x.inclusion()
	case outbox.PhaseRetry, outbox.PhaseDelay:
		return x.delay()
	}
	return nil
}

// held explains a head that may not go yet.
func (x *explain) held() error {
	own := x.added
	if _, err := x.needNode(false); err != nil {
		return err
	}
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
	switch {
	case !x.q.Blocked.IsZero() && !x.q.NotBefore.IsZero():
		return x.blocked()
	case !x.q.NotBefore.IsZero():
		b := Blocker{
			Kind:   "not_before",
			Object: pg.TxPath(x.head.ID),
			Since:  x.head.CreatedAt,
			Detail: "it was posted with not_before",
			Next:   &NextStep{x.q.NotBefore, "it may go out"},
			Levers: []Lever{leverOf(x.head.ID, "cancel", "executor")},
		}
		if over := x.now.Sub(x.q.NotBefore); over > lateBy {
			b.Detail += ", which has been over for " + over.Round(time.Second).String() + ": a process has yet to wake it"
		}
		x.add(b)
	case x.added == own: // its blocker has ended, and the commit that lets it go is still to come
		x.add(Blocker{
			Kind:   "held",
			Object: pg.TxPath(x.head.ID),
			Since:  x.since,
			Detail: "what held it has ended, and it has not been let go yet: the sweep of a process that works does that",
			Levers: []Lever{leverOf(x.head.ID, "cancel", "executor")},
		})
	}
	x.moving = x.moving || x.added == own+1 && x.followed
	return nil
}

// paused says who paused the queue, or which failure did.
func (x *explain) paused() error {
	b := x.pause("queue_paused", "queues", x.name)
	b.Detail = "paused after a failure (on_failure: pause)"
	var id outbox.ID
	var state, code, message string
	var at time.Time
	err := x.s.Pool().QueryRow(x.ctx, `
		SELECT o.seq, o.day - '1970-01-01', postern.salt(t.created_at, t.moved_from), o.state, o.done_at,
			coalesce(o.error_code, ''), coalesce(o.error, '')
		FROM postern.outcome o
		JOIN postern.task t ON (t.queue_id, t.seq, t.day) = (o.queue_id, o.seq, o.day)
		WHERE o.queue_id = $1 AND o.state IN ('FAILED', 'UNRESOLVED')
		ORDER BY o.seq DESC
		LIMIT 1`, x.q.ID).Scan(&id.Seq, &id.Day, &id.Salt, &state, &at, &code, &message)
	if err != nil && !db.IsNoRows(err) {
		return db.Known(err)
	}
	if err == nil {
		id.Queue = x.q.ID
		b.Since = at
		b.Detail = fmt.Sprintf("paused (on_failure: pause) after transaction %s ended %s: %s",
			id, state, quoted(message, code))
		b.Levers = append(b.Levers, leverOf(id, "redrive", "executor"))
	}
	return x.pausedBy(b)
}

// quoted is an error with its code.
func quoted(message, code string) string {
	switch {
	case code == "":
		return message
	case message == "":
		return code
	}
	return message + " (" + code + ")"
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
		if actor, err = x.who(actor); err != nil {
			return err
		}
		b.Detail = pg.Because(what+" by "+actor, reason)
		b.Levers = b.Levers[:1]
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
	first, own := len(x.blockers), x.added
	if _, err := x.needNode(true); err != nil {
		return err
	}
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
	switch {
	case x.added == own && lane.view.Ahead == 0 && x.now.Sub(x.since) > lateBy:
		if err := x.unclaimed(); err != nil {
			return err
		}
	case x.added == own:
		x.moving = true
		detail := fmt.Sprintf("%d others of its lane go first", lane.view.Ahead)
		switch lane.view.Ahead {
		case 0:
			detail = "nothing is in its way: it goes out with the next claim"
		case 1:
			detail = "another of its lane goes first"
		}
		x.add(Blocker{Kind: "lane_turn", Object: "/dispatchers/" + x.head.Type, Since: x.since, Detail: detail})
	default:
		x.moving = x.added == own+1 && x.followed
	}
	for i := first; i < len(x.blockers); i++ {
		if x.blockers[i].Lane == nil && !x.blockers[i].followed {
			x.blockers[i].Lane = &lane.view
		}
	}
	return nil
}

// unclaimed adds that a head should have gone out by now: nothing is known to be in its way, and a process that
// has room works on its type. A claim passes over a row that another SQL transaction has locked, so those that
// may have one are named.
func (x *explain) unclaimed() error {
	var names []string
	for _, n := range x.nodes {
		if n.takes(x.head.Type) && !n.draining && len(names) < 5 {
			names = append(names, n.name)
		}
	}
	b := Blocker{
		Kind:   "unclaimed",
		Object: pg.TxPath(x.head.ID),
		Since:  x.since,
		Detail: "it should have gone out by now, and no process has taken it: look at the log of " + strings.Join(names, ", "),
		Levers: []Lever{NewLever("GET", "system admin", "nodes")},
	}
	rows, err := x.s.Pool().Query(x.ctx, `
		SELECT a.pid, coalesce(a.application_name, ''), a.xact_start
		FROM pg_locks l
		JOIN pg_stat_activity a USING (pid)
		WHERE l.relation = 'postern.queue'::regclass AND l.mode IN ('RowShareLock', 'RowExclusiveLock')
			AND a.pid <> pg_backend_pid() AND a.xact_start < clock_timestamp() - interval '2 s'
		ORDER BY a.xact_start
		LIMIT 3`)
	if err != nil {
		return db.Known(err)
	}
	var pid int32
	var application string
	var began time.Time
	_, err = pgx.ForEachRow(rows, []any{&pid, &application, &began}, func() error {
		b.Detail += fmt.Sprintf("; or its row is locked by the session %d (%s), whose SQL transaction is open since %s: "+
			"end it, or SELECT pg_terminate_backend(%d)", pid, application, clockTime(began), pid)
		return nil
	})
	x.add(b)
	return db.Known(err)
}

// pause is a blocker that ends when its object is resumed.
func (x *explain) pause(kind, noun, name string) Blocker {
	return Blocker{
		Kind:   kind,
		Object: "/" + noun + "/" + name,
		Since:  x.since,
		Detail: "paused",
		Levers: []Lever{NewLever("POST", "admin", noun, name, "resume")},
	}
}

// pauses adds that a type is paused, and that its context is. d is nil for what the context does itself.
func (x *explain) pauses(d *pg.Dispatcher) error {
	if d != nil && d.Paused && !twin.Planted("why_forgets_pause") {
		if err := x.pausedBy(x.pause("dispatcher_paused", "dispatchers", d.Type)); err != nil {
			return err
		}
	}
	if c := x.s.ContextByID(x.context); c != nil && c.Paused {
		return x.pausedBy(x.pause("context_paused", "contexts", c.Name))
	}
	return nil
}

// dispatcherHolds adds what closes the lane of the type.
func (x *explain) dispatcherHolds() error {
	object := "/dispatchers/" + x.head.Type
	if x.d == nil || x.d.Removed {
		url := AnyWorker
		if x.d != nil { // it was removed
			url = x.d.WorkerURL
		}
		put := NewLever("PUT", "admin", "dispatchers", x.head.Type).With("worker_url", url)
		x.add(Blocker{
			Kind:   "no_dispatcher",
			Object: object,
			Since:  x.since,
			Detail: "type " + x.head.Type + " has no dispatcher",
			Levers: []Lever{put},
		})
		return nil
	}
	if err := x.pauses(x.d); err != nil {
		return err
	}
	if g := x.d.GateUntil; g != nil && x.d.Failures > 0 { // also when its time is over, until a probe gets through
		b := Blocker{
			Kind:   "worker_unreachable",
			Object: object,
			Since:  x.since,
			Next:   &NextStep{*g, "one probe goes out"},
			Levers: []Lever{x.workerOfType()},
		}
		b.Detail = fmt.Sprintf("calls to %s come to nothing (%s)",
			x.d.WorkerURL, tries(x.d.Failures, x.d.GateSince, x.d.GateNode))
		b.Detail = pg.Because(b.Detail, x.d.GateWhy)
		if x.d.GateProbing {
			b.Next.What = "a probe is out; without an answer by then, another goes out"
		}
		x.add(b)
	}
	return nil
}

// tries says how often a gate closed in a row, since when it is closed, and whose call did that: the network of one
// process may be cut, and that of the others be well.
func tries(n int, since *time.Time, node string) string {
	text := "1 try"
	if n != 1 {
		text = fmt.Sprintf("%d tries in a row", n)
	}
	if since != nil {
		text += ", since " + clockTime(*since)
	}
	if node != "" {
		text += ", the last by node " + node
	}
	return text
}

// exclusive names who is in flight in the lane that one queue holds at a time, and what that one waits for.
func (x *explain) exclusive(queue int64) error {
	b := Blocker{
		Kind:   "exclusive_busy",
		Object: "/dispatchers/" + x.head.Type,
		Since:  x.since,
		Detail: "another one with the same exclusive value is in flight",
	}
	h, err := x.holder(`q.queue_id = $1`, queue)
	if err != nil {
		return err
	}
	if h != nil {
		b.Object, b.Since = pg.TxPath(h.task.ID), h.explain.since
		b.Detail = fmt.Sprintf("%s lets one go at a time (%s), and that is %s", x.head.Type, x.d.Exclusive, x.named(h))
		if group := x.d.Exclusive.Group(); group != "" {
			b.Detail = fmt.Sprintf("the types of the group %s let one with the same value go at a time (%s), and that is %s",
				group, strings.TrimPrefix(string(x.d.Exclusive), "group:"+group+":"), x.named(h))
		}
	}
	x.add(b)
	return x.followHolder(h)
}
