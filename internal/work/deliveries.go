package work

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/backoff"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/safe"
)

// A delivery that fails is tried for three days, at growing intervals (S2.12).
const (
	deliverFirst  = time.Second
	deliverMost   = time.Hour
	deliverGiveUp = 72 * time.Hour
)

// How many deliveries of a track a node has out at a time: workers take more than somebody's endpoint.
const (
	hooksAt    = 64
	webhooksAt = 16
)

// deliverEvery is how often a node looks for events to number and deliveries to make that it was not rung
// for: what another process did, and what is tried again.
const deliverEvery = 250 * time.Millisecond

// deliverRest is between two such looks, however often it is rung.
const deliverRest = 25 * time.Millisecond

// hooksLinger is how long what became of a few hooks waits for more of it, and for more that is due. Nothing waits for a hook, and each record is a
// commit beside those that something waits for. Other tracks do not linger: the next of a queue goes out behind a record.
const hooksLinger = 20 * time.Millisecond

// DeliveriesConfig is how deliveries reach endpoints. The hooks of workers go to the worker of the Node.
type DeliveriesConfig struct {
	Webhook    func(context.Context, remote.Message) remote.Receipt // calls endpoints; nil: this process calls none
	SigningKey ed25519.PrivateKey                                   // signs webhooks besides their secrets; nil: none
}

// Deliveries looks after what is delivered: the hooks of workers, the callbacks of transactions, and subscriptions.
type Deliveries struct {
	*Node
	DeliveriesConfig
	ring func()        // has the engine look for work
	bell chan struct{} // there may be a delivery
}

// NewDeliveries makes what looks after deliveries in the process of an engine.
func NewDeliveries(e *Engine, c DeliveriesConfig) *Deliveries {
	return &Deliveries{Node: e.Node, DeliveriesConfig: c, ring: e.Ring, bell: make(chan struct{}, 1)}
}

// System is what the engine runs of it.
func (e *Deliveries) System() System {
	release := sparing(func(ctx context.Context) error { _, err := e.Store.ReleaseCallbacks(ctx); return err })
	return System{
		Name:  "deliveries",
		Loops: []Loop{e.loop()},
		Jobs: []Job{{Kind: "callback", Every: 5 * time.Second, Run: func(ctx context.Context) error {
			e.ring()
			return release(ctx)
		}}},
		Sweep: e.Store.TidySubscriptions,
		Round: e.DeliverOnce,
		Ring:  func() { knock(e.bell) },
	}
}

// loop keeps a track going wherever there is something to do: the hooks of workers, the callbacks of
// transactions, and each subscription. Tracks do not wait for each other, so an endpoint that hangs holds
// up no other's events.
func (e *Deliveries) loop() Loop {
	var mu sync.Mutex
	var tracks sync.WaitGroup
	running := map[int32]bool{}
	run := func(ctx context.Context, track int32) {
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			delete(running, track)
		}()
		e.runTrack(ctx, track)
	}
	return Loop{
		Name:  "deliveries",
		Does:  "deliveries",
		Every: deliverEvery,
		Bell:  e.bell,
		Rest:  deliverRest,
		Once: func(ctx context.Context) (Turn, error) {
			busy, err := e.Store.Busy(ctx)
			mu.Lock()
			defer mu.Unlock()
			for _, track := range busy {
				if !running[track] {
					running[track] = true
					tracks.Go(safe.Func("track", func() { run(ctx, track) }))
				}
			}
			return Turn{Did: len(busy)}, err
		},
		End: tracks.Wait,
	}
}

// DeliverOnce makes everything that is due, and what becomes due by it, and returns how many deliveries
// and numberings that were.
func (e *Deliveries) DeliverOnce(ctx context.Context) (int, error) {
	busy, err := e.Store.Busy(ctx)
	var all sync.WaitGroup
	for _, track := range busy {
		all.Go(safe.Func("track", func() { e.runTrack(ctx, track) }))
	}
	all.Wait()
	return len(busy), err
}

// runTrack delivers on one track until nothing is out and nothing is due.
func (e *Deliveries) runTrack(ctx context.Context, track int32) {
	most := webhooksAt
	if track == pg.HookTrack {
		most = hooksAt
	}
	var done []pg.Receipt
	receipts := make(chan pg.Receipt, most)
	out := 0
	tick := time.NewTicker(deliverEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		h, err := e.Store.Deliver(ctx, track, done, most-out)
		if err != nil {
			if ctx.Err() == nil {
				e.Log.Warn("deliver", "track", track, "error", err)
			}
			if out+len(done) == 0 || !pause(ctx, nil, deliverEvery) {
				break
			}
			continue // with the receipts that are not recorded yet
		}
		done = nil
		if h.Stopped != "" {
			e.Log.Warn("a subscription is disabled, and keeps what it did not deliver", "subscription", track, "reason", h.Stopped)
		}
		for _, d := range h.Due {
			out++
			go safe.Run("delivery", func() {
				r := pg.Receipt{Delivery: d, State: "pending", Again: deliverFirst}
				defer func() { receipts <- r }()
				r = e.deliver(ctx, d)
			})
		}
		if most = webhooksAt; h.Failing {
			most = 1
		} else if track == pg.HookTrack {
			most = hooksAt
		}
		switch {
		case h.More:
			continue
		case out == 0:
			return
		}
		select {
		case r := <-receipts:
			done, out = append(done, r), out-1
		case <-tick.C:
		}
		if track == pg.HookTrack && len(h.Due) < hooksAt/2 && !pause(ctx, nil, hooksLinger) {
			break
		}
		for more := true; more; {
			select {
			case r := <-receipts:
				done, out = append(done, r), out-1
			default:
				more = false
			}
		}
	}
	// Stopping: deliveries that are out are cut off, and everything is recorded, so that others need not wait for it.
	for ; out > 0; out-- {
		done = append(done, <-receipts)
	}
	if len(done) > 0 {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if _, err := e.Store.Deliver(last, track, done, 0); err != nil {
			e.Log.Warn("deliver", "track", track, "error", err)
		}
	}
}

