package reads

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	pgdb "github.com/postern-dev/postern/internal/pg/db"
)

// Why says what a transaction waits for: the chain of blockers from itself to the root (S2.17).
type Why struct {
	State    string
	Moving   bool // something happens now, without anybody's help
	Summary  string
	Blockers []Blocker
}

// Blocker is one thing in the way. Object and Since are always set.
type Blocker struct {
	Kind   string
	Object string // its path, as the audit has it: names are not escaped there
	Since  time.Time
	Detail string
	Next   *NextStep
	Levers []Lever
	Lane   *LaneView

	followed bool // it is in the way of another transaction, which has what this one waits for
}

// NextStep is what happens by itself, and when.
type NextStep struct {
	At   time.Time
	What string
}

// LaneView is where a head without an owner stands.
type LaneView struct {
	Kind       string // dispatcher, sender, exclusive or resume
	Name       string
	GateUntil  *time.Time
	GateReason string
	Ahead      int // counted to 1,000
}

// Why explains one transaction, or NotFound. It locks nothing: its answer was true a moment ago.
func (s *Store) Why(ctx context.Context, contextID int32, id outbox.ID) (*Why, error) {
	t, err := s.Transaction(ctx, contextID, id)
	if err != nil {
		return nil, err
	}
	id = t.ID // it may have been moved
	x := &explain{s: s, ctx: ctx, context: contextID, seen: map[outbox.ID]bool{}}
	if t.State.Terminal() {
		return x.ended(t), nil
	}
	if err := x.load(id.Queue); err != nil {
		return nil, err
	}
	if x.head == nil { // it ended while we looked
		if t, err = s.Transaction(ctx, contextID, id); err != nil {
			return nil, err
		}
		return x.ended(t), nil
	}
	w := &Why{State: string(t.State)}
	x.mayFollow(id)
	if x.head.ID != id {
		x.mayFollow(x.head.ID)
		if err := x.behind(t); err != nil {
			return nil, err
		}
	}
	if err := x.explainHead(); err != nil {
		return nil, err
	}
	w.Blockers, w.Moving = x.blockers, x.moving
	w.Summary = x.summary(t)
	return w, nil
}

// WhyQueue explains the head of a queue; an empty one has no blockers.
func (s *Store) WhyQueue(ctx context.Context, contextID int32, name string) (*Why, error) {
	q, err := s.Queue(ctx, contextID, name)
	if err != nil {
		return nil, err
	}
	if q.Head != nil {
		return s.Why(ctx, contextID, *q.Head)
	}
	w := &Why{State: string(q.State), Summary: name + " is empty: nothing waits", Blockers: []Blocker{}}
	if q.Draining {
		w.Summary += "; it is draining and accepts nothing more"
	}
	return w, nil
}

// explain gathers facts and blockers.
type explain struct {
	s       *Store
	ctx     context.Context
	context int32

	now      time.Time
	q        *pg.QueueRow
	name     string
	head     *pg.Task
	inFlight bool      // the head is
	since    time.Time // when the head came into its phase
	due      *time.Time
	said     string // by the worker when it was asked last, where it is to be asked again
	d        *pg.Dispatcher
	own      *ownAddress // of the sender that was called last, or is to be; nil: it has none
	nodes    []nodeFacts // that are alive
	live     int         // how many of them are not draining
	ahead    int64
	blockers []Blocker
	before   int // blockers of the transaction itself, which come before those of its head
	added    int // blockers of this transaction and its head, without those that were followed
	moving   bool
	followed bool               // the last one that was followed moves by itself
	seen     map[outbox.ID]bool // transactions that are explained in this answer
}

func (x *explain) add(b Blocker) {
	x.blockers = append(x.blockers, b)
	x.added++
}

