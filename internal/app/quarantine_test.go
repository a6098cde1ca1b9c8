package app_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
	pgdb "github.com/postern-dev/postern/internal/pg/db"
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

// A copy of a database, started under another deployment, sends nothing: its process goes on in quarantine. One without
// a deployment neither writes nor compares.
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
	by := pgdb.By{Actor: "test", Via: "test", Reason: "a copy for tests"}
	if next := v.Scopes[0].NextStep(); strings.Contains(next, "run postern quarantine reconcile") || !strings.Contains(next, `those of "shop"`) ||
		!strings.Contains(next, "postern identity announce staging --reason") {
		t.Errorf("of a copy the next step is %s", next)
	}
	_, err := a.Store().ReconcileRound(t.Context(), by, pg.Quarantine{}, false)
	if fault.CodeOf(err) != "wrong_state" || !strings.Contains(err.Error(), `may be a copy of that of deployment "shop"`) {
		t.Errorf("the workers of the original are asked: %v", err)
	}
	_, err = a.Store().ReleaseQuarantine(t.Context(), by, pg.Quarantine{}, false)
	if fault.CodeOf(err) != "not_reconciled" || !strings.Contains(err.Error(), "postern identity announce staging") {
		t.Errorf("the release of a copy says %v", err)
	}
	if r, err := a.Store().AnnounceDeployment(t.Context(), by, "staging"); err != nil || !r.Changed {
		t.Fatal(r, err)
	}
	const next = "postern quarantine release --anyway --reason ...; where commits may be lost, postern quarantine reconcile first"
	if got := status(a).Scopes[0].NextStep(); got != next {
		t.Errorf("after the announcement the next step is %s", got)
	}
	if _, err := a.Store().ReleaseQuarantine(t.Context(), by, pg.Quarantine{}, true); err != nil {
		t.Fatal(err)
	}
	if v = status(named(t, clone.URL, "staging")); len(v.Scopes) != 0 || v.Deployment != "staging" {
		t.Errorf("after the announcement it is as %+v", v)
	}
}

// A database that was restored and entered quarantine by hand may be a copy all the same: the first process under
// another deployment has it noted. Once an operator has announced that one, the workers are to be asked, as after each
// restore.
func TestARestoreUnderAnotherDeploymentIsACopyUntilItIsAnnounced(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	store := named(t, db.URL, "shop").Store()
	by := pgdb.By{Actor: "test", Via: "test", Reason: "moved"}
	if err := store.EnterQuarantine(t.Context(), by, pg.Quarantine{Reason: "restored"}); err != nil {
		t.Fatal(err)
	}
	store = named(t, db.URL, "shop-eu").Store()
	scope := func() *pg.QuarantinedScope {
		v, err := store.QuarantinedScope(t.Context(), pg.Quarantine{})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := scope(); !v.Copy() || v.Reason != "restored" || !strings.Contains(v.NextStep(), "postern identity announce shop-eu") {
		t.Errorf("it is a copy: %v, because %s; next %s", v.Copy(), v.Reason, v.NextStep())
	}
	if _, err := store.AnnounceDeployment(t.Context(), by, "shop-eu"); err != nil {
		t.Fatal(err)
	}
	if v := scope(); v.Copy() || v.NextStep() != "postern quarantine reconcile" {
		t.Errorf("after the announcement it is a copy: %v; next %s", v.Copy(), v.NextStep())
	}
}
