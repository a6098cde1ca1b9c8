package pg

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/sequencer"
)

// Part is what a process does with its connections all the time. A new connection has the plans of the statements
// that its parts need before it is used. Otherwise the first caller of each would wait some 10 ms, in which
// PostgreSQL reads the catalog of all partitions; the longest answers of an idle machine were such.
type Part int

const (
	Posts Part = 1 << iota // stores what is posted, and tells how it ends
	Works                  // claims and settles
)

// practiseFor is how long a connection practises at a time: where the server is slow, or opens many at once, it is used
// before it has done all, and goes on where it rests.
const practiseFor = 2 * time.Second

// rehearsals are the texts of the statements of each combination of parts in a span of days, which some of them name.
var rehearsals struct {
	sync.Mutex
	of map[rehearsalOf][]string
}

type rehearsalOf struct {
	part Part
	span db.Span
}

// rehearsed are the texts of the statements of p in a span that holds a day.
func rehearsed(p Part, span db.Span, now time.Time) []string {
	r := &rehearsals
	r.Lock()
	defer r.Unlock()
	if len(r.of) >= spannedMost || r.of == nil {
		r.of = map[rehearsalOf][]string{}
	}
	list, known := r.of[rehearsalOf{p, span}]
	if !known {
		var err error
		if list, err = rehearse(p, span, now); err != nil {
			slog.Error("statements are planned when they are first needed", "error", err)
		}
		r.of[rehearsalOf{p, span}] = list
	}
	return list
}

// spanOf reads the span of a day. A database that has none yet gives one of that day, which is made when it is needed.
func spanOf(ctx context.Context, c *pgx.Conn, day outbox.Day) (db.Span, error) {
	spans, err := db.ReadSpans(ctx, c)
	if i := slices.IndexFunc(spans, func(s db.Span) bool { return s.Has(day, day) }); i >= 0 {
		return spans[i], err
	}
	return db.Span{First: day, Last: day}, err
}

// practise makes a connection ready for what it will be used for. Each statement is planned in a transaction of its
// own, so that no lock on a table is kept for longer than one plan takes. It ends at the first statement that
// PostgreSQL refuses, since the database may not have our tables yet, or a pooler may not know prepared statements by
// their names. The other statements are then planned when they are used. It also ends, to go on later with those that
// are not prepared yet, when a caller wants the connection: after a restart of the server all that were open are gone,
// and the plans of many would keep its processors from the first answers.
func (p Part) practise(ctx context.Context, c *pgx.Conn, wanted func() bool) (whole bool, err error) {
	if p == 0 || c.Config().DefaultQueryExecMode != pgx.QueryExecModeCacheStatement { // else nothing is prepared, or not by name
		return true, nil
	}
	if wanted() {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, db.OpenWithin)
	defer cancel()
	began := time.Now()
	span, err := spanOf(ctx, c, outbox.DayOf(began))
	if err != nil {
		return true, unlessRefused(c, err)
	}
	list := rehearsed(p, span, began.UTC())
	done, _ := c.PgConn().CustomData()["planned"].(int)
	for n, sql := range list[min(done, len(list)):] {
		if wanted() || time.Since(began) > practiseFor {
			c.PgConn().CustomData()["planned"] = done + n
			return false, nil
		}
		d, err := c.Prepare(ctx, sql, sql)
		if err == nil && len(d.ParamOIDs) > 0 {
			plan := fmt.Sprintf("EXPLAIN (COSTS OFF) EXECUTE %s(NULL%s)", d.Name, strings.Repeat(", NULL", len(d.ParamOIDs)-1))
			_, err = c.PgConn().Exec(ctx, plan).ReadAll()
		}
		if err != nil {
			return true, unlessRefused(c, err)
		}
	}
	if p&Posts == 0 {
		return true, nil
	}
	for sql, args := range reads(span) {
		rows, err := c.Query(ctx, sql, args...)
		if err == nil {
			rows.Close()
			err = rows.Err()
		}
		if err != nil {
			return true, unlessRefused(c, err)
		}
	}
	return true, nil
}

// reads are the questions of a client about its transaction until that has ended, in a span, with arguments that find
// nothing. They are run, so that pgx has prepared them by itself and prepares them anew when they fail: a connection on
// which a read has changed is not closed. Those of all days are left out: few are asked, and their plans have each
// partition that is kept.
func reads(span db.Span) map[string][]any {
	return map[string][]any{
		OfSpan(unendedSQL, span):      {0, 0, time.Time{}, 0, 0},
		OfSpan(endedSQL, span):        {[]int64{}, []int64{}, []time.Time{}, []int32{}},
		OfSpan(TransactionsSQL, span): {0, []int64{}, []int64{}, []time.Time{}},
	}
}

