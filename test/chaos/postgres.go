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

	faketime string        // the library that moves its clock, "" for none
	offset   time.Duration // how far its clock is off
	disks    map[string]string
	noDisks  string // why there are none
}

// wants is what a run needs of its server.
type wants struct {
	disks, clock bool
	settings     string
}

// newPostgres makes a cluster with durable settings in dir and starts it.
func newPostgres(ctx context.Context, dir string, want wants) (*postgres, error) {
	p, err := findPostgres(dir)
	if err != nil {
		return nil, err
	}
	if want.clock {
		if p.faketime = findFaketime(); p.faketime != "" {
			p.offset = -time.Hour
		}
	}
	args := []string{"-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-instructions"}
	walSize := "4GB"
	if want.disks {
		if err := p.mount(); err != nil {
			p.noDisks = err.Error()
			p.unmount()
		} else {
			walSize = "128MB"
			args = append(args, "-X", filepath.Join(p.disks["wal"], "wal"))
		}
	}
	if err := p.run(ctx, "initdb", append([]string{"-D", p.data()}, args...)...); err != nil {
		return nil, err
	}
	conf := "listen_addresses = '127.0.0.1'\nunix_socket_directories = ''\nmax_connections = 300\nwal_level = replica\n" +
		"hot_standby = on\nmax_wal_size = " + walSize + "\nshared_buffers = 256MB\nlog_min_messages = warning\n" + want.settings
	if err := appendTo(filepath.Join(p.data(), "postgresql.conf"), conf); err != nil {
		return nil, err
	}
	if err := appendTo(filepath.Join(p.data(), "pg_hba.conf"), "host replication all 127.0.0.1/32 trust\n"); err != nil {
		return nil, err
	}
	if err := p.start(ctx); err != nil {
		return nil, err
	}
	for _, sql := range []string{
		`CREATE ROLE postern LOGIN`, `CREATE ROLE stranger LOGIN`, `CREATE DATABASE postern OWNER postern`,
	} {
		if err := p.execIn(ctx, "postgres", sql); err != nil {
			return nil, err
		}
	}
	return p, p.exec(ctx, `CREATE SCHEMA chaos; CREATE TABLE chaos.note (text text)`)
}

// findPostgres finds the programs of the newest PostgreSQL that is installed.
func findPostgres(dir string) (*postgres, error) {
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
	return p, p.own(dir)
}

func findFaketime() string {
	if path := os.Getenv("POSTERN_FAKETIME"); path != "" {
		return path
	}
	found, _ := filepath.Glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
	if len(found) == 0 {
		return ""
	}
	return found[0]
}

// mount gives data and log a small file system each, in files.
func (p *postgres) mount() error {
	if os.Getuid() != 0 {
		return fmt.Errorf("this is not root")
	}
	p.disks = map[string]string{}
	for name, size := range map[string]int64{"data": 600 << 20, "wal": 400 << 20} {
		image, at := filepath.Join(p.dir, name+".img"), filepath.Join(p.dir, name+"-disk")
		if err := os.WriteFile(image, nil, 0o600); err != nil {
			return err
		}
		if err := os.Truncate(image, size); err != nil {
			return err
		}
		if err := p.own(at); err != nil {
			return err
		}
		for _, cmd := range []*exec.Cmd{exec.Command("mkfs.ext4", "-q", "-F", image), exec.Command("mount", "-o", "loop", image, at)} {
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w: %s", cmd.Args[0], err, out)
			}
		}
		p.disks[name] = at
		if err := p.own(at); err != nil {
			return err
		}
	}
	return nil
}

func (p *postgres) unmount() {
	for _, at := range p.disks {
		exec.Command("umount", "-l", at).Run()
	}
	p.disks = nil
}

func (p *postgres) data() string {
	if p.disks != nil {
		return filepath.Join(p.disks["data"], "data")
	}
	return filepath.Join(p.dir, "data")
}

