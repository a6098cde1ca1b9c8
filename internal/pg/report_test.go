package pg_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// finish fills the tables as if $2 transactions of five types had come in two days to $3 queues of the context $1 and
// gone out through a hundred senders; one in a hundred FAILED, one in fifty was retried, the last of a thousand queues
// waits.
var finish = []string{
	`INSERT INTO postern.pool (context_id, name) VALUES ($1, 'p')`,
	`INSERT INTO postern.sender (context_id, pool_id, account) SELECT $1, (SELECT max(pool_id) FROM postern.pool), 'acct-' || i FROM generate_series(1, 100) i`,
	`INSERT INTO postern.queue_name (context_id, name, queue_id) SELECT $1, 'q' || i, 1000000 + i FROM generate_series(1, $3::bigint) i`,
	`SELECT postern.ensure_days((now() AT TIME ZONE 'UTC')::date - 3, (now() AT TIME ZONE 'UTC')::date + 1)`,
	`INSERT INTO postern.task (queue_id, seq, day, context_id, uid, type, data, created_at)
		SELECT 1000001 + i % ($3::bigint), i / ($3::bigint) + 1, (at AT TIME ZONE 'UTC')::date, $1, 'order-' || i, 'T' || i % 5, '{"amount": "5"}', at
		FROM generate_series(0, $2::bigint - 1) i CROSS JOIN LATERAL (SELECT now() - interval '48 hours' * (($2::bigint - i) / $2::float8) AS at) a`,
	`INSERT INTO postern.idempotency (context_id, key, queue_id, seq, day, body_hash) SELECT context_id, uid, queue_id, seq, day, '\x00' FROM postern.task`,
	`INSERT INTO postern.outcome (queue_id, seq, day, context_id, was, state, error_class, error_code, error, attempt, retries, fence, sender_id, hash,
			started_at, submitted_at, done_at)
		SELECT t.queue_id, t.seq, t.day, $1, 'REVISION', CASE WHEN t.queue_id % 100 = 0 THEN 'FAILED' ELSE 'DONE' END,
			CASE WHEN t.queue_id % 100 = 0 THEN 'execution' END, CASE WHEN t.queue_id % 100 = 0 THEN 'reverted_' || t.queue_id % 3 END, NULL,
			1 + (t.queue_id % 50 = 0)::int, (t.queue_id % 50 = 0)::int, 7, s.first + t.queue_id % 100, 'h' || t.seq,
			t.created_at + interval '1 ms' * (t.queue_id % 977), t.created_at + interval '1 ms' * (t.queue_id % 977 + 50),
			t.created_at + interval '1 ms' * (t.queue_id % 9977 + 1000)
		FROM postern.task t CROSS JOIN (SELECT min(sender_id) AS first FROM postern.sender) s WHERE t.context_id = $1 AND (t.seq < $2 / $3::bigint OR t.queue_id > 1001000)`,
	`INSERT INTO postern.queue (queue_id, context_id, head_seq, tail_seq, head_day, tail_day, fence, phase, lane, entered_at)
		SELECT n.queue_id, $1, CASE WHEN n.queue_id > 1001000 THEN $2::bigint / $3 + 1 ELSE $2 / $3 END, $2 / $3, d.day, d.day, 7, CASE WHEN n.queue_id > 1001000 THEN 'IDLE' ELSE 'READY' END,
			CASE WHEN n.queue_id <= 1001000 THEN 1 END, now() - interval '1 day'
		FROM postern.queue_name n CROSS JOIN (SELECT (now() AT TIME ZONE 'UTC')::date - 1 AS day) d`,
	`INSERT INTO postern.attempt (queue_id, seq, day, attempt, fence, step, sender_id, class, code, error, started_at, answered_at)
		SELECT queue_id, seq, day, 1, 6, 'dispatch', sender_id, 'execution', 'nonce', 'nonce too low', started_at, started_at FROM postern.outcome WHERE retries > 0`,
	`INSERT INTO postern.subscription (context_id, name, kind, url, secret) SELECT $1, 'hook-' || i, 'webhook', 'http://127.0.0.1:1/', '\x00' FROM generate_series(1, 20) i`,
	`INSERT INTO postern.delivery (queue_id, seq, day, subscription_id, event, context_id, cursor, at, state, next_at, error, created_at)
		SELECT o.queue_id, o.seq, o.day, s.first + o.queue_id / 10 % 20, 'done', $1, row_number() OVER (PARTITION BY o.queue_id / 10 % 20 ORDER BY o.done_at), o.done_at,
			x.state, CASE x.state WHEN 'pending' THEN now() END, CASE x.state WHEN 'delivered' THEN NULL ELSE 'refused' END, o.done_at
		FROM postern.outcome o CROSS JOIN (SELECT min(subscription_id) AS first FROM postern.subscription) s
		CROSS JOIN LATERAL (SELECT CASE o.queue_id / 200 % 20 WHEN 0 THEN 'failed' WHEN 1 THEN 'pending' ELSE 'delivered' END AS state) x WHERE o.queue_id % 10 = 0`,
	`INSERT INTO postern.rollup_delivery (context_id, hour, subscription_id, delivered) SELECT $1, h, s.subscription_id, 1000
		FROM postern.subscription s CROSS JOIN generate_series(date_trunc('hour', now(), 'UTC') - interval '47 hours', now(), interval '1 hour') h`,
	`INSERT INTO postern.node (node_id, name, ttl, heartbeat_at) SELECT i, 'node-' || i, '10 s', now() FROM generate_series(1, 20) i`,
	`INSERT INTO postern.audit (context_id, at, actor, via, action, object) SELECT $1, now() - interval '1 s' * i, 'op', 'http', 'pause', '/queues/q' || i
		FROM generate_series(1, 100000) i`,
	`VACUUM (ANALYZE, SKIP_LOCKED)`,
}