// unlessRefused is err, or nil where PostgreSQL refused a statement and the connection can still be used.
func unlessRefused(c *pgx.Conn, err error) error {
	if e := (*pgconn.PgError)(nil); errors.As(err, &e) && !c.IsClosed() {
		return nil
	}
	return err
}

// rehearse returns the statements of a usual life, of one transaction and of several: it is posted, to a queue that
// is idle or not; it is taken or claimed; its end is settled, and another of its queue goes out under the same lease,
// or the queue is idle. Our own decisions queue these statements where there is no database, so the list is not kept
// by hand. Queues without a name are left out: their statements touch no partitions but those of tasks.
func rehearse(p Part, span db.Span, now time.Time) (texts []string, err error) {
	r := &rehearsal{p: p, b: &pgx.Batch{}, now: now, node: Node{ID: 1, Epoch: 1}}
	d := &Dispatcher{Dispatcher: outbox.DefaultDispatcher(), ID: 1, ContextID: 1}
	d.Type = "type"
	r.s = &Store{DB: &db.DB{}, Conf: newConf(nil)}
	r.s.Remember([]db.Span{span})
	r.s.Conf.put(&confView{begun: 1, byID: map[int32]*Dispatcher{1: d}, byType: map[int32]map[string]*Dispatcher{1: {d.Type: d}}})
	r.s.Conf.lanes.keep(laneKey{Dispatcher: 1}, 1)
	r.s.Conf.shared.Store(int32(1), laneKey{})
	r.s.Conf.Resume = 2
	r.b.Queue("BEGIN")
	r.b.Queue("COMMIT")
	for _, n := range []int{1, 2} {
		if p&Posts != 0 {
			err = cmp.Or(err, r.posts(n))
		}
		if p&Works != 0 {
			err = cmp.Or(err, r.claim(n), r.settle(n, false), r.settle(n, true))
		}
	}
	for _, q := range r.b.QueuedQueries {
		if !slices.Contains(texts, q.SQL) {
			texts = append(texts, q.SQL)
		}
	}
	return texts, err
}

type rehearsal struct {
	p    Part
	s    *Store
	b    *pgx.Batch
	now  time.Time
	node Node
}

// queues are n that had something earlier this day, and now have nothing.
func (r *rehearsal) queues(n int) (rows map[int64]*QueueRow) {
	rows = map[int64]*QueueRow{}
	for id := int64(1); id <= int64(n); id++ {
		day := outbox.DayOf(r.now)
		q := &QueueRow{ID: id, Context: 1, Named: true, Head: id + 1, Tail: id, HeadDay: day, TailDay: day, Fence: id, Was: outbox.PhaseDispatching,
			Phase: outbox.PhaseIdle, Attempt: 1, Prio: 1, EnteredAt: r.now.Add(-time.Duration(id) * time.Minute)}
		rows[id] = q.read()
	}
	return rows
}

func (r *rehearsal) effects() *effects {
	e := newEffects(r.s)
	e.now = r.now
	return e
}

// posts posts one to each of n queues, with a key and without, traced and not: to be claimed, or taken by this process.
func (r *rehearsal) posts(n int) (err error) {
	for _, sub := range []Submission{{}, {UID: "uid", Hash: []byte{1}}, {Traceparent: "00"}, {UID: "uid", Hash: []byte{1}, Traceparent: "00"}} {
		sub.ContextID, sub.Actor, sub.Type, sub.Data = 1, "actor", "type", json.RawMessage(`{}`)
		err = cmp.Or(err, r.post(n, sub, taking{}))
		if r.p&Works != 0 {
			err = cmp.Or(err, r.post(n, sub, taking{s: r.s, by: roomy{}, node: r.node, open: map[int32]bool{1: true}, quarantine: r.s.QuarantineView()}))
		}
	}
	return err
}

func (r *rehearsal) post(n int, like Submission, by taking) error {
	in := &ingest{s: r.s, e: r.effects(), queues: r.queues(n), names: map[nameKey]int64{},
		touched: map[int64]bool{}, keys: map[taskKey]keyRow{}, hashes: map[taskKey]keyRow{}, taking: by}
	var ids []int64
	var contexts []int32
	var uids []string
	for id, q := range in.queues {
		sub := like
		sub.Queue = fmt.Sprint("queue ", id)
		r.s.names.add(nameKey{1, sub.Queue}, id)
		if ids = append(ids, id); sub.UID != "" {
			sub.UID = fmt.Sprint("uid ", id)
			contexts, uids = append(contexts, 1), append(uids, sub.UID)
		}
		in.subs, in.out = append(in.subs, &sub), append(in.out, Accepted{})
		q.MaxDepth, q.before.MaxDepth = 10, 10
	}
	lockQueues(r.b, lockWaiting, ids, nil, map[int64]*QueueRow{})
	if len(uids) > 0 {
		r.b.Queue(knownSQL.Of(n), db.Argument(contexts), db.Argument(uids))
	}
	in.taking.readOpen(r.b, in.e.view, in.subs)
	r.s.takes.Store(false)
	r.s.ReadNow(r.b, &in.e.now)
	if err := in.decide(context.Background(), nil); err != nil {
		return err
	}
	for _, out := range in.out {
		if out.Err != nil {
			return out.Err
		}
	}
	in.write(r.b)
	in.e.write(r.b)
	behind := r.effects() // another one for each
	for _, q := range in.queues {
		q.read().Tail++
		behind.save(q)
	}
	behind.write(r.b)
	return nil
}

