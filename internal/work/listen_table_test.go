package work_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg/events"
	"github.com/postern-dev/postern/internal/remote"
)

const shop = `CREATE SCHEMA shop; CREATE TABLE shop."Orders" (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL DEFAULT now(), data jsonb);
	CREATE VIEW shop.calls AS SELECT id, at, data ->> 'tool' AS tool, data::text AS text FROM shop."Orders"`

func (h *house) exec(sql string, args ...any) {
	h.t.Helper()
	_, err := h.s.Pool().Exec(h.ctx, sql, args...)
	h.must(err)
}

const orders = `INSERT INTO shop."Orders" (data) SELECT '{"tool": "xyz.labs.add@1", "n": 1.50}' FROM generate_series(1, $1)`

// listenAll looks until there is nothing to look at.
func (h *house) listenAll(e byHand) {
	h.t.Helper()
	for {
		n, err := e.ListenOnce(h.ctx)
		if h.must(err); n == 0 {
			return
		}
	}
}

func (h *house) state(source string) *events.Source {
	h.t.Helper()
	v, err := h.s.Events.Source(h.ctx, h.by.Context, source)
	h.must(err)
	return v
}

func numbers(from, to int) string {
	var list []string
	for i := from; i <= to; i++ {
		list = append(list, fmt.Sprint(i))
	}
	return strings.Join(list, " ")
}

// S1.1: a table is read page by page in the order of its cursor, each row once, whatever the types of its columns are;
// rows that others have not committed yet are waited for.
func TestATableIsReadInOrderOnceItHasSettled(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.exec(shop)
	h.exec(orders, 7)
	fqn := leader.SourceMap{FQN: "/tool"}
	for name, table := range map[string]leader.SourceTable{
		"number": {Name: "shop.Orders", Key: "id", Cursor: "id", Payload: "data"},
		"time":   {Name: "shop.Orders", Key: "id", Cursor: "at", Payload: "data"}, // the same time for all of a statement
		"view":   {Name: "shop.calls", Key: "id", Cursor: "id"},                   // the row is the event
		"text":   {Name: "shop.calls", Key: "id", Cursor: "id", Payload: "text"},
		"eager":  {Name: "shop.Orders", Key: "id", Cursor: "id", Payload: "data", Settle: "0s"},
	} {
		h.source(leader.Source{Name: name, Kind: "postgres_table", Map: fqn, Table: &table, PageSize: 3})
	}
	e := h.manual(nil)
	now, err := h.s.Now(h.ctx)
	h.must(err)
	h.s.SetNow(&now)
	check := func(when string, want string, names ...string) {
		t.Helper()
		for _, name := range names {
			if got := strings.Join(h.stored(name), " "); got != want {
				t.Errorf("%s: %s has %q, want %q: %+v", when, name, got, want, h.state(name))
			}
		}
	}
	settling := []string{"number", "time", "view", "text"}
	h.listenAll(e)
	check("at first", numbers(1, 7), "eager")
	check("before it settles", "", settling...)

	late, err := h.s.Pool().Begin(h.ctx) // takes its number now, and commits after one that is higher
	h.must(err)
	_, err = late.Exec(h.ctx, orders, 1)
	h.must(err)
	h.exec(orders, 1)
	now = now.Add(5 * time.Second)
	h.listenAll(e)
	check("the first seven settled", numbers(1, 7), settling...)
	check("what is not committed is passed", numbers(1, 7)+" 9", "eager") // and lost, without the time to settle
	h.must(late.Commit(h.ctx))
	now = now.Add(5 * time.Second)
	h.listenAll(e)
	check("after the late one", numbers(1, 9), settling...)
	now = now.Add(time.Second)
	h.listenAll(e)
	check("once more", numbers(1, 9), settling...)
	if v := h.state("number"); v.Lag != 0 || v.LastError != "" || !strings.Contains(string(v.Cursor), `"at": "9"`) {
		t.Errorf("%+v", v)
	}
	var json, checkpoint string
	h.must(h.s.Pool().QueryRow(h.ctx, `SELECT e.json::text, e.checkpoint FROM postern.event e JOIN postern.source s USING (source_id) WHERE s.name = 'text' AND e.identity = '9'`).Scan(&json, &checkpoint))
	if json != `{"n": 1.50, "tool": "xyz.labs.add@1"}` || checkpoint != "9" {
		t.Errorf("%s %s", json, checkpoint)
	}
	h.exec(`DELETE FROM postern.event`)
	_, err = h.s.Events.RewindSource(h.ctx, h.by, "number", []byte(`{"at": "4"}`))
	h.must(err)
	h.listenAll(e)
	now = now.Add(5 * time.Second)
	h.listenAll(e)
	check("rewound", numbers(5, 9), "number")
}

