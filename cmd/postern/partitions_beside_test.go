package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Several merges at once share the work and lose no row. Some are killed with SIGKILL, and others begun at once.
func TestMergesAtOnceShareTheWork(t *testing.T) {
	t.Parallel()
	db := aged(t, 300)
	env, rows := database(db.URL), everyRow(t, db)
	for range 4 {
		p := start(t, env, "partitions", "merge", "--width", "week", "-o", "table")
		p.line() // one group is done, and the next one is under way
		p.signal(syscall.SIGKILL)
		p.wait()
	}
	var both sync.WaitGroup
	for range 3 {
		both.Go(func() {
			if r := postern(t, env, "partitions", "merge", "-o", "table"); r.code != 0 {
				t.Errorf("exit %d: %s%s", r.code, r.stdout, r.stderr)
			}
		})
	}
	both.Wait()
	if got := everyRow(t, db); got != rows {
		t.Error("the merges have changed rows")
	}
	var n int
	mustScan(t, db, `SELECT count(*)::int FROM postern.spans WHERE relation = 'task'`, &n)
	if n > 8 {
		t.Errorf("%d partitions are left", n)
	}
}

// A process that is started while a merge runs does its work, and the merge ends before its next group.
func TestAMergeGivesWayToAProcessThatStarts(t *testing.T) {
	t.Parallel()
	db := aged(t, 20)
	rows := everyRow(t, db)
	var later string
	mustScan(t, db, `SELECT max(partition)::text FROM postern.spans
		WHERE relation = 'outcome' AND last < now()::date - 100`, &later)
	holder := hold(t, db, `SELECT FROM postern.`+later+` LIMIT 1 FOR UPDATE`)
	merge := start(t, database(db.URL), "partitions", "merge", "-o", "table")
	merge.line()
	p, at := servingAtLast(t, append(database(db.URL), "POSTERN_AUTH=none"), "serve", "--work")
	postern(t, []string{at}, "ls", "transactions", "queue=q1", "limit=5").want(t, 0, "CANCELLED")
	<-merge.ended
	if s := merge.stderr(); !strings.Contains(s, "stop postern serve and postern work first") {
		t.Errorf("the merge said: %s", s)
	}
	holder()
	if s := p.stderr(); strings.Contains(s, "ERROR") || strings.Contains(s, "deadlock") {
		t.Error(s)
	}
	if got := everyRow(t, db); got != rows {
		t.Error("the merge has changed rows")
	}
}

// servingAtLast is serving for a process whose start may take longer than it has for it, since partitions are locked.
// Such a process ends, says so, and is started again, as Kubernetes does.
func servingAtLast(t *testing.T, env []string, args ...string) (p *process, at string) {
	t.Helper()
	for {
		at = freeAddress(t)
		p = start(t, append(env, "POSTERN_LISTEN="+at, "POSTERN_METRICS_LISTEN=off"), args...)
		for {
			res, err := http.Get("http://" + at + "/readyz")
			if err == nil {
				res.Body.Close()
				if res.StatusCode == http.StatusOK {
					return p, "POSTERN_URL=http://" + at
				}
			}
			select {
			case <-time.After(20 * time.Millisecond):
				continue
			case <-p.ended:
			}
			break
		}
		if s := p.stderr(); !strings.Contains(s, "took longer than the start has for it") {
			t.Fatalf("postern ended before it was ready:\n%s", s)
		}
	}
}

// The session that holds a partition is named once the patience of a merge is over.
func TestAMergeNamesWhoIsInItsWay(t *testing.T) {
	t.Parallel()
	db := aged(t, 2)
	hold(t, db, `SELECT FROM postern.task`)
	postern(t, database(db.URL), "partitions", "merge").want(t, exitBad, "the partitions are locked by session",
		"pg_terminate_backend")
}

// Partitions belong to the owner of the tables, also where a superuser merges them. Another role is told of the owner.
func TestMergedPartitionsBelongToTheOwnerOfTheTables(t *testing.T) {
	t.Parallel()
	db := aged(t, 2)
	owner, other := "owner_"+db.Name[max(0, len(db.Name)-40):], "other_"+db.Name[max(0, len(db.Name)-40):]
	for _, sql := range []string{
		fmt.Sprintf(`CREATE ROLE %q; CREATE ROLE %q LOGIN PASSWORD 'test' IN ROLE postern_app`, owner, other),
		fmt.Sprintf(`GRANT ALL ON SCHEMA postern TO %q`, owner),
		fmt.Sprintf(`DO $$DECLARE t regclass; BEGIN
			FOR t IN SELECT oid FROM pg_class WHERE relnamespace = 'postern'::regnamespace
				AND relkind IN ('r', 'p', 'v') LOOP
				EXECUTE format('ALTER TABLE %%s OWNER TO %%I', t, %s);
			END LOOP; END$$`, "'"+owner+"'"),
	} {
		mustExec(t, db, sql)
	}
	t.Cleanup(func() {
		sql := fmt.Sprintf(`DROP OWNED BY %q CASCADE; DROP ROLE %[1]q; DROP OWNED BY %[2]q CASCADE; DROP ROLE %[2]q`,
			owner, other)
		if _, err := db.Pool.Exec(context.Background(), sql); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(other, "test")
	postern(t, database(u.String()), "partitions", "merge").want(t, exitBad, other+" does not own the tables",
		"connect as "+owner)
	postern(t, database(db.URL), "partitions", "merge").want(t, 0)
	var spans, foreign int
	mustScan(t, db, `SELECT count(*)::int FROM postern.spans`, &spans)
	mustScan(t, db, `SELECT count(*)::int FROM postern.spans s JOIN pg_class c ON c.oid = s.oid
		WHERE pg_get_userbyid(c.relowner) <> '`+owner+`'
			OR NOT has_table_privilege('postern_app', c.oid, 'INSERT')`, &foreign)
	if spans > 40 || foreign > 0 {
		t.Errorf("of %d partitions %d are of somebody else", spans, foreign)
	}
	mustExec(t, db, fmt.Sprintf(`SET ROLE %q;
		INSERT INTO postern.outcome (queue_id, seq, day, context_id, was, state, done_at)
		SELECT 9, 9, s.first, 1, 'WAITING', 'CANCELLED', now()
		FROM postern.spans s
		WHERE s.relation = 'outcome';
		RESET ROLE`,
		owner))
}

// A process that starts on a database with many partitions says so, and how it gets few of them, once.
func TestAStartNamesTheMergeOnce(t *testing.T) {
	t.Parallel()
	db := aged(t, 1)
	p, _ := serving(t, append(database(db.URL), "POSTERN_AUTH=none"), "serve", "--work")
	if s := p.stderr(); strings.Count(s, "postern partitions merge") != 1 {
		t.Errorf("it says: %s", s)
	}
}
