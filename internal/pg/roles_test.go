package pg_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/migrate"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// login makes a login role that is a member of a group, and returns its name and how it connects to url.
func login(t *testing.T, owner *pgx.Conn, group string) (name, url string) {
	t.Helper()
	cfg := owner.Config()
	name = strings.ToLower(cfg.Database[:min(40, len(cfg.Database))] + "_" + strings.TrimPrefix(group, "postern_"))
	if _, err := owner.Exec(t.Context(), fmt.Sprintf(`CREATE ROLE %q LOGIN PASSWORD 'test' IN ROLE %s`, name, group)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		c, err := pgx.Connect(ctx, cfg.ConnString())
		if err == nil {
			defer c.Close(ctx)
			_, err = c.Exec(ctx, fmt.Sprintf(`DROP OWNED BY %q CASCADE; DROP ROLE %[1]q`, name))
		}
		if err != nil {
			t.Error(err)
		}
	})
	return name, fmt.Sprintf("postgres://%s:test@%s:%d/%s?sslmode=disable", name, cfg.Host, cfg.Port, cfg.Database)
}

// as connects to the database of the world as a new member of a group.
func (w *world) as(group string) (*pgx.Conn, string) {
	w.T.Helper()
	owner := connect(w.T, pgtest.URL(w.S.Pool()))
	name, url := login(w.T, owner, group)
	return connect(w.T, url), name
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// denied fails the test unless each statement is refused with that SQLSTATE.
func denied(t *testing.T, c *pgx.Conn, code string, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		_, err := c.Exec(t.Context(), sql)
		var e *pgconn.PgError
		if !errors.As(err, &e) || e.Code != code {
			t.Errorf("%s: %v, want SQLSTATE %s", sql, err, code)
		}
	}
}

// shows fails the test unless a query of one column answers exactly this.
func shows(t *testing.T, c *pgx.Conn, sql string, want ...string) {
	t.Helper()
	rows, err := c.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if slices.Sort(got); err != nil || !slices.Equal(got, want) {
		t.Errorf("%s: %v %v, want %v", sql, got, err, want)
	}
}

// twoTenants is a world with the contexts shop and other: in each a type T, a subscription s that is pulled, and
// a transaction that is done.
func twoTenants(t *testing.T) *world {
	w := newWorld(t)
	node := w.Node("n")
	for _, name := range []string{"shop", "other"} {
		_, err := w.S.PutContext(w.Ctx, w.By, pg.Tenant{Context: pg.Context{Name: name, MaxDepth: 10}}, 0)
		w.Must(err)
		in := w.By
		in.Context = w.S.Context(name).ID
		d := outbox.DefaultDispatcher()
		d.Type, d.WorkerURL = "T", "noop:"
		_, err = w.S.PutDispatcher(w.Ctx, in, d, 0)
		w.Must(err)
		_, err = w.S.Deliveries.PutSubscription(w.Ctx, in, outbox.Subscription{Name: "s", Kind: "pull", OnError: "skip", Events: []outbox.Event{}}, nil, 0)
		w.Must(err)
		sub := w.Sub("q", "T", "u-"+name)
		sub.ContextID = in.Context
		out, err := w.S.Ingest(w.Ctx, []*pg.Submission{sub}, false)
		w.Must(err)
		w.Must(out[0].Err)
		w.Settle(w.Answer(w.Claim(node, pgworld.Everything())[0], pgworld.Done()))
	}
	return w
}

