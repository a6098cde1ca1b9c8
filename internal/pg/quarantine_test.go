package pg_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/pg"
)

func TestEnteringEverythingDrawsANewLifeOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	life := func() string { return w.lines(`SELECT life::text FROM postern.store`)[0] }
	born := life()
	w.dispatcher("T", nil)
	w.must(w.s.EnterQuarantine(w.ctx, w.by, pg.Quarantine{Context: "default", Type: "T", Reason: "the worker is a copy"}))
	if life() != born {
		t.Error("what loses nothing drew a new life")
	}
	w.must(w.s.EnterQuarantine(w.ctx, w.by, pg.Quarantine{Reason: "restored"}))
	lost := life()
	if lost == born {
		t.Error("a loss drew no new life")
	}
	w.must(w.s.EnterQuarantine(w.ctx, w.by, pg.Quarantine{Reason: "restored, as another process says"}))
	if life() != lost {
		t.Error("the same loss drew a second life")
	}
	w.must(w.s.EnterQuarantine(w.ctx, w.by, pg.Quarantine{Reason: "more is lost", LostFrom: time.Now().Add(-time.Hour), LostUntil: time.Now()}))
	if life() == lost {
		t.Error("a loss that begins earlier drew no new life")
	}
	if !w.s.Quarantined(w.id, "T") || !w.s.Quarantined(w.id, "U") {
		t.Error("the process that entered it does not know of it")
	}
}
