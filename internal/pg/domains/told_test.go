package domains_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/deliveries"
	"github.com/postern-dev/postern/internal/pg/domains"
)

// told is what a subscription of a context was told of domains.
func (w *world) told(contextID int32, name string) (list []string) {
	w.T.Helper()
	sub, err := w.S.Deliveries.Subscription(w.Ctx, contextID, name)
	w.Must(err)
	_, err = w.S.Deliveries.Deliver(w.Ctx, sub.ID, nil, 100)
	w.Must(err)
	events, _, err := w.S.Deliveries.Feed(w.Ctx, sub.ID, sub.Include, 0, 100)
	w.Must(err)
	ids := map[string]bool{}
	for _, e := range events {
		var body map[string]any
		w.Must(json.Unmarshal(e.Body, &body))
		line := body["event"].(string) + " of " + body["domain"].(string)
		for _, key := range []string{"uid", "state", "receipt", "parked", "before", "coordinator", "data"} {
			if text, ok := body[key].(string); ok && text != "" {
				line += " " + key + "=" + text
			}
		}
		list = append(list, line)
		ids[e.ID.EventID(e.At, e.Event)] = true
	}
	if len(ids) != len(events) {
		w.T.Errorf("%d events have %d ids", len(events), len(ids))
	}
	return list
}

// hears has subscriptions of the context, and one of another context.
func (w *world) hears() (foreign int32) {
	w.T.Helper()
	_, err := w.S.PutContext(w.Ctx, w.By, pg.Tenant{Context: pg.Context{Name: "foreign", MaxDepth: 10}}, 0)
	w.Must(err)
	w.Must(w.S.Refresh(w.Ctx))
	foreign = w.S.Context("foreign").ID
	home, by := w.ID, w.By
	all := outbox.Subscription{Name: "all", Kind: "pull", Events: outbox.DomainEvents, Include: []string{"data"}}
	w.Subscribe(all)
	all.Name, all.Filter.Queue = "other", []string{"domain:nok"}
	w.Subscribe(all)
	all.Name, all.Filter.Queue = "mine", []string{"domain:tok"}
	all.Events = []outbox.Event{outbox.EventIntentParked}
	w.Subscribe(all)
	w.Subscribe(outbox.Subscription{Name: "core", Kind: "pull", Events: outbox.TransactionEvents})
	w.ID, w.By.Context = foreign, foreign
	w.Subscribe(outbox.Subscription{Name: "all", Kind: "pull", Events: outbox.DomainEvents})
	w.ID, w.By = home, by
	w.Later(time.Minute)
	return foreign
}

// Each end of an intent, and each time that it is parked, is told once, to subscriptions of the context alone.
func TestWhatBecomesOfAnIntentIsToldOnce(t *testing.T) {
	w := newWorld(t)
	foreign := w.hears()
	w.post("a")
	w.post("park it")
	w.post("c", "park it")
	for range 12 {
		w.Must(w.turn(w.Ctx, w.S, w.node))
		w.send()
		w.Later(300 * time.Millisecond)
	}
	_, err := w.S.Domains.Resume(w.Ctx, w.By, "tok", "park it")
	w.Must(err)
	for range 6 {
		w.Must(w.turn(w.Ctx, w.S, w.node))
		w.Later(300 * time.Millisecond)
	}
	_, err = w.S.Domains.Cancel(w.Ctx, w.By, "tok", "park it")
	w.Must(err)
	w.Later(30 * 24 * time.Hour)
	w.Must(w.S.Refresh(w.Ctx))
	forgets := func(want int) {
		t.Helper()
		_, err := w.S.Retain(w.Ctx, 48*time.Hour)
		w.Must(err)
		if got := len(w.receipts()); got != want {
			t.Errorf("retention leaves %d intents, want %d: %s", got, want, w.receipts())
		}
	}
	var parked = "intent.parked of tok uid=park it state=Parked parked=no address yet data=park it"
	want := []string{
		"intent.parked of tok uid=park it state=Parked parked=no address yet data=park it",
		"intent.confirmed of tok uid=a state=Confirmed receipt=success data=a",
		parked,
		"intent.reverted of tok uid=park it state=Reverted receipt=failure data=park it",
		"intent.reverted of tok uid=c state=Reverted receipt=failure data=c",
	}
	w.Same(w.told(w.ID, "all"), want...)
	w.Same(w.told(w.ID, "mine"), parked, parked)
	w.Same(w.told(w.ID, "other"))
	w.Same(w.told(foreign, "all"))
	list, err := w.S.Deliveries.Deliveries(w.Ctx, w.ID, deliveries.DeliveryFilter{Subscription: []string{"all"},
		Limit: 1})
	w.Must(err)
	if i, err := w.S.Domains.Intent(w.Ctx, w.ID, "tok", "c"); err != nil || len(list) != 1 || list[0].Of != i.ID {
		t.Errorf("the last delivery tells of %+v, %v", list, err)
	}
	if id, err := deliveries.ParseDeliveryID(list[0].String()); err != nil || id != list[0].DeliveryID {
		t.Errorf("%s is read as %+v, %v", list[0], id, err)
	}
	w.ownsNothing()
	forgets(0)
}

