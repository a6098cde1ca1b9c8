package events_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/reads"
)

// An event and a source that a quarantine or a pause keeps name it, and do not promise to go on. A source that is
// pushed to takes events in a pause, and so does one that is read while a type is paused.
func TestWhyNamesWhatKeepsEventsAndSources(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.pushed(1)[0]
	read := leader.Source{Name: "read", Kind: "http_json", URL: "http://10.0.0.1/", Map: leader.SourceMap{FQN: "/tool"}}
	_, err := w.S.Events.PutSource(w.Ctx, w.By, read.WithDefaults(), 0)
	w.Must(err)
	first := func(v *reads.Why, err error) string {
		t.Helper()
		if w.Must(err); v.Moving {
			return "moving"
		}
		if len(v.Blockers) == 0 {
			t.Fatalf("%+v", v)
		}
		last := v.Blockers[len(v.Blockers)-1]
		if len(last.Levers) == 0 || last.Since.IsZero() {
			t.Errorf("%+v", last)
		}
		return last.Kind
	}
	check := func(when, event, source string) {
		t.Helper()
		if got := first(w.S.Events.WhyEvent(w.Ctx, w.ID, id)); got != event {
			t.Errorf("%s: the event is %s, want %s", when, got, event)
		}
		if got := first(w.S.Events.WhySource(w.Ctx, w.ID, "read")); got != source {
			t.Errorf("%s: the source is %s, want %s", when, got, source)
		}
		if got := first(w.S.Events.WhySource(w.Ctx, w.ID, "app")); got != "moving" {
			t.Errorf("%s: the source that is pushed to is %s", when, got)
		}
	}
	rounds := func(kinds string) {
		t.Helper()
		check(kinds+", open", "moving", "moving")
		_, err := w.S.PauseDispatcher(w.Ctx, w.By, leader.TypeTool, true)
		w.Must(err)
		check(kinds+", type paused", "dispatcher_paused", "moving")
		_, err = w.S.PauseDispatcher(w.Ctx, w.By, leader.TypeTool, false)
		w.Must(err)
		_, err = w.S.PauseContext(w.Ctx, w.By, "default", true)
		w.Must(err)
		check(kinds+", context paused", "context_paused", "context_paused")
		_, err = w.S.PauseContext(w.Ctx, w.By, "default", false)
		w.Must(err)
		q := pg.Quarantine{Context: "default", Reason: "test"}
		w.Must(w.S.EnterQuarantine(w.Ctx, w.By, q))
		check(kinds+", quarantine", "quarantined", "quarantined")
		_, err = w.S.ReleaseQuarantine(w.Ctx, w.By, q, true)
		w.Must(err)
	}
	rounds("queued")
	w.Exec(`UPDATE postern.event SET not_before = $1`, time.Now().Add(time.Hour))
	rounds("to be tried again")
}
