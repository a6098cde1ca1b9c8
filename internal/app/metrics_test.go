package app_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/remotetest"
)

// measured runs a whole process and returns the addresses of its API and of its metrics.
func measured(t *testing.T, role app.Role) (api, metrics string) {
	t.Helper()
	c, _, err := app.Load(app.Layers{Environ: map[string]string{"DATABASE_URL": pgtest.New(t).URL, "POSTERN_LISTEN": "127.0.0.1:0",
		"POSTERN_METRICS_LISTEN": "127.0.0.1:0", "POSTERN_SHUTDOWN_GRACE": "1s"}, Defaults: app.DevDefaults})
	if err != nil {
		t.Fatal(err)
	}
	a, err := app.New(t.Context(), c, role, slog.New(slog.NewTextHandler(t.Output(), nil)))
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
	return a.URL(), a.MetricsURL()
}

func TestAProcessShowsWhatItDid(t *testing.T) {
	t.Parallel()
	url, metrics := measured(t, app.Role{Serve: true, Work: true, Version: "test"})
	fake := remotetest.NewFake(t)
	fake.Script(remotetest.Match{Op: remotetest.OpDispatch}, remotetest.Done(map[string]any{"ok": true}))
	fake.Script(remotetest.Match{Op: remotetest.OpDispatch, UID: "twice", Attempt: 1}, remotetest.Fail(20203, "sending"))
	want(t, 201, "PUT", url+"/dispatchers/THING", fmt.Sprintf(`{"worker_url": %q, "pool": "signers", "retry": {"kind": "fixed", "initial": "10ms", "cap": "10ms"}}`, fake.URL()))
	want(t, 201, "PUT", url+"/senders/acct-secret-7", `{"pool": "signers"}`)
	for _, uid := range []string{"once", "twice", "thrice"} {
		got := want(t, 201, "POST", url+"/transactions?wait=30s", fmt.Sprintf(`{"type": "THING", "queue": "my-queue", "uid": %q, "data": {}}`, uid))
		if got["state"] != "DONE" {
			t.Fatalf("%s: %v", uid, got)
		}
	}
	want(t, 200, "POST", url+"/queues/my-queue/pause", "")
	cancelled := want(t, 201, "POST", url+"/transactions", `{"type": "THING", "queue": "my-queue", "uid": "never", "data": {}}`)
	want(t, 201, "POST", url+"/transactions", `{"type": "THING", "queue": "my-queue", "uid": "waits", "data": {}}`)
	want(t, 200, "POST", url+"/transactions/"+cancelled["id"].(string)+"/cancel?dry_run=true", "")
	want(t, 200, "POST", url+"/transactions/"+cancelled["id"].(string)+"/cancel", "")
	want(t, 404, "GET", url+"/nothing/here", "")

	status, text := send(t, http.MethodGet, metrics, "")
	if status != 200 {
		t.Fatalf("%s answers %d: %s", metrics, status, text)
	}
	for _, line := range []string{
		`postern_transactions_total{state="WAITING",type="THING"} 5`, `postern_transactions_total{state="DISPATCHING",type="THING"} 4`,
		`postern_transactions_total{state="RETRY",type="THING"} 1`, `postern_transactions_total{state="DONE",type="THING"} 3`,
		`postern_transactions_total{state="CANCELLED",type="THING"} 1`, `postern_retries_total{class="retry",type="THING"} 1`,
		`postern_worker_calls_total{class="ok",type="THING"} 3`, `postern_worker_calls_total{class="retry",type="THING"} 1`,
		`postern_state_seconds_count{machine="transaction",state="WAITING"} 3`, `postern_state_seconds_count{machine="transaction",state="DISPATCHING"} 4`,
		`postern_state_seconds_count{machine="transaction",state="RETRY"} 1`, `postern_state_seconds_count{machine="queue",state="BLOCKED"} 4`,
		`postern_state_seconds_count{machine="queue",state="DELAY"} 1`, `postern_settle_seconds_count 5`, `postern_waiting 1`, `postern_queues{state="FREE"} 1`,
		`postern_senders{pool="signers",state="FREE"} 1`, `postern_stale_writes_refused_total 0`,
		`postern_http_seconds_count{route="POST /transactions",status="201"} 5`, `postern_http_seconds_count{route="none",status="404"} 1`,
		`postern_http_seconds_count{route="POST /queues/{name}/pause",status="200"} 1`,
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			name, _, _ := strings.Cut(line, "{")
			t.Errorf("%s is missing; there is\n%s", line, strings.Join(regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(name)+`[{ ].*$`).FindAllString(text, -1), "\n"))
		}
	}
	for _, never := range []string{"my-queue", "acct-secret-7", "twice", cancelled["id"].(string)} {
		if strings.Contains(text, never) {
			t.Errorf("%q is in a label", never)
		}
	}
	age := regexp.MustCompile(`postern_lease_age_seconds (\S+)\n`).FindStringSubmatch(text)
	if age == nil {
		t.Error("no age of the lease")
	}
	if status, _ := send(t, http.MethodGet, url+"/metrics", ""); status != 404 {
		t.Errorf("the API's own port serves metrics: %d", status)
	}
}

func TestMetricsGiveWayWhereTheyMayAndOnlyThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:9090")
	held := err == nil // else somebody else has it, and may let go of it at any time
	if held {
		defer l.Close()
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	db := pgtest.New(t).URL
	for at, wants := range map[string]string{"": "another", "off": "none", taken.Addr().String(): "address_in_use", "nonsense": "bad_setting"} {
		c, _, err := app.Load(app.Layers{Environ: map[string]string{"DATABASE_URL": db, "POSTERN_LISTEN": "127.0.0.1:0", "POSTERN_METRICS_LISTEN": at}, Defaults: app.DevDefaults})
		var a *app.App
		if err == nil {
			a, err = app.New(t.Context(), c, app.Role{Work: true}, slog.New(slog.DiscardHandler))
		}
		switch {
		case err != nil:
			if fault.CodeOf(err) != wants || !strings.Contains(err.Error(), "metrics-listen") {
				t.Errorf("metrics at %q: %v", at, err)
			}
			continue
		case wants == "none" && a.MetricsURL() != "", wants == "another" && (a.MetricsURL() == "" || held && strings.Contains(a.MetricsURL(), "127.0.0.1:9090/")):
			t.Errorf("metrics at %q are served at %q", at, a.MetricsURL())
		}
		a.Close()
	}
}