// reads counts the rows that the session has read of the tables that grow: by scans, and by indexes. A scan of a day
// with a thousand rows or fewer is none, as in scanned: in the last hour of a day the oldest one has no more, and is
// cheaper read whole.
const reads = `SELECT coalesce(sum(s.seq_tup_read) FILTER (WHERE c.reltuples > 1000), 0)::bigint, coalesce(sum(s.idx_tup_fetch), 0)::bigint
	FROM pg_stat_xact_user_tables s JOIN pg_class c ON c.oid = s.relid WHERE s.schemaname = 'postern'
	AND s.relname ~ '^(task|outcome|attempt|delivery|queue|queue_name|idempotency|audit)'`

// reports reads sql/report: its files, with the variables of psql filled in.
func reports(t *testing.T, values map[string]string) (names []string, sql map[string]string) {
	t.Helper()
	files, err := filepath.Glob("../../sql/report/*.sql")
	if err != nil || len(files) < 10 {
		t.Fatalf("%v, %v", files, err)
	}
	sql = map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		pgworld.OK(t, err)
		name := strings.TrimSuffix(filepath.Base(f), ".sql")
		names = append(names, name)
		sql[name] = regexp.MustCompile(`:'([a-z]+)'`).ReplaceAllStringFunc(string(text), func(v string) string {
			value, known := values[v[2:len(v)-1]]
			if !known {
				t.Errorf("%s: no value for %s", f, v)
			}
			return "'" + value + "'"
		})
		if !strings.HasPrefix(string(text), "-- ") || !strings.Contains(strings.SplitN(string(text), "\n", 2)[0], "?") {
			t.Errorf("%s does not begin with the question that it answers", f)
		}
	}
	return names, sql
}

// scanned lists the tables that a plan reads from end to end though it expects more than a thousand rows there.
// Roll-ups do not grow with the transactions.
func scanned(node map[string]any) (tables []string) {
	if rows, _ := node["Plan Rows"].(float64); node["Node Type"] == "Seq Scan" && rows > 1000 && !strings.HasPrefix(fmt.Sprint(node["Relation Name"]), "rollup") {
		tables = append(tables, fmt.Sprint(node["Relation Name"]))
	}
	children, _ := node["Plans"].([]any)
	for _, c := range children {
		tables = append(tables, scanned(c.(map[string]any))...)
	}
	return tables
}

