package pg_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
)

const aMonth = 30 * 24 * time.Hour

// ahead moves the clock d on, and makes the days there.
func (w *world) ahead(d time.Duration) {
	w.t.Helper()
	w.later(d)
	_, err := w.s.EnsureDays(w.ctx)
	w.must(err)
}

// retain drops what may go and returns how many days are left before the last thirty.
func (w *world) retain() (left int) {
	w.t.Helper()
	_, err := w.s.Pool().Exec(w.ctx, `UPDATE postern.delivery SET state = 'delivered', next_at = NULL WHERE state = 'pending'`) // the hooks
	w.must(err)
	_, err = w.s.Retain(w.ctx, aMonth)
	w.must(err)
	holdsTrue(w.t, w.ctx, w.s.Pool())
	w.must(w.s.Pool().QueryRow(w.ctx, `SELECT count(*) FROM report.retention WHERE relation = 'task' AND day < $1`, w.now.Add(-aMonth).Truncate(24*time.Hour)).Scan(&left))
	return left
}

func (w *world) heldBy() (held string) {
	w.t.Helper()
	w.scan(`SELECT DISTINCT held_by FROM report.retention`, &held)
	return held
}

// What has ended goes with its day and frees its uid; what has not ended stays, keeps its id, and goes out.
func TestRetentionDropsDaysAndKeepsWhatHasNotEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	ended := w.post("q", "T", "ended")[0]
	n := w.node("n")
	w.work(n)
	late := w.sub("late", "T", "late")
	late.NotBefore = w.now.Add(40 * 24 * time.Hour)
	dependent := w.sub("r", "T", "dependent")
	dependent.DependsOn = []string{"late"}
	w.ingest(w.s, late, w.sub("late", "T", "late.2"), dependent)
	w.ahead(29 * 24 * time.Hour)
	if w.retain() != 0 || w.state(ended) != outbox.DONE || w.heldBy() != "" {
		t.Errorf("%s after 29 days, held by %q", w.state(ended), w.heldBy())
	}
	w.ahead(3 * 24 * time.Hour)
	if left := w.retain(); left != 0 || w.heldBy() != "" {
		t.Errorf("%d days are left, held by %q", left, w.heldBy())
	}
	if _, err := w.s.Transaction(w.ctx, w.id, ended); fault.CodeOf(err) != "expired" || !strings.Contains(err.Error(), w.now.Add(-32*24*time.Hour).Format(time.DateOnly)) {
		t.Errorf("what was dropped: %v", err)
	}
	if _, err := w.s.Transaction(w.ctx, w.id, outbox.ID{Queue: 1 << 30, Seq: 1, Day: outbox.DayOf(w.now), Salt: 1}); fault.CodeOf(err) != "not_found" {
		t.Errorf("what never was: %v", err)
	}
	if again := w.post("q", "T", "ended")[0]; again.Seq != 2 {
		t.Errorf("a freed uid is posted as %+v", again)
	}
	lateID := w.byUID("late").ID
	if w.state(lateID) != outbox.WAITING || len(w.byUID("dependent").DependsOn) != 1 {
		t.Errorf("%+v", w.byUID("late"))
	}
	w.ahead(10 * 24 * time.Hour)
	_, err := w.s.Wake(w.ctx, n, 100, 100)
	w.must(err)
	w.work(n)
	for _, uid := range []string{"late", "late.2", "dependent", "ended"} {
		if x := w.byUID(uid); x.State != outbox.DONE {
			t.Errorf("%s is %s", uid, x.State)
		}
	}
	if w.retain(); w.state(lateID) != outbox.DONE {
		t.Error("what has just ended is gone")
	}
	w.ahead(40 * 24 * time.Hour)
	w.retain()
	w.same(w.lines(`SELECT count(*)::text FROM postern.dependency`), "0")
	if _, err := w.s.Transaction(w.ctx, w.id, lateID); fault.CodeOf(err) != "expired" {
		t.Errorf("a survivor that ended long ago: %v", err)
	}
	if out := w.ingest(w.s, w.sub("late", "T", "late"))[0]; out.Err != nil || out.Replay || out.ID.Seq != 3 {
		t.Errorf("its uid is free again, and its queue goes on: %+v", out)
	}
	holdsTrue(t, w.ctx, w.s.Pool())
}

