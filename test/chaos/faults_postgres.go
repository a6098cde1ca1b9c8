package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// down stops the server in a way, and measures from the moment at which it answers again.
func (w *world) down(ctx context.Context, stop func() error) {
	w.must(stop())
	w.must(w.pg.start(ctx))
	for _, p := range w.processes {
		w.measure(ctx, "postgres", time.Now(), w.answers(p))
	}
}

func restart(mode string) func(context.Context, *world, *rand.Rand) {
	return func(ctx context.Context, w *world, _ *rand.Rand) {
		w.down(ctx, func() error { return w.pg.stop(ctx, mode) })
	}
}

// crash kills the server. Its WAL writer stands still before that: what it has written would outlive the server, though
// no session has brought it to disk.
func crash(ctx context.Context, w *world, _ *rand.Rand) {
	text, err := w.query(ctx, `SELECT pid::text FROM pg_stat_activity WHERE backend_type = 'walwriter'`)
	pid, _ := strconv.Atoi(text)
	if w.note(err); pid > 0 {
		w.note(syscall.Kill(pid, syscall.SIGSTOP))
		wait(ctx, 300*time.Millisecond)
	}
	w.down(ctx, w.pg.kill)
}

// terminate ends all sessions but its own, a few times in a row.
func terminate(ctx context.Context, w *world, r *rand.Rand) {
	storms := 0
	for range 1 + r.IntN(5) {
		err := w.pg.exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'`)
		if w.note(err); err == nil {
			storms++
		}
		wait(ctx, time.Duration(r.Int64N(300))*time.Millisecond)
	}
	if w.storms += storms; storms == 0 {
		w.missed("no session could be terminated")
	}
}

func noFaketime(w *world) string {
	if w.pg.faketime == "" {
		return "no libfaketime in /usr/lib (package libfaketime), nor named by POSTERN_FAKETIME"
	}
	return ""
}

// clockJumps restarts the server with its clock moved. The server begins an hour behind.
func clockJumps(by time.Duration) func(context.Context, *world, *rand.Rand) {
	return func(ctx context.Context, w *world, _ *rand.Rand) {
		w.pg.offset += by
		w.down(ctx, func() error { return w.pg.stop(ctx, "fast") })
	}
}

func noDisks(w *world) string {
	if w.pg.disks == nil {
		return "a full disk needs a file system of its own, which only root can mount: " + w.pg.noDisks
	}
	return ""
}

// noRoom is how PostgreSQL tells in its log of a full disk.
const noRoom = "No space left on device"

// diskFull takes all room that data, or the log, have left, for a few seconds.
func diskFull(which string) func(context.Context, *world, *rand.Rand) {
	return func(ctx context.Context, w *world, _ *rand.Rand) {
		filler := filepath.Join(w.pg.disks[which], "filler")
		before := w.pg.said(noRoom)
		w.must(fill(filler))
		for end := time.Now().Add(4 * time.Second); time.Now().Before(end); wait(ctx, 500*time.Millisecond) {
			soon, cancel := context.WithTimeout(ctx, time.Second)
			w.pg.exec(soon, `SELECT pg_switch_wal()`) // to a new file of the log, for which there is no room
			cancel()
		}
		os.Remove(filler)
		if w.pg.said(noRoom) == before {
			w.missed("PostgreSQL has not missed the room")
		}
		if w.pg.await(ctx, time.Second) != nil { // without room for its log the server ends
			w.note(w.pg.start(ctx))
		}
		for _, p := range w.processes {
			w.measure(ctx, "disk-full", time.Now(), w.answers(p))
		}
	}
}

// fill writes a file until there is no room for more.
func fill(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	for size := len(block); size >= 4096; size /= 2 {
		for err = nil; err == nil; {
			_, err = f.Write(block[:size])
		}
	}
	f.Sync()
	return nil
}

// stranger is a session of somebody else, who may log in and no more.
func (w *world) stranger(ctx context.Context, user string) (*pgx.Conn, error) {
	return pgx.Connect(ctx, strings.Replace(w.pg.url(), "postgres@", user+"@", 1))
}

// lock is a person in psql who has looked at hot tables FOR UPDATE, and went to lunch.
func lock(ctx context.Context, w *world, r *rand.Rand) {
	c, err := w.stranger(ctx, "postgres")
	if err != nil {
		w.missed(err.Error())
		return
	}
	defer c.Close(ctx)
	what := []string{
		`LOCK TABLE postern.queue IN EXCLUSIVE MODE`, `LOCK TABLE postern.ready IN ACCESS EXCLUSIVE MODE`,
		`SELECT FROM postern.queue FOR UPDATE`, `SELECT FROM postern.sender FOR UPDATE`,
		`SELECT FROM postern.node FOR UPDATE`,
	}[r.IntN(5)]
	if _, err = c.Exec(ctx, `SET lock_timeout = '3s'; BEGIN; `+what); err != nil {
		w.missed(err.Error())
		return
	}
	wait(ctx, time.Duration(1000+r.Int64N(4000))*time.Millisecond)
}

