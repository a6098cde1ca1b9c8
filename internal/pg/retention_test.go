package pg_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// A transaction that has ended goes with its day and frees its uid. One that has not ended stays, keeps its id, and
// goes out.
func TestRetentionDropsDaysAndKeepsWhatHasNotEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	ended := w.Post("q", "T", "ended")[0]
	n := w.Node("n")
	w.work(n)
	late := w.Sub("late", "T", "late")
	late.NotBefore = w.Now.Add(40 * 24 * time.Hour)
	dependent := w.Sub("r", "T", "dependent")
	dependent.DependsOn = []string{"late"}
	w.Ingest(w.S, late, w.Sub("late", "T", "late.2"), dependent)
	w.Ahead(29 * 24 * time.Hour)
	if w.Retain() != 0 || w.State(ended) != outbox.DONE || w.HeldBy() != "" {
		t.Errorf("%s after 29 days, held by %q", w.State(ended), w.HeldBy())
	}
	w.Ahead(3 * 24 * time.Hour)
	if left := w.Retain(); left != 0 || w.HeldBy() != "" {
		t.Errorf("%d days are left, held by %q", left, w.HeldBy())
	}
	if _, err := w.S.Transaction(w.Ctx, w.ID, ended); fault.CodeOf(err) != "expired" || !strings.Contains(err.Error(), w.Now.Add(-32*24*time.Hour).Format(time.DateOnly)) {
		t.Errorf("what was dropped: %v", err)
	}
	if _, err := w.S.Transaction(w.Ctx, w.ID, outbox.ID{Queue: 1 << 30, Seq: 1, Day: outbox.DayOf(w.Now), Salt: 1}); fault.CodeOf(err) != "not_found" {
		t.Errorf("what never was: %v", err)
	}
	if again := w.Post("q", "T", "ended")[0]; again.Seq != 2 {
		t.Errorf("a freed uid is posted as %+v", again)
	}
	lateID := w.ByUID("late").ID
	if w.State(lateID) != outbox.WAITING || len(w.ByUID("dependent").DependsOn) != 1 {
		t.Errorf("%+v", w.ByUID("late"))
	}
	w.Ahead(10 * 24 * time.Hour)
	_, err := w.S.Wake(w.Ctx, n, 100, 100)
	w.Must(err)
	w.work(n)
	for _, uid := range []string{"late", "late.2", "dependent", "ended"} {
		if x := w.ByUID(uid); x.State != outbox.DONE {
			t.Errorf("%s is %s", uid, x.State)
		}
	}
	if w.Retain(); w.State(lateID) != outbox.DONE {
		t.Error("what has just ended is gone")
	}
	w.Ahead(40 * 24 * time.Hour)
	w.Retain()
	w.Same(w.Lines(`SELECT count(*)::text FROM postern.dependency`), "0")
	if _, err := w.S.Transaction(w.Ctx, w.ID, lateID); fault.CodeOf(err) != "expired" {
		t.Errorf("a survivor that ended long ago: %v", err)
	}
	if out := w.Ingest(w.S, w.Sub("late", "T", "late"))[0]; out.Err != nil || out.Replay || out.ID.Seq != 3 {
		t.Errorf("its uid is free again, and its queue goes on: %+v", out)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

// A dependent whose cause went with a dropped day goes by its other dependencies: it does not wait for an end that
// cannot be read any more, and can be redriven as it is.
func TestADependencyOnADroppedDayHoldsNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	n := w.Node("n")
	w.Post("a", "T", "cause")
	w.work(n)
	w.Ahead(5 * 24 * time.Hour)
	late := w.Sub("c", "T", "late")
	late.NotBefore = w.Now.Add(40 * 24 * time.Hour)
	both, gone := w.Sub("b", "T", "both"), w.Sub("d", "T", "gone")
	both.DependsOn, gone.DependsOn = []string{"cause", "late"}, []string{"cause"}
	w.Ingest(w.S, late, both, gone)
	_, err := w.S.Cancel(w.Ctx, w.By, w.UID("gone"))
	w.Must(err)
	w.Ahead(28 * 24 * time.Hour)
	if left := w.Retain(); left != 0 {
		t.Errorf("%d days are left, held by %q", left, w.HeldBy())
	}
	if _, err := w.S.Redrive(w.Ctx, w.By, w.UID("gone"), pg.Redrive{}); err != nil {
		t.Errorf("redriven: %v", err)
	}
	if x := w.ByUID("both"); x.State != outbox.WAITING || len(x.DependsOn) != 1 {
		t.Errorf("%s, depends on %v", x.State, x.DependsOn)
	}
	w.Ahead(15 * 24 * time.Hour)
	n = w.Node("n")
	_, err = w.S.Wake(w.Ctx, n, 10, 10)
	w.Must(err)
	w.work(n)
	w.work(n)
	if x := w.ByUID("both"); x.State != outbox.DONE {
		t.Errorf("%s: waits for an end that is gone", x.State)
	}
}