// claim looks for work and takes n.
func (r *rehearsal) claim(n int) error {
	r.s.names = names{} // of what others posted they are not known
	c := &claim{s: r.s, e: r.effects(), node: r.node, room: Room{Total: n}, candidates: map[int32][]*QueueRow{}, quarantine: r.s.QuarantineView()}
	l := &openLane{id: 1, kind: "dispatcher"}
	c.findLanes(r.b)
	r.b.Queue(liveNodeSQL, r.node.ID, r.node.Epoch, c.quarantine.number)
	c.lockLane(r.b, l, front{}, n)
	r.s.ReadNow(r.b, &c.e.now)
	rows, err := r.ready(n)
	for _, q := range rows {
		c.picks = append(c.picks, pick{q: q, lane: l})
	}
	c.write(r.b, newLoader(r.s, nil))
	return err
}

// ready are n queues that stand in their lane, each with two.
func (r *rehearsal) ready(n int) (list []*QueueRow, err error) {
	for id, q := range r.queues(n) {
		q.Tail += 2
		err = cmp.Or(err, r.effects().rest(q, r.task(id, q.Head), true))
		list = append(list, q.read())
	}
	return list, err
}

func (r *rehearsal) task(queue, seq int64) *Task {
	return &Task{ID: outbox.ID{Queue: queue, Seq: seq, Day: outbox.DayOf(r.now)}, ContextID: 1, Type: "type", Data: json.RawMessage(`{}`), CreatedAt: r.now}
}

// settle ends n transactions: each is the last of its queue, or another one follows.
func (r *rehearsal) settle(n int, follows bool) error {
	rows, err := r.ready(n)
	if err != nil {
		return err
	}
	var answers []*Answer
	var ids []int64
	for _, q := range rows {
		if !follows {
			q.Tail = q.Head
		}
		e := r.effects()
		e.own(q, r.node)
		e.dispatch(q)
		row := *q.read()
		l := &Lease{Task: r.task(q.ID, q.Head), Dispatcher: r.s.DispatcherOf(1, "type"), Fence: q.Fence, Phase: q.Phase, Attempt: 1, Since: r.now, ReadAt: r.now,
			got: time.Now(), tail: q.Tail, row: &row}
		if follows {
			l.ahead = []*Task{r.task(q.ID, q.Head+1)}
		}
		a := &Answer{Lease: l, StartedAt: r.now.Add(-time.Duration(q.ID) * time.Second), Continue: follows,
			Step: sequencer.Step{State: outbox.DONE, Then: sequencer.ThenEnd, Hook: outbox.OnSuccess}}
		a.Result.Done = json.RawMessage(`{}`)
		answers, ids = append(answers, a), append(ids, q.ID)
	}
	lockQueues(r.b, lockWaiting, ids, nil, map[int64]*QueueRow{}) // where memory was wrong
	st := newSettlement(r.s, answers)
	st.recall(r.b)
	for i, a := range answers {
		if err := st.answer(i, a); err != nil {
			return err
		}
	}
	st.e.write(r.b)
	for _, tell := range told {
		tell(r.b, News{Now: r.now, Outcomes: st.e.outcomes})
	}
	return nil
}

// told are what tellers add to the commits of an ordinary day: connections are made ready before a store has tellers.
var told []func(*pgx.Batch, News)

// Rehearsed registers what a teller adds to the commit of an ordinary end, from an init: connections that settle have
// its plans, too.
func Rehearsed(tell func(*pgx.Batch, News)) { told = append(told, tell) }

// roomy is a Taker that has room for all, and calls nothing.
type roomy struct{}

func (roomy) Taking() (Node, bool)     { return Node{}, true }
func (roomy) Begin() uint64            { return 0 }
func (roomy) End(uint64)               {}
func (roomy) Reserve(*Dispatcher) bool { return true }
func (roomy) Release(*Dispatcher)      {}
func (roomy) Start([]*Lease)           {}
func (roomy) Doubt(*Doubtful)          {}
