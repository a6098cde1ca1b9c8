package pg_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// tenant is an application that may submit in the context shop: its connection, and the name of its role.
func tenant(t *testing.T) (w *world, app *pgx.Conn, name string) {
	t.Helper()
	w = twoTenants(t)
	app, name = w.as("postern_submit")
	w.Exec(`SELECT postern.grant_context($1, 'shop', 'executor')`, name)
	return w, app, name
}

// shop is the number of the context shop, as SQL.
const shop = `(SELECT context_id FROM postern.context WHERE name = 'shop')`

// A role that submits may insert rows itself. A row that submit would refuse is refused there, in the same words.
func TestARowThatIsInsertedPastSubmitIsJudgedLikeOneOfSubmit(t *testing.T) {
	t.Parallel()
	w, app, _ := tenant(t)
	insert := `INSERT INTO postern.outbox (context_id, queue, uid, type, data%s) VALUES (` + shop + `, 'q', 'x', 'T',
		'{}'%s)`
	for what, c := range map[string]struct{ column, value, code, pointer string }{
		"infinite time":      {"not_before", `'infinity'`, "invalid", "/not_before"},
		"time of no year":    {"not_before", `'20000-01-01'`, "invalid", "/not_before"},
		"time far ahead":     {"not_before", `'2300-01-01'`, "invalid", "/not_before"},
		"null dependency":    {"depends_on", `'{NULL}'`, "invalid", "/depends_on/0"},
		"nested list":        {"depends_on", `'{{a,b},{c,d}}'`, "invalid", "/depends_on/0"},
		"list from five":     {"depends_on", `'[5:6]={a,b}'`, "invalid", "/depends_on/0"},
		"depends on itself":  {"depends_on", `'{x}'`, "dependency_cycle", "/depends_on"},
		"nobody's":           {"depends_on", `'{u-other}'`, "unknown_dependency", "/depends_on"},
		"callback of a list": {"callback", `'[]'`, "invalid", "/callback"},
		"callback of null":   {"callback", `'null'`, "invalid", "/callback"},
		"tags of a list":     {"tags", `'[1]'`, "invalid", "/tags"},
		"tag of a number":    {"tags", `'{"a": 1}'`, "invalid", "/tags/a"},
		"negative retries":   {"max_retries", `-1`, "invalid", "/max_retries"},
	} {
		refusedAs(t, app, what, fmt.Sprintf(insert, ", "+c.column, ", "+c.value), c.code, c.pointer)
	}
	row := `INSERT INTO postern.outbox (context_id, queue, uid, type, data) VALUES (` + shop + `, %s, %s, %s, %s)`
	for what, c := range map[string]struct{ queue, uid, typ, data, code, pointer string }{
		"type that no API takes":  {`'q'`, `'x'`, `'T U'`, `'{}'`, "invalid", "/type"},
		"queue that no API takes": {`'a/b'`, `'x'`, `'T'`, `'{}'`, "invalid", "/queue"},
		"queue without a name":    {`''`, `'x'`, `'T'`, `'{}'`, "invalid", "/queue"},
		"uid that no API takes":   {`'q'`, `'x y'`, `'T'`, `'{}'`, "invalid", "/uid"},
		"no type":                 {`'q'`, `'x'`, `NULL`, `'{}'`, "invalid", "/type"},
		"type of nobody":          {`'q'`, `'x'`, `'NOBODY'`, `'{}'`, "unknown_type", ""},
		"type of the leader":      {`'q'`, `'x'`, `'leader.tool'`, `'{}'`, "forbidden", "/type"},
		"type of results":         {`'q'`, `'x'`, `'leader.result'`, `'{}'`, "forbidden", "/type"},
		"uid of a result":         {`'q'`, `'event:0:result'`, `'T'`, `'{}'`, "forbidden", "/uid"},
		"uid of a retry":          {`'q'`, `'event:0:tool:2'`, `'T'`, `'{}'`, "forbidden", "/uid"},
		"queue of a batch":        {`'processor:main:1'`, `'x'`, `'T'`, `'{}'`, "forbidden", "/queue"},
		"a number beyond": {`'q'`, `'x'`, `'T'`, `('{"a": 1' || repeat('0', 400) || '}')::jsonb`, "invalid",
			"/data"},
		"too deep": {`'q'`, `'x'`, `'T'`, `(repeat('[', 70) || repeat(']', 70))::jsonb`, "invalid",
			"/data"},
		"too large": {`'q'`, `'x'`, `'T'`, `jsonb_build_object('a', repeat('x', 300000))`, "too_large",
			"/data"},
		"a known uid, other body": {`'q'`, `'u-shop'`, `'T'`, `'{"other": 1}'`, "idempotency_conflict", ""},
	} {
		refusedAs(t, app, what, fmt.Sprintf(row, c.queue, c.uid, c.typ, c.data), c.code, c.pointer)
	}
	for _, context := range []string{"other", "default", "system"} {
		var id int
		w.Scan(`SELECT context_id FROM postern.context WHERE name = '`+context+`'`, &id)
		refusedAs(t, app, "context "+context,
			fmt.Sprintf(`INSERT INTO postern.outbox (context_id, type, data) VALUES (%d, 'T', '{}')`, id),
			"not_found", "")
	}
	refusedAs(t, app, "no context", `INSERT INTO postern.outbox (type, data) VALUES ('T', '{}')`, "not_found", "")
	shows(t, app, `SELECT count(*)::text FROM postern.outbox`, "0")
}

