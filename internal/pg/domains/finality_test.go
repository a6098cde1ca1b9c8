package domains_test

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/stores"
)

// confirms has the type of the domain wait for so many confirmations.
func (w *world) confirms(at *stores.Store, n int) error {
	d := outbox.DefaultDispatcher()
	d.Type, d.Slots, d.WorkerURL, d.Inclusion.Confirmations = "TOK", 10, "http://127.0.0.1:1", n
	_, err := at.PutDispatcher(w.Ctx, w.By, d, 0)
	return err
}

// final has the domain say which finality its ledger has.
func (w *world) final(at *stores.Store, n int) error {
	set := w.settings()
	set.Finality = n
	_, err := at.Domains.Put(w.Ctx, w.By, "tok", set, 0)
	return err
}

func says(err error) string {
	if err == nil {
		return "nothing"
	}
	return err.Error()
}

func TestATypeOfADomainWaitsForItsFinality(t *testing.T) {
	w := newWorld(t)
	const fewer = `finality 3: type "TOK" waits for fewer confirmations (1)`
	if err := w.final(w.S, 3); !strings.Contains(says(err), fewer) {
		t.Error("a type that waits for 1:", err)
	}
	w.Must(w.confirms(w.S, 3))
	w.Must(w.final(w.S, 3))
	const less = `confirmations 2: domain "tok" posts type "TOK", and has a finality of 3`
	if err := w.confirms(w.S, 2); !strings.Contains(says(err), less) {
		t.Error("it is to wait for less:", err)
	}
	w.Must(w.confirms(w.S, 4))
	w.Must(w.final(w.S, 0))
	w.Must(w.confirms(w.S, 1))
}

// A finality is put while the dispatcher is to wait for less, either one first: the second is refused.
func TestAFinalityAndADispatcherThatArePutAtOnce(t *testing.T) {
	w := newWorld(t)
	w.Must(w.confirms(w.S, 3))
	o := w.Other()
	said, waited := w.Beside(func() error { return w.confirms(w.S, 2) }, func() string { return says(w.final(o.S, 3)) })
	if !strings.Contains(said, "finality 3") || !waited {
		t.Error("behind a dispatcher that waits for less:", said, waited)
	}
	w.Must(w.confirms(w.S, 3))
	said, waited = w.Beside(func() error { return w.final(w.S, 3) }, func() string { return says(w.confirms(o.S, 2)) })
	if !strings.Contains(said, "confirmations 2") || !waited {
		t.Error("behind a finality:", said, waited)
	}
}

// A domain that is put behind the removal of its type is refused, also where the type was there when the put began.
func TestATypeThatIsRemovedMeanwhile(t *testing.T) {
	w := newWorld(t)
	o := w.Other()
	remove := func() error { return w.S.RemoveDispatcher(w.Ctx, w.By, "TOK", false) }
	said, waited := w.Beside(remove, func() string { return says(w.final(o.S, 1)) })
	if !strings.Contains(said, `type "TOK" has no dispatcher`) || !waited {
		t.Error("behind the removal of its type:", said, waited)
	}
}
