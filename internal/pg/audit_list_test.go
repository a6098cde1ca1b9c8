package pg_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/pg/db"
)

// A page looks at a bounded number of rows of the audit for those that no index finds, and says where the list goes on.
func TestAPageLooksAtABoundedNumberOfAuditRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Exec(`INSERT INTO postern.audit (context_id, at, actor, via, action, object, reason)
		SELECT $1, clock_timestamp() + n * interval '1 s', 'ann', 'http', 'pause', '/queues/q', ''
		FROM generate_series(1, 5) n`, w.ID)
	for _, ascending := range []bool{false, true} {
		f := db.AuditFilter{Actor: "bob", Object: "/queues/q", Ascending: ascending, Limit: 9, Examined: 2}
		found, pages := 0, 0
		for more := true; more; pages++ {
			list, next, err := w.S.Audit(w.Ctx, w.ID, f)
			w.Must(err)
			found += len(list)
			if more = next != nil; more {
				f.FromAt, f.FromID = next.At, next.ID
			}
		}
		if found != 0 || pages != 3 {
			t.Errorf("%d rows in %d pages, want none in 3", found, pages)
		}
	}
}
