package pg_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pgtest"
)

// allRoles are connections of the roles that submit. The owner of the tables is an admin everywhere.
func allRoles(t *testing.T) (w *world, conns map[string]*pgx.Conn) {
	t.Helper()
	w, executor, _ := tenant(t)
	admin, name := w.as("postern_reporter")
	w.Exec(fmt.Sprintf(`GRANT postern_submit TO %q`, name))
	w.Exec(`SELECT postern.grant_context($1, 'shop', 'admin')`, name)
	owner := connect(t, pgtest.URL(w.S.Pool()))
	return w, map[string]*pgx.Conn{"executor": executor, "admin": admin, "owner": owner}
}

// doors are the statements that stage a transaction.
func doors(queue, typ, uid string) map[string]string {
	return map[string]string{
		"submit": fmt.Sprintf(`SELECT postern.submit('%s', '%s', '{}', '%s', 'shop')`, queue, typ, uid),
		"submit_many": fmt.Sprintf(`SELECT postern.submit_many(
			'[{"queue": "%s", "type": "%s", "uid": "%s", "context": "shop"}]')`, queue, typ, uid),
		"insert": fmt.Sprintf(`INSERT INTO postern.outbox (context_id, queue, type, uid, data)
			VALUES (`+shop+`, '%s', '%s', '%s', '{}')`, queue, typ, uid),
	}
}

// The names of Postern's systems are one list, and are refused to each role, in whatever way it submits.
func TestNoRoleSubmitsUnderTheNamesOfASystem(t *testing.T) {
	t.Parallel()
	w, conns := allRoles(t)
	rows, err := w.S.Pool().Query(w.Ctx, `SELECT field, prefix, system, whose FROM postern.reserved()`)
	w.Must(err)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[outbox.Name])
	w.Must(err)
	if !slices.Equal(list, outbox.ReservedNames()) {
		t.Errorf("SQL reserves %v, Go %v", list, outbox.ReservedNames())
	}
	for role, c := range conns {
		for _, r := range list {
			for _, suffix := range []string{"", "x", "0:result", "result", "main:1"} {
				fields := map[string]string{"type": "T", "uid": "x", "queue": "q"}
				fields[r.Field] = r.Prefix + suffix
				f := fault.As(outbox.Reserved(outbox.Anyone, fields["type"], fields["uid"], fields["queue"]))
				if f == nil || f.Fields[0].Pointer != "/"+r.Field {
					t.Errorf("%v: %v", fields, f) // POST asks this
				}
				for door, sql := range doors(fields["queue"], fields["type"], fields["uid"]) {
					pointer := "/" + r.Field
					if door == "submit_many" {
						pointer = "/items/0" + pointer
					}
					refusedAs(t, c, role+", "+door+", "+fields[r.Field], sql, "forbidden", pointer)
				}
			}
		}
	}
}

// The setting posted_by of a type is held against the role that submits, in whatever way.
func TestATypeSaysWhichRolesMaySubmit(t *testing.T) {
	t.Parallel()
	w, conns := allRoles(t)
	in := w.By
	in.Context = w.S.Context("shop").ID
	n := 0
	for _, posted := range outbox.Posters {
		d := outbox.DefaultDispatcher()
		d.Type, d.WorkerURL, d.PostedBy = "T", "noop:", posted
		_, err := w.S.PutDispatcher(w.Ctx, in, d, 0)
		w.Must(err)
		for role, c := range conns {
			by := outbox.Anyone
			if role != "executor" {
				by = outbox.ByAdmin
			}
			refusal := fault.As(d.MayPost(by))
			n++
			for door, sql := range doors("q", "T", fmt.Sprint("u-", n, "-")) {
				sql = strings.Replace(sql, fmt.Sprint("u-", n, "-"), fmt.Sprint("u-", n, "-", door), 1)
				is := fmt.Sprintf("%s, %s, %s", posted, role, door)
				if refusal == nil {
					if _, err := c.Exec(w.Ctx, sql); err != nil {
						t.Errorf("%s: %v", is, err)
					}
					continue
				}
				pointer := "/type"
				if door == "submit_many" {
					pointer = "/items/0/type"
				}
				refusedAs(t, c, is, sql, "forbidden", pointer)
				if _, err := c.Exec(w.Ctx, sql); err == nil || !strings.Contains(err.Error(), refusal.Detail) {
					t.Errorf("%s: %v, want %s", is, err, refusal.Detail)
				}
			}
		}
	}
	denied(t, conns["executor"], "42501", `INSERT INTO postern.outbox (context_id, type, data, by_admin)
		VALUES (`+shop+`, 'T', '{}', true)`)
}