// A callback is judged as HTTP judges it, by what the nodes that live may call; of a name, or where no node has said
// what it may call, nothing is known.
func TestACallbackThatNoNodeMayCallIsRefusedInSQL(t *testing.T) {
	t.Parallel()
	w, app, _ := tenant(t)
	submit := `SELECT postern.submit('q', 'T', '{}', '%s', 'shop', callback => '{"url": "http://%s/"}')`
	insert := `INSERT INTO postern.outbox (context_id, type, data, callback)
		VALUES (` + shop + `, 'T', '{}', '{"url": "http://%s/"}')`
	shows(t, app, fmt.Sprintf(submit, "unknown", "10.0.0.1"), "unknown")
	n := w.Node("n")
	shows(t, app, fmt.Sprintf(submit, "not-yet", "10.0.0.2"), "not-yet")
	ours := []netip.Prefix{netip.MustParsePrefix("10.20.0.0/16"), netip.MustParsePrefix("fd00::/8")}
	w.Must(w.S.Allow(w.Ctx, n, ours))
	w.Exec(`UPDATE postern.node SET heartbeat_at = clock_timestamp()`)
	for _, host := range []string{"10.0.0.1", "localhost:80", "[::1]", "[::ffff:10.0.0.1]", "169.254.169.254"} {
		refusedAs(t, app, host, fmt.Sprintf(submit, "x", host), "address_refused", "/callback/url")
		refusedAs(t, app, host, fmt.Sprintf(insert, host), "address_refused", "/callback/url")
	}
	for _, host := range []string{"10.1", "2130706433", "0x7f.1"} {
		refusedAs(t, app, host, fmt.Sprintf(insert, host), "invalid", "/callback/url")
	}
	for _, host := range []string{"10.20.0.1", "[fd00::1]:8", "93.184.215.14", "worker.internal"} {
		uid := "to-" + strings.Trim(host, "[]:8")
		shows(t, app, fmt.Sprintf(submit, uid, host), uid)
	}
	w.Exec(`UPDATE postern.node SET heartbeat_at = clock_timestamp() - interval '1 h'`)
	shows(t, app, fmt.Sprintf(submit, "no-live-node", "10.0.0.3"), "no-live-node")
	denied(t, app, "42501", `SELECT worker_allow_cidr FROM postern.node`)
}

// refusedAs fails the test unless a statement is refused with a problem document of this code, about this field.
func refusedAs(t *testing.T, c *pgx.Conn, what, sql, code, pointer string) {
	t.Helper()
	_, err := c.Exec(t.Context(), sql)
	var e *pgconn.PgError
	if !errors.As(err, &e) || !strings.HasPrefix(e.Code, "ZP") {
		t.Errorf("%s: %v, want a refusal", what, err)
		return
	}
	_, doc := problem(t, err)
	at := ""
	if list, ok := doc["errors"].([]any); ok {
		at, _ = list[0].(map[string]any)["pointer"].(string)
	}
	if doc["code"] != code || at != pointer {
		t.Errorf("%s: code %v at %q, want %s at %q", what, doc["code"], at, code, pointer)
	}
}