// load reads the queue, its head and its dispatcher.
func (x *explain) load(queue int64) (err error) {
	db := x.s.Pool()
	if x.now, err = x.s.Now(x.ctx); err != nil {
		return err
	}
	rows, err := db.Query(x.ctx, "SELECT "+pg.QueueSelect+" FROM postern.queue q WHERE q.queue_id = $1", queue)
	if err != nil {
		return pgdb.Known(err)
	}
	found := map[int64]*pg.QueueRow{}
	err = pg.ScanQueues(rows, found)
	rows.Close()
	if x.q = found[queue]; err != nil || x.q == nil {
		return pgdb.Known(err)
	}
	from := x.q.First()
	if x.q.Cur != 0 {
		from = x.q.Cur
	}
	x.head, err = pg.ScanTask(db.QueryRow(x.ctx, pg.OldestUnsettledSQL, queue, from, x.q.HeadDay.Time(), nil))
	if err != nil {
		x.head = nil
		return noRows(err)
	}
	x.inFlight, x.since = x.q.Cur != 0, x.q.EnteredAt
	if x.inFlight && x.head.ID.Seq > x.q.Cur { // written lazily: it went out when the one before it ended
		if err := db.QueryRow(x.ctx, `SELECT max(done_at) FROM postern.outcome WHERE queue_id = $1 AND seq = $2`, queue,
			x.head.ID.Seq-1).
			Scan(&x.since); err != nil {
			return pgdb.Known(err)
		}
	}
	if list, err := x.s.ReadDispatchers(x.ctx, db, x.context, x.head.Type); err != nil {
		return err
	} else if len(list) > 0 {
		x.d = list[0]
	}
	if err := x.readNodes(); err != nil {
		return err
	}
	if err := x.readOwnAddress(); err != nil {
		return err
	}
	return pgdb.Known(db.QueryRow(x.ctx, `
		SELECT coalesce((SELECT name FROM postern.queue_name WHERE queue_id = $1), ''),
			(SELECT due_at FROM postern.timer WHERE queue_id = $1),
			coalesce((SELECT said FROM postern.timer WHERE queue_id = $1), '')`, queue).Scan(&x.name, &x.due, &x.said))
}

// ended is the answer for what moves no more.
func (x *explain) ended(t *pg.Transaction) *Why {
	w := &Why{State: string(t.State)}
	b := Blocker{Kind: "terminal", Object: pg.TxPath(t.ID), Detail: string(t.State)}
	if t.DoneAt != nil {
		b.Since = *t.DoneAt
	}
	if t.Code != "" || t.Error != "" {
		b.Detail = fmt.Sprintf("%s: %s (%s)", t.State, t.Error, t.Code)
	}
	switch {
	case t.RedrivenBy != "":
		b.Detail += "; redriven as " + t.RedrivenBy
	case x.made(t) != "":
		b.Detail += "; " + x.made(t)
	case t.State != outbox.DONE:
		b.Levers = []Lever{leverOf(t.ID, "redrive", "executor")}
	}
	w.Blockers = []Blocker{b}
	w.Summary = fmt.Sprintf("ended %s at %s; nothing is left to happen", t.State, clockTime(b.Since))
	return w
}

// made is what the end of a transaction meant to its maker, "" for nothing.
func (x *explain) made(t *pg.Transaction) string {
	if m := x.s.MakerOf(t.Type, t.UID); m != nil {
		return m.Ended(t)
	}
	return ""
}

// behind says what stands before a transaction that is not the head, and what holds it besides.
func (x *explain) behind(t *pg.Transaction) error {
	state, detail := outbox.WAITING, ""
	if x.inFlight {
		state = x.q.Phase.Transaction()
		detail = fmt.Sprintf(", attempt %d", x.q.Attempt)
	}
	if err := x.countAhead(t); err != nil {
		return err
	}
	x.add(Blocker{
		Kind:   "head_of_line",
		Object: pg.TxPath(x.head.ID),
		Since:  x.since,
		Detail: fmt.Sprintf("%s%s; %s before this one", state, detail, stand(x.ahead)),
		Levers: []Lever{lookAt(x.head.ID), leverOf(t.ID, "cancel", "executor")},
	})
	if err := x.overtaken(t); err != nil {
		return err
	}
	if t.NotBefore != nil && t.NotBefore.After(x.now) {
		x.add(Blocker{Kind: "not_before", Object: pg.TxPath(t.ID), Since: t.ReceivedAt,
			Detail: "it was posted with not_before", Next: &NextStep{*t.NotBefore, "it may go out"}})
	}
	if _, err := x.suspended(t.ID); err != nil {
		return err
	}
	if err := x.dependencies(t.ID); err != nil {
		return err
	}
	x.before = len(x.blockers)
	return nil
}

