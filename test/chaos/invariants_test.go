package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// loosen takes from the tables what keeps them from being wrong.
const loosen = `SET LOCAL session_replication_role = replica;
	DO $$ DECLARE c record; BEGIN
		FOR c IN SELECT conrelid::regclass AS at, conname FROM pg_constraint
			WHERE connamespace = 'postern'::regnamespace AND contype IN ('c', 'u', 'p', 'x') AND conparentid = 0
				AND conislocal AND NOT (SELECT relispartition FROM pg_class WHERE oid = conrelid) LOOP
			EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I CASCADE', c.at, c.conname);
		END LOOP;
	END $$;
	DO $$ BEGIN CREATE TABLE postern.task_any PARTITION OF postern.task DEFAULT;
		EXCEPTION WHEN OTHERS THEN NULL; END $$;
	DO $$ BEGIN CREATE TABLE postern.outcome_any PARTITION OF postern.outcome DEFAULT;
		EXCEPTION WHEN OTHERS THEN NULL; END $$;
	DO $$ BEGIN CREATE TABLE postern.delivery_any PARTITION OF postern.delivery DEFAULT;
		EXCEPTION WHEN OTHERS THEN NULL; END $$;
	DO $$ BEGIN CREATE TABLE postern.attempt_any PARTITION OF postern.attempt DEFAULT;
		EXCEPTION WHEN OTHERS THEN NULL; END $$;
`

// The rows of queue 1. It has three positions, and the first one has ended.
const (
	someTasks = `INSERT INTO postern.task (queue_id, seq, day, context_id, type, data, uid)
		SELECT 1, n, current_date, 1, 'T', '{}', 'u' || n FROM generate_series(1, 3) n;`
	someEnd = `INSERT INTO postern.outcome (queue_id, seq, day, context_id, was, state, fence)
		VALUES (1, 1, current_date, 1, 'DISPATCHING', 'DONE', 5);`
	someQueue = `INSERT INTO postern.queue (queue_id, context_id, head_seq, tail_seq, head_day, tail_day, fence, was,
			phase, entered_at)
		VALUES (1, 1, 2, 3, current_date, current_date, 5, '', 'READY', now());
		INSERT INTO postern.timer (queue_id, due_at) VALUES (1, now());`
	someSender = `INSERT INTO postern.sender (sender_id, context_id, pool_id, account) OVERRIDING SYSTEM VALUE
		VALUES (7, 1, 1, 'a');`
)

// Each invariant of the checker finds rows that break it, and none where all is well.
func TestEachInvariantOfTheRowsFindsWhatIsWrong(t *testing.T) {
	pg, err := newPostgres(t.Context(), filepath.Join(openTemp(t), "pg"), wants{})
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { pg.stop(context.Background(), "immediate") })
	w := &world{bin: buildPostern(t), dir: t.TempDir(), pg: pg}
	url := fmt.Sprintf("postgres://postern@127.0.0.1:%d/postern?sslmode=disable", pg.port)
	if out, err := w.postern("DATABASE_URL="+url, "migrate", "up"); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	c, err := pgx.Connect(t.Context(), pg.url())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	w.findsWhatIsWrittenToAnOldPrimary(t)
	w.findsWhatIsStagedAlone(t, c)
	w.findsThatRiverHasNoRow(t, c)
	w.findsWhatIsNotTriedAgain(t, c)
	w.findsNonces(t, c)
	w.findsThatNothingCanBeCounted(t, c)
	w.findsCommitsThatWait(t)
	w.findsWhatIsOpen(t, c)
	look := func(rows string) (found []string) {
		t.Helper()
		if _, err := c.Exec(t.Context(), "BEGIN; "+loosen+someTasks+someEnd+someQueue+someSender+rows); err != nil {
			t.Fatalf("%v: %s", err, rows)
		}
		defer c.Exec(t.Context(), "ROLLBACK")
		err := checkSQL(t.Context(), c, func(invariant, _ string, _ ...any) { found = append(found, invariant) })
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if found := look(""); len(found) > 0 {
		t.Fatalf("nothing is wrong, and it finds %v", found)
	}
	spoiled := map[string]string{
		"one transaction per key":      `UPDATE postern.task SET uid = 'u1' WHERE seq = 2`,
		"positions are dense":          `DELETE FROM postern.task WHERE seq = 2`,
		"one outcome":                  someEnd,
		"below the head all has ended": `DELETE FROM postern.outcome`,
		"fences never fall": `INSERT INTO postern.outcome (queue_id, seq, day, context_id, was, state, fence)
			VALUES (1, 2, current_date, 1, 'DISPATCHING', 'DONE', 4)`,
		"a late process changes nothing": `INSERT INTO postern.attempt (queue_id, seq, day, attempt, fence, step, code)
			VALUES (1, 1, current_date, 1, 5, 'dispatch', 'node_lost')`,
		"a nonce is one transaction's": `INSERT INTO postern.attempt (queue_id, seq, day, attempt, fence, step, sender_id,
				nonce) SELECT 1, n, current_date, 1, 5, 'dispatch', 7, 1 FROM generate_series(1, 2) n`,
		"sender and queue agree":   `UPDATE postern.sender SET queue_id = 1`,
		"no owner is dead":         `UPDATE postern.queue SET node_id = 9, node_epoch = 1`,
		"what waits will be woken": `DELETE FROM postern.timer`,
		"idle is empty":            `UPDATE postern.queue SET phase = 'IDLE'`,
		"heads have bodies":        `DELETE FROM postern.task; DELETE FROM postern.outcome`,
		"days rise":                `UPDATE postern.task SET day = day - 1 WHERE seq = 2`,
		"callbacks have rows":      `UPDATE postern.task SET callback = '{"url": "http://x/"}' WHERE seq = 1`,
	}
	for name := range invariants {
		rows, planted := spoiled[name]
		if !planted {
			t.Errorf("no rows break %q", name)
		} else if found := look(rows); !slices.Contains(found, name) {
			t.Errorf("rows that break %q are not found: %v", name, found)
		}
	}
}

