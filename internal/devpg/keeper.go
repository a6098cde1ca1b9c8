package devpg

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// keeper is the child that owns a data directory and its server.
type keeper struct {
	order
	bin    binaries
	socket string
	told   *json.Encoder
	enough context.Context // ends when the parent is gone or somebody asks the keeper to stop
}

// keep is the whole life of a keeper; it returns the exit code.
func keep(text string) int {
	runtime.LockOSThread() // postgres is told when the thread that started it ends: it must be one that stays
	syscall.Umask(0o077)
	os.Unsetenv(keeperEnv)
	enough, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	signal.Ignore(syscall.SIGPIPE) // the parent may be gone while we still talk
	k := &keeper{told: json.NewEncoder(os.Stdout), enough: enough}
	if err := json.Unmarshal([]byte(text), &k.order); err != nil {
		k.told.Encode(said{Error: keeperEnv + " is for Postern itself: " + err.Error()})
		return 2
	}
	if err := k.run(); err != nil {
		k.told.Encode(said{Error: err.Error()})
		return 1
	}
	return 0
}

// run does everything between the order and the end of the server.
func (k *keeper) run() error {
	lock, err := lockFile(k.enough, filepath.Join(k.Dir, "keeper"), true)
	if err != nil {
		return err
	}
	defer lock.Close()
	if k.Ephemeral {
		defer os.RemoveAll(k.Dir)
	}
	if err := k.binaries(); err != nil {
		return err
	}
	if err := k.makeSocketDir(); err != nil {
		return err
	}
	defer os.Remove(k.socket) // empty once the server has stopped
	if err := k.makeData(); err != nil {
		return err
	}
	s, err := k.startServer()
	if err != nil {
		return err
	}
	k.told.Encode(said{Ready: &readiness{Port: s.port, Database: k.database(), Version: k.bin.version}})
	select {
	case <-s.ended:
		return errors.New("PostgreSQL ended by itself: " + k.logTail())
	case <-k.enough.Done():
	}
	if users := k.awaitUsers(s); users != nil {
		defer users.Close()
	}
	return s.stop()
}

// binaries makes sure that there is something to run.
func (k *keeper) binaries() (err error) {
	if k.Download {
		if err := download(k.enough, k.Binaries, k.Repository); err != nil {
			return err
		}
	}
	if k.bin, err = inspect(k.Binaries, nil); err != nil {
		return err
	}
	if k.Download {
		k.told.Encode(said{Log: fmt.Sprintf("PostgreSQL %s is in %s; sha256 of postgres: %s",
			k.bin.version, k.Binaries, fileSum(filepath.Join(k.Binaries, "postgres")))})
	}
	if k.bin.major != k.Major {
		return fmt.Errorf("%s holds PostgreSQL %s, expected %d", k.Binaries, k.bin.version, k.Major)
	}
	return nil
}

// database is the one that the URL names.
func (k *keeper) database() string {
	if k.Ephemeral {
		return "postgres" // saves a start; the user of an ephemeral server makes databases anyway
	}
	return "postern"
}

// makeSocketDir makes a short directory for the socket: paths over 107 bytes fail, and the usual place is closed.
func (k *keeper) makeSocketDir() error {
	sum := sha256.Sum256([]byte(k.Dir))
	k.socket = fmt.Sprintf("/tmp/postern-%d-%s", os.Getuid(), hex.EncodeToString(sum[:6]))
	if err := os.Mkdir(k.socket, 0o700); err != nil && !os.IsExist(err) {
		return err
	}
	info, err := os.Lstat(k.socket)
	if err != nil {
		return err
	}
	st, _ := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || info.Mode().Perm() != 0o700 || st == nil || int(st.Uid) != os.Getuid() {
		return fmt.Errorf("%s is not a directory that only we can write (0700): remove it", k.socket)
	}
	return nil
}

// makeData makes the data directory if it is missing. It appears under its name only when it is whole.
func (k *keeper) makeData() error {
	data, fresh := filepath.Join(k.Dir, "data"), filepath.Join(k.Dir, "data.new")
	if _, err := os.Stat(data); err == nil {
		return checkMajor(data, k.bin.major)
	}
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	if k.Port != 0 && !free(k.Port) { // before all this is done for nothing
		return taken(k.Port)
	}
	password := filepath.Join(k.Dir, "password")
	if err := os.WriteFile(password, []byte(rand.Text()+"\n"), 0o600); err != nil {
		return err
	}
	args := []string{"-D", fresh, "-U", "postern", "-A", "scram-sha-256", "--pwfile", password,
		"--locale=C", "--encoding=UTF8"}
	if k.Unsafe {
		args = append(args, "--no-sync")
	}
	if out, err := exec.CommandContext(k.enough,
		filepath.Join(k.bin.dir, "initdb"), args...).CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, strings.TrimSpace(string(out)))
	}
	if !k.Ephemeral {
		single := exec.CommandContext(k.enough, filepath.Join(k.bin.dir, "postgres"),
			"--single", "-D", fresh, "postgres")
		single.Stdin = strings.NewReader("CREATE DATABASE " + k.database() + "\n")
		if out, err := single.CombinedOutput(); err != nil || strings.Contains(string(out), "ERROR") {
			return fmt.Errorf("create the database: %w: %s", err, strings.TrimSpace(string(out)))
		}
	}
	if err := os.WriteFile(filepath.Join(k.Dir, "version"), []byte(k.bin.version+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, data)
}

// awaitUsers returns when no other process uses the server, holding the lock that keeps new users out until it has
// stopped; or when the server has ended by itself. It returns nil if the server is ephemeral, since only we use that
// one, or if the file of the lock cannot be opened.
func (k *keeper) awaitUsers(s *server) *os.File {
	if k.Ephemeral {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(k.Dir, "users"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil
	}
	for told := false; ; {
		if taken, err := tryLock(f, true); taken || err != nil {
			return f
		}
		if !told {
			k.told.Encode(said{Kept: true})
			told = true
		}
		select {
		case <-s.ended:
			return f
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// fileSum is the sha256 of a file, for people to compare.
func fileSum(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	sum := sha256.New()
	io.Copy(sum, f)
	return hex.EncodeToString(sum.Sum(nil))
}
