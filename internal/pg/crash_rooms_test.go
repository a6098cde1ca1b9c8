package pg_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/batches"
	"github.com/postern-dev/postern/internal/pg/channels"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/deliveries"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/pgtest/cut"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/processor"
)

// The crashes of crash_test.go, for the statements of channels, deliveries, events, batches, flows, messages,
// quarantine and retention: wherever one ends, the rows are those before it, those behind one of its commits, and never
// between; what it says is true; and the process that asks again gets the same end.

// roomTables are the tables that these statements change.
var roomTables = []string{"queue_name", "queue", "ready", "timer", "sender", "task", "outcome", "attempt", "delivery",
	"mark", "dependency", "ripple", "idempotency", "audit", "channel", "channel_message", "channel_message_end",
	"source",
	"event", "event_move", "event_drop", "tool", "subscription", "checkpoint", "fanout", "processor", "batch_line",
	"batch_place", "batch_call", "batch", "batch_action", "batch_callback", "batch_step",
	"runner", "flow", "job", "job_edge", "job_need", "job_due", "job_try", "try_late", "try_log", "flow_step",
	"message", "message_step", "message_late", "message_log", "message_stopped", "peer", "peer_secret",
	"batch_authorization", "dispatcher", "node", "store", "quarantine", "unreconciled", "retained"}

// uuids finds ids.
var uuids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// varies are the values that differ between two runs of one statement: times, clocks, and ids that are drawn or
// counted.
var varies = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.+]+|\d{12,}` +
	`|` + uuids.String() +
	`|"(subscription_id|queue_id|on_queue|tool_queue|result_queue|batch_id|audit_id|salt|on_salt|body_hash|draw|` +
	`quarantine_id|life|peer_id|dispatcher_id)"` +
	`:("[^"]*"|\d+)`)

// roomOp is what a process does in one step. anew: it is another request each time, so that it is not repeated. reacts:
// where one of its commits fails, it gives back what it has taken, or leaves it to the next step, so that its rows are
// not compared before that. then is this next step of the process. keeps reads what a repetition leaves as it is where
// all was done the first time, such as the ids of what was made. before brings what is no row, and was changed. unseen:
// it changes times alone, which are not compared.
type roomOp struct {
	name         string
	run          func(s *stores.Store) error
	anew, reacts bool
	then         func(s *stores.Store) error
	keeps        string
	before       func()
	unseen       bool
}

// room is a world whose second process goes through a cutter.
type room struct {
	*world
	cutter  *cut.Cutter
	store   *stores.Store
	pool    *pgxpool.Pool
	monitor *pgxpool.Pool
	begin   time.Time
	known   map[string]bool // the ids of the beginning
	tried   int
}

func newRoom(w *world) *room {
	w.T.Helper()
	url := w.url()
	r := &room{world: w, cutter: cut.New(w.T, url), begin: w.Now, monitor: w.Second(1),
		known: map[string]bool{}}
	var err error
	r.pool, err = pg.Connect(w.Ctx, r.cutter.URL(url), 2) // one to read by while another one writes
	w.Must(err)
	w.T.Cleanup(r.pool.Close)
	r.store, err = stores.Open(w.Ctx, r.pool, pgworld.Quiet)
	w.Must(err)
	r.store.SetNow(&w.Now)
	r.store.Messages.Open = w.S.Messages.Open
	for _, table := range roomTables {
		w.Exec(`CREATE TABLE public.base_` + table + ` AS TABLE postern.` + table)
	}
	for _, line := range r.lines() {
		for _, id := range uuids.FindAllString(line, -1) {
			r.known[id] = true
		}
	}
	return r
}

// back brings the rows of the beginning again, and has the process read the configuration that they say.
func (r *room) back(o roomOp) {
	r.T.Helper()
	r.fill()
	r.At(r.begin)
	if o.before != nil {
		o.before()
	}
	b := &pgx.Batch{}
	for _, table := range roomTables {
		columns := given(r.T, r.Ctx, r.monitor, table)
		b.Queue(`DELETE FROM postern.` + table)
		b.Queue(`INSERT INTO postern.` + table + ` (` + columns + `) OVERRIDING SYSTEM VALUE SELECT ` + columns +
			` FROM public.base_` + table)
	}
	r.Must(r.monitor.SendBatch(r.Ctx, b).Close())
	r.Must(r.store.Refresh(r.Ctx))
}