// Each report reads indexes, and only the partitions that it needs. POSTERN_LARGE=10000000 (make test-large) tries that
// with so many rows: each report answers within 50 ms then, and the times are written to the file.
func TestReportsUseIndexes(t *testing.T) {
	t.Parallel()
	n, tries, large := 100000, 1, os.Getenv("POSTERN_LARGE")
	if large != "" {
		var err error
		n, err = strconv.Atoi(large)
		pgworld.OK(t, err)
		tries = 10
	}
	queues := max(n/10, 50000)
	w := newWorld(t)
	w.S.SetNow(nil)
	for i := range 5 {
		w.Dispatcher(fmt.Sprint("T", i), nil)
	}
	began := time.Now()
	conn, err := pgx.Connect(w.Ctx, w.url())
	w.Must(err)
	t.Cleanup(func() { _ = conn.Close(w.Ctx) })
	for _, sql := range finish {
		_, err := conn.Exec(w.Ctx, strings.NewReplacer("$1", fmt.Sprint(w.ID), "$2", fmt.Sprint(n), "$3", fmt.Sprint(queues)).Replace(sql))
		w.Must(err)
	}
	loaded := time.Since(began).Round(time.Second)
	began = time.Now()
	if hours, err := w.S.Reads.RollUp(w.Ctx); err != nil || hours != 49 {
		t.Fatalf("rolled up %d hours, %v", hours, err)
	}
	rolled := time.Since(began)
	began = time.Now()
	if found, err := w.S.Reads.SampleStuck(w.Ctx); err != nil || found != 200 {
		t.Fatalf("%d are stuck, %v", found, err)
	}
	sampled := time.Since(began)

	_, err = conn.Exec(w.Ctx, `SET max_parallel_workers_per_gather = 0`)
	w.Must(err)
	object := "/queues/q77"
	names, sql := reports(t, map[string]string{"ref": "order-" + strconv.Itoa(n/2+2049), "queue": "q77", "object": object})
	report := "| report | rows | best of ten, ms | read without an index |\n|---|---|---|---|\n"
	for _, name := range names {
		var plan []map[string]any
		var raw []byte
		w.Must(conn.QueryRow(w.Ctx, "EXPLAIN (FORMAT JSON) "+sql[name]).Scan(&raw))
		w.Must(json.Unmarshal(raw, &plan))
		if tables := scanned(plan[0]["Plan"].(map[string]any)); len(tables) > 0 {
			t.Errorf("%s scans %v", name, tables)
		}
		var took []time.Duration
		var rows, read, before, found, foundBefore int64
		for range tries {
			tx, err := conn.Begin(w.Ctx)
			w.Must(err)
			w.Must(tx.QueryRow(w.Ctx, reads).Scan(&before, &foundBefore))
			began := time.Now()
			tag, err := tx.Exec(w.Ctx, sql[name])
			w.Must(err)
			took, rows = append(took, time.Since(began)), tag.RowsAffected()
			// also what functions read, whose plans EXPLAIN does not show
			w.Must(tx.QueryRow(w.Ctx, reads).Scan(&read, &found))
			read, found = read-before, found-foundBefore
			w.Must(tx.Rollback(w.Ctx))
		}
		if read > 0 {
			t.Errorf("%s reads %d rows without an index", name, read)
		}
		if found > int64(n/50) {
			t.Errorf("%s reads %d rows by indexes", name, found)
		}
		if rows == 0 {
			t.Errorf("%s shows nothing", name)
		}
		best := slices.Min(took)
		report += fmt.Sprintf("| %s | %d | %.1f | %d |\n", name, rows, float64(best.Microseconds())/1000, read)
		if large != "" && best > 50*time.Millisecond {
			t.Errorf("%s takes %s", name, best)
		}
	}
	if large == "" {
		return
	}
	var size, version string
	w.Scan(`SELECT pg_size_pretty(pg_database_size(current_database()))`, &size)
	w.Scan(`SELECT current_setting('server_version')`, &version)
	loadavg, _ := os.ReadFile("/proc/loadavg") // "" elsewhere
	load := strings.Fields(string(loadavg))
	text := fmt.Sprintf("# The reports at %d finished transactions\n\n`make test-large` wrote this on %s: PostgreSQL %s, %s, %d queues. Loading took %s;\nrolling up 49 hours %.0f s (%.1f s each; the job does one in five minutes), the sample of what is stuck %.2f s.\n%d processors, with a load average of %s over the last minutes.\n\n%s",
		n, time.Now().UTC().Format(time.DateOnly), version, size, queues, loaded, rolled.Seconds(), rolled.Seconds()/49, sampled.Seconds(), runtime.NumCPU(),
		strings.Join(load[:min(3, len(load))], ", "), report)
	w.Must(os.WriteFile("../../sql/report/large.md", []byte(text), 0o644))
}

