package messages_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/messages"
)

// fed is what a subscription of a context was told of messages: who sent each, its type and its text.
func (w *world) fed(contextID int32, name string) (list []string) {
	w.T.Helper()
	sub, err := w.S.Deliveries.Subscription(w.Ctx, contextID, name)
	w.Must(err)
	_, err = w.S.Deliveries.Deliver(w.Ctx, sub.ID, nil, 100)
	w.Must(err)
	events, _, err := w.S.Deliveries.Feed(w.Ctx, sub.ID, sub.Include, 0, 100)
	w.Must(err)
	for _, e := range events {
		var body struct {
			Event, Context, From string
			Type                 string `json:"message_type"`
			Text                 string `json:"message"`
		}
		w.Must(json.Unmarshal(e.Body, &body))
		list = append(list, body.Event+" "+body.From+">"+body.Context+" "+body.Type+" "+body.Text)
	}
	return list
}

// The context that a message is for hears of it when it is delivered, and the one that sent it of its result. A message
// that somebody is still to be told of is not forgotten.
func TestWhoIsToReceiveAMessageHearsOfIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	home, by := w.ID, w.By
	hears := outbox.Subscription{Name: "post", Kind: "pull", Events: []outbox.Event{outbox.EventMessageReceived},
		Include: []string{"data"}}
	w.Subscribe(hears)
	w.ID, w.By = w.shop.Context, w.shop
	w.Subscribe(hears)
	w.ID, w.By = home, by
	w.Later(time.Minute)
	id := w.post(w.chat("hello"))[0]
	w.Same(w.fed(w.shop.Context, "post"))
	w.route()
	w.Later(time.Second)
	m := w.one()
	_, err := w.S.Messages.Answered(w.Ctx, w.shop, id, m.Fence, messages.Reply{Format: "text", Body: "hi"})
	w.Must(err)
	w.Later(30 * 24 * time.Hour)
	w.Must(w.S.Refresh(w.Ctx))
	left := w.Lines(`SELECT message_id::text FROM postern.message WHERE postern.message_to_be_told(message_id)`)
	if len(left) != 2 {
		t.Errorf("%v are to be told of, want 2", left)
	}
	w.Same(w.fed(w.shop.Context, "post"), "message.received default>shop chat hello")
	w.Same(w.fed(home, "post"), "message.received shop>default result hi")
}
