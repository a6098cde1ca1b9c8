package flows_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/pg/flows"
)

func (w *world) names() string {
	w.T.Helper()
	list, err := w.S.Flows.Runners(w.Ctx, w.ID, "", 10)
	w.Must(err)
	var names []string
	for _, r := range list {
		names = append(names, r.Name)
	}
	return fmt.Sprint(names)
}

// A runner that made itself and is silent for a week is gone: names of pods do not pile up. One that an admin made, or
// paused, stays, and so does one that was seen; one that comes back has its name again.
func TestARunnerThatStaysAwayIsForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("holder", "made", "paused", "pod-1", "pod-2")
	made := flows.RunnerSettings{Name: "made", Local: true, Slots: 2}.WithDefaults()
	_, err := w.S.Flows.PutRunner(w.Ctx, w.By, made, 0)
	w.Must(err)
	_, err = w.S.Flows.PauseRunner(w.Ctx, w.By, "paused", true)
	w.Must(err)
	w.post(0)
	w.one("holder")
	w.Later(6 * 24 * time.Hour)
	w.Must(w.S.Flows.Forget(w.Ctx))
	if got := w.names(); got != "[holder made paused pod-1 pod-2]" {
		t.Errorf("after six days there are %s", got)
	}
	w.register("pod-2")
	w.Later(2 * 24 * time.Hour)
	w.Must(w.S.Flows.Forget(w.Ctx))
	if got := w.names(); got != "[holder made paused pod-2]" {
		t.Errorf("after eight days there are %s", got)
	}
	if _, err := w.claim(w.S, "pod-1"); said(err) != "not_found" {
		t.Errorf("the claim of one that is gone: %v", err)
	}
	w.register("pod-1")
	if got := w.names(); got != "[holder made paused pod-1 pod-2]" {
		t.Errorf("once it is back there are %s", got)
	}
}

// A runner that claims while it is forgotten stays: behind its lock its row says that it was seen a moment ago.
func TestARunnerIsForgottenBesideItsClaim(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("a")
	w.post(0)
	w.Later(8 * 24 * time.Hour)
	other := w.Another(2)
	second, waited := w.Beside(func() error { _, err := w.claim(w.S, "a"); return err },
		func() string { return said(other.Flows.Forget(w.Ctx)) })
	if second != "ok" || !waited || w.names() != "[a]" {
		t.Errorf("%q, waited: %v; there are %s", second, waited, w.names())
	}
}