// countAhead counts, to 10,000, what goes out before a transaction.
func (x *explain) countAhead(t *pg.Transaction) error {
	sql := `SELECT count(*) FROM (SELECT FROM postern.task k WHERE k.queue_id = $1 AND k.seq >= $2 AND k.seq < $3 AND k.day >= $4
		AND NOT EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq, o.day) = (k.queue_id, k.seq, k.day)) LIMIT 10000) n`
	if x.q.Marks > 0 { // something may have been placed
		sql = `SELECT count(*) FROM (SELECT o.rank FROM (` + pg.OpenSQL + ` LIMIT 10000) o
			JOIN (SELECT coalesce((SELECT rank FROM postern.mark WHERE (queue_id, seq, kind) = ($1, $4, 'placed')), $4) AS rank) me ON o.rank < me.rank) n`
		return pgdb.Known(x.s.Pool().QueryRow(x.ctx, sql, t.ID.Queue, x.q.Head,
			x.q.HeadDay.Time(), t.ID.Seq).Scan(&x.ahead))
	}
	return pgdb.Known(x.s.Pool().QueryRow(x.ctx, sql, t.ID.Queue, x.head.ID.Seq, t.ID.Seq,
		x.q.HeadDay.Time()).Scan(&x.ahead))
}

// overtaken adds that somebody placed later ones ahead of a transaction, with who did it last.
func (x *explain) overtaken(t *pg.Transaction) error {
	if x.q.Marks == 0 {
		return nil
	}
	b := Blocker{Kind: "placed_ahead", Levers: []Lever{leverOf(t.ID, "move", "admin")}}
	var id outbox.ID
	var actor, reason string
	var n int
	err := x.s.Pool().QueryRow(x.ctx, `WITH open AS MATERIALIZED (`+pg.OpenSQL+`), me AS (SELECT rank FROM open WHERE seq = $4)
		SELECT o.seq, o.day - '1970-01-01', o.salt, m.actor, m.reason, m.at, count(*) OVER () FROM open o JOIN me ON o.rank < me.rank
		JOIN postern.mark m ON (m.queue_id, m.seq, m.kind) = ($1, o.seq, 'placed') WHERE o.seq > $4 ORDER BY m.at DESC LIMIT 1`,
		t.ID.Queue, x.q.Head, x.q.HeadDay.Time(),
		t.ID.Seq).Scan(&id.Seq, &id.Day, &id.Salt, &actor, &reason, &b.Since, &n)
	if pgdb.IsNoRows(err) {
		return nil
	}
	if err != nil {
		return pgdb.Known(err)
	}
	id.Queue = t.ID.Queue
	if actor, err = x.who(actor); err != nil {
		return err
	}
	b.Object, b.Detail = pg.TxPath(id),
		pg.Because(fmt.Sprintf("placed ahead of it by %s, one of %d that came later", actor, n), reason)
	if n == 1 {
		b.Detail = pg.Because("placed ahead of it by "+actor, reason)
	}
	x.add(b)
	return nil
}

// suspended adds that somebody keeps a transaction from going out, with who and why.
func (x *explain) suspended(id outbox.ID) (bool, error) {
	b := Blocker{Kind: "suspended", Object: pg.TxPath(id), Levers: []Lever{leverOf(id, "resume", "admin")}}
	var actor, reason string
	err := x.s.Pool().QueryRow(x.ctx,
		`SELECT actor, reason, at FROM postern.mark WHERE (queue_id, seq, kind) = ($1, $2, 'suspended')`, id.Queue,
		id.Seq).
		Scan(&actor, &reason, &b.Since)
	if pgdb.IsNoRows(err) {
		return false, nil
	}
	if err != nil {
		return false, pgdb.Known(err)
	}
	if actor, err = x.who(actor); err != nil {
		return false, err
	}
	b.Detail = pg.Because("suspended by "+cmp.Or(actor, "Postern"), reason)
	x.add(b)
	return true, nil
}

// parked says whether the head, in flight, is held before it would go out again, and by whom.
func (x *explain) parked() (bool, error) {
	if x.q.Marks == 0 || x.q.Node != 0 || x.due != nil {
		return false, nil
	}
	var parked bool
	if err := x.s.Pool().QueryRow(x.ctx, pg.ParkedSQL, x.q.ID, x.s.Conf.Resume, x.q.Prio,
		x.q.EnteredAt).Scan(&parked); err != nil || !parked {
		return false, pgdb.Known(err)
	}
	return x.suspended(x.head.ID)
}

