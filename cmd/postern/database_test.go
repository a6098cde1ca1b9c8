package main

import (
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pgtest"
)

// given are settings that a role or a database may give to each session.
var given = []struct{ name, value string }{
	{"DateStyle", "'German'"},
	{"DateStyle", "'SQL, DMY'"},
	{"IntervalStyle", "'sql_standard'"},
	{"IntervalStyle", "'iso_8601'"},
	{"TimeZone", "'Asia/Tokyo'"},
	{"client_encoding", "'LATIN1'"},
	{"bytea_output", "'escape'"},
	{"extra_float_digits", "-15"},
	{"standard_conforming_strings", "off"},
	{"array_nulls", "off"},
	{"transform_null_equals", "on"},
	{"search_path", "nowhere"},
	{"row_security", "off"},
	{"client_min_messages", "'error'"},
	{"default_transaction_isolation", "'serializable'"},
	{"default_transaction_deferrable", "on"},
	{"synchronous_commit", "off"},
	{"statement_timeout", "'1ms'"},
	{"lock_timeout", "'1ms'"},
	{"idle_in_transaction_session_timeout", "'1ms'"},
	{"idle_session_timeout", "'1ms'"},
}

// Every command works whatever role and database give to each session: Postern asks for the settings that it rests on.
// All settings are given at once, those with two values by the database and by the role; POSTERN_TEST_SETTINGS=each
// tries each by itself besides, which takes minutes.
func TestEveryCommandWorksWhateverRoleAndDatabaseSet(t *testing.T) {
	t.Parallel()
	admin := pgtest.Empty(t) // where the settings are not
	db, role := pgtest.Empty(t), pgtest.Empty(t)
	set := "ALTER DATABASE " + pgx.Identifier{db.Name}.Sanitize()
	if os.Getenv("POSTERN_TEST_SETTINGS") == "each" {
		for _, g := range given {
			t.Run(g.name+"="+g.value, func(t *testing.T) {
				mustExec(t, admin, set+" SET "+g.name+" = "+g.value)
				defer mustExec(t, admin, set+" RESET "+g.name)
				everyCommand(t, db.URL)
			})
		}
	}
	var user string
	mustScan(t, admin, `SELECT quote_ident(current_user)`, &user)
	for _, g := range slices.Backward(given) { // so that the first of two values stays
		mustExec(t, admin, set+" SET "+g.name+" = "+g.value)
	}
	for _, g := range given { // so that the second stays
		mustExec(t, admin, "ALTER ROLE "+user+" IN DATABASE "+role.Name+" SET "+g.name+" = "+g.value)
	}
	t.Run("all of them, of the database", func(t *testing.T) { everyCommand(t, db.URL) })
	t.Run("all of them, of the role", func(t *testing.T) { everyCommand(t, role.URL) })
}

// everyCommand runs each command that opens a database, on one that is empty, and leaves it empty.
func everyCommand(t *testing.T, at string) {
	t.Helper()
	env := append(database(at), "POSTERN_AUTH=none")
	postern(t, env, "migrate", "up").want(t, 0, "up 00001_schemas")
	postern(t, env, "migrate", "status").want(t, 0, "00001_schemas")
	doctor := postern(t, env, "doctor")
	doctor.want(t, doctor.code, "those of this program", "the database and this machine agree", "overdue queues")
	if doctor.code > exitBad || strings.Contains(doctor.stdout, "cannot be seen") {
		t.Errorf("the doctor: %s%s", doctor.stdout, doctor.stderr)
	}
	postern(t, env, "verify", "-o", "json").want(t, 0, `"ok":true`)
	postern(t, env, "quarantine", "status", "-o", "json").want(t, 0, `"items":[]`)
	p, api := serving(t, env, "serve", "--work")
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		res, err := http.Get(strings.TrimPrefix(api, "POSTERN_URL=") + "/readyz")
		if err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				break
			}
		}
		if time.Now().After(end) {
			t.Errorf("serve is not ready: %v", err)
			break
		}
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("serve ended with %d", code)
	}
	postern(t, env, "migrate", "down", "--yes").want(t, 0, "down 00001_schemas")
}