// Who depended on something whose day was dropped goes by the rest: it is not held for an end that nobody can read any more, and can
// be redriven as it is.
func TestADependencyOnADroppedDayHoldsNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	n := w.node("n")
	w.post("a", "T", "cause")
	w.work(n)
	w.ahead(5 * 24 * time.Hour)
	late := w.sub("c", "T", "late")
	late.NotBefore = w.now.Add(40 * 24 * time.Hour)
	both, gone := w.sub("b", "T", "both"), w.sub("d", "T", "gone")
	both.DependsOn, gone.DependsOn = []string{"cause", "late"}, []string{"cause"}
	w.ingest(w.s, late, both, gone)
	_, err := w.s.Cancel(w.ctx, w.by, w.uid("gone"))
	w.must(err)
	w.ahead(28 * 24 * time.Hour)
	if left := w.retain(); left != 0 {
		t.Errorf("%d days are left, held by %q", left, w.heldBy())
	}
	if _, err := w.s.Redrive(w.ctx, w.by, w.uid("gone"), pg.Redrive{}); err != nil {
		t.Errorf("redriven: %v", err)
	}
	if x := w.byUID("both"); x.State != outbox.WAITING || len(x.DependsOn) != 1 {
		t.Errorf("%s, depends on %v", x.State, x.DependsOn)
	}
	w.ahead(15 * 24 * time.Hour)
	n = w.node("n")
	_, err = w.s.Wake(w.ctx, n, 10, 10)
	w.must(err)
	w.work(n)
	w.work(n)
	if x := w.byUID("both"); x.State != outbox.DONE {
		t.Errorf("%s: waits for an end that is gone", x.State)
	}
}

// A day of which something ended late waits, and so do the days behind it; report.retention says why.
func TestADayIsHeldByWhatEndedLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	w.post("q", "T", "a")
	w.ahead(20 * 24 * time.Hour)
	w.work(w.node("n"))
	w.ahead(15 * 24 * time.Hour)
	if left := w.retain(); left == 0 || !strings.Contains(w.heldBy(), "ended later") {
		t.Errorf("held by %q", w.heldBy())
	}
	month := w.now.Add(-aMonth).Format(time.DateOnly)
	w.same(w.lines(`SELECT DISTINCT concat_ws(' ', droppable, day < '`+month+`') FROM report.retention ORDER BY 1`), "f f", "t t")
	w.must(w.s.RetainAll(w.ctx))
	w.same(w.lines(`SELECT DISTINCT concat_ws(' ', droppable, held_by) FROM report.retention`), "f no retention is set: everything is kept")
	w.ahead(15*24*time.Hour + time.Hour)
	if left := w.retain(); left != 0 || w.heldBy() != "" {
		t.Errorf("%d days are left, held by %q", left, w.heldBy())
	}
}

// A day of many chunks is gone through to its end: what has not ended of each survives with its uid, and only that.
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
			_, err := w.s.Pool().Exec(w.ctx, sql, w.now, w.id, arg)
			w.must(err)
		}
	}
	fill(12500, 4000)
	day := w.now.Format("20060102")
	w.ahead(40 * 24 * time.Hour)
	if _, err := w.s.Retain(w.ctx, aMonth); err != nil || w.heldBy() != "" {
		t.Fatalf("held by %q, %v", w.heldBy(), err)
	}
	survived := []string{"u1", "u12000", "u12001", "u4000", "u4001", "u8000", "u8001"}
	w.same(w.lines(`SELECT uid FROM postern.task_old ORDER BY uid COLLATE "C"`), survived...)
	w.same(w.lines(`SELECT key FROM postern.idempotency ORDER BY key COLLATE "C"`), survived...)
	w.same(w.lines(`SELECT count(*)::text FROM postern.task UNION ALL SELECT count(*)::text FROM postern.outcome UNION ALL SELECT coalesce(to_regclass('postern.task_`+day+`')::text, '')`), "7", "0", "")

	_, err := w.s.Pool().Exec(w.ctx, `DELETE FROM postern.idempotency`)
	w.must(err)
	fill(10001, 1)
	w.ahead(40 * 24 * time.Hour)
	if _, err := w.s.Retain(w.ctx, aMonth); err != nil || !strings.Contains(w.heldBy(), "more than 10000") {
		t.Errorf("held by %q, %v", w.heldBy(), err)
	}
	w.same(w.lines(`SELECT count(*)::text FROM postern.idempotency`), "10001")
}

