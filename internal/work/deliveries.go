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
	"github.com/postern-dev/postern/internal/pg/deliveries"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/safe"
	"github.com/postern-dev/postern/internal/sequencer"
	"github.com/postern-dev/postern/internal/twin"
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

// deliverEvery is how often a node looks for events to number and deliveries to make for which nothing rang it: those
// of other processes, and those that are tried again.
const deliverEvery = 250 * time.Millisecond

// deliverRest is between two such looks, however often it is rung.
const deliverRest = 25 * time.Millisecond

// hooksLinger is how long what became of a few hooks waits for more of it, and for more that is due. Nothing waits for
// a hook, and each record is a commit beside those that something waits for. Other tracks do not linger: the next of a
// queue goes out behind a record.
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
	release := sparing(func(ctx context.Context) error {
		_, err := e.Store.Deliveries.ReleaseCallbacks(ctx)
		return err
	})
	return System{
		Name:  "deliveries",
		Loops: []Loop{e.loop()},
		Jobs: []Job{{Kind: "callback", Every: 5 * time.Second, Run: func(ctx context.Context) error {
			e.ring()
			return release(ctx)
		}}},
		Sweep: e.Store.Deliveries.TidySubscriptions,
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
			busy, err := e.Store.Deliveries.BusyTracks(ctx)
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
	busy, err := e.Store.Deliveries.BusyTracks(ctx)
	var all sync.WaitGroup
	for _, track := range busy {
		all.Go(safe.Func("track", func() { e.runTrack(ctx, track) }))
	}
	all.Wait()
	return len(busy), err
}

// trackRun is one pass over a track: the deliveries that are out, and their receipts.
type trackRun struct {
	*Deliveries
	track    int32
	most     int                     // out at a time
	out      int                     // now
	receipts chan deliveries.Receipt // of deliveries that are out
	done     []deliveries.Receipt    // not recorded yet
	tick     <-chan time.Time
}

// runTrack delivers on one track until nothing is out and nothing is due.
func (e *Deliveries) runTrack(ctx context.Context, track int32) {
	tick := time.NewTicker(deliverEvery)
	defer tick.Stop()
	r := trackRun{
		Deliveries: e,
		track:      track,
		most:       mostOf(track, false),
		receipts:   make(chan deliveries.Receipt, hooksAt),
		tick:       tick.C,
	}
	for ctx.Err() == nil {
		h, err := e.Store.Deliveries.Deliver(ctx, track, r.done, r.most-r.out)
		if err != nil {
			if ctx.Err() == nil {
				e.Log.Warn("deliver", "track", track, "error", err)
			}
			if r.out+len(r.done) == 0 || !pause(ctx, nil, deliverEvery) {
				break
			}
			continue // with the receipts that are not recorded yet
		}
		r.done = nil
		if h.Stopped != "" {
			e.Log.Warn("a subscription is disabled, and keeps what it did not deliver",
				"subscription", track, "reason", h.Stopped)
		}
		for _, d := range h.Due {
			r.begin(ctx, d)
		}
		r.most = mostOf(track, h.Failing)
		switch {
		case h.More:
			continue
		case r.out == 0:
			return
		}
		if !r.await(ctx, len(h.Due)) {
			break
		}
	}
	r.stop(ctx)
}

// mostOf is how many of a track are out at a time; of an endpoint that fails, one.
func mostOf(track int32, failing bool) int {
	switch {
	case failing:
		return 1
	case track == deliveries.HookTrack:
		return hooksAt
	}
	return webhooksAt
}

// begin makes a delivery, whose receipt comes.
func (r *trackRun) begin(ctx context.Context, d *deliveries.Delivery) {
	r.out++
	go safe.Run("delivery", func() {
		got := deliveries.Receipt{Delivery: d, State: "pending", Again: deliverFirst}
		defer func() { r.receipts <- got }()
		got = r.deliver(ctx, d)
	})
}

// await waits for a receipt, or for the time to look again, and takes all receipts there are. Where few hooks were due
// it lingers; false is the end of ctx.
func (r *trackRun) await(ctx context.Context, due int) bool {
	select {
	case got := <-r.receipts:
		r.took(got)
	case <-r.tick:
	}
	if r.track == deliveries.HookTrack && due < hooksAt/2 && !pause(ctx, nil, hooksLinger) {
		return false
	}
	for {
		select {
		case got := <-r.receipts:
			r.took(got)
		default:
			return true
		}
	}
}

