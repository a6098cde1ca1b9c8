package doctor

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// version wants PostgreSQL 15, and a server that can be written to.
func version(ctx context.Context, c *pgx.Conn) ([]Finding, error) {
	var number int
	var name string
	var replica bool
	if err := c.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('server_version'), pg_is_in_recovery()`).
		Scan(&number, &name, &replica); err != nil {
		return nil, err
	}
	f := Finding{Check: "version", State: OK, Found: "PostgreSQL " + name}
	switch {
	case number < 150000:
		f.State, f.Remedy = Bad, "upgrade to PostgreSQL 15 or newer"
	case replica:
		f.State, f.Found, f.Remedy = Bad, f.Found+", a standby", "let DATABASE_URL name the primary"
	}
	return []Finding{f}, nil
}

// given are the settings whose values are those that role and database give to everybody. Postern's own sessions ask
// for what they need.
var given = []string{"synchronous_commit", "default_transaction_isolation", "default_transaction_read_only", "timezone"}

// rules are the settings that matter, in the order in which they are told.
var rules = []struct {
	name   string
	wrong  func(value string) bool
	state  State
	remedy string
}{
	{"fsync", off, Bad, "ALTER SYSTEM SET fsync = on, then reload: without it a crash loses or corrupts what was committed"},
	{"full_page_writes", off, Bad, "ALTER SYSTEM SET full_page_writes = on, then reload: without it a crash can tear pages"},
	{"synchronous_commit", off, Warn, "ALTER SYSTEM SET synchronous_commit = on: Postern's own sessions ask for it, those of applications that submit by SQL do not"},
	{"autovacuum", off, Bad, "ALTER SYSTEM SET autovacuum = on, then reload: without it queues become slow, and one day the database stops"},
	{"track_counts", off, Bad, "ALTER SYSTEM SET track_counts = on: autovacuum is blind without it"},
	{"default_transaction_isolation", not("read committed"), Warn, "ALTER DATABASE ... SET default_transaction_isolation = " +
		"'read committed': Postern's own sessions ask for it, those of applications that submit by SQL do not"},
	{"default_transaction_read_only", not("off"), Bad, "somebody ended writes, or a service did whose disk is full: " +
		"ALTER DATABASE ... SET default_transaction_read_only = off lets them begin again"},
	{"wal_level", is("minimal"), Warn, "ALTER SYSTEM SET wal_level = replica and restart: neither standby nor continuous backup is possible without it"},
	{"max_wal_size", less(1 << 30), Warn, "ALTER SYSTEM SET max_wal_size = '4GB', then reload: with less a busy outbox makes a checkpoint every few seconds"},
	{"TimeZone", not("UTC", "Etc/UTC", "GMT"), Warn, "ALTER DATABASE ... SET timezone = 'UTC': psql shows other hours than the API and the logs"},
}

func off(v string) bool { return v == "off" }

func is(bad string) func(string) bool { return func(v string) bool { return v == bad } }

func not(good ...string) func(string) bool {
	return func(v string) bool {
		for _, g := range good {
			if v == g {
				return false
			}
		}
		return true
	}
}

func less(bytes int64) func(string) bool {
	return func(v string) bool {
		n, err := strconv.ParseInt(v, 10, 64)
		return err == nil && n < bytes
	}
}

// settings compares what the database gives to every session with what Postern counts on.
func settings(ctx context.Context, c *pgx.Conn) ([]Finding, error) {
	var found []Finding
	for _, r := range rules {
		var raw, shown string
		if err := c.QueryRow(ctx, `SELECT CASE unit WHEN 'MB' THEN (setting::bigint * 1048576)::text ELSE setting END, current_setting(name)
			FROM pg_settings WHERE name = $1`, r.name).Scan(&raw, &shown); err != nil {
			return nil, err
		}
		f := Finding{Check: r.name, State: OK, Found: shown}
		if r.wrong(raw) {
			f.State, f.Remedy = r.state, r.remedy
		}
		found = append(found, f)
	}
	return found, nil
}

// connections counts what is left of them.
func connections(ctx context.Context, c *pgx.Conn) ([]Finding, error) {
	var most, used int
	if err := c.QueryRow(ctx, `SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
		count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'`).Scan(&most, &used); err != nil {
		return nil, err
	}
	f := Finding{Check: "max_connections", State: OK, Found: fmt.Sprintf("%d of %d in use", used, most)}
	switch {
	case used*10 > most*9:
		f.State = Bad
	case used*10 > most*7, most < 50: // each serve and each work opens 10, and up to 2 more
		f.State = Warn
	}
	if f.State != OK {
		f.Remedy = "ALTER SYSTEM SET max_connections and restart, fewer processes, or less pool_max_conns in DATABASE_URL (10 for serve, 10 for work, unless said, and up to 2 more for each process)"
	}
	return []Finding{f}, nil
}

// clock compares the database's clock, by which Postern decides, with that of this machine.
func clock(ctx context.Context, c *pgx.Conn) ([]Finding, error) {
	var at time.Time
	asked := time.Now()
	if err := c.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&at); err != nil {
		return nil, err
	}
	return []Finding{Clocks("clock", "the database", at, asked, time.Now())}, nil
}

// Clocks compares a time that was asked for somewhere with that of this machine, before and after.
func Clocks(check, whose string, at, asked, answered time.Time) Finding {
	apart := time.Duration(0)
	if at.Before(asked) {
		apart = at.Sub(asked)
	} else if at.After(answered) {
		apart = at.Sub(answered)
	}
	f := Finding{Check: check, State: OK, Found: whose + " and this machine agree"}
	if apart.Abs() > time.Second {
		way := "ahead of"
		if apart < 0 {
			way = "behind"
		}
		f.Found = fmt.Sprintf("%s is %s %s this machine", whose, apart.Abs().Round(100*time.Millisecond), way)
		f.State, f.Remedy = Warn, "let both keep their time by NTP: times in requests, such as not_before, are meant by your clock and decided by the other"
		if apart.Abs() > 30*time.Second {
			f.State = Bad
		}
	}
	return f
}

// notifications looks how full the queue of NOTIFY is, which all databases of the server share. It fills while a
// session that has listened stays in a transaction; once it is full, each commit that notifies is refused.
func notifications(ctx context.Context, c *pgx.Conn) ([]Finding, error) {
	var usage float64
	if err := c.QueryRow(ctx, `SELECT pg_notification_queue_usage()`).Scan(&usage); err != nil {
		return nil, err
	}
	return []Finding{fullness(usage)}, nil
}

func fullness(usage float64) Finding {
	f := Finding{Check: "notifications", State: OK, Found: fmt.Sprintf("%.0f %% of their queue in use", usage*100)}
	if usage > 0.5 {
		f.State = Warn
		f.Remedy = "end the session that listens and has a transaction open (SELECT pid, usename, xact_start, query " +
			"FROM pg_stat_activity WHERE xact_start IS NOT NULL ORDER BY xact_start, in all databases, then " +
			"SELECT pg_terminate_backend(pid)), and find out which role sends so many NOTIFY: " +
			"once the queue is full, commits that notify are refused"
	}
	if usage > 0.9 {
		f.State = Bad
	}
	return f
}
