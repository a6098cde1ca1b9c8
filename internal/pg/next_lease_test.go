package pg_test

import (
	"slices"
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/sequencer"
)

// The next call of a queue that a node works through goes by the settings of its moment: the next transaction as well
// as a call that is sent again.
func TestTheNextCallGoesByTheSettingsOfItsMoment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	put := func(url string) {
		o := w.Other()
		d := outbox.DefaultDispatcher()
		d.Type, d.WorkerURL = "T", url
		d.Fee.Initial = "7"
		_, err := o.S.PutDispatcher(w.Ctx, w.By, d, 0)
		w.Must(err)
		w.Must(w.S.Refresh(w.Ctx)) // which each process does once a second
	}
	w.Dispatcher("T", nil)
	w.Post("q", "T", "a", "b")
	l := w.Claim(w.Node("n"), pgworld.Everything())[0]

	put("http://127.0.0.1:2/")
	l = w.Settle(w.Answer(l, pgworld.Done()))[0].Next
	if l == nil || l.Task.UID != "b" || l.WorkerURL() != "http://127.0.0.1:2/" || l.Fee != "7" {
		t.Fatalf("next is %+v", l)
	}

	put("http://127.0.0.1:3/")
	a := w.Answer(l, pgworld.NobodyKnows())
	a.Step = sequencer.Asked(l.Flight(0), outbox.Status{State: outbox.StatusUnknown}, l.Dispatcher.Dispatcher, 0.5)
	l = w.Settle(a)[0].Next
	if l == nil || l.Task.UID != "b" || !l.Resent || l.WorkerURL() != "http://127.0.0.1:3/" {
		t.Errorf("it is sent again by %+v", l)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

// A queue does not go on under the lease of a sender whose settings have changed since: the next claim reads them.
func TestTheNextOfAQueueGoesByTheSettingsOfItsSender(t *testing.T) {
	w, n := oneSender(t)
	w.Post("q", "S", "c")
	l := w.Claim(n, pgworld.Everything())[0]
	changed := pg.Sender{Account: "acct-1", Pool: "p", WorkerURL: "http://127.0.0.1:2/"}
	changed.Attributes = []byte(`{"cap": "0x2"}`)
	_, err := w.Other().S.PutSender(w.Ctx, w.By, changed, 0)
	w.Must(err)
	w.Must(w.S.Refresh(w.Ctx))
	if next := w.Settle(w.Answer(l, pgworld.Done()))[0].Next; next != nil {
		t.Fatalf("%s goes to %s", next.Task.UID, next.WorkerURL())
	}
	got := w.Claim(n, pgworld.Everything())
	if !slices.Equal(taken(got), []string{"b"}) || got[0].WorkerURL() != changed.WorkerURL ||
		len(got[0].SenderAttributes) == 0 {
		t.Fatalf("%v, to %s", taken(got), got[0].WorkerURL())
	}
	next := w.Settle(w.Answer(got[0], pgworld.Done()))[0].Next
	if next == nil || next.WorkerURL() != changed.WorkerURL {
		t.Errorf("nothing has changed since, and the next is %+v", next)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}
