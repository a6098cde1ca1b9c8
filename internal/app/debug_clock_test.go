package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/remotetest"
)

// clocked runs a whole process whose clock can be moved, and returns its address.
func clocked(t *testing.T, environ map[string]string) string {
	t.Helper()
	t.Parallel()
	return clockedWith(t, environ)
}

// clockedWith is clocked for a test that runs several.
func clockedWith(t *testing.T, environ map[string]string) string {
	t.Helper()
	all := map[string]string{
		"DATABASE_URL":           pgtest.Few(pgtest.New(t).URL),
		"POSTERN_LISTEN":         "127.0.0.1:0",
		"POSTERN_SHUTDOWN_GRACE": "1s",
		"POSTERN_LEASE_TTL":      "2s",
	}
	for k, v := range environ {
		all[k] = v
	}
	c, _, err := app.Load(app.Layers{Environ: all, Defaults: app.DevDefaults})
	if err != nil {
		t.Fatal(err)
	}
	a, err := app.New(t.Context(), c, app.Role{Serve: true, Work: true, Version: "test"}, slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	for status := 0; status != http.StatusOK; {
		status, _ = send(t, http.MethodGet, a.URL()+"/readyz", "")
	}
	return a.URL()
}

// want sends a request and decodes what it answers.
func want(t *testing.T, status int, method, url, body string) map[string]any {
	t.Helper()
	got, text := send(t, method, url, body)
	if got != status {
		t.Fatalf("%s %s answers %d, want %d: %s", method, url, got, status, text)
	}
	m := map[string]any{}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%s %s: %v: %s", method, url, err, text)
	}
	return m
}

func at(t *testing.T, v any) time.Time {
	t.Helper()
	s, _ := v.(string)
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		t.Fatalf("%v is no time", v)
	}
	return at
}

func TestAnHourPassesAtOnce(t *testing.T) {
	url := clocked(t, map[string]string{"POSTERN_DEBUG_CLOCK": "true"})
	want(t, 201, "PUT", url+"/dispatchers/THING", `{"worker_url": "noop:"}`)
	later := time.Now().Add(time.Hour)
	want(t, 201, "POST", url+"/transactions", fmt.Sprintf(`{"type": "THING", "queue": "q", "uid": "later", "data": {}, "not_before": %q}`, later.Format(time.RFC3339)))
	if got := want(t, 200, "GET", url+"/transactions/by-uid/later?wait=100ms", ""); got["state"] != "WAITING" {
		t.Fatalf("before its time it is %v", got["state"])
	}

	now := at(t, want(t, 200, "POST", url+"/debug/clock", `{"advance": "1h"}`)["now"])
	if now.Before(later) || now.After(later.Add(time.Minute)) {
		t.Errorf("an hour after %s it is %s", later.Add(-time.Hour), now)
	}
	got := want(t, 200, "GET", url+"/transactions/by-uid/later?wait=30s", "")
	if got["state"] != "DONE" || at(t, got["done_at"]).Before(now) {
		t.Errorf("an hour later it is %v, done at %v, now being %s", got["state"], got["done_at"], now)
	}
	// all that is told of it agrees: nothing happened before it was posted, nor after now
	history := want(t, 200, "GET", url+"/transactions/by-uid/later", "")
	posted := at(t, history["received_at"])
	attempts := want(t, 200, "GET", url+"/transactions/"+got["id"].(string)+"/attempts", "")
	for _, item := range attempts["items"].([]any) {
		a := item.(map[string]any)
		if started := at(t, a["started_at"]); started.Before(posted.Add(time.Hour-time.Minute)) || at(t, a["answered_at"]).Before(started) {
			t.Errorf("posted at %s, called from %v to %v", posted, a["started_at"], a["answered_at"])
		}
	}
	// a transaction posted now is received an hour later, and goes out at once
	got = want(t, 201, "POST", url+"/transactions?wait=30s", `{"type": "THING", "queue": "q", "uid": "now", "data": {}}`)
	if got["state"] != "DONE" || at(t, got["received_at"]).Before(now) {
		t.Errorf("posted after the hour: %v, received at %v", got["state"], got["received_at"])
	}
	// into a day whose partitions were not made yet, and the next
	next := now.AddDate(0, 2, 0)
	want(t, 200, "POST", url+"/debug/clock", fmt.Sprintf(`{"set": %q}`, next.Format(time.RFC3339)))
	got = want(t, 201, "POST", url+"/transactions?wait=30s", `{"type": "THING", "queue": "other", "uid": "next", "data": {}}`)
	if got["state"] != "DONE" || at(t, got["done_at"]).Before(next.Truncate(time.Second)) {
		t.Errorf("two months later: %v", got)
	}
	// leases are kept by the database's clock: this node is still alive, and ready
	want(t, 200, "GET", url+"/readyz", "")
}