// A cursor and a key of a fixed length are read like others: all rows, each once, and those that come later.
func TestATableIsReadByColumnsOfAFixedLength(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.exec(`CREATE SCHEMA shop; CREATE TABLE shop.fixed (id char(26), bits bit(12), at timestamptz(0), data jsonb)`)
	const rows = `INSERT INTO shop.fixed
		SELECT CASE WHEN n < 10 THEN '00' WHEN n < 100 THEN '0' ELSE '' END || n, n::bit(12),
			now() + n / 7 * interval '1 s', '{"tool": "xyz.labs.add@1"}'
		FROM generate_series($1::int, $2) n`
	h.exec(rows, 1, 120)
	for name, column := range map[string][2]string{
		"char": {"id", "id"}, "bit": {"bits", "bits"}, "both": {"bits", "id"}, "time": {"at", "id"},
	} {
		table := &leader.SourceTable{Name: "shop.fixed", Cursor: column[0], Key: column[1], Payload: "data"}
		table.Settle = "0s"
		if name == "both" {
			table.Settle = "5s"
		}
		h.source(leader.Source{Name: name, Kind: "postgres_table", Map: leader.SourceMap{FQN: "/tool"}, Table: table,
			PageSize: 50})
	}
	e := h.manual(nil)
	now, err := h.s.Now(h.ctx)
	h.must(err)
	h.s.SetNow(&now)
	for _, until := range []int{120, 125} {
		if until > 120 {
			h.exec(rows, 121, until)
		}
		for range 2 {
			h.listenAll(e)
			now = now.Add(6 * time.Second)
		}
		h.listenAll(e)
		for _, name := range []string{"char", "bit", "both", "time"} {
			if n := len(h.stored(name)); n != until {
				t.Errorf("%s: %d rows of %d are read: %+v", name, n, until, h.state(name))
			}
		}
	}
}