// dependencies lists what a transaction waits for that is not DONE.
func (x *explain) dependencies(id outbox.ID) error {
	rows, err := x.s.Pool().Query(x.ctx, `SELECT v.queue_id, v.seq, v.day - '1970-01-01', postern.salt(v.received_at, v.moved_from), v.uid, v.state, t.created_at FROM postern.dependency d
		JOIN postern.task t ON (t.queue_id, t.seq, t.day) = (d.queue_id, d.seq, d.day)
		CROSS JOIN LATERAL (SELECT y.* FROM postern.tx y WHERE (y.queue_id, y.seq, y.day) = (d.on_queue, d.on_seq, d.on_day) OFFSET 0) v
		WHERE (d.queue_id, d.seq) = ($1, $2) AND v.state <> 'DONE' ORDER BY v.queue_id, v.seq`, id.Queue, id.Seq)
	if err != nil {
		return pgdb.Known(err)
	}
	var on outbox.ID
	var uid, state string
	var since time.Time
	var ons []outbox.ID
	var blockers []Blocker
	_, err = pgx.ForEachRow(rows, []any{&on.Queue, &on.Seq, &on.Day, &on.Salt, &uid, &state, &since}, func() error {
		ons = append(ons, on)
		blockers = append(blockers, Blocker{
			Kind:   "dependency",
			Object: pg.TxPath(on),
			Since:  since,
			Detail: fmt.Sprintf("depends on %s, which is %s", uid, state),
			Levers: []Lever{lookAt(on), leverOf(id, "cancel", "executor")},
		})
		return nil
	})
	if err != nil {
		return pgdb.Known(err)
	}
	for i, b := range blockers {
		x.add(b)
		if err := x.follow(ons[i]); err != nil {
			return err
		}
	}
	return nil
}

// who names an actor as people know it: an API key by its name.
func (x *explain) who(actor string) (string, error) {
	prefix, ok := strings.CutPrefix(actor, "key:")
	if !ok {
		return actor, nil
	}
	var name string
	err := x.s.Pool().QueryRow(x.ctx, `SELECT name FROM postern.api_key WHERE prefix = $1`, prefix).Scan(&name)
	if pgdb.IsNoRows(err) || err == nil && name == "" { // it was revoked, or has none
		return actor, nil
	}
	return name, pgdb.Known(err)
}

// summary is one sentence for people.
func (x *explain) summary(t *pg.Transaction) string {
	where := "unordered"
	if x.name != "" {
		where = "at the head of " + x.name
		if x.head.ID != t.ID {
			where = ordinal(x.ahead+1) + " in " + x.name
		}
	}
	root := x.blockers[min(x.before, len(x.blockers)-1)] // the first of the head's own is what people act on
	text := where + "; "
	if x.head.ID != t.ID {
		text += "its head: "
	}
	if last := x.blockers[len(x.blockers)-1]; last.followed {
		return text + named(root) + "; behind that: " + spoken(last)
	}
	return text + spoken(root)
}

// named is a blocker as a part of a sentence.
func named(b Blocker) string {
	return strings.ReplaceAll(b.Kind, "_", " ") + " since " + clockTime(b.Since) + ": " + b.Detail
}

// spoken is a blocker as a part of a sentence, with what ends it.
func spoken(b Blocker) string {
	text := named(b)
	if b.Next != nil {
		return text + "; " + b.Next.What + " at " + clockTime(b.Next.At)
	}
	if i := slices.IndexFunc(b.Levers, func(l Lever) bool { return !l.looks() }); i >= 0 {
		text += "; " + b.Levers[i].String() + " would change that"
	}
	return text
}

func stand(n int64) string {
	if n == 1 {
		return "1 stands"
	}
	return fmt.Sprintf("%d stand", n)
}

func ordinal(n int64) string {
	switch n {
	case 2:
		return "second"
	case 3:
		return "third"
	}
	return strconv.FormatInt(n, 10) + "th"
}

func clockTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// noRows makes "not found" a nil result.
func noRows(err error) error {
	if fault.KindOf(err) == fault.Internal && pgdb.IsNoRows(err) {
		return nil
	}
	return pgdb.Known(err)
}
