package pg

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/sequencer"
)

// Part is what a process does with its connections all the time. Of the statements that this takes a new connection has the
// plans before it is used: whoever meets it first would wait some 10 ms for them, in which it reads the catalog of all
// partitions, and an idle machine's longest answers were such.
type Part int

const (
	Posts Part = 1 << iota // stores what is posted
	Works                  // claims and settles
)

// kept is how many connections a process of these parts keeps open: as many as are in use at the same time when it begins to
// be busy, so that none has to be opened then.
func (p Part) kept() (n int32) {
	if p&Posts != 0 {
		n += 2 // flights of ingests
	}
	if p&Works != 0 {
		n += 4 // a claim, two flights of settlements, and what looks around
	}
	return n
}

// rehearsed are the texts of the statements of each combination of parts.
var rehearsed = map[Part]func() []string{
	Posts:         sync.OnceValue(func() []string { return rehearse(Posts) }),
	Works:         sync.OnceValue(func() []string { return rehearse(Works) }),
	Posts | Works: sync.OnceValue(func() []string { return rehearse(Posts | Works) }),
}

// practise makes a connection ready for what it will be used for. What PostgreSQL refuses is left: the database may not have
// our tables yet, or something between may not know prepared statements by their names. The statements are then met later.
func (p Part) practise(ctx context.Context, c *pgx.Conn) error {
	if p == 0 {
		return nil
	}
	var plans strings.Builder
	for _, sql := range rehearsed[p]() {
		d, err := c.Prepare(ctx, sql, sql)
		if err != nil {
			return unlessRefused(err)
		}
		if len(d.ParamOIDs) > 0 {
			fmt.Fprintf(&plans, "EXPLAIN (COSTS OFF) EXECUTE %s(NULL%s);", d.Name, strings.Repeat(", NULL", len(d.ParamOIDs)-1))
		}
	}
	_, err := c.PgConn().Exec(ctx, plans.String()).ReadAll()
	return unlessRefused(err)
}

func unlessRefused(err error) error {
	if e := (*pgconn.PgError)(nil); errors.As(err, &e) {
		return nil
	}
	return err
}

// rehearse returns the statements of a usual life, of one transaction and of several: it is posted, to a queue that is idle or not; it
// is taken or claimed; its end is settled, and another of its queue goes out under the same lease, or the queue is idle. Nobody
// lists them by hand: they are what our own decisions queue where there is no database.
func rehearse(p Part) (texts []string) {
	r := &rehearsal{p: p, b: &pgx.Batch{}, now: time.Now().UTC(), node: Node{ID: 1, Epoch: 1}}
	d := &Dispatcher{Dispatcher: outbox.DefaultDispatcher(), ID: 1, ContextID: 1}
	d.Type = "type"
	r.s = &Store{conf: newConf(), names: names{ids: map[nameKey]int64{}, keys: map[int64]nameKey{}}}
	r.s.conf.put(&confView{begun: 1, byID: map[int32]*Dispatcher{1: d}, byType: map[int32]map[string]*Dispatcher{1: {d.Type: d}}})
	r.s.conf.lanes.Store(laneKey{Dispatcher: 1}, int32(1))
	r.s.conf.shared.Store(int32(1), true)
	r.s.conf.resume = 2
	r.b.Queue("BEGIN")
	r.b.Queue("COMMIT")
	for _, n := range []int{1, 2} {
		if p&Posts != 0 {
			r.post(n)
		}
		if p&Works != 0 {
			r.claim(n)
			r.settle(n)
		}
	}
	for _, q := range r.b.QueuedQueries {
		if !slices.Contains(texts, q.SQL) {
			texts = append(texts, q.SQL)
		}
	}
	return texts
}

type rehearsal struct {
	p    Part
	s    *Store
	b    *pgx.Batch
	now  time.Time
	node Node
}

