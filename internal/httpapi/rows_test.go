package httpapi_test

import (
	"crypto/ed25519"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
)

// signers are callers of the matrix who sign their requests, as actors; the last one is a member of no context.
func (d *door) signers(root string) (list []who) {
	d.t.Helper()
	in := []string{"Postern-Context: shop"}
	for _, s := range []who{
		{name: "signed executor", headers: in, level: executes},
		{name: "signed reader", headers: in, level: reads},
		{name: "signed foreign admin", headers: in, level: administers, foreign: true},
		{name: "signed admin", headers: in, level: administers, creates: true},
		{name: "signed actor without a role", headers: in, level: any1, foreign: true},
	} {
		s.key = drawn(d.t)
		id := d.want(201, "POST", "/actors", fmt.Sprintf(`{"public_keys": [%q]}`, public(s.key)), root).str("id")
		if s.level > any1 {
			of := map[bool]string{true: "other", false: "shop"}[s.foreign]
			role := map[int]string{reads: "reader", executes: "executor", administers: "admin"}[s.level]
			d.want(200, "PUT", "/contexts/"+of+"/members/"+id, fmt.Sprintf(`{"roles": [%q]}`, role), root)
		}
		list = append(list, s)
	}
	return list
}

// foreignThings makes a job, a flow and more in a context. A caller without a role there knows their ids in the matrix.
func (d *door) foreignThings(root string, creator ed25519.PrivateKey) (job, flow string) {
	d.t.Helper()
	const in = "Postern-Context: shop"
	made := func(path, body string) string {
		return d.asActor(201, creator, "POST", path, body, in).str("id")
	}
	job = made("/jobs", `{"script": "1", "script_type": "python", "prerequisites": ["ok"]}`)
	flow = made("/flows", `{"jobs": [{"ref": 1, "script": "1", "script_type": "python"},
		{"ref": 2, "script": "1", "script_type": "python", "dependends": [1]}]}`)
	d.want(201, "PUT", "/runners/x", `{}`, root, in)
	d.want(201, "PUT", "/channels/x", `{"kind": "integrity"}`, root, in)
	d.want(201, "PUT", "/subscriptions/x", `{"kind": "pull", "events": ["transaction.done"]}`, root, in)
	d.rowsApart(d.t, "shop", "other")
	d.refused(403, "forbidden", "POST", "/flows/"+flow+"/start", "", root, in) // only its creator starts it
	return job, flow
}

// noForeignLevers pulls levers on things of another context by their ids, as its admin with a key of its own.
func (d *door) noForeignLevers(key ed25519.PrivateKey, paths ...string) {
	d.t.Helper()
	for _, path := range paths {
		for _, verb := range []string{"/cancel", "/start", "/redrive"} {
			headers := d.signed(key, "POST", path+verb, "")
			if status, code := d.status("POST", path+verb, "", headers...); status != 404 {
				d.t.Errorf("a foreign admin: POST %s%s answered %d %s", path, verb, status, code)
			}
		}
	}
}

// seenBy counts, in each table that keeps contexts apart, the rows of a context that a role of the database sees which
// is an admin of another one, or of the same. The role has every right to read: what it does not see, the policies keep
// from it.
func (d *door) seenBy(t *testing.T, of, admin string) map[string]int {
	t.Helper()
	tx, err := d.store.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context()) //nolint:errcheck // the role goes with it
	rows, err := tx.Query(t.Context(), `SELECT c.relname::text, EXISTS (SELECT FROM pg_attribute a
			WHERE a.attrelid = c.oid AND a.attname = 'context_id' AND NOT a.attisdropped)
		FROM pg_class c JOIN pg_policy p ON p.polrelid = c.oid AND p.polname = 'tenant'
		WHERE NOT c.relispartition
		ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	tables := map[string]bool{}
	var name string
	var own bool
	if _, err := pgx.ForEachRow(rows, []any{&name, &own}, func() error { tables[name] = own; return nil }); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		`CREATE ROLE seen_by_somebody NOLOGIN IN ROLE postern_submit`,
		`GRANT SELECT ON ALL TABLES IN SCHEMA postern TO seen_by_somebody`,
		fmt.Sprintf(`SELECT postern.grant_context('seen_by_somebody', '%s', 'admin')`, admin),
		`SET LOCAL ROLE seen_by_somebody`,
	} {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]int{}
	for table, own := range tables {
		sql, args := `SELECT count(*) FROM postern.`+table, []any{}
		if own {
			sql, args = sql+` WHERE context_id = $1`, []any{d.store.Context(of).ID}
		}
		var n int
		if err := tx.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
			t.Fatalf("%s: %v", table, err)
		}
		seen[table] = n
	}
	return seen
}

// rowsApart compares what two contexts see of the rows of one of them.
func (d *door) rowsApart(t *testing.T, of, other string) {
	t.Helper()
	for table, n := range d.seenBy(t, of, other) {
		if n != 0 {
			t.Errorf("an admin of %s sees %d rows of %s in %s", other, n, of, table)
		}
	}
	some := 0
	for _, n := range d.seenBy(t, of, of) {
		if n > 0 {
			some++
		}
	}
	if some < 15 {
		t.Errorf("only %d tables have rows of %s, so that little is compared", some, of)
	}
}
