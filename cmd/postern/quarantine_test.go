package main

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/internal/devpg"
	"github.com/postern-dev/postern/internal/pgtest"
)

// noAPI is where none listens: no program is given that port which asks for any.
const noAPI = "http://127.0.0.1:1"

// A quarantine is entered when things are down. Where the API does not answer, the command says how the database itself
// is asked, and a flag that names one of the two comes before the variable of the other.
func TestAQuarantineIsEnteredWhereTheCommandIsTold(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	both := append(database(db.URL), "POSTERN_URL="+noAPI)
	enter := []string{"quarantine", "enter", "--reason", "restored"}
	for _, args := range [][]string{
		enter,
		append(enter, "--dry-run"),
		{"quarantine", "release", "--reason", "asked"},
		{"identity", "announce", "shop", "--reason", "renamed"},
	} {
		postern(t, both, args...).want(t, exitUsage, noAPI, "these may be two installations, and nothing was changed",
			`next: say which is meant: --database-url "$DATABASE_URL", or --url "$POSTERN_URL"`)
	}
	postern(t, both, "quarantine", "status").want(t, exitUnreachable, "give --database-url")
	postern(t, database(db.URL), "quarantine", "status", "--url", noAPI).want(t, exitUnreachable,
		"next: leave out --url and give --database-url")
	postern(t, []string{"POSTERN_URL=" + noAPI}, enter...).want(t, exitUnreachable, "give --database-url")
	postern(t, both, append(enter, "--url", noAPI, "--database-url", db.URL)...).want(t, exitUsage, "give one of them")

	r := postern(t, both, append(enter, "--database-url", db.URL, "-o", "json")...)
	r.want(t, 0, `"result":"done"`, `"where":"in the database postgres`)
	postern(t, both, append(enter, "--database-url", db.URL, "-o", "table")...).
		want(t, 0, "done: everything is in quarantine, in the database postgres")
	postern(t, both, "quarantine", "status", "--database-url", db.URL, "-o", "table").
		want(t, 0, "everything is in quarantine, in the database postgres", "next: postern quarantine reconcile")
	postern(t, database(db.URL), "quarantine", "release", "dispatchers/PAY", "--reason", "x").
		want(t, exitBad, "there is no quarantine of type PAY", "next: `postern quarantine status`")

	p, at := serving(t, append(database(db.URL), "POSTERN_AUTH=none"), "serve")
	postern(t, []string{at}, "quarantine", "status", "-o", "json").want(t, 0, `"reason":"restored"`)
	postern(t, []string{at}, append(enter, "-o", "table")...).
		want(t, 0, "done: everything is in quarantine, at "+strings.TrimPrefix(at, "POSTERN_URL="))
	p.signal(syscall.SIGSTOP)
	postern(t, append(database(db.URL), at), "quarantine", "status").want(t, exitUnreachable, "give --database-url")
	p.signal(syscall.SIGCONT)
}

// Workers are called from an API: reconcile says so, whichever way it is left without one.
func TestReconcileSaysThatItNeedsAnAPI(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	postern(t, append(database(db.URL), "POSTERN_URL="+noAPI), "quarantine", "reconcile").
		want(t, exitUnreachable, "next: reconcile needs a running API",
			"a database alone is not enough", "start `postern serve`")
	postern(t, nil, "quarantine", "reconcile", "--database-url", db.URL).want(t, exitUsage,
		"reconcile calls the workers from an API", "give --url")
	postern(t, nil, "quarantine", "reconcile", "-h").want(t, 0, "It needs a running API")
}

// At the database itself a reason that is empty is refused, as it is at the API.
func TestAnEmptyReasonIsRefusedAtTheDatabase(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, args := range [][]string{{"quarantine", "enter"}, {"quarantine", "release", "--anyway"},
		{"identity", "announce", "shop"}} {
		for _, reason := range []string{"", "  "} {
			postern(t, database(db.URL), append(args, "--reason", reason)...).want(t,
				exitBad, "reason is empty: say why")
		}
	}
	var entered, audited int
	err := db.Pool.QueryRow(t.Context(),
		`SELECT (SELECT count(*) FROM postern.quarantine), (SELECT count(*) FROM postern.audit)`).Scan(&entered,
		&audited)
	if err != nil || entered+audited != 0 {
		t.Errorf("%d scopes were entered, and %d levers written down: %v", entered, audited, err)
	}
}

// A database that breaks off under reconcile, before or in a commit, is told with the exit code of what cannot be
// reached, and with what the operator can do: run it again.
func TestReconcileWithABrokenDatabaseIsRunAgain(t *testing.T) {
	t.Parallel()
	s, err := devpg.Start(t.Context(), devpg.Options{Ephemeral: true, Unsafe: true,
		BinDir: os.Getenv("POSTERN_PG_BIN")})
	if err != nil {
		t.Skipf("a server of its own: %v", err)
	}
	t.Cleanup(func() { s.Close() })
	env := database(s.URL)
	postern(t, env, "migrate", "up").want(t, 0)
	_, at := serving(t, append(env, "POSTERN_AUTH=none"), "serve")
	postern(t, env, "quarantine", "enter", "--reason", "restored").want(t, 0)
	broken := func(env []string, says string, args ...string) {
		t.Helper()
		r := postern(t, env, append([]string{"quarantine"}, args...)...)
		r.want(t, exitUnreachable, says, "next: when the database answers", "again")
		if strings.Contains(r.stderr, "Idempotency-Key") {
			t.Errorf("a command that has no key says\n%s", r.stderr)
		}
	}
	api := []string{at}
	onServer(t, s.URL, `CREATE FUNCTION public.dies() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		PERFORM pg_terminate_backend(pg_backend_pid());
		RETURN NULL;
	END $$`)
	onServer(t, s.URL,
		`CREATE TRIGGER dies BEFORE INSERT OR UPDATE ON postern.quarantine FOR EACH ROW EXECUTE FUNCTION public.dies()`)
	broken(api, "the database did not say whether this was done", "reconcile")
	broken(env, "the database did not say whether this was done", "enter", "--reason", "again")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	broken(api, "", "reconcile")
	broken(api, "", "status")
	broken(env, "does not answer", "status")
}