// said is how often the log of the server has a text.
func (p *postgres) said(text string) int {
	log, _ := os.ReadFile(filepath.Join(p.dir, "log"))
	return strings.Count(string(log), text)
}

// url is the database of Postern for the harness, whose sessions a superuser has.
func (p *postgres) url() string { return p.urlOf("postern") }

func (p *postgres) urlOf(database string) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable&connect_timeout=5", p.port, database)
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
	if p.faketime != "" && name == "pg_ctl" {
		cmd.Env = append(os.Environ(), "LD_PRELOAD="+p.faketime, "FAKETIME_DONT_FAKE_MONOTONIC=1", "FAKETIME_DONT_RESET=1",
			fmt.Sprintf("FAKETIME=%+d", int(p.offset.Seconds())))
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// start starts the server and waits until it answers. Where the last one was killed, its backends may still be there,
// and the next one refuses to start for as long.
func (p *postgres) start(ctx context.Context) (err error) {
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		err = p.run(ctx, "pg_ctl", "-D", p.data(), "-o", fmt.Sprintf("-p %d", p.port), "-l", filepath.Join(p.dir, "log"),
			"-w", "-t", "60", "start")
		if err == nil || p.await(ctx, 0) == nil {
			return p.await(ctx, 30*time.Second)
		}
		if time.Now().After(end) {
			return err
		}
	}
}

// stop stops the server: smart, fast or immediate.
func (p *postgres) stop(ctx context.Context, mode string) error {
	return p.run(ctx, "pg_ctl", "-D", p.data(), "-m", mode, "-w", "-t", "60", "stop")
}

// kill kills the server: the postmaster and each process of it.
func (p *postgres) kill() error {
	text, err := os.ReadFile(filepath.Join(p.data(), "postmaster.pid"))
	if err != nil {
		return err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		return err
	}
	// No process of it is left: one that waits for a lock of another that is gone would keep the next server away.
	_ = syscall.Kill(pid, syscall.SIGSTOP) // it starts none meanwhile, but one that it was about to
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		left := childrenOf(pid)
		for _, child := range left {
			_ = syscall.Kill(child, syscall.SIGKILL)
		}
		if len(left) == 0 {
			break
		}
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// childrenOf lists the processes that a process has started and that have not ended, by /proc; none where there is no
// such directory.
func childrenOf(pid int) (list []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range dirs {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(text), ") ") // state, then the parent
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(pid) && fields[0] != "Z" {
			child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			list = append(list, child)
		}
	}
	return list
}

// await waits until the server answers.
func (p *postgres) await(ctx context.Context, d time.Duration) (err error) {
	for end := time.Now().Add(d); ; time.Sleep(50 * time.Millisecond) {
		var c *pgx.Conn
		if c, err = pgx.Connect(ctx, p.urlOf("postgres")); err == nil {
			return c.Close(ctx)
		}
		if time.Now().After(end) {
			return err
		}
	}
}

// exec runs statements on a connection of their own.
func (p *postgres) exec(ctx context.Context, sql string) error { return p.execIn(ctx, "postern", sql) }

func (p *postgres) execIn(ctx context.Context, database, sql string) error {
	_, err := p.changeIn(ctx, database, sql)
	return err
}

// changeIn is exec in a database, and returns how many rows it has changed.
func (p *postgres) changeIn(ctx context.Context, database, sql string) (int64, error) {
	c, err := pgx.Connect(ctx, p.urlOf(database))
	if err != nil {
		return 0, err
	}
	defer c.Close(ctx)
	done, err := c.Exec(ctx, sql)
	return done.RowsAffected(), err
}

// backup copies the running server into the data directory of another.
func (p *postgres) backup(ctx context.Context, to *postgres) error {
	return to.run(ctx, "pg_basebackup", "-D", to.data(), "-h", "127.0.0.1", "-p", strconv.Itoa(p.port), "-U", "postgres",
		"-X", "stream", "-c", "fast")
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