// A day is held by a transaction that ended late, and so are the days behind it. report.retention says why.
func TestADayIsHeldByWhatEndedLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	w.Post("q", "T", "a")
	w.Ahead(20 * 24 * time.Hour)
	w.work(w.Node("n"))
	w.Ahead(15 * 24 * time.Hour)
	if left := w.Retain(); left == 0 || !strings.Contains(w.HeldBy(), "ended later") {
		t.Errorf("held by %q", w.HeldBy())
	}
	month := w.Now.Add(-pgworld.AMonth).Format(time.DateOnly)
	w.Same(w.Lines(`SELECT DISTINCT concat_ws(' ', droppable, day < '`+month+`') FROM report.retention ORDER BY 1`), "f f", "t t")
	w.Must(w.S.RetainAll(w.Ctx))
	w.Same(w.Lines(`SELECT DISTINCT concat_ws(' ', droppable, held_by) FROM report.retention`), "f no retention is set: everything is kept")
	w.Ahead(15*24*time.Hour + time.Hour)
	if left := w.Retain(); left != 0 || w.HeldBy() != "" {
		t.Errorf("%d days are left, held by %q", left, w.HeldBy())
	}
}

// A day of many chunks is gone through to its end: of each chunk, the transactions that have not ended survive with
// their uids, and no others.
func TestRetentionOfALargeDay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	fill := func(n, of int) {
		t.Helper()
		for _, sql := range []string{
			`INSERT INTO postern.task (queue_id, seq, day, context_id, uid, type, data, created_at)
				SELECT 1000 + i % 7, i, ($1::timestamptz AT TIME ZONE 'UTC')::date, $2, 'u' || i, 'T', '{}', $1 FROM generate_series(1, $3::int) i`,
			`INSERT INTO postern.idempotency (context_id, key, queue_id, seq, day, body_hash) SELECT context_id, uid, queue_id, seq, day, '' FROM postern.task
				WHERE created_at = $1 AND context_id = $2 AND $3 > 0`,
			`INSERT INTO postern.outcome (queue_id, seq, day, context_id, was, state, done_at) SELECT queue_id, seq, day, context_id, 'WAITING', 'CANCELLED', created_at
				FROM postern.task WHERE created_at = $1 AND context_id = $2 AND seq % $3 > 1`,
		} {
			arg := of
			if strings.Contains(sql, "generate_series") {
				arg = n
			}
			_, err := w.S.Pool().Exec(w.Ctx, sql, w.Now, w.ID, arg)
			w.Must(err)
		}
	}
	fill(12500, 4000)
	day := w.Now.Format("20060102")
	w.Ahead(40 * 24 * time.Hour)
	if _, err := w.S.Retain(w.Ctx, pgworld.AMonth); err != nil || w.HeldBy() != "" {
		t.Fatalf("held by %q, %v", w.HeldBy(), err)
	}
	survived := []string{"u1", "u12000", "u12001", "u4000", "u4001", "u8000", "u8001"}
	w.Same(w.Lines(`SELECT uid FROM postern.task_old ORDER BY uid COLLATE "C"`), survived...)
	w.Same(w.Lines(`SELECT key FROM postern.idempotency ORDER BY key COLLATE "C"`), survived...)
	w.Same(w.Lines(`SELECT count(*)::text FROM postern.task UNION ALL SELECT count(*)::text FROM postern.outcome UNION ALL SELECT coalesce(to_regclass('postern.task_`+day+`')::text, '')`), "7", "0", "")

	_, err := w.S.Pool().Exec(w.Ctx, `DELETE FROM postern.idempotency`)
	w.Must(err)
	fill(10001, 1)
	w.Ahead(40 * 24 * time.Hour)
	if _, err := w.S.Retain(w.Ctx, pgworld.AMonth); err != nil || !strings.Contains(w.HeldBy(), "more than 10000") {
		t.Errorf("held by %q, %v", w.HeldBy(), err)
	}
	w.Same(w.Lines(`SELECT count(*)::text FROM postern.idempotency`), "10001")
}

