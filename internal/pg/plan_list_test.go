package pg_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	pgreads "github.com/postern-dev/postern/internal/pg/reads"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// crowd fills the tables as if 100,000 transactions had come in two days to 1,000 queues. Those of every hundredth
// queue ended FAILED, and the last of each queue waits. There are 20,000 senders and names of queues, too.
func (w *world) crowd() {
	w.T.Helper()
	w.Dispatcher("T", nil)
	w.Post("live", "T", "x")
	for _, sql := range []string{
		`INSERT INTO postern.queue_name (context_id, name, queue_id) SELECT $1, 'q' || i, 1000000 + i FROM generate_series(1, 20000) i`,
		`INSERT INTO postern.queue (queue_id, context_id, head_seq, tail_seq, head_day, tail_day, fence, phase, lane, entered_at)
			SELECT 1000000 + i, $1, 100, 100, $2, $2, 1, 'READY', (SELECT max(lane) FROM postern.queue), $3 FROM generate_series(1, 1000) i`,
		`INSERT INTO postern.task (queue_id, seq, day, context_id, type, data, created_at)
			SELECT 1000000 + i % 1000 + 1, i / 1000 + 1, CASE WHEN i < 50000 THEN $2::date - 1 ELSE $2 END, $1, 'T', '{}',
				$3::timestamptz - interval '1 s' * (100000 - i) * 0.6 FROM generate_series(0, 99999) i`,
		`INSERT INTO postern.outcome (queue_id, seq, day, context_id, was, state, done_at)
			SELECT t.queue_id, t.seq, t.day, $1, 'DISPATCHING', CASE WHEN t.queue_id % 100 = 0 THEN 'FAILED' ELSE 'DONE' END, t.created_at + interval '1 s'
			FROM postern.task t WHERE t.queue_id > 1000000 AND t.seq < 100 AND $2::date IS NOT NULL`,
		`INSERT INTO postern.pool (context_id, name) SELECT $1, 'p' || i FROM generate_series(1, 1000) i`,
		`INSERT INTO postern.sender (context_id, pool_id, account) SELECT $1, (SELECT min(pool_id) FROM postern.pool) + i % 1000, 'acct-' || i FROM generate_series(1, 20000) i`,
	} {
		last := 1
		for strings.Contains(sql, "$"+strconv.Itoa(last+1)) {
			last++
		}
		args := []any{w.ID, outbox.DayOf(w.Now).Time(), w.Now}
		_, err := w.S.Pool().Exec(w.Ctx, sql, args[:last]...)
		w.Must(err)
	}
	_, err := w.S.Pool().Exec(w.Ctx, `ANALYZE`)
	w.Must(err)
}

// Each list goes through an index in its order, at 100,000 rows, and reads about what it shows.
func TestListsUseAnIndexAtAHundredThousandRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.At(w.Now.Truncate(24 * time.Hour).Add(12 * time.Hour))
	w.crowd()
	day := w.Now.Add(-24 * time.Hour)
	full := regexp.MustCompile(`Seq Scan on ((task|outcome)_(` + day.Format("20060102") + "|" + w.Now.Format("20060102") + `)|queue|queue_name|sender) `)
	for _, c := range []struct {
		name, uses string
		sorts      bool // it may: the rows of one queue, or the few that failed
		f          pgreads.ListFilter
	}{
		{"the last day", "created_at_queue_id_seq_idx", false, pgreads.ListFilter{ReceivedAfter: day}},
		{"oldest first", "created_at_queue_id_seq_idx", false, pgreads.ListFilter{ReceivedAfter: day, Ascending: true}},
		{"from a cursor", "created_at_queue_id_seq_idx", false, pgreads.ListFilter{From: &pgreads.ListCursor{At: w.Now.Add(-time.Hour), Queue: 1000500, Seq: 50}}},
		{"a type", "created_at_queue_id_seq_idx", false, pgreads.ListFilter{ReceivedAfter: day, Types: []string{"T"}}},
		{"what is done", "created_at_queue_id_seq_idx", false, pgreads.ListFilter{ReceivedAfter: day, States: []string{"DONE"}}},
		{"what waits", "created_at_queue_id_seq_idx", false, pgreads.ListFilter{ReceivedAfter: day, States: []string{"WAITING", "RETRY"}}},
		{"what failed", "done_at_queue_id_seq_idx", true, pgreads.ListFilter{ReceivedAfter: day, States: []string{"FAILED"}}},
		{"one queue", "_pkey", false, pgreads.ListFilter{Queues: []string{"q500"}}},
		{"one queue, what failed", "_pkey", true, pgreads.ListFilter{Queues: []string{"q500"}, States: []string{"FAILED"}}},
		{"several queues", "created_at_queue_id_seq_idx", false, pgreads.ListFilter{Queues: []string{"q500", "q501"}}},
	} {
		c.f.Limit = 50
		sql, args, err := w.S.Reads.ListSQL(w.Ctx, w.ID, c.f)
		w.Must(err)
		plan := w.Plan(false, sql, args...)
		if full.MatchString(plan) || !strings.Contains(plan, c.uses) {
			t.Errorf("%s: wants an index like %s and no scan of a table:\n%s", c.name, c.uses, plan)
		}
		if outer, _, _ := strings.Cut(plan, "Append"); strings.Contains(outer, "Sort") && !c.sorts {
			t.Errorf("%s: a list is read in the order of its index:\n%s", c.name, plan)
		}
	}
	for name, of := range pg.NamedSQL {
		sql, args := of(w.ID)
		if plan := w.Plan(false, sql, args...); full.MatchString(plan) {
			t.Errorf("%s: wants an index:\n%s", name, plan)
		}
	}
}

