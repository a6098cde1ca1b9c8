package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// held counts by type what waits for somebody to say what came of it: its worker was called, and cannot be asked.
func held(ctx context.Context, c *pgx.Conn) ([]Finding, error) {
	rows, err := c.Query(ctx, `
		SELECT x.name, t.type, count(*), clock_timestamp() - min(m.at)
		FROM postern.mark m JOIN postern.queue q ON q.queue_id = m.queue_id AND q.cur_seq = m.seq
		JOIN postern.task t ON (t.queue_id, t.seq) = (m.queue_id, m.seq) AND t.day BETWEEN q.head_day AND q.tail_day
		JOIN postern.context x ON x.context_id = t.context_id
		WHERE m.kind = 'unknown' GROUP BY 1, 2 ORDER BY 4 DESC LIMIT 20`)
	if err != nil {
		return nil, err
	}
	var found []Finding
	var tenant, typ string
	var n int64
	var age time.Duration
	_, err = pgx.ForEachRow(rows, []any{&tenant, &typ, &n, &age}, func() error {
		f := Finding{
			Check:  "held transactions",
			State:  Bad,
			Found:  fmt.Sprintf("%d of type %s (context %s), for up to %s", n, typ, tenant, coarse(age)),
			Remedy: "find out, then postern was-done ID or was-not-done ID: postern ls held=true type=" + typ,
		}
		f.Found += ": what came of them is not known"
		if tenant != "default" {
			f.Remedy += " with --context " + tenant
		}
		found = append(found, f)
		return nil
	})
	if err == nil && len(found) == 0 {
		found = []Finding{{Check: "held transactions", State: OK, Found: "none waits for somebody's word"}}
	}
	return found, err
}
