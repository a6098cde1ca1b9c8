package pg_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/migrate"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// run runs a tool of PostgreSQL.
func run(t *testing.T, tool string, args ...string) {
	t.Helper()
	path, err := exec.LookPath(tool)
	if err != nil {
		t.Skipf("%s is not installed", tool)
	}
	if out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", tool, err, out)
	}
}

// stagedAs lists who staged what, in which order, and when.
const stagedAs = `SELECT concat_ws(' ', stage_id, context_id, uid, actor, extract(epoch FROM staged_at)) FROM
	postern.outbox`

// A staged row survives a dump as it is, with number, actor and time. One that is submitted after the restore has a
// higher number.
func TestADumpWithStagedRowsIsRestoredAsItWas(t *testing.T) {
	t.Parallel()
	w, app, name := tenant(t)
	shows(t, app, `SELECT postern.submit('q', 'T', '{}', 'a', 'shop')`, "a")
	shows(t, app, `SELECT postern.submit('q', 'T', '{}', 'b', 'shop', depends_on => '{a}')`, "b")
	own := connect(t, w.url())
	rows, err := own.Query(w.Ctx, stagedAs)
	w.Must(err)
	want, err := pgx.CollectRows(rows, pgx.RowTo[string])
	w.Must(err)
	file := filepath.Join(t.TempDir(), "dump")
	run(t, "pg_dump", "--format=custom", "--file="+file, w.url())

	whole := pgtest.Empty(t)
	run(t, "pg_restore", "--exit-on-error", "--dbname="+whole.URL, file)
	restored := connect(t, whole.URL)
	shows(t, restored, stagedAs, want...)
	// the trigger is there, and knows the restored role
	refusedAs(t, restored, "type", `INSERT INTO postern.outbox (uid, type, data) VALUES ('x', 'T U', '{}')`,
		"invalid", "/type")
	w.must1(restored.Exec(w.Ctx, fmt.Sprintf(`SET ROLE %q`, name)))
	shows(t, restored, `SELECT postern.submit('q', 'T', '{}', 'c', 'shop')`, "c")
	denied(t, restored, "42501", `DELETE FROM postern.outbox`)
	w.must1(restored.Exec(w.Ctx, `RESET ROLE`))
	var last bool
	w.Must(restored.QueryRow(w.Ctx, `SELECT (SELECT uid FROM postern.outbox ORDER BY stage_id DESC LIMIT 1) =
		'c'`).Scan(&last))
	if !last {
		t.Error("c does not come last")
	}
	over := worldOver(t, whole.Store(t, 4))
	if out := over.drainAll(over.S); out != (pg.Drained{Rows: 3}) {
		t.Errorf("drained %+v", out)
	}
	pgworld.HoldsTrue(t, w.Ctx, over.S.Pool())
	w.must1(restored.Exec(context.Background(), fmt.Sprintf(`DROP OWNED BY %q`, name))) // the role goes at the end
}

// Data alone, into a schema that is there already: --disable-triggers keeps the rows as they were.
func TestRowsAreRestoredAloneWithoutBeingJudged(t *testing.T) {
	t.Parallel()
	w, app, _ := tenant(t)
	shows(t, app, `SELECT postern.submit('q', 'T', '{}', 'a', 'shop')`, "a")
	rows, err := connect(t, w.url()).Query(w.Ctx, stagedAs)
	w.Must(err)
	want, err := pgx.CollectRows(rows, pgx.RowTo[string])
	w.Must(err)
	file := filepath.Join(t.TempDir(), "dump")
	run(t, "pg_dump", "--format=custom", "--file="+file, w.url())
	bare := pgtest.Empty(t)
	w.Must(migrate.Up(w.Ctx, bare.URL, func(string) {}))
	run(t, "pg_restore", "--exit-on-error", "--data-only", "--disable-triggers", "--schema=postern", "--table=outbox",
		"--dbname="+bare.URL, file)
	restored := connect(t, bare.URL)
	shows(t, restored, stagedAs, want...)
	// and without it they are judged: this database has no such context
	w.must1(restored.Exec(w.Ctx, `TRUNCATE postern.outbox`))
	out, err := exec.CommandContext(w.Ctx, "pg_restore", "--exit-on-error", "--data-only", "--schema=postern",
		"--table=outbox",
		"--dbname="+bare.URL, file).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "no context") {
		t.Errorf("%v: %s", err, out)
	}
}
