package doctor_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg/doctor"
	"github.com/postern-dev/postern/internal/pgtest"
)

func TestMain(m *testing.M) {
	doctor.NameAll()
	pgtest.Main(m)
}

// find returns the findings of one check.
func find(list []doctor.Finding, check string) []doctor.Finding {
	return slices.DeleteFunc(slices.Clone(list), func(f doctor.Finding) bool { return f.Check != check })
}

func TestAHealthyDatabaseHasNothingButItsServerToMend(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	if _, err := db.Pool.Exec(t.Context(), `INSERT INTO postern.node (name, ttl, heartbeat_at) VALUES ('n1', '10 s', clock_timestamp())`); err != nil {
		t.Fatal(err)
	}
	found, err := doctor.Database(t.Context(), db.URL, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, check := range []string{"version", "fsync", "full_page_writes", "synchronous_commit", "autovacuum",
		"max_connections", "clock", "old snapshots", "notifications",
		"nodes", "overdue queues", "held transactions", "stuck queues"} {
		if len(find(found, check)) == 0 {
			t.Errorf("nothing is said about %s", check)
		}
	}
	for _, f := range found {
		if f.Found == "" || (f.State == doctor.OK) != (f.Remedy == "") {
			t.Errorf("what is not ok has a remedy: %+v", f)
		}
		// a test's server is fast and forgetful; a laptop's has the defaults
		if f.State == doctor.Bad && !slices.Contains([]string{"fsync", "full_page_writes", "autovacuum", "max_connections"}, f.Check) {
			t.Errorf("%+v", f)
		}
	}
}

// A node that is drained claims nothing: where no other lives, nothing goes out, and doctor says so with the lever.
func TestDrainedNodesDispatchNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	look := func(change string) doctor.Finding {
		t.Helper()
		if _, err := db.Pool.Exec(t.Context(), change); err != nil {
			t.Fatal(err)
		}
		found, err := doctor.Database(t.Context(), db.URL, true)
		if err != nil {
			t.Fatal(err)
		}
		list := find(found, "nodes")
		if len(list) != 1 {
			t.Fatalf("%+v", list)
		}
		return list[0]
	}
	f := look(`INSERT INTO postern.node (name, ttl, heartbeat_at, draining)
		VALUES ('n1', '1 h', clock_timestamp(), true), ('n2', '1 h', clock_timestamp(), false)`)
	if f.State != doctor.OK {
		t.Errorf("one of two is drained: %+v", f)
	}
	f = look(`UPDATE postern.node SET draining = true WHERE name = 'n2'`)
	if f.State != doctor.Bad || !strings.Contains(f.Found, "drained") ||
		!strings.Contains(f.Remedy, "postern resume nodes/n") {
		t.Errorf("both are drained: %+v", f)
	}
}

func TestAQueueOfNotificationsThatFillsIsTold(t *testing.T) {
	t.Parallel()
	states := map[float64]doctor.State{0: doctor.OK, 0.5: doctor.OK, 0.51: doctor.Warn, 0.95: doctor.Bad}
	for usage, want := range states {
		f := doctor.Fullness(usage)
		if f.State != want || (want != doctor.OK) != strings.Contains(f.Remedy, "pg_terminate_backend") {
			t.Errorf("%v: %+v", usage, f)
		}
	}
}