// A role gives no column that Postern sets, in whatever way the row comes, and takes no committed row back.
func TestARoleGivesNeitherPlaceNorActorNorTimeAndTakesNothingBack(t *testing.T) {
	t.Parallel()
	w, app, name := tenant(t)
	for column, value := range map[string]string{"stage_id": "1", "actor": "'ada'", "staged_at": "'infinity'"} {
		denied(t, app, "42501", fmt.Sprintf(`INSERT INTO postern.outbox (context_id, type, data, %s)
			OVERRIDING SYSTEM VALUE VALUES (%s, 'T', '{}', %s)`, column, shop, value))
	}
	shows(t, app, `SELECT postern.submit('q', 'T', '{}', 'mine', 'shop')`, "mine")
	denied(t, app, "42501", `DELETE FROM postern.outbox`, `UPDATE postern.outbox SET queue = NULL`, `TRUNCATE
		postern.outbox`,
		`DO 'BEGIN LOCK TABLE postern.outbox IN SHARE MODE; END'`, `SELECT FROM postern.outbox FOR UPDATE`,
		`INSERT INTO postern.outbox (context_id, uid, type, data) VALUES (`+shop+`, 'mine', 'T', '{}')
			ON CONFLICT (context_id, uid) DO UPDATE SET data = '[]'`,
		`ALTER TABLE postern.outbox DISABLE TRIGGER ALL`, `SET session_replication_role = replica`,
		`CREATE TRIGGER mine BEFORE INSERT ON postern.outbox FOR EACH ROW EXECUTE FUNCTION
			suppress_redundant_updates_trigger()`)
	shows(t, app, `SELECT uid || ' ' || actor FROM postern.outbox`, "mine "+name)
	var late bool
	w.Scan(`SELECT staged_at NOT BETWEEN clock_timestamp() - interval '10 min' AND clock_timestamp() FROM
		postern.outbox`, &late)
	if late {
		t.Error("staged at another time")
	}
}

