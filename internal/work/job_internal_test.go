package work

import (
	"encoding/json"
	"maps"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/pgtest"
)

// Rows of River's wait while one release of Postern replaces another: kinds and arguments stay what they are.
func TestTheKindsOfJobsStay(t *testing.T) {
	t.Parallel()
	e := New(Config{Store: pgtest.New(t).Store(t, 2)})
	e.Add(
		NewDeliveries(e, DeliveriesConfig{}).System(),
		NewEvents(e, EventsConfig{}).System(),
		NewBatches(e).System(),
		NewChannels(e).System(),
	)
	all := e.jobs(t.Context())
	for _, s := range e.systems {
		all = append(all, s.Jobs...)
	}
	got := map[string]time.Duration{}
	for _, j := range all {
		if _, known := got[j.Kind]; known {
			t.Errorf("there are two jobs of kind %s", j.Kind)
		}
		got[j.Kind] = j.Every
		args := jobArgs{j.Kind}
		if b, err := json.Marshal(args); err != nil || string(b) != "{}" || args.Kind() != j.Kind {
			t.Errorf("arguments of %s are written %s, as of kind %s: %v", j.Kind, b, args.Kind(), err)
		}
	}
	want := map[string]time.Duration{
		"dispatch":  0, // sent for
		"retry":     5 * time.Second,
		"include":   5 * time.Second,
		"callback":  5 * time.Second,
		"channel":   5 * time.Second,
		"tick":      5 * time.Second,
		"sweep":     10 * time.Second,
		"sample":    15 * time.Second,
		"rollup":    5 * time.Minute,
		"partition": time.Hour,
	}
	if !maps.Equal(got, want) {
		t.Errorf("jobs %v, want %v", got, want)
	}
}