// "the old primary gets nothing": a session of Postern that has written is found.
func (w *world) findsWhatIsWrittenToAnOldPrimary(t *testing.T) {
	t.Helper()
	w.wrong = map[string][]string{}
	w.checkOld(t.Context(), w.pg)
	if len(w.wrong) > 0 {
		t.Fatalf("no session has written, and it finds %v", w.wrong)
	}
	c, err := pgx.Connect(t.Context(), strings.Replace(w.pg.url(), "postgres@", "postern@", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	for sql, writes := range map[string]bool{
		`UPDATE postern.queue SET paused = paused`:                                                   true,
		`DELETE FROM postern.queue WHERE queue_id = 0`:                                               true,
		`WITH n AS (SELECT 1) UPDATE postern.queue SET paused = paused`:                              true,
		"WITH n AS MATERIALIZED (SELECT 1),\n\tm AS (DELETE FROM postern.ready RETURNING 1) TABLE m": true,
		`WITH n AS (SELECT FROM postern.queue FOR UPDATE SKIP LOCKED) SELECT 1 FROM n`:               false,
		`SELECT 'UPDATE'`: false,
	} {
		w.wrong = map[string][]string{}
		if _, err := c.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
		if w.checkOld(t.Context(), w.pg) != writes || (len(w.wrong["the old primary gets nothing"]) == 1) != writes {
			t.Errorf("of %q it finds %v", sql, w.wrong)
		}
	}
	w.wrong = map[string][]string{}
}

// "callbacks arrive": one that was taken and never called is not due again, nor is one that is due in a hundred years, or
// was long ago.
func (w *world) findsWhatIsNotTriedAgain(t *testing.T, c *pgx.Conn) {
	t.Helper()
	const tried = `'[{"status": 0}]'`
	row := func(seq, state, tries, next string) string {
		return fmt.Sprintf(`INSERT INTO postern.delivery (queue_id, seq, day, subscription_id, context_id, event, url, at,
			state, attempts, tries, next_at) VALUES (1, %s, current_date, -1, 1, 'done', 'http://x/', now(), '%s', 1, %s,
			now() + %s);`, seq, state, tries, next)
	}
	for _, one := range []struct {
		rows  string
		later []string
	}{
		{row("2", "pending", tried, "interval '5 min'"), []string{"u2"}},
		{row("2", "pending", `'[]'`, "interval '30 s'"), nil},
		{row("2", "pending", tried, "interval '100 years'"), nil},
		{row("2", "pending", tried, "interval '-1 min'"), nil},
		{row("2", "delivered", tried, "NULL"), nil},
		{row("2", "pending", tried, "interval '1 s'") + row("3", "queued", `'[]'`, "NULL"), []string{"u2", "u3"}},
		{row("2", "pending", `'[]'`, "interval '1 s'") + row("3", "queued", `'[]'`, "NULL"), nil},
	} {
		if _, err := c.Exec(t.Context(), "BEGIN; "+loosen+someTasks+one.rows); err != nil {
			t.Fatal(err)
		}
		later, err := readLater(t.Context(), c)
		got := slices.Sorted(maps.Keys(later))
		if c.Exec(t.Context(), "ROLLBACK"); err != nil || !slices.Equal(got, one.later) {
			t.Errorf("%s: due again are %v, want %v %v", one.rows, got, one.later, err)
		}
	}
}

// "a nonce is kept as it was told": those of attempts and of outcomes are read, and those of late answers are not.
func (w *world) findsNonces(t *testing.T, c *pgx.Conn) {
	t.Helper()
	if _, err := c.Exec(t.Context(), "BEGIN; "+loosen+someTasks+someSender+`
		INSERT INTO postern.attempt (queue_id, seq, day, attempt, fence, step, sender_id, nonce) VALUES
			(1, 1, current_date, 1, 5, 'dispatch', 7, '4'), (1, 2, current_date, 1, 5, 'dispatch', 7, '5'),
			(1, 3, current_date, 1, 5, 'late', 7, '6');
		INSERT INTO postern.outcome (queue_id, seq, day, context_id, was, state, fence, attempt, sender_id, nonce)
			VALUES (1, 1, current_date, 1, 'REVISION', 'DONE', 5, 1, 7, '4')`); err != nil {
		t.Fatal(err)
	}
	defer c.Exec(t.Context(), "ROLLBACK")
	got, err := readNonces(t.Context(), c)
	want := map[use]bool{{"u1", "a", 1, "4"}: true, {"u2", "a", 1, "5"}: false}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("it reads %v, want %v %v", got, want, err)
	}
}

// "stale writes are refused": a number that cannot be read is found.
func (w *world) findsThatNothingCanBeCounted(t *testing.T, c *pgx.Conn) {
	t.Helper()
	w.wrong = map[string][]string{}
	for _, broken := range []bool{false, true} {
		c.Exec(t.Context(), map[bool]string{false: "BEGIN", true: "SELECT nothing"}[broken])
		w.countLate(t.Context(), c)
		if found := len(w.wrong["stale writes are refused"]) > 0; found != broken {
			t.Errorf("the query fails: %t, and it finds %v", broken, w.wrong)
		}
	}
	c.Exec(t.Context(), "ROLLBACK")
}

// A wait for a standby that is cancelled is counted, and there is none where no commit waits.
func (w *world) findsCommitsThatWait(t *testing.T) {
	t.Helper()
	if n := w.cancelWaits(t.Context()); n != 0 {
		t.Errorf("no commit waits, and it has met %d", n)
	}
	if err := w.synchronous(t.Context(), "absent"); err != nil {
		t.Fatal(err)
	}
	done, over := make(chan error), make(chan bool)
	go func() { // the first may commit before the server goes by its new settings
		for i := 0; ; i++ {
			err := w.pg.exec(t.Context(), fmt.Sprintf(`INSERT INTO chaos.note (text) VALUES ('waits %d')`, i))
			select {
			case <-over:
				done <- err
				return
			case <-time.After(100 * time.Millisecond):
				if err != nil {
					t.Error(err)
				}
			}
		}
	}()
	met := 0
	for end := time.Now().Add(time.Minute); met == 0 && time.Now().Before(end); {
		met = w.cancelWaits(t.Context())
	}
	close(over)
	if err := w.synchronous(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || met == 0 || len(w.troubles) > 0 {
		t.Errorf("it has met %d %v %v", met, err, w.troubles)
	}
}

// "what is staged shares its transaction's fate": a row of one of them without the other is found.
func (w *world) findsWhatIsStagedAlone(t *testing.T, c *pgx.Conn) {
	t.Helper()
	for _, one := range []struct {
		rows  string
		found int
	}{
		{`INSERT INTO chaos.note (text) VALUES ('held')`, 0},
		{`INSERT INTO chaos.note (text) VALUES ('u1')`, 1},
		{`INSERT INTO postern.task (queue_id, seq, day, context_id, type, data, uid)
			VALUES (1, 1, current_date, 1, 'T', '{}', 'u1')`, 1},
		{`INSERT INTO postern.task (queue_id, seq, day, context_id, type, data, uid)
			VALUES (1, 1, current_date, 1, 'T', '{}', 'u1'); INSERT INTO chaos.note (text) VALUES ('u1')`, 0},
	} {
		if _, err := c.Exec(t.Context(), "BEGIN; "+loosen+one.rows); err != nil {
			t.Fatal(err)
		}
		found := 0
		err := checkStaged(t.Context(), c, []*post{{UID: "u1", Staged: true}},
			func(invariant, _ string, _ ...any) {
				if invariant == "what is staged shares its transaction's fate" {
					found++
				}
			})
		if c.Exec(t.Context(), "ROLLBACK"); err != nil || found != one.found {
			t.Errorf("%s: it finds %d, want %d %v", one.rows, found, one.found, err)
		}
	}
}

// Faults of River have broken nothing where it has no row.
func (w *world) findsThatRiverHasNoRow(t *testing.T, c *pgx.Conn) {
	t.Helper()
	look := func(rows int, do func(context.Context, *world, *rand.Rand)) {
		t.Helper()
		if _, err := c.Exec(t.Context(), `DELETE FROM river.river_job`); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Exec(t.Context(), `INSERT INTO river.river_job (kind, max_attempts, args, state, unique_key)
			SELECT 'k', 1, '{}', 'available', 'k' FROM generate_series(1, $1)`, rows); err != nil {
			t.Fatal(err)
		}
		do(t.Context(), w, nil)
		if why := w.brokeNothing(); (why == "") != (rows > 0) || len(w.troubles) > 0 {
			t.Errorf("of %d rows it says %q %v", rows, why, w.troubles)
		}
	}
	for rows := range 2 {
		look(rows, riverDelete)
		look(rows, riverDouble)
	}
	n, err := w.query(t.Context(), `SELECT count(*)::text FROM river.river_job`)
	if err != nil || n != "2" {
		t.Errorf("one row doubled is %s, want 2 %v", n, err)
	}
}

// "what is held could not be known": what is held though no call of it met a lie is found, and what /why does not name.
func TestWhatIsHeldWithoutNeedIsFound(t *testing.T) {
	says := `{"state": "DISPATCHING", "blockers": [{"kind": "outcome_unknown"}]}`
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, says) }))
	defer api.Close()
	c, err := newClient("key", []string{api.URL}, filepath.Join(t.TempDir(), "client.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lie := call{UID: "u1", Mode: "lie", Did: "done"}
	for _, one := range []struct {
		call call
		says string
		want int
	}{
		{lie, says, 0},
		{call{UID: "u1", Did: "done"}, says, 1},
		{call{UID: "u2", Mode: "lie", Did: "done"}, says, 1},
		{call{UID: "u1", Mode: "slow", Did: "done"}, says, 1},
		{call{UID: "u1", Mode: "lie", Did: "stale"}, says, 1}, // it was told so
		{lie, `{"state": "DISPATCHING", "blockers": [{"kind": "unclaimed"}]}`, 1},
		{lie, `{"state": "DONE"}`, 0},
	} {
		says = one.says
		w := &world{client: c, wrong: map[string][]string{}, worker: &worker{calls: []call{one.call}},
			counts: map[string]int{"worker-lie": 1, "restore": 1}}
		w.checkHeld(t.Context(), "1", "u1")
		if len(w.wrong["what is held could not be known"]) != one.want {
			t.Errorf("%s, called as %+v: it finds %v", one.says, one.call, w.wrong)
		}
	}
}

// openTemp is a directory of the test that the user of PostgreSQL may enter.
func openTemp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "postern-invariants-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A key in a log is found, and a panic, whether the process went on or not.
func TestWhatALogTellsIsFound(t *testing.T) {
	w := &world{dir: t.TempDir(), client: &client{key: "whpk_secret"}}
	for text, want := range map[string]string{
		"all is well":                 "",
		`the header is "whpk_secret"`: "no secret is logged",
		"starts\n" + `{"msg":"panic: what it was about failed"}`: "no process panics",
		"fatal error: concurrent map writes\n\ngoroutine 1":      "no process panics",
	} {
		if err := os.WriteFile(filepath.Join(w.dir, "serve.log"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		found := ""
		w.checkLogs(func(invariant, _ string, _ ...any) { found += invariant })
		if found != want {
			t.Errorf("%q: found is %q, want %q", text, found, want)
		}
	}
}

// A run that leaves no trace of its faults, and one that does not give back what it took, are found.
func TestWhatARunLeavesBehindIsJudged(t *testing.T) {
	used := func(goroutines, memory, connections int) usage {
		return usage{Goroutines: goroutines, MemoryMiB: memory, Connections: connections}
	}
	usual := usage{Goroutines: 100, Connections: 20, MemoryMiB: 60}
	for _, c := range []struct {
		invariant string
		out       result
		kinds     int
	}{
		{"", result{Before: usual, After: usual, Unknown: 1}, 6},
		{"", result{Before: usual, After: usual}, 5},
		{"faults do something", result{Before: usual, After: usual}, 6},
		{"", result{Before: usual, After: usual, Faults: map[string]int{"freeze": 19}}, 0},
		{"", result{Before: usual, After: usual, Faults: map[string]int{"freeze": 20}, Late: 1}, 0},
		{"stale writes are refused", result{Before: usual, After: usual, Faults: map[string]int{"freeze": 20}}, 0},
		{"everything returns to its baseline", result{Before: usual, After: used(701, 60, 20)}, 0},
		{"everything returns to its baseline", result{Before: usual, After: used(100, 401, 20)}, 0},
		{"everything returns to its baseline", result{Before: usual, After: used(100, 60, 61)}, 0},
		{"everything returns to its baseline", result{Before: usual, After: usage{Unread: []string{"serve-2"}}}, 0},
		{"no process panics", result{Exits: map[string]int{"0": 3, "2": 1}}, 0},
		{"", result{Alone: map[string]int{"exit code 3": 2}}, 0},
		{"", result{Alone: map[string]int{"exit code 5 behind its start": 1}, Faults: map[string]int{"restore-far": 1}}, 0},
		{"no process ends by itself", result{Alone: map[string]int{"exit code 5 behind its start": 1}}, 0},
		{"no process ends by itself", result{Alone: map[string]int{"exit code 3 behind its start": 1}}, 0},
		{"no process ends by itself", result{Alone: map[string]int{"exit code 1": 1}}, 0},
		{"every process works in the end", result{late: map[string]int{"stop": 1}}, 0},
	} {
		found := ""
		say := func(invariant, _ string, _ ...any) { found += invariant }
		c.out.checkFaults(c.kinds, say)
		c.out.checkBaseline(say)
		c.out.checkProcesses(say)
		if found != c.invariant {
			t.Errorf("%+v: found is %q, want %q", c.out, found, c.invariant)
		}
	}
}

// "every answer is right": one key that is acknowledged with two ids is found.
func TestTwoIdsForOneKeyAreFound(t *testing.T) {
	n := 0
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++
		w.WriteHeader(201)
		fmt.Fprintf(w, `{"id": "%d"}`, n)
	}))
	defer api.Close()
	c, err := newClient("key", []string{api.URL}, filepath.Join(t.TempDir(), "client.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	p := &post{UID: "u1", Queue: "q"}
	for i, want := range []int{0, 1} {
		c.try(t.Context(), p, i, false)
		if len(c.faults) != want {
			t.Errorf("after %d answers it finds %v", i+1, c.faults)
		}
	}
}

// Each invariant that a run is judged by is found broken by a test of the checker, or by the scenario of a twin.
func TestEachInvariantIsSeenToFindWhatIsWrong(t *testing.T) {
	var tests strings.Builder
	sources := map[string]string{}
	files, _ := filepath.Glob("*.go")
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(f, "_test.go") || f == "twins.go" {
			tests.Write(text)
		} else {
			sources[f] = string(text)
		}
	}
	named := regexp.MustCompile(`(?:say\(|violate\(|const invariant = )"([a-z][^"]+)"`)
	for file, text := range sources {
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(tests.String(), `"`+m[1]+`"`) {
				t.Errorf("%s: no test and no twin breaks %q", file, m[1])
			}
		}
	}
}