// Each way in which a row can come tells it under the name of who brought it, and it goes out.
func TestWhoSubmitsIsWhoTheDatabaseSaysInEachWay(t *testing.T) {
	t.Parallel()
	w, app, name := tenant(t)
	other := name + "_o"
	owner := name + "_d"
	for _, role := range []string{other, owner} {
		group(t, w, role)
		w.Exec(fmt.Sprintf(`GRANT %q TO %q`, role, name))
	}
	w.Exec(`SELECT postern.grant_context($1, 'shop', 'executor')`, owner)
	w.Exec(fmt.Sprintf(`CREATE SCHEMA app AUTHORIZATION %q`, name))
	for _, sql := range []string{
		`CREATE TABLE app.orders (uid text)`,
		`CREATE FUNCTION app.placed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			PERFORM postern.submit('q', 'T', '{}', NEW.uid, 'shop'); RETURN NEW; END $$`,
		`CREATE TRIGGER placed AFTER INSERT ON app.orders FOR EACH ROW EXECUTE FUNCTION app.placed()`,
		`CREATE FUNCTION app.wrapped(uid text) RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog
			AS $$ SELECT postern.submit('q', 'T', '{}', uid, 'shop') $$`,
		`CREATE FUNCTION app.wrapped_row(uid text) RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path =
			pg_catalog
			AS $$ INSERT INTO postern.outbox (context_id, queue, uid, type, data)
				SELECT context_id, 'q', uid, 'T', '{}' FROM postern.context WHERE name = 'shop' $$`,
	} {
		w.must1(app.Exec(w.Ctx, sql))
	}
	for _, f := range []string{"wrapped", "wrapped_row"} {
		w.Exec(fmt.Sprintf(`ALTER FUNCTION app.%s OWNER TO %q`, f, owner))
	}
	row := `INSERT INTO postern.outbox (context_id, queue, uid, type, data) VALUES (` + shop + `, 'q', '%s', 'T', '{}')`
	set := fmt.Sprintf(`SET ROLE %q`, owner)
	ways := []struct{ uid, actor, sql string }{
		{"submit", name, `SELECT postern.submit('q', 'T', '{}', 'submit', 'shop')`},
		{"row", name, fmt.Sprintf(row, "row")},
		{"set-role", owner, set + `; SELECT postern.submit('q', 'T', '{}', 'set-role', 'shop'); RESET ROLE`},
		{"set-role-row", owner, set + `; ` + fmt.Sprintf(row, "set-role-row") + `; RESET ROLE`},
		{"definer", owner, `SELECT app.wrapped('definer')`},
		{"definer-row", owner, `SELECT app.wrapped_row('definer-row')`},
		{"trigger", name, `INSERT INTO app.orders VALUES ('trigger')`},
		{"many", name, `SELECT postern.submit_many('[{"queue": "q", "type": "T", "uid": "many", "context": "shop"}]')`},
		{"merge", name, `MERGE INTO postern.outbox o USING (SELECT context_id FROM postern.context WHERE name =
			'shop') c ON false
			WHEN NOT MATCHED THEN INSERT (context_id, queue, uid, type, data) VALUES (c.context_id, 'q', 'merge', 'T',
				'{}')`},
	}
	var uids []string
	for _, way := range ways {
		for _, sql := range strings.Split(way.sql, "; ") {
			w.must1(app.Exec(w.Ctx, sql))
		}
		uids = append(uids, way.uid+" "+way.actor)
	}
	var id int
	var superuser string
	w.Scan(`SELECT context_id, current_user FROM postern.context WHERE name = 'shop'`, &id, &superuser)
	copied := func(c *pgx.Conn, uid, typ string) error {
		_, err := c.PgConn().CopyFrom(w.Ctx, strings.NewReader(fmt.Sprintf("%d\tq\t%s\t%s\t{}\tada\n", id, uid, typ)),
			`COPY postern.outbox (context_id, queue, uid, type, data, actor) FROM STDIN`)
		return err
	}
	if err := copied(app, "never", "T"); err == nil { // PostgreSQL has no COPY past row-level security
		t.Error("a tenant copied rows")
	}
	own := connect(t, w.url())
	w.Must(copied(own, "copy", "T"))
	if err := copied(own, "never", "T U"); sqlState(err) != "ZP422" {
		t.Errorf("COPY of a type that no API takes: %v", err)
	}
	uids = append(uids, "copy "+superuser)
	// a member that was not given the context itself is not let in by the login that it came with
	w.must1(app.Exec(w.Ctx, fmt.Sprintf(`SET ROLE %q`, other)))
	denied(t, app, "ZP404", `SELECT postern.submit('q', 'T', '{}', 'never', 'shop')`)
	denied(t, app, "ZP404", fmt.Sprintf(`INSERT INTO postern.outbox (context_id, type, data) VALUES (%d, 'T', '{}')`,
		id))
	w.must1(app.Exec(w.Ctx, `RESET ROLE`))

	rows, err := w.S.Pool().Query(w.Ctx, `SELECT uid || ' ' || actor FROM postern.outbox ORDER BY stage_id`)
	w.Must(err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if w.Must(err); fmt.Sprint(got) != fmt.Sprint(uids) {
		t.Errorf("staged %v, want %v", got, uids)
	}
	if out := w.drainAll(w.S); out != (pg.Drained{Rows: len(uids)}) {
		t.Errorf("drained %+v", out)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

// group makes a role without a login that may submit.
func group(t *testing.T, w *world, name string) {
	t.Helper()
	w.Exec(fmt.Sprintf(`CREATE ROLE %q IN ROLE postern_submit`, name))
	url := w.url()
	t.Cleanup(func() {
		ctx := context.Background()
		c, err := pgx.Connect(ctx, url)
		if err == nil {
			defer c.Close(ctx)
			_, err = c.Exec(ctx, fmt.Sprintf(`DROP OWNED BY %q CASCADE; DROP ROLE %[1]q`, name))
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// must1 fails the test with the error of a statement.
func (w *world) must1(_ pgconn.CommandTag, err error) {
	w.T.Helper()
	w.Must(err)
}

// Functions and operators of a caller stand in for none of ours, whatever its settings.
func TestWhatACallerSetsDoesNotChangeHowItsRowIsJudged(t *testing.T) {
	t.Parallel()
	w, app, name := tenant(t)
	w.Exec(fmt.Sprintf(`CREATE SCHEMA mine AUTHORIZATION %q`, name))
	for _, sql := range []string{
		`CREATE FUNCTION mine.length(text) RETURNS int LANGUAGE sql AS 'SELECT 1'`,
		`CREATE FUNCTION mine.isfinite(timestamptz) RETURNS boolean LANGUAGE sql AS 'SELECT true'`,
		`CREATE FUNCTION mine.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT 'infinity'::timestamptz
			$$`,
		`CREATE FUNCTION mine.yes(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true'`,
		`CREATE OPERATOR mine.~ (LEFTARG = text, RIGHTARG = text, FUNCTION = mine.yes)`,
		`SET search_path = mine, pg_catalog`,
		`SET standard_conforming_strings = off`,
		`SET backslash_quote = on`,
		`SET DateStyle = 'German'`,
		`SET TimeZone = 'Pacific/Apia'`,
		`SET transform_null_equals = on`,
		`SET array_nulls = off`,
		`SET postern.item = '7) OR true'`,
	} {
		w.must1(app.Exec(w.Ctx, sql))
	}
	row := `INSERT INTO postern.outbox (context_id, uid, type, data, not_before) VALUES (` + shop + `, %s, %s, '{}',
		%s)`
	refusedAs(t, app, "type", fmt.Sprintf(row, `'x'`, `'T U'`, `NULL`), "invalid", "/type")
	refusedAs(t, app, "uid", fmt.Sprintf(row, `repeat('x', 300)`, `'T'`, `NULL`), "invalid", "/uid")
	refusedAs(t, app, "time", fmt.Sprintf(row, `'x'`, `'T'`, `'infinity'`), "invalid", "/not_before")
	w.must1(app.Exec(w.Ctx, fmt.Sprintf(row, `'x'`, `'T'`, `NULL`)))
	var ok bool
	if w.Scan(`SELECT isfinite(staged_at) FROM postern.outbox`, &ok); !ok {
		t.Error("staged at no time")
	}
	w.must1(app.Exec(w.Ctx, `SET row_security = off`)) // then it asks for what it may not see
	if _, err := app.Exec(w.Ctx, fmt.Sprintf(row, `'y'`, `'T'`, `NULL`)); err == nil {
		t.Error("it was inserted without row security")
	}
}

// A second row of a uid is what a second submit is.
func TestARowOfAKnownUIDIsInsertedOnce(t *testing.T) {
	t.Parallel()
	w, app, _ := tenant(t)
	row := `INSERT INTO postern.outbox (context_id, queue, uid, type, data) VALUES (` + shop + `, 'q', 'u', 'T',
		'{"n": %d}')`
	for i, want := range []int64{1, 0} {
		tag, err := app.Exec(w.Ctx, fmt.Sprintf(row, 1))
		if w.Must(err); tag.RowsAffected() != want {
			t.Errorf("insert %d: %d rows", i, tag.RowsAffected())
		}
	}
	refusedAs(t, app, "another body", fmt.Sprintf(row, 2), "idempotency_conflict", "")
	if out := w.drainAll(w.S); out != (pg.Drained{Rows: 1}) {
		t.Errorf("drained %+v", out)
	}
	tag, err := app.Exec(w.Ctx, fmt.Sprintf(row, 1))
	if w.Must(err); tag.RowsAffected() != 0 {
		t.Error("what is drained was inserted again")
	}
	refusedAs(t, app, "another body", fmt.Sprintf(row, 2), "idempotency_conflict", "")
	// rows of one statement may depend on those before them, and not on those behind
	pair := `INSERT INTO postern.outbox (context_id, queue, uid, type, data, depends_on)
		SELECT ` + shop + `, 'q', u, 'T', '{}', d FROM (VALUES (1, '%s', %s::text[]), (2, '%s', %s)) v (n, u, d) ORDER
			BY n`
	refusedAs(t, app, "behind", fmt.Sprintf(pair, "a", "'{b}'", "b", "NULL"), "unknown_dependency", "/depends_on")
	w.must1(app.Exec(w.Ctx, fmt.Sprintf(pair, "a", "NULL", "b", "'{a}'")))
	if out := w.drainAll(w.S); out != (pg.Drained{Rows: 2}) {
		t.Errorf("drained %+v", out)
	}
	w.work(w.Node("x"))
	var open int
	if w.Scan(`SELECT count(*) FROM postern.tx WHERE state <> 'DONE'`, &open); open != 0 {
		t.Errorf("%d are not %s", open, outbox.DONE)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}
