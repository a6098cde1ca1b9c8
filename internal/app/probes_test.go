package app_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/pgtest"
)

func TestAProcessWithoutAnAPICanBeProbed(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	c, _, err := app.Load(app.Layers{Environ: map[string]string{"DATABASE_URL": db.URL, "POSTERN_METRICS_LISTEN": "127.0.0.1:0", "POSTERN_SHUTDOWN_GRACE": "1s"}})
	if err != nil {
		t.Fatal(err)
	}
	a, err := app.New(t.Context(), c, app.Role{Work: true, Version: "1.2.3"}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	at := strings.TrimSuffix(a.MetricsURL(), "/metrics")
	ready := func() (int, string) { return send(t, http.MethodGet, at+"/readyz", "") }
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		status, body := ready()
		if status == 200 && strings.Contains(body, `"ready":true`) && strings.Contains(body, `"lease"`) && strings.Contains(body, `"progress"`) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d %s", status, body)
		}
	}
	if status, body := send(t, http.MethodGet, at+"/livez", ""); status != 200 || !strings.Contains(body, `"version":"1.2.3"`) {
		t.Errorf("%d %s", status, body)
	}
	a.Store().Pool().Close() // the database is gone
	if status, body := ready(); status != 503 || !strings.Contains(body, `"ready":false`) || !strings.Contains(body, "the database does not answer") {
		t.Errorf("%d %s", status, body)
	}
	if status, _ := send(t, http.MethodGet, at+"/livez", ""); status != 200 {
		t.Errorf("liveness depends on the database: %d", status)
	}
	stop()
	<-ended
}
