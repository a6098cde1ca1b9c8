package devpg

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
)

func TestMain(m *testing.M) {
	MaybeChild()
	maybeParent()
	os.Exit(m.Run())
}

// openDir makes a directory that other users can reach, unlike t.TempDir.
func openDir(t *testing.T) string { return openDirIn(t, "/tmp") }

// stateDir is one for data, which is synced to disk: in memory if there is plenty.
func stateDir(t *testing.T) string {
	if roomIn("/dev/shm") >= 2<<30 {
		return openDirIn(t, "/dev/shm")
	}
	return openDir(t)
}

func openDirIn(t *testing.T, base string) string {
	t.Helper()
	dir, err := os.MkdirTemp(base, "postern-devpg-test-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// begin starts a server and stops it at the end of the test.
func begin(t *testing.T, o Options) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// ask runs a statement with one text as its answer.
func ask(t *testing.T, url, stmt string) (answer string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if err := conn.QueryRow(ctx, stmt).Scan(&answer); err != nil {
		t.Fatalf("%s: %v", stmt, err)
	}
	return answer
}

// tell runs a statement.
func tell(t *testing.T, url, stmt string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, stmt); err != nil {
		t.Fatalf("%s: %v", stmt, err)
	}
}

// gone tells whether the server on a data directory has shut down in order.
func gone(data string) bool {
	_, err := os.Stat(filepath.Join(data, "postmaster.pid"))
	return os.IsNotExist(err)
}

// eventually waits for something that another process does.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick, end := time.NewTicker(10*time.Millisecond), time.After(20*time.Second)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not after 20 s: %s", what)
		}
	}
}

func TestAKeptServerHasItsDataPortAndPasswordAgain(t *testing.T) {
	t.Parallel()
	o := Options{StateDir: stateDir(t), Settings: map[string]string{"application_name": "of the caller"}}
	s := beginFour(t, o)
	if !strings.Contains(s.URL, "/postern?") || s.Version == "" {
		t.Errorf("the first start: %+v", s)
	}
	shows(t, s, map[string]string{"fsync": "on", "full_page_writes": "on", "application_name": "of the caller"})
	tell(t, s.URL, "CREATE TABLE kept AS SELECT 'here' AS a")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if !gone(s.DataDir) {
		t.Error("the server outlived Close")
	}
	again := begin(t, o)
	if again.URL != s.URL {
		t.Errorf("the second URL is %s, the first was %s", again.URL, s.URL)
	}
	if got := ask(t, again.URL, "SELECT a FROM kept"); got != "here" {
		t.Errorf("kept row: %q", got)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	anotherMajorIsRefused(t, o, again.DataDir)
}

// beginFour starts a server four times at once. One of them starts it, and is returned; the others join.
func beginFour(t *testing.T, o Options) (first *Server) {
	t.Helper()
	all := make(chan *Server)
	for range 4 {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			s, err := Start(ctx, o)
			if err != nil {
				t.Error(err)
			}
			all <- s
		}()
	}
	for range 4 {
		s := <-all
		switch {
		case s == nil:
		case s.Joined:
			defer s.Close()
		case first == nil:
			first = s
			t.Cleanup(func() { first.Close() })
		default:
			t.Error("two of four at once began a server: want one, which the others join")
			defer s.Close()
		}
	}
	if first == nil {
		t.Fatal("none of four at once began a server")
	}
	return first
}