// queues are n that had something earlier this day, and now have nothing.
func (r *rehearsal) queues(n int) (rows map[int64]*queueRow) {
	rows = map[int64]*queueRow{}
	for id := int64(1); id <= int64(n); id++ {
		day := outbox.DayOf(r.now)
		q := &queueRow{ID: id, Context: 1, Named: true, Head: id + 1, Tail: id, HeadDay: day, TailDay: day, Fence: id, Was: outbox.PhaseDispatching,
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

// post posts one to each of n queues, with a key and without: to idle ones, to others, and to those that this process takes.
func (r *rehearsal) post(n int) {
	for _, taken := range []bool{false, true} {
		if taken && r.p&Works == 0 {
			continue
		}
		for _, uid := range []string{"", "uid"} {
			in := &ingest{s: r.s, e: r.effects(), queues: r.queues(n)}
			in.touched, in.keys, in.hashes = map[int64]bool{}, map[taskKey]keyRow{}, map[taskKey]keyRow{}
			if taken {
				in.taking = taking{s: r.s, by: seated{}, node: r.node, open: map[int32]bool{1: true}}
			}
			var ids []int64
			var contexts []int32
			var uids []string
			for id, q := range in.queues {
				ids, contexts, uids = append(ids, id), append(contexts, 1), append(uids, uid)
				name := fmt.Sprint("queue ", id)
				r.s.names.add(nameKey{1, name}, id)
				sub := &Submission{ContextID: 1, Queue: name, Actor: "actor", Type: "type", Data: json.RawMessage(`{}`)}
				if uid != "" {
					sub.UID, sub.Hash = fmt.Sprint(uid, id), []byte{1}
				}
				in.subs, in.out = append(in.subs, sub), append(in.out, Accepted{})
				q.MaxDepth, q.before.MaxDepth = 10, 10
			}
			lockQueues(r.b, lockWaiting, ids, map[int64]*queueRow{})
			if uid != "" {
				r.b.Queue(knownSQL.of(n), argument(contexts), argument(uids))
			}
			if taken {
				in.taking.look(r.b, in.subs)
				r.s.takes.Store(false)
			}
			r.s.readNow(r.b, &in.e.now)
			if in.decide(context.Background(), nil) != nil {
				return
			}
			in.write(r.b)
			in.e.write(r.b)
			for _, q := range in.queues { // one more, behind it
				q.read().Tail++
			}
			more := r.effects()
			for _, q := range in.queues {
				more.save(q)
			}
			more.write(r.b)
		}
	}
}

// claim looks for work and takes n.
func (r *rehearsal) claim(n int) {
	r.s.names = names{ids: map[nameKey]int64{}, keys: map[int64]nameKey{}} // of what others posted they are not known
	c := &claim{s: r.s, e: r.effects(), node: r.node, room: Room{Total: n}, candidates: map[int32][]*queueRow{}}
	c.findLanes(r.b)
	r.b.Queue(liveNodeSQL, r.node.ID, r.node.Epoch)
	c.lockLane(r.b, &openLane{id: 1, kind: "dispatcher"}, front{}, n)
	r.s.readNow(r.b, &c.e.now)
	for _, q := range r.ready(n) {
		c.picks = append(c.picks, pick{q: q, lane: &openLane{id: 1, kind: "dispatcher"}})
	}
	load := newLoader(r.s, nil)
	c.write(r.b, load)
}

// ready are n queues that stand in their lane, each with two.
func (r *rehearsal) ready(n int) (list []*queueRow) {
	for id, q := range r.queues(n) {
		q.Tail += 2
		e := r.effects()
		if e.rest(q, r.task(id, q.Head), true) == nil {
			list = append(list, q.read())
		}
	}
	return list
}

func (r *rehearsal) task(queue, seq int64) *Task {
	return &Task{ID: outbox.ID{Queue: queue, Seq: seq, Day: outbox.DayOf(r.now)}, ContextID: 1, Type: "type", Data: json.RawMessage(`{}`), CreatedAt: r.now}
}

// settle ends n transactions: each is the last of its queue, or another one follows.
func (r *rehearsal) settle(n int) {
	for _, follows := range []bool{false, true} {
		for _, result := range []string{"", "{}"} {
			var answers []*Answer
			for _, q := range r.ready(n) {
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
				a := &Answer{Lease: l, Step: sequencer.Step{State: outbox.DONE, Then: sequencer.ThenEnd, Hook: outbox.OnSuccess}, StartedAt: r.now.Add(-time.Duration(q.ID) * time.Second), Continue: follows}
				a.Result.Done = json.RawMessage(result)
				answers = append(answers, a)
			}
			st := newSettlement(r.s, answers)
			st.recall(r.b)
			for i, a := range answers {
				if st.settle(i, a) != nil {
					return
				}
			}
			st.e.write(r.b)
		}
	}
}

// seated is a Taker that has room for all, and calls nothing.
type seated struct{}

func (seated) Taking() (Node, bool)  { return Node{}, true }
func (seated) Seat(*Dispatcher) bool { return true }
func (seated) Rise(*Dispatcher)      {}
func (seated) Fly(*Lease)            {}
func (seated) Doubt(*Doubtful)       {}