// snapshot is an application whose transaction has written, and stays open for long. It is not waited for.
func snapshot(ctx context.Context, w *world, r *rand.Rand) {
	hold := time.Duration(5+r.Int64N(10)) * time.Second
	c, err := w.stranger(ctx, "postgres")
	if err == nil {
		_, err = c.Exec(ctx, `BEGIN ISOLATION LEVEL REPEATABLE READ; INSERT INTO chaos.note (text) VALUES ('held')`)
	}
	if err != nil {
		w.missed(err.Error())
	}
	w.background(func(ctx context.Context) {
		if c == nil {
			return
		}
		defer c.Close(context.WithoutCancel(ctx))
		if err == nil {
			wait(ctx, hold)
		}
	})
}

// pool takes every connection that the database gives to those who are no superusers, for some seconds: also those that
// come free when sessions are ended.
func pool(ctx context.Context, w *world, r *rand.Rand) {
	var taken []*pgx.Conn
	take := func() (err error) {
		for err == nil && len(taken) < 400 {
			var c *pgx.Conn
			if c, err = w.stranger(ctx, "stranger"); err == nil {
				taken = append(taken, c)
			}
		}
		return err
	}
	err := take()
	for range 3 {
		w.note(w.pg.exec(ctx, fmt.Sprintf(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE usename = 'postern' AND backend_type = 'client backend' AND pid %% 2 = %d`, r.IntN(2))))
		err = take()
	}
	if len(taken) == 0 {
		w.missed(fmt.Sprintf("a stranger gets no connection: %v", err))
	}
	wait(ctx, time.Duration(1000+r.Int64N(3000))*time.Millisecond)
	for _, c := range taken {
		c.Close(ctx)
	}
}

func riverDelete(ctx context.Context, w *world, _ *rand.Rand) {
	w.changes(ctx, `DELETE FROM river.river_job`)
}

// changes runs a statement until it has changed rows, for some seconds: those of River come and go.
func (w *world) changes(ctx context.Context, sql string) {
	for end := time.Now().Add(3 * time.Second); ; {
		n, err := w.pg.changeIn(ctx, "postern", sql)
		if n > 0 {
			return
		}
		if w.must(err); err != nil {
			return
		}
		if time.Now().After(end) || !wait(ctx, 10*time.Millisecond) {
			w.missed("there was no such row")
			return
		}
	}
}

// must notes an error of the fault that is under way, which has broken nothing then.
func (w *world) must(err error) {
	if w.note(err); err != nil {
		w.missed(err.Error())
	}
}

// riverDouble inserts each job once more, under a number of its own and without the key that would refuse it.
func riverDouble(ctx context.Context, w *world, _ *rand.Rand) {
	cols, err := w.query(ctx, `SELECT string_agg(quote_ident(column_name), ', ') FROM information_schema.columns
		WHERE table_schema = 'river' AND table_name = 'river_job' AND is_generated = 'NEVER'
			AND column_name NOT IN ('id', 'unique_key', 'unique_states')`)
	if err != nil {
		w.must(err)
		return
	}
	w.changes(ctx, fmt.Sprintf(`INSERT INTO river.river_job (%s) SELECT %s FROM river.river_job
		WHERE state IN ('available', 'scheduled', 'retryable') LIMIT 500`, cols, cols))
}

// poisonRows inserts staged rows past postern.submit and past the trigger that judges rows, as a superuser may: each
// row that the table takes has to end somewhere, and stops no other.
func poisonRows(ctx context.Context, w *world, r *rand.Rand) {
	staged := 0
	row := func(queue, typ, data, more string) {
		uid := fmt.Sprintf("poison-%d-%d", r.Uint32(), r.Uint32())
		cols, values := "", ""
		if more != "" {
			name, value, _ := strings.Cut(more, "=")
			cols, values = ", "+name, ", "+value
		}
		err := w.pg.exec(ctx, fmt.Sprintf(`BEGIN; SET LOCAL session_replication_role = replica;
			INSERT INTO postern.outbox (context_id, uid, queue, type, data, actor%s)
			SELECT context_id, '%s', %s, '%s', %s, 'stranger'%s FROM postern.context WHERE name = 'default';
			COMMIT`, cols, uid, queue, typ, data, values))
		if err == nil {
			staged++
		}
	}
	deep := `(repeat('[', 3000) || repeat(']', 3000))::jsonb`
	row(`'poison'`, "PAY", deep, "")
	row(`'poison'`, "NONE", `'{}'`, "")
	row(`'poison'`, "PAY", `'{"n": 1e400}'`, "")
	row(`repeat('q', 5000)`, "PAY", `'{}'`, "")
	row(`'poison'`, "PAY", `'{}'`, "depends_on=ARRAY['nobody', NULL]")
	row(`'poison'`, "PAY", `'{}'`, "max_retries=-7")
	row(`'poison'`, "PAY", `'{}'`, `callback='{"url": "file:///etc/passwd", "on": ["NEVER"]}'`)
	row(`'poison'`, "PAY", `'{}'`, `tags='[1, {"a": []}]'`)
	row(`'poison'`, "PAY", `to_jsonb(repeat('x', 3000000))`, "")
	row(`'poison'`, "PAY", `'{"N": -2}'`, "not_before='infinity'")
	if staged == 0 {
		w.must(errors.New("the table has taken no poisoned row"))
	}
}