func TestWhatIsPlantedIsFoundWithItsRemedy(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, plant := range []string{
		`INSERT INTO postern.node (name, ttl, heartbeat_at) VALUES ('gone', '10 s', clock_timestamp() - interval '1 h')`,
		`INSERT INTO postern.queue_name (context_id, name, queue_id) VALUES (1, 'stuck', 9001), (1, 'paused', 9002), (1, 'later', 9003)`,
		`INSERT INTO postern.queue (queue_id, context_id, head_seq, cur_seq, tail_seq, head_day, tail_day, fence, phase, entered_at, node_id, node_epoch, paused)
			SELECT id, 1, 1, 1, 1, '2026-01-01', '2026-01-01', 1, 'DISPATCHING', clock_timestamp() - interval '1 h', n.node_id, 1, id = 9002
			FROM postern.node n, unnest(ARRAY[9001, 9002, 9003]) id`,
		`INSERT INTO postern.timer (queue_id, due_at) VALUES (9003, clock_timestamp() + interval '1 h')`,
		`INSERT INTO postern.queue_name (context_id, name, queue_id) VALUES (1, 'blocked', 9004)`,
		`INSERT INTO postern.queue (queue_id, context_id, head_seq, tail_seq, head_day, tail_day, fence, phase, lane,
				entered_at, blocked_since)
			VALUES (9004, 1, 1, 1, '2026-01-01', '2026-01-01', 1, 'HELD', 1,
				clock_timestamp(), clock_timestamp() - interval '2 h')`,
		`INSERT INTO postern.sender (context_id, pool_id, account, gate_failures, gate_reason)
			VALUES (1, 1, 's1', 2, 'no fee payer'),
				(1, 1, 's2', 4, 'not public: allow it with --worker-allow-cidr')`,
		`INSERT INTO postern.dispatcher (context_id, type, settings, gate_failures, gate_reason) VALUES
			(1, 'PAY', '{"worker_url": "http://pay.example/"}', 3, 'nobody listens'), (1, 'NOOP', '{"worker_url": "noop:"}', 0, '')`,
	} {
		if _, err := db.Pool.Exec(t.Context(), plant); err != nil {
			t.Fatal(err)
		}
	}
	other, err := pgx.Connect(t.Context(), db.URL+"&application_name=shop")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(t.Context())
	tx, err := other.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `SELECT 1`); err != nil {
		t.Fatal(err)
	}
	found, err := doctor.Database(t.Context(), db.URL, true)
	if err != nil {
		t.Fatal(err)
	}
	several := map[string]bool{"old snapshots": true, "stuck queues": true}
	for _, c := range []struct {
		check, found, remedy string
		state                doctor.State
	}{
		{"dead nodes", "gone is silent for 1h00m and holds 3 queues", "postern work", doctor.Bad},
		{"nodes", "no process dispatches", "postern work", doctor.Bad},
		{"stuck queues", `queue "stuck" (context system) is DISPATCHING for 1h00m`, "postern why queues/stuck --context system", doctor.Bad},
		{"worker of PAY", "calls to http://pay.example/ come to nothing (3 tries in a row): nobody listens",
			"postern api PATCH /dispatchers/PAY", doctor.Bad},
		{"worker of sender s1", "its worker cannot use it (2 tries in a row): no fee payer",
			"postern unblock senders/s1", doctor.Bad},
		{"worker of sender s2", "not public", "start `postern work` with the range", doctor.Bad},
		{"stuck queues", `queue "blocked" (context system) is HELD for 2h00m`,
			"postern why queues/blocked", doctor.Bad},
		{"old snapshots", `"shop") has a transaction open for`, "pg_terminate_backend(", doctor.Warn},
	} {
		list := find(found, c.check)
		i := slices.IndexFunc(list, func(f doctor.Finding) bool { return strings.Contains(f.Found, c.found) })
		if i < 0 || len(list) != 1 && !several[c.check] || list[i].State != c.state || !strings.Contains(list[i].Remedy, c.remedy) {
			t.Errorf("%s: %+v, want %s", c.check, list, c.found)
		}
	}
	if workers, err := doctor.Workers(t.Context(), db.URL); err != nil || len(workers) != 1 || workers[0] != (doctor.Worker{Type: "PAY", URL: "http://pay.example/"}) {
		t.Errorf("%+v, %v", workers, err)
	}
}

func TestAQueueThatItsNodeLostIsFoundWithItsRemedy(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, plant := range []string{
		`INSERT INTO postern.node (name, ttl, heartbeat_at) VALUES ('n2', '1 h', clock_timestamp())`,
		`INSERT INTO postern.queue_name (context_id, name, queue_id) VALUES (1, 'lost', 9001), (1, 'called', 9002)`,
		`INSERT INTO postern.queue (queue_id, context_id, head_seq, cur_seq, tail_seq, head_day, tail_day, fence, phase, entered_at, node_id, node_epoch)
			SELECT id, 1, 1, 1, 1, '2026-01-01', '2026-01-01', 1, 'DISPATCHING', clock_timestamp() - (9003 - id) * interval '9 min', n.node_id, 1
			FROM postern.node n, unnest(ARRAY[9001, 9002]) id`,
	} {
		if _, err := db.Pool.Exec(t.Context(), plant); err != nil {
			t.Fatal(err)
		}
	}
	found, err := doctor.Database(t.Context(), db.URL, true)
	if err != nil {
		t.Fatal(err)
	}
	if list := find(found, "overdue queues"); len(list) != 1 || list[0].State != doctor.Bad ||
		!strings.HasPrefix(list[0].Found, `queue "lost" (context system) should have left DISPATCHING 8m`) || !strings.Contains(list[0].Remedy, "postern bury nodes/n2") {
		t.Errorf("%+v", list)
	}
}