// fill has the connections of the process open: to open one takes statements, too.
func (r *room) fill() {
	for db.Fill(r.Ctx, r.pool) < int(r.pool.Config().MaxConns) {
		time.Sleep(time.Millisecond)
	}
}

// rows are all rows, a line each, without what varies: an id that was there at the beginning does not.
func (r *room) rows() string {
	r.T.Helper()
	lines := r.lines()
	for i, l := range lines {
		lines[i] = varies.ReplaceAllStringFunc(l, func(found string) string {
			if r.known[found] {
				return found
			}
			return "*"
		})
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// lines are all rows as they are.
func (r *room) lines() []string {
	r.T.Helper()
	var parts []string
	for _, table := range roomTables {
		parts = append(parts, `SELECT '`+table+` ' || row_to_json(t)::text FROM postern.`+table+` t`)
	}
	got, err := r.monitor.Query(r.Ctx, strings.Join(parts, "\nUNION ALL "))
	r.Must(err)
	lines, err := pgx.CollectRows(got, pgx.RowTo[string])
	r.Must(err)
	return lines
}

// undisturbed runs a statement twice without a crash, and notes the rows behind each commit of the second time.
func (r *room) undisturbed(o roomOp) (w worlds) {
	r.T.Helper()
	for range 2 {
		r.back(o)
		w = worlds{rows: []string{r.rows()}}
		r.cutter.Arm(nil, func(_ bool, statements int) {
			now, first := r.rows(), 1
			if n := len(w.txns); n > 0 {
				first = w.txns[n-1].last + 1
			}
			if statements < first {
				return
			}
			w.txns = append(w.txns, txn{first, statements, now != w.last()})
			if now != w.last() {
				w.rows = append(w.rows, now)
			}
		})
		err := o.run(r.store)
		r.cutter.Disarm()
		if err != nil {
			r.T.Fatalf("%s: %v", o.name, err)
		}
	}
	return w
}

// crash runs a statement that is cut at a point, judges what that left, and does it again.
func (r *room) crash(o roomOp, w worlds, at cut.Point) (hit bool) {
	r.T.Helper()
	r.back(o)
	heard := w.rows[0]
	r.cutter.Arm(&at, func(told bool, _ int) {
		if told {
			heard = r.rows()
		}
	})
	err := o.run(r.store)
	killed := r.cutter.Disarm()
	if len(killed) == 0 {
		return false
	}
	r.tried++
	r.untilGone(killed)
	got := r.rows()
	name := fmt.Sprintf("%s, cut %s statement %d of %v (fatal: %v), says %v", o.name, at.Where, at.Statement, w.txns,
		at.Fatal, err)
	unknown := err != nil && strings.Contains(err.Error(), "did not say whether")
	switch {
	case o.reacts: // the invariants hold, and what comes of it is compared below
	case !slices.Contains(w.rows, got):
		r.T.Errorf("%s, and leaves what is neither before nor after:%s", name, difference(w.last(), got))
	case err == nil && got != w.last():
		r.T.Errorf("%s, and it is not done:%s", name, difference(w.last(), got))
	case err != nil && !unknown && got != heard:
		r.T.Errorf("%s, and yet it changed:%s", name, difference(heard, got))
	}
	pgworld.HoldsTrue(r.T, r.Ctx, r.monitor)
	if !o.anew && !r.T.Failed() {
		r.again(o, w, got, name)
	}
	return true
}

// again does a statement once more that has left some rows, as the process does that was cut off.
func (r *room) again(o roomOp, w worlds, got, name string) {
	r.T.Helper()
	r.fill()
	var kept []string
	if o.keeps != "" && got == w.last() {
		kept = r.Lines(o.keeps)
	}
	err := o.run(r.store)
	if err == nil && o.then != nil {
		err = o.then(r.store)
	}
	if err != nil {
		r.T.Errorf("%s, and again: %v", name, err)
	}
	if got := r.rows(); once(got) != once(w.last()) {
		r.T.Errorf("%s, and again, which is not as if it had been done once:%s", name, difference(w.last(), got))
	}
	if kept != nil && !slices.Equal(r.Lines(o.keeps), kept) {
		r.T.Errorf("%s, and again, which makes %v of %v", name, r.Lines(o.keeps), kept)
	}
	pgworld.HoldsTrue(r.T, r.Ctx, r.monitor)
}

func (r *room) untilGone(pids []uint32) {
	r.T.Helper()
	ids := make([]int32, len(pids))
	for i, pid := range pids {
		ids[i] = int32(pid)
	}
	for n := 1; n > 0; {
		r.Must(r.monitor.QueryRow(r.Ctx, `SELECT count(*) FROM pg_stat_activity WHERE pid = ANY ($1)`, ids).Scan(&n))
	}
}

// conduit is the channel of a room, as a process has it.
func (w *world) conduit(s *stores.Store) *channels.Conduit[pgworld.Note] {
	c, err := channels.OpenConduit[pgworld.Note](w.Ctx, s.Channels, w.ID, "c")
	if err != nil {
		return nil // the connection was cut at the read
	}
	return c
}

var errCut = errors.New("the channel could not be read")

// of runs something on the channel of a process.
func (w *world) of(do func(context.Context, *channels.Conduit[pgworld.Note]) error) func(*stores.Store) error {
	return func(s *stores.Store) error {
		c := w.conduit(s)
		if c == nil {
			return errCut
		}
		return do(w.Ctx, c)
	}
}

type conduit = channels.Conduit[pgworld.Note]

func noted(id string) channels.Outgoing[pgworld.Note] {
	return channels.Outgoing[pgworld.Note]{ID: id, Payload: pgworld.Note{N: 1}}
}

// rooms are the stages, and the statements that are tried in each.
var rooms = map[string]func(w *world) []roomOp{
	"flows":      flowRoom,
	"changed":    changedFlowRoom,
	"results":    resultRoom,
	"callbacks":  callbackRoom,
	"sent":       sentRoom,
	"messages":   messageRoom,
	"arrivals":   arrivalRoom,
	"peers":      peerRoom,
	"far jobs":   farJobRoom,
	"quarantine": quarantineRoom,
	"retention":  retentionRoom,
	"channels": func(w *world) []roomOp {
		n := w.Node("n")
		c := w.Conduit(w.S, func(c *channels.ChannelSettings) { c.Capacity, c.MaxRetries = 3, 2 })
		pgworld.Sent(w.T, c, "a", "b", "c", "d")
		held := pgworld.Received(w.T, c, n, 1)[0]
		w.Later(time.Hour)
		return []roomOp{
			{name: "send", run: w.of(func(ctx context.Context, c *conduit) error {
				_, err := c.Send(ctx, noted("x"), noted("d"))
				return err
			})},
			{name: "receive", run: w.of(func(ctx context.Context, c *conduit) error {
				_, err := c.Receive(ctx, n, 5)
				return err
			})},
			{name: "ack", run: w.of(func(ctx context.Context, c *conduit) error {
				_, err := c.Ack(ctx, held.ID, held.Fence)
				return err
			})},
			{name: "nack", anew: true, run: w.of(func(ctx context.Context, c *conduit) error {
				return c.Nack(ctx, held.ID, held.Fence, "not now")
			})},
			{name: "sweep", run: w.of(func(ctx context.Context, c *conduit) error {
				_, err := c.Sweep(ctx)
				return err
			})},
			{name: "retry", anew: true, run: w.of(func(ctx context.Context, c *conduit) error {
				_, err := c.Retry(ctx, 0)
				return err
			})},
		}
	},
	"deliveries": func(w *world) []roomOp {
		w.Dispatcher("T", nil)
		n := w.Node("n")
		sub := w.Subscribe(outbox.Subscription{Name: "s", Kind: "pull"})
		read := w.Subscribe(outbox.Subscription{Name: "r", Kind: "pull"})
		acked := w.Subscribe(outbox.Subscription{Name: "acked", Kind: "pull"})
		hook := w.Subscribe(outbox.Subscription{Name: "hook", Kind: "webhook"})
		w.CalledBack(n, "q", "a", "http://127.0.0.1:1/a")
		w.CalledBack(n, "q", "b", "http://127.0.0.1:1/a")
		w.CalledBack(n, "p", "c", "http://127.0.0.1:1/a")
		w.CalledBack(n, "p", "d", "http://127.0.0.1:1/a")
		w.Exec(`UPDATE postern.delivery SET state = 'delivered', next_at = NULL, ended_at = at
			WHERE subscription_id = -1
				AND (queue_id, seq) IN (SELECT t.queue_id, t.seq FROM postern.task t WHERE t.uid = 'c')`)
		w.Number(w.S, read.ID)
		w.Number(w.S, acked.ID)
		list, _, err := w.S.Deliveries.Feed(w.Ctx, acked.ID, nil, 0, 10)
		w.Must(err)
		_, err = w.S.Deliveries.AckFeed(w.Ctx, w.ID, "acked",
			deliveries.Cursor{Subscription: acked.ID, Position: list[len(list)-1].Position}.String())
		w.Must(err)
		w.Number(w.S, hook.ID)
		w.Exec(`UPDATE postern.delivery SET state = 'failed', next_at = NULL, ended_at = at, error = 'refused'
			WHERE subscription_id = $1`, hook.ID)
		w.Later(time.Minute)
		position := deliveries.Cursor{Subscription: read.ID, Position: 1}.String()
		return []roomOp{
			{name: "ack", run: func(s *stores.Store) error {
				_, err := s.Deliveries.AckFeed(w.Ctx, w.ID, "r", position)
				return err
			}},
			{name: "number", run: func(s *stores.Store) error {
				_, err := s.Deliveries.Deliver(w.Ctx, sub.ID, nil, 0)
				return err
			}},
			{name: "hand out callbacks", anew: true, run: func(s *stores.Store) error {
				_, err := s.Deliveries.Deliver(w.Ctx, deliveries.CallbackTrack, nil, 10)
				return err
			}},
			{name: "release callbacks", run: func(s *stores.Store) error {
				_, err := s.Deliveries.ReleaseCallbacks(w.Ctx)
				return err
			}},
			{name: "subscribe", run: func(s *stores.Store) error {
				_, err := s.Deliveries.PutSubscription(w.Ctx, w.By,
					outbox.Subscription{Name: "t", Kind: "pull", OnError: "skip"}, nil, 0)
				return err
			}},
			{name: "rewind", run: func(s *stores.Store) error {
				_, err := s.Deliveries.RewindFeed(w.Ctx, w.By, "acked", time.Time{})
				return err
			}},
			{name: "redeliver", run: func(s *stores.Store) error {
				_, err := s.Deliveries.Redeliver(w.Ctx, w.By, "hook", time.Time{}, w.Now, false)
				return err
			}},
		}
	},
	"events": func(w *world) []roomOp {
		n := w.Node("n")
		w.Dispatcher(leader.TypeResult, nil)
		source := leader.Source{
			Name:   "app",
			Kind:   "push",
			Map:    leader.SourceMap{FQN: "/tool"},
			Buffer: 2,
		}.WithDefaults()
		_, err := w.S.Events.PutSource(w.Ctx, w.By, source, 0)
		w.Must(err)
		item := func(id string) leader.Item {
			return leader.Item{Identity: id, JSON: json.RawMessage(`{"tool":"xyz.labs.add@1"}`), FQN: "xyz.labs.add@1"}
		}
		push := func(s *stores.Store, ids ...string) error {
			var items []leader.Item
			for _, id := range ids {
				items = append(items, item(id))
			}
			_, err := s.Events.PushEvents(w.Ctx, w.By, "app", items, nil)
			return err
		}
		w.Must(push(w.S, "a", "b"))
		w.Source(nil)
		w.Later(time.Minute)
		leased, _, err := w.S.Events.LeaseSources(w.Ctx, n, 1, time.Hour)
		w.Must(err)
		page := leader.Page{Items: []leader.Item{item("x"), item("y")}, Cursor: json.RawMessage(`"2"`)}
		return []roomOp{
			{name: "store a page", anew: true, run: func(s *stores.Store) error {
				_, err := s.Events.StorePage(w.Ctx, leased[0], page)
				return err
			}},
			{name: "push", run: func(s *stores.Store) error { return push(s, "b", "c") }},
			{name: "take", reacts: true, run: func(s *stores.Store) error {
				work, err := s.Events.LeaderWork(w.Ctx)
				if err == nil {
					_, err = s.Events.TakeEvents(w.Ctx, work, n)
				}
				return err
			}},
		}
	},
	"batches": func(w *world) []roomOp {
		w.By.Actor = "owner"
		_, err := w.S.Batches.PutProcessor(w.Ctx, w.By,
			batches.Processor{Name: "main", Owner: "owner", TickInterval: time.Second}, 0)
		w.Must(err)
		w.Dispatcher("ADD", func(d *outbox.Dispatcher) { d.Capabilities = []string{"atomic"} })
		n := w.Node("n")
		put := func(s *stores.Store) error {
			shape := processor.MessageDetails{Message: processor.MessageShape{Name: "add"}}
			f := processor.Function{Domain: "main", ContractAddress: "ADD", MessageDetails: shape}
			a := processor.Actions{Atomic: &processor.Subroutine{Functions: []processor.Function{f}}}
			m := []processor.Message{{Msg: json.RawMessage(`{"add":{"i":1}}`)}}
			_, err := s.Batches.Enqueue(w.Ctx, w.By, "main", batches.NewBatch{Actions: a, Messages: m})
			return err
		}
		advance := func(s *stores.Store) error { return s.Batches.AdvanceProcessor(w.Ctx, w.ID, "main") }
		w.Must(put(w.S))
		w.Must(put(w.S))
		w.Later(2 * time.Second)
		_, err = w.S.Batches.Tick(w.Ctx, w.By, "main")
		w.Must(err)
		for _, l := range w.Claim(n, pgworld.Everything()) {
			w.Settle(w.Answer(l, pgworld.Done()))
		}
		w.Later(2 * time.Second)
		return []roomOp{
			{name: "enqueue", anew: true, run: put},
			{name: "advance", run: advance},
			{name: "tick", reacts: true, then: advance, run: func(s *stores.Store) error {
				_, err := s.Batches.TickDue(w.Ctx, w.By, "main")
				return err
			}},
			{name: "pause", run: func(s *stores.Store) error {
				_, err := s.Batches.PauseProcessor(w.Ctx, w.By, "main", true)
				return err
			}},
		}
	},
}

func TestACrashAnywhereInTheRooms(t *testing.T) {
	t.Parallel()
	for name, set := range rooms {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.atNoon()
			ops := set(w)
			oneDay(t, w)
			r := newRoom(w)
			for _, o := range ops {
				if !everyPoint() && !pgtest.Turn(name+" "+o.name) {
					continue
				}
				seen := r.undisturbed(o)
				if len(seen.rows) < 2 && !o.unseen {
					t.Errorf("%s changes nothing", o.name)
				}
				points, missed := seen.points(everyPoint()), 0
				for _, at := range points {
					if !r.crash(o, seen, at) {
						missed++
					}
					if t.Failed() {
						t.FailNow()
					}
				}
				if len(points) == 0 || missed*2 > len(points) {
					t.Errorf("%s: %d of %d points were not reached", o.name, missed, len(points))
				}
			}
			t.Logf("%d crashes", r.tried)
		})
	}
}
