package pgtest

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Bouncer starts a PgBouncer before the server of URLs, and returns the URLs behind it: for each, that of the same user
// and database. mode is session, transaction or statement; settings are further lines of pgbouncer.ini. The test is
// skipped where PgBouncer is not installed.
func Bouncer(t testing.TB, mode, settings string, urls ...string) (behind []string) {
	t.Helper()
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		t.Skip("PgBouncer is not installed: the package pgbouncer brings it")
	}
	dir, err := os.MkdirTemp("", "pgbouncer-") // the directories of a test are closed to another user
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	port := freePort(t)
	var users, databases strings.Builder
	for _, at := range urls {
		u, err := url.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		password, _ := u.User.Password()
		fmt.Fprintf(&users, "%q %q\n", u.User.Username(), password)
		fmt.Fprintf(&databases, "%s = host=%s port=%s\n", strings.TrimPrefix(u.Path, "/"), u.Hostname(), u.Port())
		u.Host = net.JoinHostPort("127.0.0.1", port)
		behind = append(behind, u.String())
	}
	ini := fmt.Sprintf("[databases]\n%s[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %s\nunix_socket_dir =\n"+
		"auth_type = trust\nauth_file = %s/users\npool_mode = %s\nmax_client_conn = 500\n%s\n",
		databases.String(), port, dir, mode, settings)
	for name, text := range map[string]string{"users": users.String(), "pgbouncer.ini": ini} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	runBouncer(t, path, dir, net.JoinHostPort("127.0.0.1", port))
	return behind
}

// runBouncer runs PgBouncer until the end of the test, and returns when it answers.
func runBouncer(t testing.TB, path, dir, at string) {
	t.Helper()
	args := []string{"-q", filepath.Join(dir, "pgbouncer.ini")}
	if os.Geteuid() == 0 { // it does not run as root
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		args = append([]string{"-u", "nobody"}, args...)
	}
	cmd := exec.Command(path, args...)
	said := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("pgbouncer said:\n%s", said)
		}
	})
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", at)
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatalf("PgBouncer does not answer: %v", err)
		}
	}
}

// freePort is one on which nothing listens now.
func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