// A transaction that ends while the keys of its day are gone through holds the day and keeps its own keys, so that its
// uid still finds it and a post of this uid makes no second one.
func TestWhatEndsWhileKeysAreForgottenKeepsItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.S.Pool().Exec(w.Ctx, `WITH task AS (INSERT INTO postern.task (queue_id, seq, day, context_id, uid, type, data, created_at)
			SELECT 1000, i, ($1::timestamptz AT TIME ZONE 'UTC')::date, $2, 'u' || i, 'T', '{}', $1 FROM generate_series(1, 2001) i RETURNING *),
		key AS (INSERT INTO postern.idempotency (context_id, key, queue_id, seq, day, body_hash) SELECT context_id, uid, queue_id, seq, day, '' FROM task),
		redrive AS (INSERT INTO postern.redrive (queue_id, seq, new_id) SELECT queue_id, seq, gen_random_uuid() FROM task WHERE seq = 2001)
		INSERT INTO postern.outcome (queue_id, seq, day, context_id, was, state, done_at) SELECT queue_id, seq, day, context_id, 'WAITING', 'CANCELLED', created_at
		FROM task WHERE seq < 2001`, w.Now, w.ID)
	w.Must(err)
	day := w.Now
	w.Ahead(40 * 24 * time.Hour)
	other := w.Other()
	tx := w.Begin(w.S.Pool())
	_, err = tx.Exec(w.Ctx, `SELECT FROM postern.idempotency WHERE key = 'u1000' FOR UPDATE`)
	w.Must(err)
	done := make(chan error, 1)
	go func() { _, err := other.S.Retain(w.Ctx, pgworld.AMonth); done <- err }()
	w.AwaitBlocked(other.PID) // at its first chunk
	_, err = w.S.Pool().Exec(w.Ctx, `INSERT INTO postern.outcome (queue_id, seq, day, context_id, was, state, done_at)
		VALUES (1000, 2001, ($1::timestamptz AT TIME ZONE 'UTC')::date, $2, 'WAITING', 'CANCELLED', $3)`, day, w.ID, w.Now)
	w.Must(err)
	w.Must(tx.Rollback(w.Ctx))
	w.Must(<-done)
	if !strings.Contains(w.HeldBy(), "ended later") {
		t.Errorf("held by %q", w.HeldBy())
	}
	w.Same(w.Lines(`SELECT key FROM postern.idempotency UNION ALL SELECT seq::text FROM postern.redrive ORDER BY 1`), "2001", "u2001")
}

// Of two processes that drop a day the second finds it gone.
func TestADayIsDroppedOnceByTwo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Ahead(40 * 24 * time.Hour)
	first, second := w.Begin(w.S.Pool()), w.Other()
	const drop = `SELECT coalesce(postern.drop_day((SELECT min(day) FROM report.retention),
		(SELECT min(last_day) FROM report.retention), $1, '{}', '{}'), '')`
	var held, heldToo string
	w.Must(first.QueryRow(w.Ctx, drop, w.Now.Add(-pgworld.AMonth)).Scan(&held))
	done := make(chan error, 1)
	go func() { done <- second.S.Pool().QueryRow(w.Ctx, drop, w.Now.Add(-pgworld.AMonth)).Scan(&heldToo) }()
	w.AwaitBlocked(second.PID)
	w.Must(first.Commit(w.Ctx))
	if err := <-done; err != nil || held+heldToo != "" {
		t.Errorf("held by %q and %q, %v", held, heldToo, err)
	}
}

// A reader that has the tables open puts a drop off.
func TestRetentionGivesWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Ahead(40 * 24 * time.Hour)
	tx := w.Begin(w.S.Pool())
	_, err := tx.Exec(w.Ctx, `SET LOCAL idle_in_transaction_session_timeout = 0`) // on any machine
	w.Must(err)
	_, err = tx.Exec(w.Ctx, `SELECT count(*) FROM postern.task`)
	w.Must(err)
	if left := w.Retain(); left == 0 || !strings.Contains(w.HeldBy(), "in use") {
		t.Errorf("held by %q", w.HeldBy())
	}
	w.Must(tx.Rollback(w.Ctx))
	if left := w.Retain(); left != 0 {
		t.Errorf("%d days are left", left)
	}
	old := func() (there bool) {
		w.Scan(`SELECT to_regclass('postern.task_old') IS NOT NULL`, &there)
		return there
	}
	if old() {
		t.Error("there is a partition of survivors, and nothing has survived")
	}
	w.Dispatcher("T", nil)
	late := w.Sub("late", "T", "late")
	late.NotBefore = w.Now.Add(80 * 24 * time.Hour)
	id := w.Ingest(w.S, late)[0].ID
	w.Ahead(40 * 24 * time.Hour)
	if left := w.Retain(); left != 0 || !old() || w.State(id) != outbox.WAITING {
		t.Errorf("%d days are left, survivors %t, of which one is %s", left, old(), w.State(id))
	}
}

// Days are made while others write, and neither waits for the other.
func TestDaysAreMadeBesideWriters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tx := w.Begin(w.S.Pool())
	for _, table := range []string{"task", "outcome", "attempt", "delivery"} {
		_, err := tx.Exec(w.Ctx, `LOCK TABLE postern.`+table+` IN ROW EXCLUSIVE MODE`)
		w.Must(err)
	}
	w.Later(100 * 24 * time.Hour)
	w.Must(w.S.Keep(w.Ctx, pgworld.AMonth))
	ctx, cancel := context.WithTimeout(w.Ctx, time.Minute) // the writer does not end before
	defer cancel()
	if n, err := w.S.EnsureDays(ctx); err != nil || n != 5*4 {
		t.Errorf("%d partitions were made beside a writer: %v", n, err)
	}
	w.Must(tx.Rollback(w.Ctx))
}
