package domains_test

import (
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
