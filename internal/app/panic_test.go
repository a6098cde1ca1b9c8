package app_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/safe"
)

// A loop that panics again and again drops readiness by its name, and is counted and logged; the process goes on and
// gets ready again.
func TestALoopThatPanicsDropsReadiness(t *testing.T) {
	db := pgtest.New(t)
	c, _, err := app.Load(app.Layers{Environ: map[string]string{"DATABASE_URL": db.URL,
		"POSTERN_METRICS_LISTEN": "127.0.0.1:0", "POSTERN_SHUTDOWN_GRACE": "1s"}})
	if err != nil {
		t.Fatal(err)
	}
	a, err := app.New(t.Context(), c, app.Role{Work: true, Version: "1.2.3"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	stop := safe.Provoke(func(at string) {
		if at == "timers" {
			panic("again")
		}
	})
	defer stop()
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	at := strings.TrimSuffix(a.MetricsURL(), "/metrics")
	await := func(path string, parts ...string) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
			_, body := send(t, http.MethodGet, at+path, "")
			has := true
			for _, p := range parts {
				has = has && strings.Contains(body, p)
			}
			if has {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("want %q: %s", parts, body)
			}
		}
	}
	await("/readyz", `"ready":false`, `"loops"`, "[timers]")
	await("/metrics", `postern_panics_total{place="timers"}`)
	if status, _ := send(t, http.MethodGet, at+"/livez", ""); status != 200 {
		t.Errorf("liveness is %d", status)
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A piece of work that panics while a process starts is told to that process too, whatever it has built so far.
func TestAPanicAtTheStartIsTold(t *testing.T) {
	c, _, err := app.Load(app.Layers{Environ: map[string]string{"DATABASE_URL": pgtest.New(t).URL,
		"POSTERN_METRICS_LISTEN": "127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		for ctx.Err() == nil {
			safe.Run("at the start", func() { panic("early") })
			time.Sleep(time.Millisecond)
		}
	}()
	a, err := app.New(t.Context(), c, app.Role{Work: true}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	end()
	<-over
	w := httptest.NewRecorder()
	a.Measured().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if !strings.Contains(w.Body.String(), `postern_panics_total{place="at the start"}`) {
		t.Errorf("no panic is counted: %s", w.Body)
	}
}
