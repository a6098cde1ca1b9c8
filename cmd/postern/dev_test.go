package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/internal/pgtest"
)

// The environment names the database of somebody's application: dev and demo leave it alone and say so.
func TestDevAndDemoUseADatabaseOfTheirOwn(t *testing.T) {
	t.Parallel()
	others := pgtest.Empty(t)
	mustExec(t, others, `CREATE TABLE public.orders (id int)`)
	file := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(file, []byte(others.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args  []string
		env   []string
		named string
	}{
		{[]string{"dev", "--ephemeral"}, []string{"DATABASE_URL=" + others.URL, "PGSERVICE=none", "PGHOST=nowhere"},
			"ignored: DATABASE_URL, PGHOST, PGSERVICE. postern dev uses a database of its own"},
		{[]string{"demo", "--ephemeral", "--once"}, []string{"DATABASE_URL_FILE=" + file, "PGSSLMODE=verify-full"},
			"ignored: DATABASE_URL_FILE. postern demo uses a database of its own"},
	} {
		p := start(t, append(c.env, anyPort...), append(c.args, "--metrics-listen", "off")...)
		if c.args[0] == "dev" {
			p.line()
			await(t, p, p.line())
		} else {
			apiOf(t, p)
		}
		p.signal(syscall.SIGTERM)
		p.wait()
		if said := p.stderr(); strings.Count(said, "ignored: ") != 1 || !strings.Contains(said, c.named) {
			t.Errorf("%s says %s", c.args[0], said)
		}
	}
	var schemas int
	if mustScan(t, others, `SELECT count(*) FROM pg_namespace WHERE nspname = 'postern'`, &schemas); schemas != 0 {
		t.Error("the database of the environment was migrated")
	}
}

// A database that others use is taken only where that is said.
func TestDevAndDemoTakeADatabaseOfOthersOnlyWhenTold(t *testing.T) {
	t.Parallel()
	app, ours := pgtest.Empty(t), pgtest.New(t)
	mustExec(t, app, `CREATE TABLE public.orders (id int)`)
	env := append(database(ours.URL), "POSTERN_AUTH=none", "POSTERN_NODE_NAME=till")
	working, _ := serving(t, env, "serve", "--work")
	told := map[string]string{app.URL: "it has the table public.orders", ours.URL: "the process till works"}
	for _, command := range []string{"dev", "demo"} {
		for url, want := range told {
			postern(t, nil, command, "--database-url", url).want(t, exitUsage, want, "say --yes")
		}
	}
	var schemas int
	if mustScan(t, app, `SELECT count(*) FROM pg_namespace WHERE nspname = 'postern'`, &schemas); schemas != 0 {
		t.Error("the database of others was migrated")
	}
	working.signal(syscall.SIGTERM)
	working.wait()
	for _, url := range []string{app.URL, ours.URL} {
		p := start(t, anyPort, "dev", "--metrics-listen", "off", "--database-url", url, "--yes")
		if l := p.line(); l != "DATABASE_URL="+url {
			t.Errorf("the first line is %q", l)
		}
		await(t, p, p.line())
		p.signal(syscall.SIGTERM)
		p.wait()
	}
}