// What ends while the keys of its day are gone through holds the day and keeps its own: it is found by its uid, and is no
// transaction of which nobody has heard.
func TestWhatEndsWhileKeysAreForgottenKeepsItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.s.Pool().Exec(w.ctx, `WITH task AS (INSERT INTO postern.task (queue_id, seq, day, context_id, uid, type, data, created_at)
			SELECT 1000, i, ($1::timestamptz AT TIME ZONE 'UTC')::date, $2, 'u' || i, 'T', '{}', $1 FROM generate_series(1, 2001) i RETURNING *),
		key AS (INSERT INTO postern.idempotency (context_id, key, queue_id, seq, day, body_hash) SELECT context_id, uid, queue_id, seq, day, '' FROM task),
		redrive AS (INSERT INTO postern.redrive (queue_id, seq, new_id) SELECT queue_id, seq, gen_random_uuid() FROM task WHERE seq = 2001)
		INSERT INTO postern.outcome (queue_id, seq, day, context_id, was, state, done_at) SELECT queue_id, seq, day, context_id, 'WAITING', 'CANCELLED', created_at
		FROM task WHERE seq < 2001`, w.now, w.id)
	w.must(err)
	day := w.now
	w.ahead(40 * 24 * time.Hour)
	other := w.other()
	tx := w.begin(w.s.Pool())
	_, err = tx.Exec(w.ctx, `SELECT FROM postern.idempotency WHERE key = 'u1000' FOR UPDATE`)
	w.must(err)
	done := make(chan error, 1)
	go func() { _, err := other.s.Retain(w.ctx, aMonth); done <- err }()
	w.awaitBlocked(other.pid) // at its first chunk
	_, err = w.s.Pool().Exec(w.ctx, `INSERT INTO postern.outcome (queue_id, seq, day, context_id, was, state, done_at)
		VALUES (1000, 2001, ($1::timestamptz AT TIME ZONE 'UTC')::date, $2, 'WAITING', 'CANCELLED', $3)`, day, w.id, w.now)
	w.must(err)
	w.must(tx.Rollback(w.ctx))
	w.must(<-done)
	if !strings.Contains(w.heldBy(), "ended later") {
		t.Errorf("held by %q", w.heldBy())
	}
	w.same(w.lines(`SELECT key FROM postern.idempotency UNION ALL SELECT seq::text FROM postern.redrive ORDER BY 1`), "2001", "u2001")
}

// Of two processes that drop a day the second finds it gone.
func TestADayIsDroppedOnceByTwo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ahead(40 * 24 * time.Hour)
	first, second := w.begin(w.s.Pool()), w.other()
	const drop = `SELECT coalesce(postern.drop_day((SELECT min(day) FROM report.retention), $1, '{}', '{}'), '')`
	var held, heldToo string
	w.must(first.QueryRow(w.ctx, drop, w.now.Add(-aMonth)).Scan(&held))
	done := make(chan error, 1)
	go func() { done <- second.s.Pool().QueryRow(w.ctx, drop, w.now.Add(-aMonth)).Scan(&heldToo) }()
	w.awaitBlocked(second.pid)
	w.must(first.Commit(w.ctx))
	if err := <-done; err != nil || held+heldToo != "" {
		t.Errorf("held by %q and %q, %v", held, heldToo, err)
	}
}

// A reader that has the tables open puts a drop off.
func TestRetentionGivesWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ahead(40 * 24 * time.Hour)
	tx := w.begin(w.s.Pool())
	_, err := tx.Exec(w.ctx, `SELECT count(*) FROM postern.task`)
	w.must(err)
	if left := w.retain(); left == 0 || !strings.Contains(w.heldBy(), "in use") {
		t.Errorf("held by %q", w.heldBy())
	}
	w.must(tx.Rollback(w.ctx))
	if left := w.retain(); left != 0 {
		t.Errorf("%d days are left", left)
	}
	old := func() (there bool) {
		w.scan(`SELECT to_regclass('postern.task_old') IS NOT NULL`, &there)
		return there
	}
	if old() {
		t.Error("there is a partition of survivors, and nothing has survived")
	}
	w.dispatcher("T", nil)
	late := w.sub("late", "T", "late")
	late.NotBefore = w.now.Add(80 * 24 * time.Hour)
	id := w.ingest(w.s, late)[0].ID
	w.ahead(40 * 24 * time.Hour)
	if left := w.retain(); left != 0 || !old() || w.state(id) != outbox.WAITING {
		t.Errorf("%d days are left, survivors %t, of which one is %s", left, old(), w.state(id))
	}
}

// Days are made while others write, and nobody waits for anybody.
func TestDaysAreMadeBesideWriters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tx := w.begin(w.s.Pool())
	for _, table := range []string{"task", "outcome", "attempt", "delivery"} {
		_, err := tx.Exec(w.ctx, `LOCK TABLE postern.`+table+` IN ROW EXCLUSIVE MODE`)
		w.must(err)
	}
	w.later(100 * 24 * time.Hour)
	ctx, cancel := context.WithTimeout(w.ctx, 10*time.Second) // the writer does not end before
	defer cancel()
	if n, err := w.s.EnsureDays(ctx); err != nil || n != 5*4 {
		t.Errorf("%d partitions were made beside a writer: %v", n, err)
	}
	w.must(tx.Rollback(w.ctx))
}