// However many days are kept, a transaction that has ended is read from its own alone, and one behind it in a lazy run
// from those that its queue is on.
func TestATransactionIsReadFromItsOwnDay(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	a.flying(2, "ended", "next", "flies", "waits")
	read := regexp.MustCompile(`(?m)(Scan|scan) .*\bon (outcome|attempt)_\d+ .*\(actual`)
	for seq, n := range map[int]int{1: 1, 3: 2, 4: 2} { // its outcome, and for what has none that of the one before
		plan := a.Plan(true, `SELECT x.* FROM (SELECT queue_id, seq, day FROM postern.task WHERE seq = $1 OFFSET 0) n
			CROSS JOIN LATERAL (SELECT x.* FROM postern.tx x WHERE (x.queue_id, x.seq, x.day) = (n.queue_id, n.seq, n.day) OFFSET 0) x`, seq)
		if got := len(read.FindAllString(plan, -1)); got != n {
			t.Errorf("position %d: %d looks, want %d:\n%s", seq, got, n, plan)
		}
	}
}

// When a table is analyzed just while nothing is in it, its statistics say so until they are made anew, and PostgreSQL
// plans to read it whole: for each claim, of fifty thousand queues that wait, which took half a second. No plan of the
// hot path may depend on that.
func TestRowsAreFoundByTheirKeysWhateverStatisticsSay(t *testing.T) {
	t.Parallel()
	for _, rows := range []int{0, 1000, 10000000} {
		t.Run(fmt.Sprint(rows), func(t *testing.T) {
			t.Parallel()
			foundByTheirKeys(t, rows)
		})
	}
}

func foundByTheirKeys(t *testing.T, rows int) {
	w := newWorld(t)
	w.Dispatcher("T", nil)
	_, err := w.S.Pool().Exec(w.Ctx, `UPDATE pg_class SET reltuples = $1::int, relpages = 50 + $1::int / 100 WHERE relnamespace = 'postern'::regnamespace AND relkind IN ('r', 'i')`, rows)
	w.Must(err)
	n := w.Node("n")
	for round := range 3 { // by what the rows say and by what leases remember, of one queue and of several
		for i := range 3 {
			w.Ingest(w.S, w.Sub(fmt.Sprint("q", i%(round+1)), "T", fmt.Sprint(round, "-", i)), w.Sub("", "T", fmt.Sprint("u", round, i)))
		}
		for leases := w.Claim(n, pgworld.Everything()); len(leases) > 0; leases = w.Claim(n, pgworld.Everything()) {
			var answers []*pg.Answer
			for _, l := range leases {
				answers = append(answers, w.Answer(l, pgworld.Done()))
			}
			_, err := w.S.Settle(w.Ctx, answers)
			w.Must(err)
		}
	}
	for _, id := range w.Post("q0", "T", "last", "behind") {
		_, err := w.S.Transaction(w.Ctx, w.ID, id)
		w.Must(err)
	}
	_, err = w.S.Deliveries.BusyTracks(w.Ctx)
	w.Must(err)
	_, _, err = w.S.Batches.ProcessorsDue(w.Ctx)
	w.Must(err)
	_, err = w.S.Events.LeaderWork(w.Ctx)
	w.Must(err)
	var seen int
	scan := regexp.MustCompile(`\bon (queue|queue_name|ready|task_\d+|outcome_\d+|idempotency|timer)\b`)
	byKey := regexp.MustCompile(`Index Cond: \(+(queue_id|lane|context_id) `)
	for _, c := range w.S.Pool().AcquireAllIdle(w.Ctx) {
		defer c.Release()
		rows, err := c.Query(w.Ctx, `SELECT name, statement, cardinality(parameter_types) FROM pg_prepared_statements WHERE NOT from_sql`)
		w.Must(err)
		type prepared struct {
			Name, SQL string
			Params    int
		}
		list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[prepared])
		w.Must(err)
		for _, p := range list {
			if !regexp.MustCompile(`^\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b`).MatchString(p.SQL) {
				continue
			}
			given := ""
			if p.Params > 0 {
				given = "(NULL" + strings.Repeat(", NULL", p.Params-1) + ")"
			}
			rows, err := c.Query(w.Ctx, fmt.Sprintf(`EXPLAIN (COSTS OFF) EXECUTE %q %s`, p.Name, given))
			w.Must(err)
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			w.Must(err)
			plan := strings.Join(lines, "\n")
			if strings.Contains(plan, "hashed SubPlan") {
				t.Errorf("%s\nreads a table whole to look for a row:\n%s", p.SQL, plan)
			}
			if !regexp.MustCompile(`postern\.(queue|queue_name|ready|task|outcome|idempotency|timer)\b`).MatchString(p.SQL) {
				continue
			}
			seen++
			for i, line := range lines {
				if strings.Contains(line, "Scan") && scan.MatchString(line) && (i+1 == len(lines) || !byKey.MatchString(lines[i+1]) || strings.Contains(line, "_created_at_") && !strings.Contains(lines[i+1], "context_id")) {
					t.Errorf("%s\nreads more than its keys:\n%s", p.SQL, plan)
					break
				}
			}
		}
	}
	if seen < 8 {
		t.Errorf("%d statements looked at", seen)
	}
}