// badDay fills the tables as if $2 transactions had ended today, one in ten rejected by its worker, one in a hundred
// UNRESOLVED, beside as many yesterday, and as if 200 heads stood still and a hundred things were paused.
var badDay = []string{
	`SELECT postern.ensure_days((now() AT TIME ZONE 'UTC')::date - 2, (now() AT TIME ZONE 'UTC')::date + 1)`,
	`INSERT INTO postern.task (queue_id, seq, day, context_id, uid, type, data, created_at)
		SELECT 1000001 + i, 1, (at AT TIME ZONE 'UTC')::date, $1, 'order-' || i, 'T' || i % 5, '{}', at
		FROM generate_series(0, 2 * $2 - 1) i
		CROSS JOIN LATERAL (SELECT date_trunc('day', now(), 'UTC') - interval '1 h' * (i % 2) AS at) a`,
	`INSERT INTO postern.outcome (queue_id, seq, day, context_id, was, state, error_class, error_code, error,
			attempt, retries, fence, started_at, done_at)
		SELECT t.queue_id, t.seq, t.day, $1, 'DISPATCHING',
			CASE WHEN t.queue_id / 2 % 100 = 1 THEN 'UNRESOLVED'
				WHEN t.queue_id / 2 % 10 = 0 THEN 'FAILED' ELSE 'DONE' END,
			CASE WHEN t.queue_id / 2 % 10 = 0 THEN 'rejected' END, NULL, 'no such account', 1, 0, 7,
			t.created_at, t.created_at + interval '1 us' * (t.queue_id % 1000)
		FROM postern.task t`,
	`INSERT INTO postern.stuck (queue_id, context_id, as_of, queue, id, uid, type, state, since, blocker, object,
			blocker_detail, lever)
		SELECT i, $1, now(), 'q' || i, gen_random_uuid(), 'u' || i, 'T' || i % 5, 'WAITING', now() - interval '1 h',
			CASE WHEN i % 2 = 0 THEN 'queue_paused' ELSE 'worker_unreachable' END,
			CASE WHEN i % 2 = 0 THEN '/queues/q' || i ELSE '/dispatchers/T' || i % 5 END, 'refused',
			CASE WHEN i % 2 = 0 THEN 'POST /queues/q' || i || '/resume' END
		FROM generate_series(1, 200) i`,
	`INSERT INTO postern.audit (context_id, at, actor, via, action, object)
		SELECT $1, now() - interval '1 s' * i, 'op', 'http', CASE WHEN i % 3 = 0 THEN 'resume' ELSE 'pause' END,
			'/queues/q' || i % 20000
		FROM generate_series(1, 100000) i`,
	`VACUUM (ANALYZE, SKIP_LOCKED)`,
}

// The rows that report.causes reads grow with the bad ends of today and with what stands, and with nothing else: it
// finds them by indexes among many ends, those of other days, and a long audit.
func TestTheCausesOfABadDayAreFoundByIndexes(t *testing.T) {
	t.Parallel()
	const ends = 50000
	w := newWorld(t)
	w.S.SetNow(nil)
	conn, err := pgx.Connect(w.Ctx, w.url())
	w.Must(err)
	t.Cleanup(func() { _ = conn.Close(w.Ctx) })
	for _, sql := range append(badDay, `SET max_parallel_workers_per_gather = 0`) {
		_, err := conn.Exec(w.Ctx, strings.NewReplacer("$1", fmt.Sprint(w.ID), "$2", fmt.Sprint(ends)).Replace(sql))
		w.Must(err)
	}
	_, sql := reports(t, map[string]string{"ref": "", "queue": "", "object": ""})
	var raw []byte
	var plan []map[string]any
	w.Must(conn.QueryRow(w.Ctx, "EXPLAIN (FORMAT JSON) "+sql["causes"]).Scan(&raw))
	w.Must(json.Unmarshal(raw, &plan))
	if tables := scanned(plan[0]["Plan"].(map[string]any)); len(tables) > 0 {
		t.Errorf("it scans %v", tables)
	}
	tx, err := conn.Begin(w.Ctx)
	w.Must(err)
	var scannedBefore, foundBefore, scannedRows, foundRows int64
	w.Must(tx.QueryRow(w.Ctx, reads).Scan(&scannedBefore, &foundBefore))
	began := time.Now()
	tag, err := tx.Exec(w.Ctx, sql["causes"])
	w.Must(err)
	took := time.Since(began)
	w.Must(tx.QueryRow(w.Ctx, reads).Scan(&scannedRows, &foundRows))
	w.Must(tx.Rollback(w.Ctx))
	const bad = ends/10 + ends/100
	t.Logf("%d lines in %s: %d rows scanned, %d found by indexes",
		tag.RowsAffected(), took, scannedRows-scannedBefore, foundRows-foundBefore)
	if tag.RowsAffected() != 100+5+1+1 { // paused queues, workers that are away, a type of each bad end
		t.Errorf("%d lines", tag.RowsAffected())
	}
	if n := scannedRows - scannedBefore; n > 0 {
		t.Errorf("%d rows are read without an index", n)
	}
	if n := foundRows - foundBefore; n > 3*bad+5000 {
		t.Errorf("%d rows are read by indexes for %d bad ends", n, bad)
	}
}