// A database whose encoding is not UTF8 is refused by every command, before anything is written.
func TestADatabaseOfAnotherEncodingIsRefusedByEveryCommand(t *testing.T) {
	t.Parallel()
	admin := pgtest.Empty(t)
	for _, encoding := range []string{"LATIN1", "SQL_ASCII"} {
		name := admin.Name + strings.ToLower(encoding)
		mustExec(t, admin, "CREATE DATABASE "+name+" ENCODING '"+encoding+"' LOCALE 'C' TEMPLATE template0")
		t.Cleanup(func() { mustExec(t, admin, "DROP DATABASE "+name+" WITH (FORCE)") })
		u, err := url.Parse(admin.URL)
		if err != nil {
			t.Fatal(err)
		}
		u.Path = "/" + name
		for _, args := range commands {
			postern(t, database(u.String()), args...).
				want(t, exitBad, "encoding "+encoding, "want UTF8", "TEMPLATE template0")
		}
	}
}

// Commands that write say where nothing can be written, and what to do about it.
func TestCommandsThatWriteSayThatADatabaseCanOnlyBeRead(t *testing.T) {
	t.Parallel()
	admin, full, empty := pgtest.Empty(t), pgtest.New(t), pgtest.Empty(t)
	for _, db := range []*pgtest.DB{full, empty} {
		mustExec(t, admin, "ALTER DATABASE "+pgx.Identifier{db.Name}.Sanitize()+
			" SET default_transaction_read_only = on")
	}
	const remedy = "SET default_transaction_read_only = off"
	postern(t, database(full.URL), "migrate", "up").want(t, 0, "nothing to do")
	postern(t, database(empty.URL), "migrate", "down", "--yes").want(t, 0, "nothing to do")
	postern(t, database(empty.URL), "migrate", "up").want(t, exitBad, "sessions may only read", remedy)
	postern(t, database(full.URL), "migrate", "down", "--yes").want(t, exitBad, "sessions may only read", remedy)
	postern(t, database(full.URL), "partitions", "merge").want(t, exitBad, "sessions may only read")
	postern(t, database(full.URL), "migrate", "status").want(t, 0, "00001_schemas")
}

