package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// postgres is one PostgreSQL server in a directory of its own. As root it runs as the user postgres, since PostgreSQL
// refuses root.
type postgres struct {
	bin, dir string
	port     int
	user     *syscall.Credential
	log      *os.File
}

// newPostgres makes a cluster with durable settings in dir and starts it.
func newPostgres(ctx context.Context, dir string) (*postgres, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if path := os.Getenv("POSTERN_PG_BIN"); path != "" {
		found = []string{filepath.Join(path, "initdb")}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no PostgreSQL in /usr/lib/postgresql: install one, or set POSTERN_PG_BIN")
	}
	sort.Strings(found)
	p := &postgres{bin: filepath.Dir(found[len(found)-1]), dir: dir, port: freePort()}
	if os.Getuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			return nil, err
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		p.user = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	if err := p.own(dir); err != nil {
		return nil, err
	}
	if err := p.run(ctx, "initdb", "-D", p.data(), "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-instructions"); err != nil {
		return nil, err
	}
	conf := "listen_addresses = '127.0.0.1'\nunix_socket_directories = ''\nmax_connections = 300\nwal_level = replica\n" +
		"hot_standby = on\nmax_wal_size = 4GB\nshared_buffers = 256MB\nlog_min_messages = warning\n"
	if err := appendTo(filepath.Join(p.data(), "postgresql.conf"), conf); err != nil {
		return nil, err
	}
	if err := appendTo(filepath.Join(p.data(), "pg_hba.conf"), "host replication all 127.0.0.1/32 trust\n"); err != nil {
		return nil, err
	}
	return p, p.start(ctx)
}

func (p *postgres) data() string { return filepath.Join(p.dir, "data") }

func (p *postgres) url() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", p.port)
}

// own gives the directory to the user of the server.
func (p *postgres) own(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil || p.user == nil {
		return err
	}
	return os.Chown(dir, int(p.user.Uid), int(p.user.Gid))
}

func (p *postgres) run(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, name), args...)
	cmd.Dir = p.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.user}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// start starts the server and waits until it answers.
func (p *postgres) start(ctx context.Context) error {
	if err := p.run(ctx, "pg_ctl", "-D", p.data(), "-o", fmt.Sprintf("-p %d", p.port), "-l", filepath.Join(p.dir, "log"),
		"-w", "-t", "60", "start"); err != nil {
		return err
	}
	return p.await(ctx)
}

// stop stops the server: smart, fast or immediate.
func (p *postgres) stop(ctx context.Context, mode string) error {
	return p.run(ctx, "pg_ctl", "-D", p.data(), "-m", mode, "-w", "-t", "60", "stop")
}

// crash kills the postmaster, and starts the server again: it recovers from its log.
func (p *postgres) crash(ctx context.Context) error {
	text, err := os.ReadFile(filepath.Join(p.data(), "postmaster.pid"))
	if err != nil {
		return err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	// Backends end within moments of their postmaster; until then the next one refuses to start.
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		if err = p.start(ctx); err == nil || time.Now().After(end) {
			return err
		}
	}
}

func (p *postgres) await(ctx context.Context) error {
	var err error
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var c *pgx.Conn
		if c, err = pgx.Connect(ctx, p.url()); err == nil {
			return c.Close(ctx)
		}
	}
	return err
}

// exec runs one statement on a connection of its own.
func (p *postgres) exec(ctx context.Context, sql string) error {
	c, err := pgx.Connect(ctx, p.url())
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	_, err = c.Exec(ctx, sql)
	return err
}

// backup copies the running server into dir.
func (p *postgres) backup(ctx context.Context, dir string) error {
	if err := p.own(dir); err != nil {
		return err
	}
	return p.run(ctx, "pg_basebackup", "-D", filepath.Join(dir, "data"), "-h", "127.0.0.1", "-p", strconv.Itoa(p.port),
		"-U", "postgres", "-X", "stream", "-c", "fast")
}

func appendTo(path, text string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(text)
	return err
}

func freePort() int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
