package devpg

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// server is a postgres that the keeper runs.
type server struct {
	cmd   *exec.Cmd
	port  int
	ended chan struct{} // closed when the process is gone
}

// startServer runs postgres until it accepts connections, on the wanted port, or else on that of the last time if it is
// free, or else on another. It tries more than once: a port can be lost between looking and taking, and the processes
// of a server that was killed hold its memory for a moment.
func (k *keeper) startServer() (*server, error) {
	last := filepath.Join(k.Dir, "port")
	port := k.Port
	if port == 0 {
		text, _ := os.ReadFile(last)
		port, _ = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	k.awaitGone()
	var err error
	for range 5 {
		if port == 0 || (k.Port == 0 && !free(port)) {
			if port, err = freePort(); err != nil {
				return nil, err
			}
		}
		if k.Port != 0 && !free(port) {
			return nil, taken(port)
		}
		var s *server
		if s, err = k.tryServer(port); err == nil {
			return s, os.WriteFile(last, []byte(strconv.Itoa(port)+"\n"), 0o600)
		}
		if k.enough.Err() != nil {
			break
		}
		port = k.Port
	}
	return nil, err
}

// tryServer runs postgres once.
func (k *keeper) tryServer(port int) (*server, error) {
	log, err := os.OpenFile(filepath.Join(k.Dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(k.bin.dir, "postgres"), k.arguments(port)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	dieWithParent(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &server{cmd: cmd, port: port, ended: make(chan struct{})}
	go func() {
		cmd.Wait()
		close(s.ended)
	}()
	for {
		if pm, ok := readPostmaster(k.Dir); ok && pm.pid == cmd.Process.Pid && pm.ready {
			return s, nil
		}
		select {
		case <-s.ended:
			return nil, errors.New("PostgreSQL did not start: " + k.logTail())
		case <-k.enough.Done():
			s.stop()
			return nil, errors.New("asked to stop before PostgreSQL was ready")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// arguments are the settings of the server. They are given here and not in its files, so that a kept server follows the
// program.
func (k *keeper) arguments(port int) []string {
	args := []string{"-D", filepath.Join(k.Dir, "data"), "-p", strconv.Itoa(port), "-k", k.socket,
		"-c", "listen_addresses=127.0.0.1", "-c", "timezone=UTC", "-c", "log_timezone=UTC",
		"-c", "max_connections=400", "-c", "max_locks_per_transaction=256"}
	if k.Unsafe {
		args = append(args, "-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_wal_size=128MB")
		// A session whose client falls silent in its authentication holds up each DROP DATABASE until then.
		args = append(args, "-c", "authentication_timeout=15s")
	}
	for name, value := range k.Settings {
		args = append(args, "-c", name+"="+value)
	}
	return args
}

// stop ends the server in the fast way. Not at once, even where the data is thrown away: that would leave pieces of
// shared memory behind.
func (s *server) stop() error {
	s.cmd.Process.Signal(syscall.SIGINT)
	select {
	case <-s.ended:
		return nil
	case <-time.After(30 * time.Second):
		s.cmd.Process.Signal(syscall.SIGQUIT)
		<-s.ended
		return errors.New("PostgreSQL did not stop within 30 s and was told to stop at once; it recovers at its next start")
	}
}

// awaitGone waits for a server that is just stopping in our directory, at most ten seconds; whether a start is safe
// then PostgreSQL itself decides.
func (k *keeper) awaitGone() {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		pm, ok := readPostmaster(k.Dir)
		if !ok || !alive(pm.pid) {
			return
		}
		select {
		case <-k.enough.Done():
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// logTail is the end of the server's log, for an error.
func (k *keeper) logTail() string {
	body, err := os.ReadFile(filepath.Join(k.Dir, "log"))
	if err != nil {
		return err.Error()
	}
	const most = 1000
	if len(body) > most {
		body = body[len(body)-most:]
	}
	return strings.TrimSpace(string(body))
}

// taken says that a port that was asked for cannot be had.
func taken(port int) error {
	return fmt.Errorf("port %d of 127.0.0.1 is taken: stop what holds it, or choose another", port)
}

// free tells whether no process listens on a port now.
func free(port int) bool {
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return false
	}
	l.Close()
	return true
}

// freePort finds a port on which no process listens now.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