// deliver makes one call and says what becomes of the delivery.
func (e *Deliveries) deliver(ctx context.Context, d *pg.Delivery) pg.Receipt {
	r := pg.Receipt{Delivery: d, State: "pending"}
	if e.Store.Quarantined(d.Context, d.Type) {
		r.Again = time.Second
		return r
	}
	var got remote.Receipt
	began := time.Now()
	if err := safe.Try("delivery", func() error { got = e.callFor(ctx, d, &r); return nil }); err != nil {
		got = remote.Receipt{Message: "the program failed while it called: its log says how", StartedAt: began, Elapsed: time.Since(began)}
	}
	if ctx.Err() != nil && !got.OK {
		return r
	}
	return e.judged(d, r, got)
}

// callFor makes the call of a delivery.
func (e *Deliveries) callFor(ctx context.Context, d *pg.Delivery, r *pg.Receipt) (got remote.Receipt) {
	switch {
	case d.Hook != nil:
		a := e.callHook(ctx, d)
		got = remote.Receipt{OK: a.OK, Status: a.Status, Answer: string(a.Body[:min(len(a.Body), 1<<10)]), Message: a.Message, After: a.After, StartedAt: a.StartedAt, Elapsed: a.Elapsed}
		if a.Missing {
			r.State = "absent"
		}
	case d.Body == nil:
		got.Message, r.State = "what it tells of is gone", "failed"
	default:
		got = e.callEndpoint(ctx, d)
	}
	return got
}

// judged is what becomes of a delivery by what came of its call.
func (e *Deliveries) judged(d *pg.Delivery, r pg.Receipt, got remote.Receipt) pg.Receipt {
	r.Again, r.Message, r.Gone = max(backoff.Doubling(d.Attempts, deliverFirst, deliverMost), got.After), got.Message, got.Gone
	r.Try, _ = json.Marshal(map[string]any{"at": got.StartedAt.UTC(), "status": got.Status, "answer": got.Answer, "error": got.Message, "ms": got.Elapsed.Milliseconds()})
	switch {
	case got.OK:
		r.State = "delivered"
	case r.State == "pending" && !d.Block && d.Now.Sub(d.FirstAt) > deliverGiveUp:
		r.State = "failed"
	}
	e.Metrics.Delivered(r.State)
	return r
}

// message is the body of a webhook.
type message struct {
	Type      string          `json:"type"`
	Timestamp time.Time       `json:"timestamp"`
	Data      json.RawMessage `json:"data"`
}

func (e *Deliveries) callEndpoint(ctx context.Context, d *pg.Delivery) remote.Receipt {
	event := outbox.Event(d.Event)
	id := d.ID.EventID(d.At, event)
	if event == outbox.EventTest {
		id = fmt.Sprintf("test.%d.%x", d.Track, d.At.UnixMicro())
	}
	body, err := json.Marshal(message{event.Name(), d.At.UTC(), d.Body})
	if err != nil || e.Webhook == nil {
		return remote.Receipt{Message: "this process cannot call endpoints"}
	}
	return e.Webhook(ctx, remote.Message{URL: d.URL, ID: id, Body: body, Secrets: d.Secrets, Key: e.SigningKey})
}

// data is the transaction's data as the last accepted attempt left it (S2.5 row 3): its result has it.
func data(d *pg.HookCall) json.RawMessage {
	var result struct{ Data json.RawMessage }
	if json.Unmarshal(d.Result, &result) == nil && len(result.Data) > 0 {
		return result.Data
	}
	return d.Task.Data
}

func (e *Deliveries) callHook(ctx context.Context, d *pg.Delivery) remote.HookAnswer {
	h := d.Hook
	call := remote.Call{
		BaseURL: h.WorkerURL(), Type: h.Task.Type, ID: d.ID, UID: h.Task.UID, Queue: h.Queue, Data: data(h), State: h.State, Hash: h.Hash,
		PostedAt: h.Task.CreatedAt, Account: h.Account, SenderWorkerURL: h.SenderURL, SenderState: string(outbox.FREE), Retries: h.Retries,
		Attempt: h.Attempt, Fence: h.Fence, Position: d.ID.Seq, Fee: h.Fee, Nonce: h.Nonce,
		Timeout: 20 * time.Second, Traceparent: h.Task.Traceparent,
	}
	var problem json.RawMessage
	if h.State == outbox.FAILED {
		problem, _ = json.Marshal(map[string]string{"class": string(h.Class), "code": h.Code, "message": h.Error})
	}
	return e.Worker.Hook(remote.Signed(ctx, h.Dispatcher.Secret), call, outbox.Hook(d.Event), h.Result, problem, d.ID.HookToken(h.Task.CreatedAt, outbox.Hook(d.Event)))
}
