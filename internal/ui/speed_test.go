package ui_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// crowd fills the tables as if ten transactions had come today to each of so many queues: nine of each queue have
// ended, and one waits.
func (h *house) crowd(queues int) {
	h.t.Helper()
	h.api("PUT", "/dispatchers/T", `{"worker_url": "http://127.0.0.1:1/", "pool": "p"}`)
	h.api("PUT", "/senders/acc-1", `{"pool": "p"}`)
	h.api("POST", "/transactions", `{"queue": "live", "type": "T", "uid": "live", "data": {}}`)
	now := time.Now().UTC()
	for _, sql := range []string{
		`INSERT INTO postern.queue_name (context_id, name, queue_id)
			SELECT $1, 'q' || i, 1000000 + i
			FROM generate_series(1, $4::int) i
			WHERE $2::date IS NOT NULL AND $3::timestamptz IS NOT NULL`,
		`INSERT INTO postern.queue (queue_id, context_id, head_seq, tail_seq, head_day, tail_day, fence, phase, lane,
				entered_at)
			SELECT 1000000 + i, $1, 10, 10, $2, $2, 1, 'READY', (SELECT max(lane) FROM postern.queue), $3
			FROM generate_series(1, $4::int) i`,
		`INSERT INTO postern.task (queue_id, seq, day, context_id, type, data, created_at)
			SELECT 1000000 + i % $4::int + 1, i / $4::int + 1, $2, $1, 'T', '{}',
				$3::timestamptz - interval '16 hours' * (10 * $4::int - i) / (10 * $4::int)
			FROM generate_series(0, 10 * $4::int - 1) i`,
		`INSERT INTO postern.outcome (queue_id, seq, day, context_id, was, state, done_at)
			SELECT queue_id, seq, day, $1, 'DISPATCHING', 'DONE', created_at + interval '1 s'
			FROM postern.task
			WHERE queue_id > 1000000 AND seq < 10 AND $2::date IS NOT NULL AND $3::timestamptz IS NOT NULL
				AND $4::int IS NOT NULL`,
	} {
		_, err := h.store.Pool().Exec(h.t.Context(), sql,
			h.store.Context("default").ID, outbox.DayOf(now).Time(), now, queues)
		if err != nil {
			h.t.Fatal(err)
		}
	}
	if _, err := h.store.Pool().Exec(h.t.Context(), `VACUUM (ANALYZE, SKIP_LOCKED)`); err != nil {
		h.t.Fatal(err)
	}
}

// Each page is there within 200 ms, of a hundred tries 95, with 100,000 queues, 1,000,000 transactions and 100,000 of
// each other thing. It takes some minutes and wants a machine that does nothing else, so that it is asked for:
// POSTERN_UI_SPEED=1.
func TestPagesAreFastInACrowd(t *testing.T) {
	if os.Getenv("POSTERN_UI_SPEED") == "" {
		t.Skip("POSTERN_UI_SPEED=1 asks for it")
	}
	h := newHouse(t, "none")
	h.crowd(100_000)
	h.leased()
	more := h.throng(100_000)
	b := h.browser()
	id := h.api("GET", "/transactions?queue=q500&order=asc", "")["items"].([]any)[9].(map[string]any)["id"].(string)
	for _, p := range append(crowded(id), more...) {
		var took []time.Duration
		for range 100 {
			begun := time.Now()
			if s := b.get("/ui/c/default/" + p); s.status != 200 {
				t.Fatalf("%s: %d %s", p, s.status, s.text)
			}
			took = append(took, time.Since(begun))
			if len(took) > 20 && time.Since(begun) > time.Second {
				break
			}
		}
		slices.Sort(took)
		p95 := took[len(took)*95/100]
		t.Logf("%-30s p50 %6.1f ms  p95 %6.1f ms  slowest %6.1f ms",
			p, ms(took[len(took)/2]), ms(p95), ms(took[len(took)-1]))
		if p95 > 200*time.Millisecond {
			t.Errorf("%s: p95 %s", p, p95)
		}
	}
}