func TestAnApplicationSubmitsAndReadsInItsOwnContextOnly(t *testing.T) {
	t.Parallel()
	w := twoTenants(t)
	shop, name := w.as("postern_submit")
	denied(t, shop, "ZP404", `SELECT postern.submit('q', 'T', '{}', context => 'shop')`) // nothing was granted yet
	w.Exec(`SELECT postern.grant_context($1, 'shop', 'reader')`, name)
	shows(t, shop, `SELECT uid FROM postern.transactions`, "u-shop")
	denied(t, shop, "ZP404", `SELECT postern.submit('q', 'T', '{}', context => 'shop')`) // a reader does not post
	w.Exec(`SELECT postern.grant_context($1, 'shop', 'executor')`, name)

	shows(t, shop, `SELECT postern.submit('q', 'T', '{"n": 1}', 'mine', 'shop', depends_on => '{u-shop}', tags => '{"a": "b"}')`, "mine")
	shows(t, shop, `SELECT postern.submit('q', 'T', '{"n": 1}', 'mine', 'shop', depends_on => '{u-shop}', tags => '{"a": "b"}')`, "mine")
	shows(t, shop, `SELECT postern.submit_many('[{"type": "T", "uid": "many", "context": "shop"}]')`, "many")
	for _, other := range []string{"other", "default", "system", "nowhere"} {
		denied(t, shop, "ZP404", fmt.Sprintf(`SELECT postern.submit('q', 'T', '{}', context => '%s')`, other))
	}
	denied(t, shop, "ZP422", `SELECT postern.submit('q', 'T', '{}', context => 'shop', depends_on => '{u-other}')`)
	shows(t, shop, `SELECT DISTINCT actor FROM postern.outbox`, name)
	w.drainAll(w.S)
	w.work(w.Node("worker"))

	for _, view := range []string{"transactions", "bodies", "queues", "senders"} {
		shows(t, shop, `SELECT DISTINCT context FROM postern.`+view+` WHERE context <> 'shop'`)
	}
	shows(t, shop, `SELECT uid || ' ' || state FROM postern.transactions`, "many DONE", "mine DONE", "u-shop DONE")
	shows(t, shop, `SELECT data::text FROM postern.bodies WHERE uid = 'mine'`, `{"n": 1}`)
	for _, table := range []string{"task", "outcome", "idempotency", "queue_name", "queue", "delivery", "outbox", "dispatcher", "context"} {
		shows(t, shop, fmt.Sprintf(`SELECT DISTINCT c.name FROM postern.%s x JOIN postern.context c ON c.context_id = x.context_id WHERE c.name <> 'shop'`, table))
		shows(t, shop, fmt.Sprintf(`SELECT 'a foreign row' FROM postern.%s WHERE context_id <> (SELECT context_id FROM postern.context WHERE name = 'shop')`, table))
	}
	shows(t, shop, `SELECT f.uid FROM postern.feed('s', 10, 'shop') f WHERE f.uid = 'u-other'`)
	denied(t, shop, "ZP404", `SELECT * FROM postern.feed('s', 10, 'other')`, `SELECT postern.ack('s', 'c1-1', 'other')`)
	denied(t, shop, "42501",
		`SELECT secret FROM postern.subscription`, `SELECT * FROM postern.api_key`, `SELECT * FROM postern.audit`, `SELECT * FROM postern.sql_role`,
		`UPDATE postern.task SET data = '{}'`, `DELETE FROM postern.outcome`, `UPDATE postern.queue SET paused = true`, `SELECT * FROM postern.ready`,
		`SELECT postern.grant_context(current_user, 'other', 'admin')`, `SELECT postern.ensure_days('2000-01-01', '2000-01-02')`,
		`INSERT INTO postern.outbox (context_id, uid, type, data, actor) SELECT context_id + 1, 'x', 'T', '{}', 'x' FROM postern.context WHERE name = 'shop'`,
		`CREATE TABLE postern.mine (n int)`, `SELECT * FROM river.river_job`)
	w.Exec(`SELECT postern.revoke_context($1, 'shop')`, name)
	shows(t, shop, `SELECT uid FROM postern.transactions`)
	denied(t, shop, "ZP404", `SELECT postern.submit('q', 'T', '{}', context => 'shop')`)
	var said string
	w.Scan(`SELECT string_agg(concat_ws(' ', a.via, a.action, a.after->>'role'), ', ' ORDER BY audit_id) FROM postern.audit a WHERE object LIKE '/sql-roles/%'`, &said)
	if said != "sql grant reader, sql grant executor, sql revoke" {
		t.Error(said)
	}
}