// Held transactions are one line for each type, and their queues are not called stuck besides.
func TestWhatIsHeldIsNamedByItsType(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, plant := range []string{
		`INSERT INTO postern.queue_name (context_id, name, queue_id) VALUES (1, 'a', 9001), (1, 'b', 9002)`,
		`INSERT INTO postern.task (queue_id, seq, day, context_id, type, data, created_at)
			SELECT id, 1, (clock_timestamp() AT TIME ZONE 'UTC')::date, 1, 'PAY', '{}', clock_timestamp()
			FROM unnest(ARRAY[9001, 9002]) id`,
		`INSERT INTO postern.queue (queue_id, context_id, head_seq, cur_seq, tail_seq, head_day, tail_day, fence, phase,
				entered_at, marks)
			SELECT t.queue_id, 1, 1, 1, 1, t.day, t.day, 1, 'DISPATCHING', clock_timestamp() - interval '2 h', 1
			FROM postern.task t`,
		`INSERT INTO postern.mark (queue_id, seq, kind, at)
			SELECT queue_id, 1, 'unknown', clock_timestamp() - interval '2 h' FROM postern.queue`,
	} {
		if _, err := db.Pool.Exec(t.Context(), plant); err != nil {
			t.Fatal(err)
		}
	}
	found, err := doctor.Database(t.Context(), db.URL, true)
	if err != nil {
		t.Fatal(err)
	}
	list := find(found, "held transactions")
	if len(list) != 1 || list[0].State != doctor.Bad ||
		!strings.HasPrefix(list[0].Found, "2 of type PAY (context system), for up to 2h00m") ||
		!strings.Contains(list[0].Remedy, "postern ls held=true type=PAY") {
		t.Errorf("%+v", list)
	}
	if list := find(found, "stuck queues"); len(list) != 1 || list[0].State != doctor.OK {
		t.Errorf("%+v", list)
	}
}

func TestAnEmptyDatabaseIsLookedAtWithoutOurTables(t *testing.T) {
	t.Parallel()
	found, err := doctor.Database(t.Context(), pgtest.Empty(t).URL, false)
	if err != nil || len(find(found, "version")) != 1 || len(find(found, "nodes")) != 0 {
		t.Errorf("%+v, %v", found, err)
	}
	if _, err := doctor.Database(t.Context(), "postgres://127.0.0.1:1/x", false); err == nil {
		t.Error("a database that is not there was looked at")
	}
}

func TestClocksAreApartWhenTheOtherTimeLiesOutsideOfTheCall(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for apart, want := range map[time.Duration]doctor.State{0: doctor.OK, 500 * time.Millisecond: doctor.OK, 3 * time.Second: doctor.Warn, -3 * time.Second: doctor.Warn,
		time.Minute: doctor.Bad, -time.Minute: doctor.Bad} {
		if f := doctor.Clocks("clock", "it", now.Add(apart), now, now.Add(10*time.Millisecond)); f.State != want {
			t.Errorf("%s apart: %+v", apart, f)
		}
	}
}

// A database of a time when each day had a partition is told how it gets few of them.
func TestManyPartitionsAreToBeMerged(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, c := range []struct {
		days  int
		state doctor.State
	}{{0, doctor.OK}, {70, doctor.Warn}} {
		_, err := db.Pool.Exec(t.Context(),
			`SELECT postern.ensure_days(now()::date - $1::int, now()::date, 'day')`, c.days)
		if err != nil {
			t.Fatal(err)
		}
		found, err := doctor.Database(t.Context(), db.URL, true)
		if err != nil {
			t.Fatal(err)
		}
		f := find(found, "partitions")
		if len(f) != 1 || f[0].State != c.state ||
			(c.state == doctor.Warn) != strings.Contains(f[0].Remedy, "postern partitions merge") {
			t.Errorf("with %d days: %+v", c.days, f)
		}
	}
}

// A server without a free connection is not away: what to raise is told.
func TestTheDoctorTellsThatConnectionsAreUsedUp(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	stranger := db.Stranger(t)
	role := stranger.Config().User
	if _, err := db.Pool.Exec(t.Context(), fmt.Sprintf(`ALTER ROLE %q CONNECTION LIMIT 0`, role)); err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	at.User = url.UserPassword(role, "test")
	_, err = doctor.Database(t.Context(), at.String(), true)
	if err == nil || !strings.Contains(err.Error(), "53300") || !strings.Contains(err.Error(), "CONNECTION LIMIT") {
		t.Errorf("it says %v", err)
	}
}