// leased has a node, n, take up what may go out: the queue live of a crowd. It lives longer than a test.
func (h *house) leased() {
	h.t.Helper()
	n, err := h.store.Register(h.t.Context(), "n", "test", time.Hour)
	if err != nil {
		h.t.Fatal(err)
	}
	l, _, err := h.store.Claim(h.t.Context(), n, pgworld.Everything())
	if err != nil || len(l) != 1 {
		h.t.Fatal(l, err)
	}
}

// crowded are pages of a crowd: each list, each kind of thing, and filters that find much or nothing.
func crowded(id string) []string {
	return append(strings.Fields(`now transactions transactions?state=WAITING transactions?state=FAILED
		transactions?queue=q500 queues queues?state=FREE queues?prefix=q99 queues?stuck_for=10h queues/q500 senders
		senders/acc-1 pools pools/p dispatchers dispatchers/T nodes nodes/n queues?node=n audit
		machines machines/transaction machines/queue
		machines/event machines/batch machines/channel_message machines/flow machines/job machines/job_try
		subscriptions deliveries events sources tools channels processors authorizations flows jobs runners messages
		peers domains machines/message machines/originator_transaction machines/coordinator contexts
		contexts/default`), "transactions/"+id)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// No page reads a table that grows through, nor a large part of one: PostgreSQL says how many rows and entries of
// indexes were read for it. There are 20,000 rows of each kind, and more queues than a page may read.
func TestNoPageScans(t *testing.T) {
	h := newHouse(t, "none")
	h.crowd(8000)
	h.leased()
	more := h.throng(20_000)
	b := h.browser()
	id := h.api("GET", "/transactions?queue=q500&order=asc", "")["items"].([]any)[9].(map[string]any)["id"].(string)
	pages := append(crowded(id), more...)
	for _, p := range pages {
		b.get("/ui/c/default/" + p) // a process reads some things once
	}
	before := h.rowsRead()
	for _, p := range pages {
		if p == "now" || strings.HasPrefix(p, "machines/") {
			time.Sleep(time.Second) // until answers that are kept for a moment are read anew
		}
		if s := b.get("/ui/c/default/" + p); s.status != 200 {
			t.Errorf("%s: %d %s", p, s.status, s.text)
		}
		after := h.rowsRead()
		for _, table := range counted[p] {
			delete(after, table)
		}
		if tables := scanned(before, after, 5000); len(tables) > 0 {
			t.Errorf("%s reads %v", p, tables)
		}
		before = h.rowsRead()
	}
}

// rowsRead is how many rows and index entries were read in the database, by table; those of partitions are their
// table's. Connections tell it when they end.
func (h *house) rowsRead() map[string]int64 {
	h.t.Helper()
	h.store.Pool().Reset()
	until(h.t, func() bool {
		var open int
		err := h.store.Pool().QueryRow(h.t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
			AND query NOT ILIKE 'listen%'`).Scan(&open)
		if err != nil {
			h.t.Fatal(err)
		}
		return open == 0
	})
	rows, err := h.store.Pool().Query(h.t.Context(), `SELECT regexp_replace(t.relname, '_([0-9]+|old)$', ''),
			sum(coalesce(t.seq_tup_read, 0) + (SELECT coalesce(sum(i.idx_tup_read), 0)
				FROM pg_stat_user_indexes i
				WHERE i.relid = t.relid))::bigint
		FROM pg_stat_user_tables t
		WHERE t.schemaname = 'postern'
		GROUP BY 1`)
	if err != nil {
		h.t.Fatal(err)
	}
	read := map[string]int64{}
	var table string
	var n int64
	if _, err := pgx.ForEachRow(rows, []any{&table, &n}, func() error { read[table] = n; return nil }); err != nil {
		h.t.Fatal(err)
	}
	return read
}