// A consumer acknowledges as an executor, and only reads as a reader.
func TestAReaderDoesNotAcknowledge(t *testing.T) {
	t.Parallel()
	w := twoTenants(t)
	shop, name := w.as("postern_submit")
	w.Exec(`SELECT postern.grant_context($1, 'shop', 'reader')`, name)
	w.Exec(`UPDATE postern.subscription SET newest = 1`)
	var id int
	w.Must(shop.QueryRow(w.Ctx, `SELECT subscription_id FROM postern.subscription`).Scan(&id))
	ack := fmt.Sprintf(`SELECT postern.ack('s', 'c%d-1', 'shop')::text`, id)
	shows(t, shop, ack, "false")
	w.Exec(`SELECT postern.grant_context($1, 'shop', 'executor')`, name)
	shows(t, shop, ack, "true")
}

func TestAReporterReadsTheViewsOfItsContextWithoutBodies(t *testing.T) {
	t.Parallel()
	w := twoTenants(t)
	c, name := w.as("postern_reporter")
	shows(t, c, `SELECT uid FROM postern.transactions`)
	w.Exec(`SELECT postern.grant_context($1, 'shop', 'reader')`, name)
	shows(t, c, `SELECT uid FROM postern.transactions`, "u-shop")
	shows(t, c, `SELECT context || ' ' || queue FROM postern.queues`, "shop q")
	denied(t, c, "42501", `SELECT * FROM postern.bodies`, `SELECT * FROM postern.task`, `SELECT data FROM postern.tx`, `SELECT * FROM postern.context`,
		`SELECT postern.ensure_days('2000-01-01', '2000-01-02')`)
	// a function of the one who asks sees no row of another context
	w.Exec(`CREATE FUNCTION public.leak(v text) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS $$ BEGIN IF v = 'u-other' THEN RAISE 'saw %', v; END IF; RETURN true; END $$`)
	shows(t, c, `SELECT uid FROM postern.transactions WHERE public.leak(uid)`, "u-shop")
}

// The service as postern_app: all contexts, every statement of a life, new days, and no DDL.
func TestTheServiceNeedsNoRightsOfAnOwner(t *testing.T) {
	t.Parallel()
	w := twoTenants(t)
	c, _ := w.as("postern_app")
	pool, err := pg.Connect(w.Ctx, c.Config().ConnString(), 4)
	w.Must(err)
	t.Cleanup(pool.Close)
	app, err := stores.Open(w.Ctx, pool, pgworld.Quiet)
	w.Must(err)
	app.SetNow(&w.Now)
	w.S = app
	w.Dispatcher("T", nil)
	_, err = app.EnsureDays(w.Ctx)
	w.Must(err)
	w.Exec(`SELECT postern.submit('r', 'T', '{}', 'staged')`)
	w.drainAll(app)
	w.Post("q", "T", "a", "b")
	_, err = app.PutContext(w.Ctx, w.By, pg.Tenant{Context: pg.Context{Name: "third", MaxDepth: 1}}, 0)
	w.Must(err)
	if got := w.work(w.Node("svc")); len(got) != 3 {
		t.Errorf("worked off %v", got)
	}
	shows(t, c, `SELECT uid FROM postern.transactions WHERE state = 'DONE'`, "a", "b", "staged", "u-other", "u-shop")
	denied(t, c, "42501", `CREATE TABLE postern.mine (n int)`, `DROP TABLE postern.mark`, `TRUNCATE postern.mark`, `ALTER TABLE postern.task DISABLE ROW LEVEL SECURITY`,
		`CREATE POLICY x ON postern.task USING (true)`)
	w.Exec(`ALTER DEFAULT PRIVILEGES IN SCHEMA postern REVOKE ALL ON TABLES FROM postern_app`) // as where somebody else made the roles
	var day string
	w.Must(c.QueryRow(w.Ctx, `SELECT postern.ensure_days('2000-01-01', '2000-01-01', 'day')::text`).Scan(&day))
	if day != "4" {
		t.Errorf("made %s partitions, want 4", day)
	}
	shows(t, c, `SELECT string_agg(p, ' ') FROM unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) p WHERE has_table_privilege('postern.task_20000101', p)`, "SELECT INSERT UPDATE DELETE")
	// its plans carry no filter
	rows, err := c.Query(w.Ctx, `EXPLAIN SELECT FROM postern.task WHERE (queue_id, seq, day) = (1, 1, '2026-01-01')`)
	w.Must(err)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	w.Must(err)
	if p := strings.Join(plan, "\n"); strings.Contains(p, "contexts_of") || strings.Contains(p, "InitPlan") {
		t.Error(p)
	}
}

