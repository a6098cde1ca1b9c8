package app_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest"
)

// named makes a process on a database, under a deployment.
func named(t *testing.T, database, deployment string) *app.App {
	t.Helper()
	c, _, err := app.Load(app.Layers{Defaults: app.DevDefaults, Environ: map[string]string{
		"DATABASE_URL": database, "POSTERN_LISTEN": "127.0.0.1:0", "POSTERN_DEPLOYMENT": deployment}})
	if err != nil {
		t.Fatal(err)
	}
	a, err := app.New(t.Context(), c, app.Role{Serve: true, Work: true, Version: "test"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

// A copy of a database, started under another deployment, sends nothing: its process goes on in quarantine. One without a
// deployment neither writes nor compares.
func TestACopyUnderAnotherDeploymentIsInQuarantine(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	status := func(a *app.App) *pg.QuarantineStatus {
		t.Helper()
		v, err := a.Store().Quarantine(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := status(named(t, db.URL, "")); v.Deployment != "" || len(v.Scopes) != 0 {
		t.Errorf("a process without a deployment left %+v", v)
	}
	for range 2 {
		if v := status(named(t, db.URL, "shop")); v.Deployment != "shop" || len(v.Scopes) != 0 {
			t.Errorf("the first deployment left %+v", v)
		}
	}
	clone := db.Copy(t)
	if v := status(named(t, clone.URL, "")); len(v.Scopes) != 0 {
		t.Errorf("a process without a deployment left %+v", v)
	}
	a := named(t, clone.URL, "staging")
	v := status(a)
	if len(v.Scopes) != 1 || v.Scopes[0].Context != "" || v.Scopes[0].Type != "" || v.Deployment != "shop" ||
		!strings.Contains(v.Scopes[0].Reason, `deployment "staging" differs from "shop"`) {
		t.Fatalf("the copy is as %+v", v)
	}
	life := v.Life
	if v = status(named(t, clone.URL, "staging")); len(v.Scopes) != 1 || v.Life != life {
		t.Errorf("a second process made of it %+v", v)
	}
	by := pg.By{Actor: "test", Via: "test", Reason: "a copy for tests"}
	if r, err := a.Store().AnnounceDeployment(t.Context(), by, "staging"); err != nil || !r.Changed {
		t.Fatal(r, err)
	}
	if _, err := a.Store().ReleaseQuarantine(t.Context(), by, pg.Quarantine{}, true); err != nil {
		t.Fatal(err)
	}
	if v = status(named(t, clone.URL, "staging")); len(v.Scopes) != 0 || v.Deployment != "staging" {
		t.Errorf("after the announcement it is as %+v", v)
	}
}
