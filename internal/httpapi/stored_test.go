package httpapi_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pgtest"
)

// A post that was stored is answered so, although it cannot be read back: a table that only readers need is locked. A
// request that says that nothing was done, such as "overloaded", has done nothing.
func TestWhatIsStoredIsToldThoughItCannotBeRead(t *testing.T) {
	d := newDoor(t)
	d.want(201, "PUT", "/dispatchers/T", `{"worker_url": "noop:"}`)
	d.want(201, "POST", "/transactions", `{"uid": "old", "queue": "q", "type": "T", "data": {}}`)
	admin, err := pgx.Connect(t.Context(), pgtest.URL(d.store.Pool()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close(t.Context()) })
	exec := func(sql string) {
		t.Helper()
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`BEGIN`)
	exec(`LOCK TABLE postern.attempt IN ACCESS EXCLUSIVE MODE`)

	later := `"not_before": "` + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + `"`
	one := d.want(201, "POST", "/transactions", `{"uid": "new", "queue": "q", "type": "T", "data": {}, `+later+`}`)
	if one.str("uid") != "new" || one.str("state") != "WAITING" || one.str("id") == "" {
		t.Errorf("the answer is %v", one.body)
	}
	d.want(503, "POST", "/transactions", `{"uid": "new", "queue": "q", "type": "T", "data": {}, `+later+`}`)
	all := d.want(207, "POST", "/transactions:batch", `{"items": [{"uid": "old", "queue": "q", "type": "T", "data": {}},
		{"queue": "q", "type": "T", "data": {}}]}`)
	items, _ := all.body["items"].([]any)
	for i, want := range []float64{503, 201} {
		if got := items[i].(map[string]any)["status"]; got != want {
			t.Errorf("item %d is %v, want %v", i, got, want)
		}
	}
	exec(`ROLLBACK`)
	var n int
	if err := admin.QueryRow(t.Context(), `SELECT count(*) FROM postern.transactions`).Scan(&n); err != nil || n != 3 {
		t.Errorf("%d transactions are there, want 3: %v", n, err)
	}
}
