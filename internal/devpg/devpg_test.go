package devpg

import (
	"context"
	"errors"
	"os"
	"path/filepath"
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
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "postern-devpg-test-")
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
	o := Options{StateDir: openDir(t)}
	s := begin(t, o)
	if s.Joined || !strings.Contains(s.URL, "/postern?") || s.Version == "" {
		t.Errorf("the first start: %+v", s)
	}
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
}

func TestSettings(t *testing.T) {
	t.Parallel()
	kept := begin(t, Options{StateDir: openDir(t), Settings: map[string]string{"application_name": "of the caller"}})
	thrown := begin(t, Options{Ephemeral: true, Unsafe: true})
	for _, want := range []struct{ name, kept, thrown string }{
		{"fsync", "on", "off"}, {"full_page_writes", "on", "off"}, {"synchronous_commit", "on", "on"},
		{"TimeZone", "UTC", "UTC"}, {"listen_addresses", "127.0.0.1", "127.0.0.1"}, {"max_connections", "200", "200"},
		{"max_locks_per_transaction", "256", "256"}, {"lc_messages", "C", "C"}, {"server_encoding", "UTF8", "UTF8"},
		{"application_name", "of the caller", ""}, {"password_encryption", "scram-sha-256", "scram-sha-256"},
	} {
		if got := ask(t, kept.URL, "SHOW "+want.name); got != want.kept {
			t.Errorf("kept: %s is %q, want %q", want.name, got, want.kept)
		}
		if got := ask(t, thrown.URL, "SHOW "+want.name); got != want.thrown {
			t.Errorf("ephemeral: %s is %q, want %q", want.name, got, want.thrown)
		}
	}
	for _, s := range []*Server{kept, thrown} {
		info, err := os.Stat(filepath.Join(filepath.Dir(s.DataDir), "password"))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the password file: %v (%v)", info.Mode(), err)
		}
	}
}

func TestAnEphemeralServerLeavesNothing(t *testing.T) {
	t.Parallel()
	s := begin(t, Options{Ephemeral: true})
	dir := filepath.Dir(s.DataDir)
	pm, ok := readPostmaster(dir)
	if !ok {
		t.Fatal("no postmaster.pid")
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

func TestDataOfAnotherMajorIsRefusedAndNotTouched(t *testing.T) {
	t.Parallel()
	o := Options{StateDir: openDir(t)}
	s := begin(t, o)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	version := filepath.Join(s.DataDir, "PG_VERSION")
	if err := os.WriteFile(version, []byte("9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadDir(s.DataDir)
	_, err := Start(context.Background(), o)
	if fault.CodeOf(err) != "data_of_another_major" || !strings.Contains(err.Error(), "was made by PostgreSQL 9 and the one to run is") {
		t.Errorf("Start says %v", err)
	}
	if after, _ := os.ReadDir(s.DataDir); len(after) != len(before) {
		t.Errorf("%d files before, %d after", len(before), len(after))
	}
}

func TestATakenPortIsNamed(t *testing.T) {
	t.Parallel()
	s := begin(t, Options{Ephemeral: true, Unsafe: true})
	cfg, err := pgx.ParseConfig(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Start(context.Background(), Options{Ephemeral: true, Unsafe: true, Port: int(cfg.Port)})
	if err == nil || !strings.Contains(err.Error(), "is taken") {
		t.Errorf("Start says %v", err)
	}
}

func TestACancelledStartLeavesNothing(t *testing.T) {
	t.Parallel()
	state := openDir(t)
	for _, after := range []time.Duration{0, 100, 300, 500, 700} { // in the middle of every step of a start
		ctx, cancel := context.WithTimeout(context.Background(), after*time.Millisecond)
		s, err := Start(ctx, Options{StateDir: state})
		if err == nil {
			err = s.Close()
		} else if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %d ms: %v", after, err)
		}
		cancel()
	}
	begin(t, Options{StateDir: state}) // nobody holds a lock, nothing half made is in the way
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

// startOnce starts a server and stops it at once.
func startOnce(o Options) (*Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := Start(ctx, o)
	if err == nil {
		err = s.Close()
	}
	return s, err
}