// anotherMajorIsRefused makes the data another's, which is refused and not touched.
func anotherMajorIsRefused(t *testing.T, o Options, data string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte("9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadDir(data)
	_, err := Start(context.Background(), o)
	if fault.CodeOf(err) != "data_of_another_major" || !strings.Contains(err.Error(), "was made by PostgreSQL 9 and the one to run is") {
		t.Errorf("Start says %v", err)
	}
	if after, _ := os.ReadDir(data); len(after) != len(before) {
		t.Errorf("%d files before, %d after", len(before), len(after))
	}
}

// shows compares settings, and those that every server has; the password is its owner's alone.
func shows(t *testing.T, s *Server, wants map[string]string) {
	t.Helper()
	for name, want := range map[string]string{"synchronous_commit": "on", "TimeZone": "UTC", "listen_addresses": "127.0.0.1", "max_connections": "400",
		"max_locks_per_transaction": "256", "lc_messages": "C", "server_encoding": "UTF8", "password_encryption": "scram-sha-256"} {
		wants[name] = want
	}
	for name, want := range wants {
		if got := ask(t, s.URL, "SELECT current_setting('"+name+"')"); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	info, err := os.Stat(filepath.Join(filepath.Dir(s.DataDir), "password"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the password file: %v (%v)", info, err)
	}
}

func TestResetThrowsAwayWhatIsKeptUnlessItIsInUse(t *testing.T) {
	t.Parallel()
	o := Options{StateDir: stateDir(t)}
	s := beginFour(t, o)
	tell(t, s.URL, "CREATE TABLE kept AS SELECT 'here' AS a")
	anew := o
	anew.Reset = true
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := Start(ctx, anew); fault.CodeOf(err) != "in_use" {
		t.Errorf("reset of data in use says %v", err)
	}
	if got := ask(t, s.URL, "SELECT a FROM kept"); got != "here" {
		t.Errorf("kept row: %q", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := begin(t, anew)
	if got := ask(t, again.URL, "SELECT coalesce(to_regclass('kept')::text, 'gone')"); got != "gone" {
		t.Errorf("after a reset the table is %s", got)
	}
}

func TestAnEphemeralServerLeavesNothing(t *testing.T) {
	t.Parallel()
	s := begin(t, Options{Ephemeral: true, Unsafe: true})
	shows(t, s, map[string]string{"fsync": "off", "full_page_writes": "off", "application_name": ""})
	dir := filepath.Dir(s.DataDir)
	pm, ok := readPostmaster(dir)
	if !ok {
		t.Fatal("no postmaster.pid")
	}
	if _, err := Start(context.Background(), Options{Ephemeral: true, Unsafe: true, Port: pm.port}); err == nil || !strings.Contains(err.Error(), "is taken") {
		t.Errorf("Start on its port says %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, pm.socket} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s is left (%v)", path, err)
		}
	}
}

func TestWhatKilledKeepersLeftIsSwept(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	for _, name := range []string{"postern-pg-left", "postern-pg-held", "postern-pg-strange"} {
		if err := os.Mkdir(filepath.Join(temp, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	held, err := lockFile(context.Background(), filepath.Join(temp, "postern-pg-held", "keeper"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := os.WriteFile(filepath.Join(temp, "postern-pg-left", "keeper"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	names := func() string {
		entries, _ := os.ReadDir(temp)
		var all []string
		for _, e := range entries {
			all = append(all, e.Name())
		}
		return strings.Join(all, " ")
	}
	sweepEphemeral(temp, time.Now())
	if got := names(); got != "postern-pg-held postern-pg-left postern-pg-strange" {
		t.Errorf("what is new was swept too, left: %s", got)
	}
	sweepEphemeral(temp, time.Now().Add(time.Hour))
	if got := names(); got != "postern-pg-held postern-pg-strange" {
		t.Errorf("left after the sweep: %s", got)
	}
}

func TestACancelledStartLeavesNothing(t *testing.T) {
	t.Parallel()
	state := stateDir(t)
	dir := filepath.Join(state, "pg", strconv.Itoa(mustFind(t).major))
	for _, step := range []string{"", "data.new", "data", "data/postmaster.pid"} { // before any, and in the middle of each
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			defer cancel()
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for step != "" && ctx.Err() == nil {
				if _, err := os.Stat(filepath.Join(dir, step)); err == nil {
					return
				}
				<-tick.C
			}
		}()
		s, err := Start(ctx, Options{StateDir: state})
		if err == nil {
			err = s.Close()
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled at %q: %v", step, err)
		}
		cancel()
	}
	begin(t, Options{StateDir: state}) // no lock is held, nothing half made is in the way
}

func TestWithoutPostgreSQLTheRemediesAreNamed(t *testing.T) {
	empty := t.TempDir()
	t.Setenv("PATH", empty)
	was := installed
	installed = []string{empty}
	defer func() { installed = was }()
	t.Setenv("XDG_CACHE_HOME", empty)
	wasRoot := rootState
	rootState = empty
	defer func() { rootState = wasRoot }()
	_, err := Start(context.Background(), Options{Ephemeral: true})
	if fault.CodeOf(err) != "no_postgres" {
		t.Fatalf("Start says %v", err)
	}
	for _, remedy := range []string{"POSTERN_PG_BIN", "DATABASE_URL", "postgresql-server"} {
		if !strings.Contains(err.Error(), remedy) {
			t.Errorf("%q does not name %s", err, remedy)
		}
	}
	if _, err = Start(context.Background(), Options{Ephemeral: true, BinDir: empty}); fault.CodeOf(err) != "no_postgres" ||
		!strings.Contains(err.Error(), "POSTERN_PG_BIN must be the directory of initdb and postgres") {
		t.Errorf("a wrong BinDir: %v", err)
	}
}

// unpacked is a time within which a PostgreSQL is unpacked by a slow machine, with the race detector.
const unpacked = 5 * time.Minute

// startOnce starts a server and stops it at once.
func startOnce(o Options) (*Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), unpacked)
	defer cancel()
	s, err := Start(ctx, o)
	if err == nil {
		err = s.Close()
	}
	return s, err
}
