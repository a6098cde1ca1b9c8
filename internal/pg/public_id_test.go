package pg_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
)

// TestTheIdInSQLIsTheIdInGo over random values and the edges of each part.
func TestTheIdInSQLIsTheIdInGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const most = 1 << 43 // the upper half are processors
	ids := []outbox.ID{{Salt: 1}, {Queue: most - 1, Seq: 1<<40 - 1, Day: 1<<16 - 1, Salt: 1<<22 - 1}, {Queue: most / 2, Seq: 1 << 36, Day: 1 << 15, Salt: 1 << 10}}
	for range 1000 {
		ids = append(ids, outbox.ID{Queue: rand.Int64N(most) >> rand.IntN(44), Seq: rand.Int64N(1<<40) >> rand.IntN(40),
			Day: outbox.Day(rand.IntN(1 << 16)), Salt: rand.IntN(1 << 22)})
	}
	var queues, seqs []int64
	var days []time.Time
	var salts []int32
	for _, id := range ids {
		queues, seqs, days, salts = append(queues, id.Queue), append(seqs, id.Seq), append(days, id.Day.Time()), append(salts, int32(id.Salt))
	}
	rows, err := w.S.Pool().Query(w.Ctx, `SELECT n.i, postern.public_id(n.q, n.s, n.d, n.e)::text,
			(SELECT (p.queue_id, p.seq, p.day) = (n.q, n.s, n.d) FROM postern.id_place(upper(postern.public_id(n.q, n.s, n.d, n.e)::text)) p)
		FROM ROWS FROM (unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::date[]), unnest($4::int[])) WITH ORDINALITY n(q, s, d, e, i)`, queues, seqs, days, salts)
	w.Must(err)
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		var i int
		var s string
		var back *bool
		w.Must(rows.Scan(&i, &s, &back))
		if back == nil || !*back {
			t.Fatalf("%s is not taken apart as it was put together", s)
		}
		if want := ids[i-1].String(); s != want {
			t.Fatalf("%+v is %s in SQL and %s in Go", ids[i-1], s, want)
		}
	}
	if w.Must(rows.Err()); n != len(ids) {
		t.Fatalf("compared %d of %d", n, len(ids))
	}
}
