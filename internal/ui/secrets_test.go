package ui_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// secret is the value of a variable of each job of the test.
const secret = "hush-4711"

// Whatever door a reader comes through, values of the environment of jobs are not behind it: each GET of the API, the
// pages of the dashboard, each table and view that a role of SQL may read, the audit and the log. So it is for jobs of
// /jobs, of flows, of transactions, and of those that SQL has staged. Subscriptions tell none either.
// An executor, whose runner needs them, sees them where the transaction lies as it was posted, and in GET /jobs/{id}.
func TestNoDoorShowsTheEnvironmentOfJobsToReaders(t *testing.T) {
	h := newHouse(t, "required")
	ids := h.secretive()
	reader, executor := h.key("default", "reader"), h.key("default", "executor")

	for _, path := range h.getPaths(ids) {
		if text := h.reads(reader, path); strings.Contains(text, secret) {
			t.Errorf("GET %s tells a reader: %s", path, text)
		}
	}
	for _, path := range []string{"/jobs/" + ids["job"], "/flows/" + ids["flow"]} {
		if text := h.reads(executor, path); !strings.Contains(text, secret) {
			t.Errorf("GET %s tells an executor nothing: %s", path, text)
		}
		if text := h.reads(reader, path); !strings.Contains(text, `"TOKEN":"***"`) {
			t.Errorf("GET %s tells a reader not which variables there are: %s", path, text)
		}
	}
	if text := h.reads(executor, "/subscriptions/hook/feed"); !strings.Contains(text, `"TOKEN":"***"`) ||
		strings.Contains(text, secret) {
		t.Errorf("a feed tells %s", text)
	}
	b := h.browser().signIn(reader)
	for _, p := range []string{"now", "jobs", "jobs/" + ids["job"], "flows", "flows/" + ids["flow"], "transactions",
		"transactions/" + ids["transaction"], "audit", "subscriptions/hook", "dispatchers/job.python"} {
		if s := b.get("/ui/c/default/" + p); s.status != 200 && p != "audit" || strings.Contains(s.text, secret) {
			t.Errorf("the page %s tells a reader (%d): %s", p, s.status, s.text)
		}
	}
	for _, group := range []string{"postern_submit", "postern_reporter"} {
		if seen := h.sqlShows(group, "reader"); len(seen) > 0 {
			t.Errorf("a reader of the group %s sees it in %v", group, seen)
		}
	}
	if seen := h.sqlShows("postern_submit", "executor"); !slices.Contains(seen, "postern.task") ||
		!slices.Contains(seen, "postern.outbox") || slices.Contains(seen, "postern.bodies") {
		t.Errorf("an executor sees it in %v, want postern.task and postern.outbox, and not postern.bodies", seen)
	}
	if said := h.said.String(); strings.Contains(said, secret) {
		t.Errorf("the log has it: %s", said)
	}
}

// secretive makes jobs of each kind whose environment has a secret.
func (h *house) secretive() (ids map[string]string) {
	h.t.Helper()
	ids = map[string]string{}
	const in = "Postern-Context: default"
	job := func(more string) string {
		return `{"script": "1", "script_type": "python", "env_vars": {"TOKEN": "` + secret + `"}` + more + `}`
	}
	h.api("PUT", "/subscriptions/hook", `{"kind": "pull", "events": ["transaction.accepted"], "include": ["data"]}`, in)
	ids["job"] = fmt.Sprint(h.api("POST", "/jobs", job(""), in)["id"])
	f := h.api("POST", "/flows", `{"env_vars": {"TOKEN": "`+secret+`"}, "jobs": [`+job(`, "ref": 1`)+`]}`, in)
	ids["flow"] = fmt.Sprint(f["id"])
	h.api("PATCH", "/flows/"+ids["flow"], `{"env_vars": {"TOKEN": "`+secret+`", "B": "`+secret+`"}}`,
		in, `If-Match: "`+fmt.Sprint(f["version"])+`"`)
	h.api("POST", "/flows/"+ids["flow"]+"/start", `{}`, in)
	tx := h.api("POST", "/transactions", `{"type": "job.python", "queue": "q", "uid": "secretive", "data": {
		"script": "1", "env_vars": {"TOKEN": "`+secret+`"}}}`, in)
	ids["transaction"] = fmt.Sprint(tx["id"])
	for _, env := range []string{`"` + secret + `"`, `{"deep": ["` + secret + `"]}`} {
		_, err := h.store.Pool().Exec(h.t.Context(), `SELECT postern.submit('q', 'job.python', $1::text::jsonb)`,
			`{"script": "1", "env_vars": {"TOKEN": `+env+`}}`)
		if err != nil {
			h.t.Fatal(err)
		}
	}
	var line int32
	if err := h.store.Pool().QueryRow(h.t.Context(), `SELECT subscription_id FROM postern.subscription`).
		Scan(&line); err != nil {
		h.t.Fatal(err)
	}
	for more := true; more; { // give events their numbers
		d, err := h.store.Deliveries.Deliver(h.t.Context(), line, nil, 0)
		if err != nil {
			h.t.Fatal(err)
		}
		more = d.More
	}
	return ids
}

