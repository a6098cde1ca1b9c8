package pg_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/pg/verify"
)

// tables are those whose rows a statement of the hot path may change.
var tables = []string{"queue_name", "queue", "ready", "timer", "node", "sender", "dispatcher", "task", "outcome", "attempt",
	"delivery", "mark", "dependency", "ripple", "redrive", "idempotency", "audit"}

// keep copies all rows, so that back can bring them again as often as it is wanted: the same ids, fences
// and times, and so the same leases.
func keep(t *testing.T, ctx context.Context, pool *pgxpool.Pool) {
	t.Helper()
	for _, name := range append([]string{"lane"}, tables...) {
		_, err := pool.Exec(ctx, "CREATE TABLE public.base_"+name+" AS TABLE postern."+name)
		ok(t, err)
	}
}

// oneDay drops the partitions of all days but today's, since each costs every statement some planning.
func oneDay(t *testing.T, w *world) {
	t.Helper()
	rows, err := w.s.Pool().Query(w.ctx, `SELECT 'DROP TABLE postern.' || c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE c.relkind = 'r' AND c.relname !~ $1 AND c.relname ~ '_[0-9]{8}$'`, w.now.Format("20060102")+"$")
	ok(t, err)
	drops, err := pgx.CollectRows(rows, pgx.RowTo[string])
	ok(t, err)
	for _, sql := range drops {
		_, err := w.s.Pool().Exec(w.ctx, sql)
		ok(t, err)
	}
}

// backSQL does not remove lanes: stores remember their ids.
var backSQL = func() string {
	var b strings.Builder
	for _, name := range tables {
		b.WriteString("DELETE FROM postern." + name + ";\n")
	}
	for _, name := range tables {
		b.WriteString("INSERT INTO postern." + name + " OVERRIDING SYSTEM VALUE SELECT * FROM public.base_" + name + ";\n")
	}
	b.WriteString("UPDATE postern.lane l SET holder = (SELECT b.holder FROM public.base_lane b WHERE b.lane_id = l.lane_id);\n")
	return b.String()
}()

func back(t *testing.T, ctx context.Context, pool *pgxpool.Pool) {
	t.Helper()
	_, err := pool.Exec(ctx, backSQL)
	ok(t, err)
}

// lookSQL shows everything that a reader or the next statement can see, a line per row, without what
// says when it happened and how often the owner changed.
const lookSQL = `
SELECT 'tx ' || concat_ws(' ', queue, seq, state, queue_state, attempt, retries, sender, hash, fee, error_code) FROM postern.tx
UNION ALL SELECT 'queue ' || (to_jsonb(q) - '{fence,entered_at}'::text[])::text FROM postern.queue q
UNION ALL SELECT 'name ' || (to_jsonb(q) - '{last_fence,created_at}'::text[])::text FROM postern.queue_name q
UNION ALL SELECT 'ready ' || concat_ws(' ', lane, prio, queue_id) FROM postern.ready
UNION ALL SELECT 'timer ' || concat_ws(' ', queue_id, due_at) FROM postern.timer
UNION ALL SELECT 'sender ' || (to_jsonb(s) - '{created_at}'::text[])::text FROM postern.sender s
UNION ALL SELECT 'lane ' || lane_id || ' ' || holder FROM postern.lane WHERE holder IS NOT NULL
UNION ALL SELECT 'dispatcher ' || concat_ws(' ', type, paused, gate_until, gate_failures, gate_reason) FROM postern.dispatcher
UNION ALL SELECT 'node ' || concat_ws(' ', name, epoch, heartbeat_at, dead_at IS NOT NULL) FROM postern.node
UNION ALL SELECT 'outcome ' || (to_jsonb(o) - '{fence}'::text[])::text FROM postern.outcome o
UNION ALL SELECT 'attempt ' || (to_jsonb(a) - '{fence}'::text[])::text FROM postern.attempt a
UNION ALL SELECT 'delivery ' || concat_ws(' ', queue_id, seq, event, state) FROM postern.delivery
UNION ALL SELECT 'mark ' || concat_ws(' ', queue_id, seq, kind) FROM postern.mark
UNION ALL SELECT 'dependency ' || concat_ws(' ', queue_id, seq, on_queue, on_seq) FROM postern.dependency
UNION ALL SELECT 'ripple ' || concat_ws(' ', queue_id, seq) FROM postern.ripple
UNION ALL SELECT 'key ' || concat_ws(' ', context_id, key, queue_id, seq) FROM postern.idempotency
UNION ALL SELECT 'audit ' || concat_ws(' ', action, object) FROM postern.audit
ORDER BY 1`

func look(t *testing.T, ctx context.Context, pool *pgxpool.Pool) string {
	t.Helper()
	rows, err := pool.Query(ctx, lookSQL)
	ok(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	ok(t, err)
	return strings.Join(lines, "\n")
}

// difference shows the lines that two looks do not share.
func difference(want, got string) string {
	count := map[string]int{}
	for _, l := range strings.Split(want, "\n") {
		count[l]--
	}
	for _, l := range strings.Split(got, "\n") {
		count[l]++
	}
	var b strings.Builder
	for _, l := range strings.Split(want+"\n"+got, "\n") {
		switch n := count[l]; {
		case n < 0:
			b.WriteString("\n  - " + l)
		case n > 0:
			b.WriteString("\n  + " + l)
		}
		delete(count, l)
	}
	return b.String()
}

// holdsTrue fails the test where an invariant of the database does not.
func holdsTrue(t *testing.T, ctx context.Context, pool *pgxpool.Pool) {
	t.Helper()
	found, err := verify.Violations(ctx, pool)
	ok(t, err)
	for _, f := range found {
		t.Error(f)
	}
}