func TestARetryIsDueWhenTheClockSaysSo(t *testing.T) {
	url := clocked(t, map[string]string{"POSTERN_DEBUG_CLOCK": "true"})
	fake := remotetest.NewFake(t)
	fake.Script(remotetest.Match{Op: remotetest.OpDispatch}, remotetest.Fail(20203, "sending"), remotetest.Done(map[string]any{"ok": true}))
	want(t, 201, "PUT", url+"/dispatchers/THING", fmt.Sprintf(`{"worker_url": %q, "retry": {"kind": "fixed", "initial": "2h", "cap": "2h", "max_retries": 3}}`, fake.URL()))
	want(t, 201, "POST", url+"/transactions", `{"type": "THING", "queue": "q", "uid": "again", "data": {}}`)
	got := want(t, 200, "GET", url+"/transactions/by-uid/again?wait=30s&until=RETRY", "")
	if got["state"] != "RETRY" {
		t.Fatalf("after a failure: %v", got)
	}
	want(t, 200, "POST", url+"/debug/clock", `{"advance": "1h"}`)
	if got = want(t, 200, "GET", url+"/transactions/by-uid/again?wait=200ms", ""); got["state"] != "RETRY" {
		t.Fatalf("halfway through its delay: %v", got)
	}
	want(t, 200, "POST", url+"/debug/clock", `{"advance": "61m"}`)
	if got = want(t, 200, "GET", url+"/transactions/by-uid/again?wait=30s", ""); got["state"] != "DONE" || got["attempt"] != float64(2) {
		t.Errorf("after its delay: %v", got)
	}
}

func TestTheClockDoesNotFallNorTakeNonsense(t *testing.T) {
	url := clocked(t, map[string]string{"POSTERN_DEBUG_CLOCK": "true"})
	first := at(t, want(t, 200, "POST", url+"/debug/clock", `{"advance": "24h"}`)["now"])
	for body, says := range map[string]string{
		`{}`: "neither set nor advance", `{"set": "2030-01-01T00:00:00Z", "advance": "1s"}`: "one of them", `{"advance": "-1s"}`: "never falls",
		`{"advance": "tomorrow"}`: "want a duration", `{"set": "2020-01-01T00:00:00Z"}`: "never falls", `{"set": "9999-01-01T00:00:00Z"}`: "100 years",
		`{"advance": "2000000h"}`: "100 years", fmt.Sprintf(`{"set": %q}`, time.Now().Add(time.Hour).Format(time.RFC3339)): "never falls",
		`{"advance": "1s", "blocks": {"a": "1"}}`: "blocks", `{"set": "soon"}`: "set",
	} {
		got := want(t, 422, "POST", url+"/debug/clock", body)
		if !strings.Contains(fmt.Sprint(got["detail"]), says) || got["errors"] == nil {
			t.Errorf("%s: %v", body, got)
		}
	}
	want(t, 201, "PUT", url+"/processors/main", `{}`)
	want(t, 200, "POST", url+"/debug/clock", `{"heights": {"main": "7"}}`)
	if p := want(t, 200, "GET", url+"/processors/main", ""); p["height"] != "7" {
		t.Error(p)
	}
	want(t, 422, "POST", url+"/debug/clock", `{"advance": "1h", "heights": {"main": 6}}`)
	want(t, 404, "POST", url+"/debug/clock", `{"heights": {"other": 8}}`)
	if now := at(t, want(t, 200, "POST", url+"/debug/clock", `{"advance": "0s"}`)["now"]); now.Before(first) || now.After(first.Add(time.Minute)) {
		t.Errorf("after refusals it is %s, and was %s", now, first)
	}
}

func TestWithoutTheFlagNobodyMovesTheClock(t *testing.T) {
	url := clocked(t, nil)
	if got := want(t, 404, "POST", url+"/debug/clock", `{"advance": "1h"}`); got["code"] != "not_found" {
		t.Errorf("%v", got)
	}
}