func (r *trackRun) took(got deliveries.Receipt) { r.done, r.out = append(r.done, got), r.out-1 }

// stop waits for the deliveries that are out, which are cut off, and records everything, so that others need not wait
// for it.
func (r *trackRun) stop(ctx context.Context) {
	for r.out > 0 {
		r.took(<-r.receipts)
	}
	if len(r.done) == 0 {
		return
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if _, err := r.Store.Deliveries.Deliver(last, r.track, r.done, 0); err != nil {
		r.Log.Warn("deliver", "track", r.track, "error", err)
	}
}

// deliver makes one call and says what becomes of the delivery.
func (e *Deliveries) deliver(ctx context.Context, d *deliveries.Delivery) deliveries.Receipt {
	r := deliveries.Receipt{Delivery: d, State: "pending"}
	if e.Store.Quarantined(d.Context, d.Type) {
		r.Again = time.Second
		return r
	}
	var got remote.Receipt
	began := time.Now()
	if err := safe.Try("delivery", func() error { got = e.callFor(ctx, d, &r); return nil }); err != nil {
		got = remote.Receipt{Message: "the program failed while it called: its log says how",
			StartedAt: began, Elapsed: time.Since(began)}
	}
	if ctx.Err() != nil && !got.OK {
		return r
	}
	if got.Refused && e.othersMay(ctx, d.CalledAt()) {
		r.Again = leftAgain()
		return r
	}
	return e.judged(d, r, got)
}

// callFor makes the call of a delivery.
func (e *Deliveries) callFor(ctx context.Context, d *deliveries.Delivery, r *deliveries.Receipt) (got remote.Receipt) {
	switch {
	case d.Hook != nil:
		a := e.callHook(ctx, d)
		got = remote.Receipt{OK: a.OK, Refused: a.Refused, Status: a.Status, Answer: string(a.Body[:min(len(a.Body),
			1<<10)]), Message: a.Message, After: a.After, StartedAt: a.StartedAt, Elapsed: a.Elapsed}
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
func (e *Deliveries) judged(d *deliveries.Delivery, r deliveries.Receipt, got remote.Receipt) deliveries.Receipt {
	r.Again, r.Message, r.Gone = max(backoff.Doubling(d.Attempts, deliverFirst, deliverMost), got.After), got.Message,
		got.Gone
	if d.Track == deliveries.CallbackTrack && twin.Planted("failed_callback_forgotten") {
		r.Again = 100 * 365 * 24 * time.Hour
	}
	r.Try, _ = json.Marshal(map[string]any{"at": got.StartedAt.UTC(), "status": got.Status, "answer": got.Answer,
		"error": got.Message, "ms": got.Elapsed.Milliseconds()})
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

func (e *Deliveries) callEndpoint(ctx context.Context, d *deliveries.Delivery) remote.Receipt {
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
func data(d *deliveries.HookCall) json.RawMessage {
	var result struct{ Data json.RawMessage }
	if json.Unmarshal(d.Result, &result) == nil && len(result.Data) > 0 {
		return result.Data
	}
	return d.Task.Data
}

func (e *Deliveries) callHook(ctx context.Context, d *deliveries.Delivery) remote.HookAnswer {
	h := d.Hook
	call := remote.Call{
		BaseURL: h.WorkerURL(), Type: h.Task.Type, ID: d.ID, UID: h.Task.UID, Queue: h.Queue,
		Line: e.Store.LineOf(h.Queue, d.ID.Queue), Data: data(h), State: h.State, Hash: h.Hash,
		PostedAt: h.Task.CreatedAt, Account: h.Account, SenderWorkerURL: h.SenderURL,
		SenderState: string(outbox.FREE), Retries: h.Retries,
		Attributes: h.SenderAttributes,
		Attempt:    h.Attempt, Fence: h.Fence, Position: d.ID.Seq, Fee: h.Fee, Nonce: h.Nonce,
		Members: h.Members, FeeFactor: sequencer.FeeFactor(h.Dispatcher.Fee, h.Attempt),
		Timeout: 20 * time.Second, Traceparent: h.Task.Traceparent,
	}
	var problem json.RawMessage
	if h.State == outbox.FAILED {
		problem, _ = json.Marshal(map[string]string{"class": string(h.Class), "code": h.Code, "message": h.Error})
	}
	return e.Worker.Hook(remote.Signed(ctx, h.Dispatcher.Secret), call, outbox.Hook(d.Event), h.Result, problem,
		d.ID.HookToken(h.Task.CreatedAt, outbox.Hook(d.Event)))
}