// A row that cannot be read stops the source, or is stored Dead. A fault of the question itself is terminal (S1.3).
func TestATableInTrouble(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.exec(shop)
	h.exec(`CREATE TABLE shop.odd (id text, n int, data text)`)
	h.exec(`INSERT INTO shop.odd VALUES ('a', 1, '{"tool": "xyz.labs.add@1"}'), ('b', 2, 'no JSON'), ('c', 2, NULL), (NULL, 2, NULL), ('d', 3, $1), ('e', NULL, '{}'), ('f', 4, '{"tool": "xyz.labs.add@1"}')`,
		`{"tool": "`+strings.Repeat("x", leader.MaxEvent)+`"}`)
	odd := leader.SourceTable{Name: "shop.odd", Key: "id", Cursor: "n", Payload: "data", Settle: "0s"}
	put := func(name, dead string, table leader.SourceTable) {
		h.source(leader.Source{Name: name, Kind: "postgres_table", Map: leader.SourceMap{FQN: "/tool"}, Table: &table, OnUndecodable: dead, PageSize: 2})
	}
	put("halt", "halt", odd)
	put("dead", "dead", odd)
	missing := odd
	missing.Name = "shop.gone"
	put("missing", "", missing)
	column := odd
	column.Cursor = "gone"
	put("column", "", column)
	put("cursor", "", odd)
	_, err := h.s.Events.RewindSource(h.ctx, h.by, "cursor", json.RawMessage(`{"at": "four"}`))
	h.must(err)
	put("shape", "", odd)
	_, err = h.s.Events.RewindSource(h.ctx, h.by, "shape", json.RawMessage(`17`))
	h.must(err)
	h.source(leader.Source{Name: "nowhere", Kind: "postgres_table", URL: "postgres://u@127.0.0.1:1/d", Map: leader.SourceMap{FQN: "/tool"}, Table: &odd})
	h.source(leader.Source{Name: "private", Kind: "postgres_table", URL: "postgres://u@10.0.0.1/d", Map: leader.SourceMap{FQN: "/tool"}, Table: &odd})
	client := remote.New(remote.Config{AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	t.Cleanup(client.Close)
	h.listenAll(h.manual(func(c *parts) { c.Dial = client.Dial }))
	for name, want := range map[string]string{
		"halt": `failed event "b" cannot be read: its payload is no JSON`, "dead": "running ",
		"missing": `failed there is no table or view "shop"."gone"`, "column": `failed "shop"."odd" has no column "gone"`,
		"cursor": `failed SQLSTATE 22P02: `, "shape": `failed the cursor 17 is none of a table`,
		"nowhere": `running the database does not answer: `, "private": `running the database's address is not public`,
	} {
		if v := h.state(name); !strings.HasPrefix(v.State+" "+v.LastError, want) {
			t.Errorf("%s: %s %s", name, v.State, v.LastError)
		}
	}
	if got := h.stored("halt"); fmt.Sprint(got) != "[a]" {
		t.Error(got)
	}
	if got := h.stored("dead"); len(got) != 6 || fmt.Sprint(got[:5]) != "[a b c d f]" { // and the one without a key
		t.Error(got)
	}
}

// A database is reached by URL, with a password that stands in the password file of the node: PGPASSWORD would be told
// to any host.
func TestATableOfAnotherDatabase(t *testing.T) {
	h, other := newHouse(t), newHouse(t)
	u, err := url.Parse(other.db.URL)
	h.must(err)
	if u.Hostname() == "" {
		t.Skip("the server of the tests is reached by a socket alone")
	}
	file := filepath.Join(t.TempDir(), "passwords")
	password, _ := u.User.Password()
	h.must(os.WriteFile(file, []byte(u.Hostname()+":*:*:*:"+password+"\n"), 0o600))
	t.Setenv("PGPASSFILE", file)
	t.Setenv("PGPASSWORD", "another")
	u.User = url.User(u.User.Username())
	other.exec(shop)
	other.exec(orders, 5)
	h.source(leader.Source{Name: "far", Kind: "postgres_table", URL: u.String(), Map: leader.SourceMap{FQN: "/tool"}, PageSize: 2,
		Table: &leader.SourceTable{Name: "shop.Orders", Key: "id", Cursor: "id", Payload: "data", Settle: "1ms"}})
	client := remote.New(remote.Config{AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}})
	t.Cleanup(client.Close)
	e := h.manual(func(c *parts) { c.Dial = client.Dial })
	for len(h.stored("far")) < 5 && h.state("far").LastError == "" && h.ctx.Err() == nil {
		h.exec(`UPDATE postern.source SET next_at = clock_timestamp()`)
		h.listenAll(e)
	}
	if got := strings.Join(h.stored("far"), " "); got != numbers(1, 5) {
		t.Errorf("%s: %+v", got, h.state("far"))
	}

	// Another database of Postern's is as ours is, whose URL it may be: the list holds. In one of others the role of
	// the URL counts.
	h.s.Events.SourceSchemas = nil
	again := func() *events.Source {
		h.exec(`UPDATE postern.source SET next_at = clock_timestamp()`)
		h.listenAll(e)
		return h.state("far")
	}
	if v := again(); v.State != "failed" || !strings.Contains(v.LastError, "POSTERN_SOURCE_SCHEMAS") {
		t.Errorf("%s %s", v.State, v.LastError)
	}
	other.exec(`DROP SCHEMA postern CASCADE`)
	_, err = h.s.Events.PauseSource(h.ctx, h.by, "far", false)
	h.must(err)
	if v := again(); v.State != "running" || v.LastError != "" {
		t.Errorf("%s %s", v.State, v.LastError)
	}
}

// A source reads the schemas that it was given: one that was made when its schema was allowed stops when it is no more,
// and says why.
func TestASourceWhoseSchemaIsNoLongerAllowedStops(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.exec(shop)
	h.exec(orders, 3)
	v := leader.Source{Name: "rows", Kind: "postgres_table", Map: leader.SourceMap{FQN: "/tool"},
		Table: &leader.SourceTable{Name: "shop.Orders", Key: "id", Cursor: "id", Payload: "data", Settle: "0s"}}
	h.source(v)
	h.s.Events.SourceSchemas = []string{"Shop", "public"}
	e := h.manual(nil)
	h.listenAll(e)
	if got := h.state("rows"); got.State != "failed" || len(h.stored("rows")) != 0 ||
		!strings.Contains(got.LastError, "sources may not read the schema shop of this database") || !strings.Contains(got.LastError, "--source-schemas Shop,public,shop") {
		t.Errorf("%s %s", got.State, got.LastError)
	}
	if _, err := h.s.Events.PutSource(h.ctx, h.by, v.WithDefaults(), 0); fault.KindOf(err) != fault.Invalid {
		t.Error(err)
	}
	h.s.Events.SourceSchemas = []string{"shop"}
	_, err := h.s.Events.PauseSource(h.ctx, h.by, "rows", false)
	h.must(err)
	h.listenAll(e)
	if got := h.state("rows"); got.State != "running" || strings.Join(h.stored("rows"), " ") != numbers(1, 3) {
		t.Errorf("%s %s", got.State, got.LastError)
	}
}