// commands are those that open a database.
var commands = [][]string{
	{"migrate", "up"},
	{"migrate", "status"},
	{"migrate", "down", "--yes"},
	{"doctor"},
	{"verify"},
	{"quarantine", "status"},
	{"serve", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--auth", "none"},
	{"work", "--metrics-listen", "127.0.0.1:0"},
}

// A parameter that no command can obey is refused by all of them alike, by its name.
func TestEveryParameterOfTheDatabaseURLMeansTheSameToEveryCommand(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, c := range []struct{ parameter, want string }{
		{"default_query_exec_mode=simple_protocol", "cannot be had: Postern's statements are prepared"},
		{"default_query_exec_mode=exec", "default_query_exec_mode=exec cannot be had"},
		{"default_query_exec_mode=describe_exec", "default_query_exec_mode=describe_exec cannot be had"},
		{"default_query_exec_mode=cache_describe", "default_query_exec_mode=cache_describe cannot be had"},
		{"default_query_exec_mode=none_such", "DATABASE_URL cannot be read"},
		{"statement_cache_capacity=0", "statement_cache_capacity=0 is too small: want 512 or more"},
		{"hostaddr=127.0.0.1", "hostaddr is not for Postern: give the address as host"},
		{"sslcrl=/tmp/none", "sslcrl is not for Postern"},
		{"pool_max_con=3", "pool_max_con is not known: want pool_max_conns"},
		{"datestyle=German", "datestyle=German cannot be had"},
		{"options=-c%20datestyle%3DGerman", "datestyle=German cannot be had"},
		{"no_such_setting=1", `the server refuses it: unrecognized configuration parameter "no_such_setting"`},
		{"statement_timeout=soon", "the server refuses it: invalid value for parameter"},
	} {
		for _, args := range commands {
			if args[0] == "migrate" && args[1] == "down" || !pgtest.Turn(c.parameter+strings.Join(args, " ")) {
				continue
			}
			if args[0] == "migrate" && strings.HasPrefix(c.parameter, "statement_timeout") {
				continue // nothing ends its statements, whatever the URL says
			}
			postern(t, database(db.URL+"&"+c.parameter), args...).want(t, exitUsage, c.want)
		}
	}
	for _, parameter := range []string{
		"pool_max_conns=3",
		"pool_min_conns=1&pool_max_conn_lifetime=10m&pool_health_check_period=30s&application_name=shop",
		"default_query_exec_mode=cache_statement&statement_cache_capacity=1024&description_cache_capacity=16" +
			"&keepalives=1&keepalives_idle=5&keepalives_interval=5&keepalives_count=3&tcp_user_timeout=5000",
		"gssencmode=disable&requiressl=0&replication=false&load_balance_hosts=random&sslcompression=0" +
			"&fallback_application_name=shop&client_encoding=utf8&connect_timeout=10&krbsrvname=postgres",
		"target_session_attrs=read-write&ssl_min_protocol_version=TLSv1.3&sslsni=0&channel_binding=prefer" +
			"&min_protocol_version=3.0&require_auth=",
		"options=-c%20work_mem%3D8MB%20--lock-timeout%3D3s&statement_timeout=20s&TimeZone=utc",
	} {
		t.Run(parameter, func(t *testing.T) { everyReader(t, db.URL+"&"+parameter) })
	}
	ignored := []string{"keepalives_idle", "load_balance_hosts", "description_cache_capacity", "krbsrvname", "krbspn"}
	for _, name := range ignored {
		for _, args := range [][]string{{"migrate", "status"}, {"verify"}, {"quarantine", "status"}} {
			r := postern(t, database(db.URL+"&"+name+"=1"), args...)
			if r.want(t, 0, "DATABASE_URL: "+name+" is ignored: "); strings.Count(r.stderr, "is ignored") != 1 {
				t.Errorf("%v: %s", args, r.stderr)
			}
		}
	}
	postern(t, append(database(db.URL), "PGHOSTADDR=127.0.0.1"), "migrate", "status").
		want(t, exitUsage, "PGHOSTADDR is not for Postern: set PGHOST")
	postern(t, append(database(db.URL), "PGTZ=Asia/Tokyo"), "verify", "-o", "json").want(t, 0, `"ok":true`)
}

// everyReader runs the commands that leave a database as it is.
func everyReader(t *testing.T, at string) {
	t.Helper()
	postern(t, database(at), "migrate", "up").want(t, 0, "nothing to do")
	postern(t, database(at), "migrate", "status").want(t, 0, "00001_schemas")
	doctor := postern(t, database(at), "doctor")
	if doctor.want(t, doctor.code, "the database and this machine agree"); doctor.code > exitBad {
		t.Errorf("%s%s", doctor.stdout, doctor.stderr)
	}
	postern(t, database(at), "verify", "-o", "json").want(t, 0, `"ok":true`)
	postern(t, database(at), "quarantine", "status").want(t, 0)
	p, _ := serving(t, append(database(at), "POSTERN_AUTH=none"), "serve", "--work")
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("serve ended with %d", code)
	}
}

func mustExec(t *testing.T, db *pgtest.DB, sql string) {
	t.Helper()
	if _, err := db.Pool.Exec(t.Context(), sql); err != nil && t.Context().Err() == nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func mustScan(t *testing.T, db *pgtest.DB, sql string, to any) {
	t.Helper()
	if err := db.Pool.QueryRow(t.Context(), sql).Scan(to); err != nil {
		t.Fatal(err)
	}
}
