package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/pgtest"
)

// cost is what one process on one database took: it and its sessions, to be ready, and for lists.
type cost struct {
	startCPU, startWall, listCPU, listWall float64 // seconds
}

// better keeps the smaller figure of each kind: what the neighbours of this machine take is no part of it.
func (c *cost) better(o cost) {
	if c.startCPU == 0 {
		*c = o
	}
	c.startCPU, c.startWall = min(c.startCPU, o.startCPU), min(c.startWall, o.startWall)
	c.listCPU, c.listWall = min(c.listCPU, o.listCPU), min(c.listWall, o.listWall)
}

// A database of 1,100 days costs what one of four days does: to start a process on, with all its connections, and to
// list the newest transactions in. It measures with POSTERN_AGE=1; without, it starts the product once on each.
func TestCostsDoNotGrowWithAge(t *testing.T) {
	measured := os.Getenv("POSTERN_AGE") != ""
	tries := 1
	if measured {
		tries = 5
	}
	var costs [2]cost
	var dbs [2]*pgtest.DB
	for i, days := range []int{4, 1100} {
		dbs[i] = agedBySpans(t, days)
	}
	for range tries {
		for i, db := range dbs {
			costs[i].better(costOf(t, db))
		}
	}
	young, old := costs[0], costs[1]
	t.Logf("after 4 days %+v, after 1,100 days %+v", young, old)
	if max(young.startCPU, old.startCPU) > 3 && measured {
		t.Errorf("serve is ready after %.2f and %.2f CPU seconds, want at most 3", young.startCPU, old.startCPU)
	}
	if !measured {
		return
	}
	for _, c := range []struct {
		what            string
		young, old      float64
		factor, besides float64 // besides: what a clock of this machine cannot tell apart
	}{
		{"CPU seconds of a start", young.startCPU, old.startCPU, 1.2, 0.02},
		{"seconds of a start", young.startWall, old.startWall, 1.5, 0.05},
		{"CPU seconds of lists", young.listCPU, old.listCPU, 1.2, 0.02},
		{"seconds of lists", young.listWall, old.listWall, 1.5, 0.05},
	} {
		if c.old > c.young*c.factor+c.besides {
			t.Errorf("%s: %.3f after 4 days, %.3f after 1,100", c.what, c.young, c.old)
		}
	}
}

// agedBySpans is a database that has been kept for so long, with what ended on each of its days.
func agedBySpans(t *testing.T, days int) *pgtest.DB {
	t.Helper()
	db := pgtest.New(t)
	for _, sql := range []string{
		`DO $$ DECLARE t text; BEGIN
			FOR t IN SELECT oid::regclass::text FROM postern.spans LOOP EXECUTE 'DROP TABLE ' || t; END LOOP; END $$`,
		fmt.Sprintf(`SELECT postern.ensure_days((now() AT TIME ZONE 'UTC')::date - %d,
			(now() AT TIME ZONE 'UTC')::date + 3)`, days),
		fmt.Sprintf(`INSERT INTO postern.task (queue_id, seq, day, context_id, uid, type, data, created_at)
			SELECT 1000 + i %% 7, (%[1]d - d) * 100 + i, (now() AT TIME ZONE 'UTC')::date - d, c.context_id,
				d || '.' || i, 'T', '{}', now() - d * interval '1 d' - i * interval '1 s'
			FROM postern.context c, generate_series(1, 100) i, generate_series(0, %[1]d) d
			WHERE c.name = 'default' AND (d < 4 OR i < 10)
			ORDER BY d DESC, i DESC`, days),
		`INSERT INTO postern.queue_name (queue_id, context_id, name) SELECT 1000 + i, c.context_id, 'q' || i
			FROM postern.context c, generate_series(0, 6) i WHERE c.name = 'default'`,
		`INSERT INTO postern.outcome (queue_id, seq, day, context_id, was, state, done_at)
			SELECT queue_id, seq, day, context_id, 'WAITING',
				CASE WHEN seq % 2 = 0 THEN 'CANCELLED' ELSE 'FAILED' END, created_at FROM postern.task`,
		`ANALYZE`,
	} {
		mustExec(t, db, sql)
	}
	var partitions int
	if mustScan(t, db, `SELECT count(*)::int FROM postern.spans
		WHERE relation = 'task'`, &partitions); partitions > 60 {
		t.Fatalf("%d partitions of each table after %d days", partitions, days)
	}
	return db
}

// costOf starts the product on a database, lists, and stops it.
func costOf(t *testing.T, db *pgtest.DB) (c cost) {
	t.Helper()
	began := time.Now()
	p, at := serving(t, append(database(db.URL), "POSTERN_AUTH=none"), "serve", "--work")
	api := strings.TrimPrefix(at, "POSTERN_URL=")
	get := func(path string) {
		t.Helper()
		res, err := http.Get(api + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s %v %s", path, res.Status, err, body)
		}
	}
	c.startWall = time.Since(began).Seconds()
	c.startCPU = cpuOf(t, db, p.cmd.Process.Pid)
	for range 2 { // the first one plans
		began, before := time.Now(), cpuOf(t, db, p.cmd.Process.Pid)
		for range 20 {
			for _, q := range []string{"", "&state=FAILED", "&queue=q1", "&type=T"} {
				get("/transactions?limit=50" + q)
			}
		}
		c.listWall, c.listCPU = time.Since(began).Seconds(), cpuOf(t, db, p.cmd.Process.Pid)-before
	}
	p.signal(syscall.SIGTERM)
	p.wait()
	return c
}

// cpuOf is how many CPU seconds a process and its sessions have taken, those that have ended left out.
func cpuOf(t *testing.T, db *pgtest.DB, pid int) (seconds float64) {
	t.Helper()
	rows, err := db.Pool.Query(t.Context(), `SELECT pid FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'postern'`)
	if err != nil {
		t.Fatal(err)
	}
	pids := []int{}
	for rows.Next() {
		var n int
		if err := rows.Scan(&n); err != nil {
			t.Fatal(err)
		}
		pids = append(pids, n)
	}
	for _, n := range pids {
		seconds += scheduled(fmt.Sprint("/proc/", n, "/schedstat"))
	}
	tasks, _ := os.ReadDir(fmt.Sprint("/proc/", pid, "/task"))
	for _, task := range tasks {
		seconds += scheduled(fmt.Sprint("/proc/", pid, "/task/", task.Name(), "/schedstat"))
	}
	return seconds
}

// scheduled is the CPU seconds of a file schedstat, 0 where its thread has ended.
func scheduled(file string) float64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	n, _ := strconv.ParseFloat(first, 64)
	return n / 1e9
}
