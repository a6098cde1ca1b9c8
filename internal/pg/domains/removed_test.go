package domains_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/domains"
)

// A DELETE and a post come at once: either the domain is removed, and the post finds none, or the intent is stored, and
// the domain stays.
func TestNoIntentIsPostedToADomainThatIsRemoved(t *testing.T) {
	w := newWorld(t)
	o := w.Other()
	said, waited := w.Beside(func() error { return w.S.Domains.Remove(w.Ctx, w.By, "tok") }, func() string {
		i, err := w.submit(o.S, "a")
		return fmt.Sprint(i != nil, fault.KindOf(err) == fault.NotFound)
	})
	if said != "false true" || !waited {
		t.Error("behind a DELETE the post says", said, waited)
	}
	w.Same(w.Lines(`SELECT uid FROM postern.coord_intent`))
	_, err := w.S.Domains.Put(w.Ctx, w.By, "tok", w.settings(), 0)
	w.Must(err)
	said, waited = w.Beside(func() error { _, err := w.submit(w.S, "b"); return err }, func() string {
		return fmt.Sprint(fault.KindOf(o.S.Domains.Remove(w.Ctx, w.By, "tok")) == fault.Conflict)
	})
	if said != "true" || !waited {
		t.Error("behind a post the DELETE says", said, waited)
	}
	if i := w.post("b"); !i.Replay {
		t.Error("the intent is lost")
	}
}

// A step that waits behind a PUT has its settings.
func TestAStepBehindAPutHasItsSettings(t *testing.T) {
	w := newWorld(t)
	o := w.Other()
	set := w.settings()
	set.Self, set.Nodes = "here", []string{"here"}
	said, waited := w.Beside(func() error { _, err := w.S.Domains.Put(w.Ctx, w.By, "tok", set, 0); return err },
		func() string {
			i, err := w.submit(o.S, "a")
			if err != nil {
				return err.Error()
			}
			return i.Party
		})
	if said != "ann@here" || !waited {
		t.Error(said, waited)
	}
	set.Self, set.Nodes = "self", []string{"self"}
	if _, err := w.S.Domains.Put(w.Ctx, w.By, "tok", set, 0); fault.KindOf(err) != fault.Conflict {
		t.Error("the name of a node changes below its intents:", err)
	}
	w.plan = planOf("here", "here")
	w.finish()
	w.Same(w.receipts(), "success ")
}

// A uid names the intent that it named before its node got another name, also for a post that waits behind the PUT.
func TestAUIDNamesOneIntentUnderEachNameOfItsNode(t *testing.T) {
	w := newWorld(t)
	o := w.Other()
	one := w.post("one")
	w.finish()
	put := func(self string) error {
		set := w.settings()
		set.Self, set.Nodes = self, []string{self}
		w.plan = planOf(self, self)
		_, err := w.S.Domains.Put(w.Ctx, w.By, "tok", set, 0)
		return err
	}
	same := func(i *domains.Intent, err error) string {
		return fmt.Sprint(i != nil && i.Replay && i.ID == one.ID, err)
	}
	said, waited := w.Beside(func() error { return put("here") },
		func() string { return same(w.submit(o.S, "one")) })
	if said != "true <nil>" || !waited {
		t.Error("behind the PUT the post says", said, waited)
	}
	if i, err := w.S.Domains.Intent(w.Ctx, w.ID, "tok", "one"); err != nil || i.ID != one.ID {
		t.Error(i, err)
	}
	for party, want := range map[string]string{"ann@self": "true <nil>", "ann@here": "true <nil>",
		"bea": "idempotency_conflict"} {
		list, err := w.S.Domains.Submit(w.Ctx, w.By, "tok", []domains.NewIntent{{UID: "one", Party: party,
			Data: json.RawMessage(`"one"`)}}, func(int) string { return "" })
		got := ""
		if err == nil {
			got = same(list[0], nil)
		} else {
			got = fault.As(err).Code
		}
		if got != want {
			t.Errorf("posted again by %s: %s", party, got)
		}
	}
	if _, err := w.submit(w.S, "two", "one"); err != nil {
		t.Error("what depends on it is refused:", err)
	}
	w.finish()
	w.Must(w.S.Domains.Remove(w.Ctx, w.By, "tok"))
	w.Must(put("self"))
	if i := w.post("two", "one"); !i.Replay {
		t.Error("the second one is posted twice")
	}
	w.Same(w.Lines(`SELECT uid FROM postern.coord_intent ORDER BY seq`), "one", "two")
	if n, _ := w.publics(); n != 2 {
		t.Errorf("the core has %d public transactions, want 2", n)
	}
}

func (w *world) settings() domains.Settings {
	w.T.Helper()
	d, err := w.S.Domains.Domain(w.Ctx, w.ID, "tok")
	if fault.KindOf(err) == fault.NotFound {
		set := domains.Default()
		set.Types, set.ServiceURL, set.Nodes = []string{"TOK"}, "http://127.0.0.1:1", []string{"self"}
		return set
	}
	w.Must(err)
	return d.Settings
}