func TestVerifyReadsEverythingAndNoSecret(t *testing.T) {
	t.Parallel()
	w := twoTenants(t)
	c, _ := w.as("postern_verify")
	shows(t, c, `SELECT uid FROM postern.transactions`, "u-other", "u-shop")
	shows(t, c, `SELECT uid FROM postern.task`, "u-other", "u-shop")
	denied(t, c, "42501", `SELECT * FROM postern.api_key`, `SELECT * FROM postern.ui_session`, `SELECT secret FROM postern.subscription`, `SELECT secret FROM postern.dispatcher_secret`, `SELECT secret FROM postern.processor_peer`, `SELECT secret FROM postern.peer_secret`, `DELETE FROM postern.task`)
}

// A database whose owner may make no roles, on a server that has them.
func TestAMigratorNeedsNoRightToMakeRoles(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	owner := connect(t, pgtest.New(t).URL) // it has made the roles, which belong to the server
	name, _ := login(t, owner, "postern_migrator")
	cfg, err := pgx.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{fmt.Sprintf(`GRANT CREATE ON DATABASE %q TO postern_migrator`, cfg.Database), fmt.Sprintf(`ALTER ROLE %q SET role = 'postern_migrator'`, name)} {
		if _, err := owner.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	url := fmt.Sprintf("postgres://%s:test@%s:%d/%s?sslmode=disable", name, cfg.Host, cfg.Port, cfg.Database)
	if err := migrate.Up(t.Context(), url, func(string) {}); err != nil {
		t.Fatal(err)
	}
	shows(t, connect(t, db.URL), `SELECT DISTINCT pg_get_userbyid(relowner)::text FROM pg_class WHERE relnamespace = 'postern'::regnamespace`, "postern_migrator")
	shows(t, connect(t, db.URL), `SELECT has_table_privilege('postern_app', 'postern.task', 'INSERT')::text`, "true")
	if err := migrate.Down(t.Context(), url, func(string) {}); err != nil {
		t.Error(err)
	}
}

// A new table or view is listed here, unless it keeps contexts apart as the others do.
func TestEveryTableAndViewKeepsContextsApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := connect(t, pgtest.URL(w.S.Pool()))
	shows(t, c, `SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'postern'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
		AND (NOT c.relrowsecurity OR (SELECT count(*) FROM pg_policy p WHERE p.polrelid = c.oid AND p.polname IN ('tenant', 'app', 'verify')) <> 3)`,
		// about no context, or of the service alone
		"actor", "actor_key", "dispatcher_secret", "fanout", "goose_db_version", "goose_lock", "identity", "lane", "mark", "node", "node_load", "nonce", "processor_peer", "ready", "redrive", "retained", "ripple", "rolled", "rolling", "rolling_part", "spent_key", "store", "timer",
		"ui_session")
	shows(t, c, `SELECT c.relname::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'context'
		WHERE c.relkind = 'v' AND c.relnamespace::regnamespace::text IN ('postern', 'report')
			AND (pg_get_viewdef(c.oid) NOT LIKE '%contexts_of(CURRENT_USER)%' OR c.reloptions IS NULL OR NOT 'security_barrier=true' = ANY (c.reloptions))`,
		"tx") // the views are made of tx, and only the service may read it
}
