package domains_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/domains"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// world is a domain tok of one installation, whose service and core the test plays.
type world struct {
	*pgworld.World
	core   *stores.Store // of the process that sends public transactions
	node   pg.Node
	inputs map[string][]string // what an intent is to spend, by its data
	plan   string              // of what is assembled; "": the owner signs, and one endorses
	fails  map[string]string   // calls that are answered with an error
	took   []time.Duration     // of each step
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	w := &world{World: pgworld.New(t), inputs: map[string][]string{}}
	w.Dispatcher("TOK", func(d *outbox.Dispatcher) { d.Slots = 10 })
	w.core, w.node = w.Another(2), w.Node("core")
	w.S.Domains.Self = func() int64 { return w.node.ID }
	set := domains.Default()
	set.Types, set.ServiceURL, set.Nodes = []string{"TOK"}, "http://127.0.0.1:1", []string{"self"}
	set.Heartbeat, set.RequestTimeout, set.StateTimeout = second, second, 3*second
	_, err := w.S.Domains.Put(w.Ctx, w.By, "tok", set, 0)
	w.Must(err)
	return w
}

const second = outbox.Duration(time.Second)

func (w *world) id() (id int32) {
	w.Scan(`SELECT domain_id FROM postern.domain`, &id)
	return id
}

func (w *world) submit(s *stores.Store, data string, on ...string) (*domains.Intent, error) {
	list, err := s.Domains.Submit(w.Ctx, w.By, "tok", []domains.NewIntent{
		{UID: data, Party: "ann", Data: json.RawMessage(`"` + data + `"`), DependsOn: on},
	}, func(int) string { return "" })
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

func (w *world) post(data string, on ...string) *domains.Intent {
	w.T.Helper()
	i, err := w.submit(w.S, data, on...)
	w.Must(err)
	return i
}

// planOf has the owner of one node sign, and the notary of another one endorse.
func planOf(owner, notary string) string {
	return fmt.Sprintf(`[{"name": "owner", "type": "sign", "parties": ["ann@%s"]},
		{"name": "notary", "type": "endorse", "parties": ["nan@%s"]}]`, owner, notary)
}

// answer is what the service says to a call: the same key, the same answer.
func (w *world) answer(c *domains.Call) domains.Event {
	if why := w.fails[c.Kind]; why != "" {
		return c.Failed(why)
	}
	var all []json.RawMessage
	for _, r := range c.Requests {
		var q struct {
			Intent struct {
				ID   string
				Data string
			}
		}
		_ = json.Unmarshal(r.Body, &q)
		body := `{"signature": "s", "endorsement": "e", "type": "TOK", "data": {}, "items": [{"state": "unknown"}]}`
		if c.Kind == "assemble" && strings.HasPrefix(q.Intent.Data, "park ") {
			body = `{"result": "PARK", "reason": "no address yet"}`
		} else if c.Kind == "assemble" {
			in, _ := json.Marshal(w.inputs[q.Intent.Data])
			plan := w.plan
			if plan == "" {
				plan = planOf("self", "self")
			}
			body = fmt.Sprintf(`{"result": "OK", "inputs": %s, "outputs": [{"id": "of %s"}], "plan": %s}`, in,
				q.Intent.ID, plan)
		}
		all = append(all, json.RawMessage(body))
	}
	e, err := c.Read(all)
	w.Must(err)
	return e
}

// turn has a process do all that it can, once. The core is another process.
func (w *world) turn(ctx context.Context, s *stores.Store, node pg.Node) error {
	err := w.steps(ctx, s, node)
	if err == nil {
		_, err = s.Domains.PostActivities(ctx, 0)
	}
	return err
}

// steps is a turn that posts nothing to the core.
func (w *world) steps(ctx context.Context, s *stores.Store, node pg.Node) error {
	d := s.Domains
	calls, err := d.ClaimCalls(ctx, node.ID, nil, 100)
	if err != nil {
		return err
	}
	events := map[int32][]domains.Event{}
	for _, c := range calls {
		events[c.Domain] = append(events[c.Domain], w.answer(c))
	}
	words, err := d.Words(ctx)
	if err != nil {
		return err
	}
	for id, list := range words {
		events[id] = append(events[id], list...)
	}
	due, _, err := d.Due(ctx)
	if err != nil {
		return err
	}
	for _, id := range due {
		events[id] = append(events[id], domains.Event{})
	}
	for id, list := range events {
		begun := time.Now()
		if _, err := d.Step(ctx, id, list); err != nil {
			return err
		}
		w.took = append(w.took, time.Since(begun))
	}
	return nil
}

// send has the core send what was posted, and end it.
func (w *world) send() {
	w.T.Helper()
	w.Must(w.core.Refresh(w.Ctx))
	leases, _, err := w.core.Claim(w.Ctx, w.node, pgworld.Everything())
	w.Must(err)
	var answers []*pg.Answer
	for _, l := range leases {
		answers = append(answers, w.Answer(l, pgworld.Done()))
	}
	_, err = w.core.Settle(w.Ctx, answers)
	w.Must(err)
}

// finish goes on until all intents have ended.
func (w *world) finish() {
	w.T.Helper()
	for range 60 {
		w.Must(w.turn(w.Ctx, w.S, w.node))
		w.send()
		if w.open() == 0 {
			return
		}
		w.Later(300 * time.Millisecond)
	}
	w.T.Fatalf("it does not end: %s", strings.Join(w.history(), "\n"))
}

func (w *world) open() (n int) {
	w.Scan(`SELECT count(*) FROM postern.coord_intent WHERE ended_at IS NULL`, &n)
	return n
}

func (w *world) history() []string {
	return w.Lines(`SELECT machine || ' ' || was || ' -> ' || state || ' by ' || event || ' ' || reason
		FROM postern.coord_step ORDER BY n`)
}

func (w *world) receipts() []string {
	return w.Lines(`SELECT coalesce(receipt, state) || ' ' || text FROM postern.coord_intent ORDER BY seq`)
}

// publics are the transactions of the core for intents, and activities say of what generations.
func (w *world) publics() (n, activities int) {
	w.Scan(`SELECT (SELECT count(*) FROM postern.task WHERE uid LIKE ':coord:%'),
		(SELECT count(*) FROM postern.coord_activity)`, &n, &activities)
	return n, activities
}