// getPaths are all paths of the contract that are read, with the names of things that are there.
func (h *house) getPaths(ids map[string]string) (list []string) {
	h.t.Helper()
	names := map[string][]string{
		"transactions": {ids["transaction"]}, "by-uid": {"secretive"}, "jobs": {ids["job"]}, "flows": {ids["flow"]},
		"queues": {"q"}, "dispatchers": {"job.python"}, "subscriptions": {"hook"}, "contexts": {"default"},
		"machines": {"job", "transaction"},
	}
	for path, item := range h.api("GET", "/openapi.json", "")["paths"].(map[string]any) {
		if item.(map[string]any)["get"] == nil {
			continue
		}
		paths := []string{""}
		parts := strings.Split(path, "/")[1:]
		for i, part := range parts {
			var next []string
			for _, p := range paths {
				if !strings.HasPrefix(part, "{") {
					next = append(next, p+"/"+part)
					continue
				}
				for _, name := range names[parts[i-1]] {
					next = append(next, p+"/"+name)
				}
			}
			paths = next
		}
		list = append(list, paths...)
	}
	if slices.Sort(list); len(list) < 40 {
		h.t.Errorf("the contract has %d paths that can be read: %v", len(list), list)
	}
	return append(list, "/transactions?limit=100", "/transactions?queue=q", "/jobs?script_type=python")
}

// reads is what the API answers to the holder of a key; of a stream, what comes within a second.
func (h *house) reads(key, path string) string {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", h.url+path, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	defer res.Body.Close()
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		time.AfterFunc(time.Second, cancel)
	}
	text, _ := io.ReadAll(res.Body)
	return string(text)
}

// sqlShows says in which tables and views a role of a group reads the secret, with a role in the context: in whatever
// columns it may read.
func (h *house) sqlShows(group, role string) (seen []string) {
	h.t.Helper()
	ctx := h.t.Context()
	owner := h.store.Pool()
	cfg := owner.Config().ConnConfig
	name := strings.ToLower(cfg.Database[:min(40, len(cfg.Database))] + strings.TrimPrefix(group, "postern") + role[:1])
	do := func(ctx context.Context, sql string, args ...any) {
		h.t.Helper()
		if _, err := owner.Exec(ctx, sql, args...); err != nil {
			h.t.Error(err)
		}
	}
	do(ctx, fmt.Sprintf(`CREATE ROLE %q LOGIN PASSWORD 'test' IN ROLE %s`, name, group))
	h.t.Cleanup(func() {
		do(context.Background(), fmt.Sprintf(`DROP OWNED BY %q CASCADE`, name))
		do(context.Background(), fmt.Sprintf(`DROP ROLE %q`, name))
	})
	do(ctx, `SELECT postern.grant_context($1, 'default', $2)`, name, role)
	c, err := pgx.Connect(ctx, fmt.Sprintf("postgres://%s:test@%s:%d/%s?sslmode=disable", name, cfg.Host, cfg.Port,
		cfg.Database))
	if err != nil {
		h.t.Fatal(err)
	}
	defer c.Close(ctx)
	rows, err := c.Query(ctx, `SELECT c.oid::regclass::text, string_agg(quote_ident(a.attname), ', ')
		FROM pg_class c
		JOIN pg_namespace n ON n.oid = c.relnamespace
		JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		WHERE n.nspname IN ('postern', 'report', 'river') AND c.relkind IN ('r', 'p', 'v', 'm')
			AND has_schema_privilege(n.oid, 'USAGE') AND has_column_privilege(c.oid, a.attnum, 'SELECT')
		GROUP BY 1
		ORDER BY 1`)
	if err != nil {
		h.t.Fatal(err)
	}
	tables := map[string]string{}
	var table, columns string
	if _, err := pgx.ForEachRow(rows, []any{&table, &columns}, func() error {
		tables[table] = columns
		return nil
	}); err != nil || len(tables) < 15 {
		h.t.Fatalf("%s may read %v: %v", name, tables, err)
	}
	for table, columns := range tables {
		var n int
		if err := c.QueryRow(ctx, fmt.Sprintf(`SELECT count(*) FROM (SELECT %s FROM %s) x
			WHERE position($1 IN x::text) > 0`, columns, table), secret).Scan(&n); err != nil {
			h.t.Errorf("%s: %v", table, err)
		}
		if n > 0 {
			seen = append(seen, table)
		}
	}
	slices.Sort(seen)
	return seen
}
