package pgworld

import (
	"fmt"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/deliveries"
	"github.com/postern-dev/postern/internal/pg/stores"
)

// Subscribe makes a subscription and lets its since pass.
func (w *World) Subscribe(v outbox.Subscription) *deliveries.Subscription {
	w.T.Helper()
	if v.OnError == "" {
		v.OnError = "skip"
	}
	var secret []byte
	if v.Kind == "webhook" {
		v.URL, secret = "http://127.0.0.1:1/", []byte("secret")
	}
	_, err := w.S.Deliveries.PutSubscription(w.Ctx, w.By, v, secret, 0)
	w.Must(err)
	s, err := w.S.Deliveries.Subscription(w.Ctx, w.ID, v.Name)
	w.Must(err)
	w.At(*s.Since)
	return s
}

// Feed is what a subscription has after so many events, as "queue/uid event".
func (w *World) Feed(line int32, after int) []string {
	w.T.Helper()
	list, _, err := w.S.Deliveries.Feed(w.Ctx, line, nil, 0, 1000)
	w.Must(err)
	if after > 0 {
		list, _, err = w.S.Deliveries.Feed(w.Ctx, line, nil, list[after-1].Position, 1000)
		w.Must(err)
	}
	said := []string{}
	for _, e := range list {
		tx, err := w.S.Transaction(w.Ctx, w.ID, e.ID)
		w.Must(err)
		said = append(said, fmt.Sprintf("%s/%s %s", e.Queue, tx.UID, e.Event))
	}
	return said
}

// Number runs passes until nothing is left to number.
func (w *World) Number(s *stores.Store, line int32) {
	w.T.Helper()
	for more := true; more; {
		h, err := s.Deliveries.Deliver(w.Ctx, line, nil, 0)
		w.Must(err)
		more = h.More
	}
}

// CalledBack settles a transaction with a callback as done, and returns it.
func (w *World) CalledBack(n pg.Node, queue, uid, url string) outbox.ID {
	w.T.Helper()
	sub := w.Sub(queue, "T", uid)
	sub.Callback = &outbox.Callback{URL: url}
	out, err := w.S.Ingest(w.Ctx, []*pg.Submission{sub}, false)
	w.Must(err)
	w.Must(out[0].Err)
	for _, l := range w.Claim(n, Everything()) {
		w.Settle(w.Answer(l, Done()))
	}
	if s := w.State(out[0].ID); s != outbox.DONE {
		w.T.Fatalf("%s is %s", uid, s)
	}
	return out[0].ID
}
