package chaos

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg/migrate"
)

// installation is a PostgreSQL of a test's own, whose servers are copied, promoted and killed.
type installation struct {
	t   *testing.T
	bin string
	dir string
	as  *syscall.Credential // who runs the servers, nil for ourselves
}

// database is one server of it, which keeps its port.
type database struct {
	c    *installation
	data string
	port int
	cmd  *exec.Cmd
	gone chan struct{}
}

// newInstallation makes the first server, with Postern's migrations.
func newInstallation(t *testing.T) (*installation, *database) {
	t.Helper()
	c := &installation{t: t, bin: os.Getenv("POSTERN_PG_BIN")}
	if c.bin == "" {
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/pg_basebackup")
		if len(found) == 0 {
			t.Skip("no pg_basebackup under /usr/lib/postgresql, and POSTERN_PG_BIN is not set")
		}
		c.bin = filepath.Dir(found[len(found)-1])
	}
	var err error
	c.dir, err = os.MkdirTemp("", "postern-cluster-")
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("kept %s", c.dir)
			return
		}
		os.RemoveAll(c.dir)
	})
	must(t, os.Chmod(c.dir, 0o755))
	if os.Geteuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			t.Skip("PostgreSQL does not run as root, and there is no user postgres")
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		c.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		must(t, os.Chown(c.dir, uid, gid))
	}
	first := c.database("first")
	c.run("initdb", "-D", first.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	first.start()
	must(t, migrate.Up(t.Context(), first.url(), nil))
	return c, first
}

// database is a server that has no data yet.
func (c *installation) database(name string) *database {
	c.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(c.t, err)
	defer l.Close()
	d := &database{c: c, data: filepath.Join(c.dir, name), port: l.Addr().(*net.TCPAddr).Port}
	c.t.Cleanup(func() { d.stop(syscall.SIGQUIT) })
	return d
}

func (c *installation) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(c.bin, name), args...)
	cmd.Dir = c.dir
	cmd.SysProcAttr = dieWithParent()
	cmd.SysProcAttr.Credential = c.as
	return cmd
}

func (c *installation) run(name string, args ...string) {
	c.t.Helper()
	if out, err := c.command(name, args...).CombinedOutput(); err != nil {
		c.t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

func (d *database) url() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", d.port)
}

// urlOf is the URL of several servers.
func urlOf(all ...*database) string {
	var hosts []string
	for _, d := range all {
		hosts = append(hosts, fmt.Sprintf("127.0.0.1:%d", d.port))
	}
	return "postgres://postgres@" + strings.Join(hosts, ",") + "/postgres?sslmode=disable"
}

// start runs the server until it answers.
func (d *database) start() {
	t := d.c.t
	t.Helper()
	name := filepath.Join(d.c.dir, filepath.Base(d.data)+".log")
	log, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(t, err)
	defer log.Close()
	cmd := d.c.command("postgres", "-D", d.data, "-p", strconv.Itoa(d.port), "-k", d.c.dir,
		"-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200", "-c", "wal_keep_size=256MB",
		"-c", "wal_receiver_status_interval=1s", "-c", "wal_retrieve_retry_interval=200ms",
		"-c", "wal_receiver_timeout=5s", "-c", "hot_standby=on")
	cmd.Stdout, cmd.Stderr = log, log
	must(t, cmd.Start())
	d.cmd, d.gone = cmd, make(chan struct{})
	go func(gone chan struct{}) { _ = cmd.Wait(); close(gone) }(d.gone)
	eventually(t, time.Minute, "the server answers", func() bool {
		select {
		case <-d.gone:
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("the server did not start:\n%s", text)
		default:
		}
		return d.try(`SELECT 1`) == nil
	})
}

// stop ends the server: SIGINT is fast, SIGQUIT immediate, which is a crash.
func (d *database) stop(how syscall.Signal) {
	if d.cmd == nil {
		return
	}
	_ = d.cmd.Process.Signal(how)
	select {
	case <-d.gone:
	case <-time.After(time.Minute):
		_ = d.cmd.Process.Kill()
		<-d.gone
	}
	d.cmd = nil
}

// try runs a statement on a connection of its own.
func (d *database) try(sql string, out ...any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, d.url())
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	if out == nil {
		_, err = c.Exec(ctx, sql)
		return err
	}
	return c.QueryRow(ctx, sql).Scan(out...)
}

func (d *database) do(sql string, out ...any) {
	d.c.t.Helper()
	if err := d.try(sql, out...); err != nil {
		d.c.t.Fatalf("%s: %v", sql, err)
	}
}

// copy makes a base backup while the server runs.
func (d *database) copy(name string, more ...string) *database {
	d.c.t.Helper()
	n := d.c.database(name)
	d.copyInto(n, more...)
	return n
}

func (d *database) copyInto(n *database, more ...string) {
	d.c.t.Helper()
	d.c.run("pg_basebackup",
		append([]string{"-h", "127.0.0.1", "-p", strconv.Itoa(d.port), "-U", "postgres", "-D", n.data,
			"-c", "fast", "-X", "stream", "--no-sync"}, more...)...)
}

// standby makes a server that follows this one. It runs.
func (d *database) standby(name string) *database {
	d.c.t.Helper()
	n := d.copy(name)
	n.follow(d)
	n.start()
	return n
}

// follow makes a stopped server a standby of another one.
func (d *database) follow(primary *database) {
	d.c.t.Helper()
	auto, err := os.OpenFile(filepath.Join(d.data, "postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0o600)
	must(d.c.t, err)
	defer auto.Close()
	_, err = fmt.Fprintf(auto, "primary_conninfo = 'host=127.0.0.1 port=%d user=postgres application_name=%s'\n",
		primary.port, filepath.Base(d.data))
	must(d.c.t, err)
	signal := filepath.Join(d.data, "standby.signal")
	must(d.c.t, os.WriteFile(signal, nil, 0o600))
	if d.c.as != nil {
		must(d.c.t, os.Chown(signal, int(d.c.as.Uid), int(d.c.as.Gid)))
	}
}

// promote makes a standby a primary.
func (d *database) promote() {
	d.c.t.Helper()
	d.do(`SELECT pg_promote(false)`)
	eventually(d.c.t, time.Minute, "the standby is promoted", func() bool {
		var standby bool
		return d.try(`SELECT pg_is_in_recovery()`, &standby) == nil && !standby
	})
}

// eventually waits for a condition.
func eventually(t *testing.T, within time.Duration, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", within, what)
		}
	}
}