// ownsNothing asks for all that was told as a role that may fetch it, and that no context was given to.
func (w *world) ownsNothing() {
	w.T.Helper()
	tx := w.Begin(w.S.Pool())
	defer func() { _ = tx.Rollback(w.Ctx) }()
	_, err := tx.Exec(w.Ctx, `SET LOCAL ROLE postern_submit`)
	w.Must(err)
	var shown int
	w.Must(tx.QueryRow(w.Ctx, `SELECT count(postern.event_data(d.queue_id, d.seq, d.day, d.event, d.at, '{data}'))
		FROM (VALUES (10995116277761, 134217728, 'intent-parked'), (10995116277761, 1, 'coordinator-changed'),
			(13194139533312, 1, 'job-error'), (13194139533312, 2305843009213693952, 'message-received'))
			v(queue_id, seq, event)
		CROSS JOIN LATERAL (SELECT v.queue_id, v.seq, current_date AS day, v.event, now() AS at) d`).Scan(&shown))
	if shown != 0 {
		w.T.Errorf("who has no context is shown %d events", shown)
	}
}

// A subscription hears when another node coordinates, and not that one still does.
func TestAnotherCoordinatorIsTold(t *testing.T) {
	w := newPair(t)
	set := domains.Default()
	set.Types, set.ServiceURL, set.Mode = []string{"TOK"}, "http://127.0.0.1:1", "ENDORSER"
	set.Nodes, set.Heartbeat = []string{"self", "bob"}, second
	_, err := w.S.Domains.Put(w.Ctx, w.By, "tok", set, 0)
	w.Must(err)
	foreign := w.hears()
	beat := int64(10)
	says := func(state coord.State) {
		t.Helper()
		beat++
		w.arrives(domains.Parcel{Message: coord.Message{Kind: coord.Heartbeat, Beat: beat, State: state}})
		w.step()
		w.Later(time.Second)
	}
	w.post("park it")
	for range 8 {
		w.step()
		w.Later(time.Second)
	}
	var state string
	w.Scan(`SELECT coordinator FROM postern.coord_state`, &state)
	if state != "Active" {
		t.Fatal("this node is", state)
	}
	for range 3 {
		w.Must(w.turn(w.Ctx, w.S, w.node))
		w.Later(time.Second)
	}
	says(coord.Active)
	says(coord.Active)
	says(coord.Idle)
	says(coord.Active)
	w.Must(w.S.Refresh(w.Ctx))
	w.Same(w.told(w.ID, "all"), "intent.parked of tok uid=park it state=Parked parked=no address yet data=park it",
		"coordinator.changed of tok before=self coordinator=bob")
	w.Same(w.told(foreign, "all"))
	if rows := strings.Join(w.Lines(`SELECT event || ' ' || node || ' after ' || reason FROM postern.coord_step
		WHERE event = 'CoordinatorChanged'`), "; "); rows != "CoordinatorChanged bob after self" {
		t.Error(rows)
	}
}
