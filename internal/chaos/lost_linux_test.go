package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/remotetest"
)

// exitDisowned is the exit code of a process whose database went back in time.
const exitDisowned = 5

// fleet is a few processes under a supervisor, which starts each anew when it ends, and clients that post through them.
type fleet struct {
	t      *testing.T
	binary string
	url    string // of the database
	fake   *remotetest.Fake
	ends   chan int // exit codes
	life   context.Context
	stop   func()
	run    sync.WaitGroup

	mu      sync.Mutex
	members []*member
	posted  map[string]bool // uids that were answered with 2xx
	next    atomic.Int64
}

// member is one place in the fleet.
type member struct {
	args []string
	api  string
	mu   sync.Mutex
	cmd  *exec.Cmd
	said *bytes.Buffer
}

// launch starts two serve and two work, and makes a type T whose worker is a fake.
func launch(t *testing.T, url string) *fleet {
	t.Helper()
	b, err := postern()
	must(t, err)
	f := &fleet{
		t:      t,
		binary: b,
		url:    url,
		fake:   remotetest.NewFake(t),
		ends:   make(chan int, 100),
		posted: map[string]bool{},
	}
	f.fake.IncludeAll(true) // a token that a node asks about has been done
	f.fake.Script(dispatches, remotetest.Done(`{}`).Slow(5*time.Millisecond))
	f.life, f.stop = context.WithCancel(context.Background())
	t.Cleanup(func() { f.stop(); f.run.Wait() })
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		f.add(&member{api: "http://" + l.Addr().String(), args: []string{"serve", "--listen", l.Addr().String()}}, l)
	}
	f.add(&member{args: []string{"work"}}, nil)
	f.add(&member{args: []string{"work"}}, nil)
	eventually(t, time.Minute, "the type can be made", func() bool {
		body := fmt.Sprintf(`{"worker_url": %q}`, f.fake.URL())
		return f.call(http.MethodPut, f.members[0].api+"/dispatchers/T", "", body)/100 == 2
	})
	return f
}

func (f *fleet) add(m *member, port net.Listener) {
	f.members = append(f.members, m)
	if port != nil {
		port.Close()
	}
	f.run.Go(func() {
		for f.life.Err() == nil {
			code := f.once(m)
			if f.life.Err() == nil {
				f.ends <- code
				time.Sleep(200 * time.Millisecond)
			}
		}
	})
}

// once is the life of one process.
func (f *fleet) once(m *member) int {
	cmd := exec.CommandContext(f.life, f.binary, m.args...)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+f.url, "POSTERN_AUTH=none", "POSTERN_METRICS_LISTEN=off",
		"POSTERN_WORKER_ALLOW_CIDR=127.0.0.0/8", "POSTERN_SHUTDOWN_GRACE=1s", "POSTERN_LOG_FORMAT=text")
	cmd.SysProcAttr = dieWithParent()
	said := &bytes.Buffer{}
	cmd.Stderr = said
	m.mu.Lock()
	err := cmd.Start()
	m.cmd, m.said = cmd, said
	m.mu.Unlock()
	if err != nil {
		f.t.Error(err)
		return -1
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		f.t.Error(err)
	}
	switch {
	case f.life.Err() == nil:
		f.t.Logf("%s ended with %d:\n%s", m.args[0], cmd.ProcessState.ExitCode(), tail(said.String(), 1000))
	case f.t.Failed(): // short, so that the fault is still in sight
		f.t.Logf("%s: ...%s", m.args[0], tail(said.String(), 200))
	}
	return cmd.ProcessState.ExitCode()
}

// tail is the end of a text.
func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// restart ends every process in the ordinary way; the supervisor starts it anew. It waits until all are there again: a
// process that begins while no server takes writes ends at once, as it should.
func (f *fleet) restart(d *database) {
	f.t.Helper()
	nodes, now := 0, 0
	d.do(`SELECT count(*) FROM postern.node`, &nodes)
	for _, m := range f.members {
		m.mu.Lock()
		_ = m.cmd.Process.Signal(syscall.SIGTERM)
		m.mu.Unlock()
	}
	for range f.members {
		select {
		case code := <-f.ends:
			if code != 0 {
				f.t.Errorf("a process that was asked to stop ended with %d", code)
			}
		case <-time.After(time.Minute):
			f.t.Fatal("a process does not stop")
		}
	}
	eventually(f.t, time.Minute, "all processes are there again", func() bool {
		for _, m := range f.members {
			if m.api != "" && f.call(http.MethodGet, m.api+"/readyz", "", "") != http.StatusOK {
				return false
			}
		}
		return d.try(`SELECT count(*) FROM postern.node`, &now) == nil && now == nodes+2
	})
}

// call sends a request and returns its status, 0 for none.
func (f *fleet) call(method, url, key, body string) int {
	ctx, cancel := context.WithTimeout(f.life, 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		f.t.Error(err)
		return 0
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	res.Body.Close()
	return res.StatusCode
}

// load posts from a few clients until the returned function is called. Each repeats under its key what was not
// answered.
func (f *fleet) load(clients int) (end func()) {
	over := make(chan struct{})
	var posting sync.WaitGroup
	for c := range clients {
		posting.Go(func() {
			for i := 0; ; i++ {
				uid := fmt.Sprintf("u%d", f.next.Add(1))
				body := fmt.Sprintf(`{"queue": "q%d", "type": "T", "data": {"uid": %q}}`, (c*7+i)%20, uid)
				for try := 0; ; try++ {
					select {
					case <-over:
						return
					default:
					}
					if s := f.call(http.MethodPost, f.members[(c+try)%2].api+"/transactions", uid, body); s/100 == 2 {
						f.mu.Lock()
						f.posted[uid] = true
						f.mu.Unlock()
						break
					}
					time.Sleep(50 * time.Millisecond)
				}
			}
		})
	}
	return func() { close(over); posting.Wait() }
}

func (f *fleet) accepted() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.posted)
}

// awaitLoad waits until so many more were accepted.
func (f *fleet) awaitLoad(n int) {
	f.t.Helper()
	from := f.accepted()
	eventually(f.t, 2*time.Minute, fmt.Sprintf("%d more are accepted", n), func() bool {
		return f.accepted() >= from+n
	})
}

// awaitAbandoned waits until every process has ended with the exit code, and checks that everything is in quarantine.
func (f *fleet) awaitAbandoned(d *database) {
	f.t.Helper()
	for range f.members {
		select {
		case code := <-f.ends:
			if code != exitDisowned {
				f.t.Errorf("a process under which the database went back ended with %d, want %d", code, exitDisowned)
			}
		case <-time.After(time.Minute):
			f.t.Fatal("a process under which the database went back does not end")
		}
	}
	var reason string
	var from, until *time.Time
	d.do(`SELECT reason, lost_from, lost_until FROM postern.quarantine WHERE context_id IS NULL AND type IS NULL`,
		&reason, &from, &until)
	f.t.Logf("quarantine: %s; lost from %v until %v", reason, from, until)
	if !strings.Contains(reason, "went back in time") || from == nil || until == nil || !from.Before(*until) {
		f.t.Errorf("quarantine says %q, lost from %v until %v", reason, from, until)
	}
}

// undisturbed checks that no process ended and nothing is in quarantine.
func (f *fleet) undisturbed(d *database) {
	f.t.Helper()
	select {
	case code := <-f.ends:
		f.t.Errorf("a process ended with %d although nothing was lost", code)
	default:
	}
	var n int
	d.do(`SELECT count(*) FROM postern.quarantine`, &n)
	if n != 0 {
		f.t.Errorf("something is in quarantine although nothing was lost")
	}
}

// settled waits until all that was accepted has ended, DONE and executed once.
func (f *fleet) settled(d *database) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	eventually(f.t, 3*time.Minute, "everything has ended", func() bool {
		return d.try(`SELECT count(*) FROM postern.task t WHERE NOT EXISTS (SELECT FROM postern.outcome o
			WHERE (o.queue_id, o.seq, o.day) = (t.queue_id, t.seq, t.day))`, &n) == nil && n == 0
	})
	uids := `'` + strings.Join(keys(f.posted), `','`) + `'`
	d.do(`SELECT count(*) FROM postern.task t JOIN postern.outcome o USING (queue_id, seq, day)
		WHERE o.state = 'DONE' AND t.uid IN (`+uids+`)`, &n)
	if n != len(f.posted) {
		f.t.Errorf("%d of %d that were accepted are DONE", n, len(f.posted))
	}
	f.executed(d)
}

// executed checks that nothing is DONE that the worker has not executed, whatever it was told about its token before.
func (f *fleet) executed(d *database) {
	f.t.Helper()
	done := map[string]int{}
	for _, c := range f.fake.Calls(dispatches) {
		if !c.Repeat {
			done[c.UID]++
		}
	}
	var list []string
	d.do(`SELECT coalesce(array_agg(t.uid), '{}') FROM postern.task t JOIN postern.outcome o USING (queue_id, seq, day)
		WHERE o.state = 'DONE'`, &list)
	for _, uid := range list {
		if done[uid] == 0 {
			f.t.Errorf("%s is DONE and was not executed", uid)
		}
	}
	f.t.Logf("%d DONE, %d calls", len(list), len(f.fake.Calls(dispatches)))
}

func keys(m map[string]bool) (all []string) {
	for k := range m {
		all = append(all, k)
	}
	return all
}

// TestARestoreUnderRunningProcesses takes a base backup in mid-load and starts it in the place of the server, under
// the same address.
func TestARestoreUnderRunningProcesses(t *testing.T) {
	_, first := newInstallation(t)
	f := launch(t, first.url())
	end := f.load(6)
	f.awaitLoad(150)
	old := first.copy("backup")
	f.awaitLoad(300)
	first.stop(syscall.SIGQUIT)
	must(t, os.RemoveAll(first.data))
	first.data = old.data
	calls := len(f.fake.Calls(dispatches))
	first.start()
	f.awaitAbandoned(first)
	f.awaitLoad(50) // posts are taken again
	end()
	f.executed(first)
	t.Logf("%d calls before the restore, %d after it", calls, len(f.fake.Calls(dispatches))-calls)
}

// TestALaggingStandbyIsPromoted kills a primary whose asynchronous standby has not got the last of it.
func TestALaggingStandbyIsPromoted(t *testing.T) {
	_, first := newInstallation(t)
	second := first.standby("second")
	f := launch(t, urlOf(first, second))
	end := f.load(6)
	f.awaitLoad(150)
	second.do(`ALTER SYSTEM SET primary_conninfo = ''`)
	second.do(`SELECT pg_reload_conf()`)
	eventually(t, time.Minute, "the standby follows no more", func() bool {
		var n int
		return first.try(`SELECT count(*) FROM pg_stat_replication`, &n) == nil && n == 0
	})
	f.awaitLoad(200)
	first.stop(syscall.SIGQUIT)
	second.promote()
	f.awaitAbandoned(second)
	f.awaitLoad(50)
	end()
	f.executed(second)
}

// TestFailoversThatLoseNothing goes to and fro between two servers, each the synchronous standby of the other: in the
// ordinary way, and by a crash. POSTERN_SWITCHOVERS says how often; after every fourth all processes are restarted.
func TestFailoversThatLoseNothing(t *testing.T) {
	times := 4
	if s := os.Getenv("POSTERN_SWITCHOVERS"); s != "" {
		var err error
		times, err = strconv.Atoi(s)
		must(t, err)
	}
	_, primary := newInstallation(t)
	primary.do(`ALTER SYSTEM SET synchronous_standby_names = '*'`)
	standby := primary.standby("second")
	primary.do(`SELECT pg_reload_conf()`)
	f := launch(t, urlOf(primary, standby))
	end := f.load(4)
	for n := range times {
		f.awaitLoad(60)
		if n%2 == 0 {
			primary.stop(syscall.SIGINT)
			standby.promote()
			primary.follow(standby)
		} else {
			primary.stop(syscall.SIGQUIT)
			standby.promote()
			must(t, os.RemoveAll(primary.data))
			standby.copyInto(primary)
			primary.follow(standby)
		}
		primary.start()
		primary, standby = standby, primary
		f.awaitLoad(20)
		f.undisturbed(primary)
		if n%4 == 3 {
			f.restart(primary)
		}
		t.Logf("switchover %d of %d, %d accepted", n+1, times, f.accepted())
	}
	end()
	f.settled(primary)
	f.undisturbed(primary)
}

// TestAnOldPrimaryThatComesBack starts the old primary beside the promoted one, each taking writes.
func TestAnOldPrimaryThatComesBack(t *testing.T) {
	_, first := newInstallation(t)
	first.do(`ALTER SYSTEM SET synchronous_standby_names = '*'`)
	second := first.standby("second")
	first.do(`SELECT pg_reload_conf()`)
	f := launch(t, urlOf(first, second))
	end := f.load(4)
	f.awaitLoad(60)
	first.stop(syscall.SIGQUIT)
	second.do(`ALTER SYSTEM SET synchronous_standby_names = ''`)
	second.do(`SELECT pg_reload_conf()`)
	second.promote()
	f.awaitLoad(60)
	first.start()
	for range 3 {
		second.do(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'postern'`)
		f.awaitLoad(40)
	}
	end()
	f.settled(second)
	f.undisturbed(second)
	// A process that opens a connection asks each host who it is, so that one may be there for a moment; none stays.
	eventually(t, 10*time.Second, "no connection to the old primary", func() bool {
		n := 1
		first.do(`SELECT count(*) FROM pg_stat_activity WHERE application_name = 'postern'`, &n)
		return n == 0
	})

	cmd := exec.Command(f.binary, "work")
	cmd.Env = append(os.Environ(), "DATABASE_URL="+f.url, "POSTERN_METRICS_LISTEN=off")
	out, _ := cmd.CombinedOutput()
	for _, want := range []string{"two servers take writes", fmt.Sprintf("127.0.0.1:%d (timeline 1)", first.port),
		fmt.Sprintf("127.0.0.1:%d (timeline 2)", second.port)} {
		if code := cmd.ProcessState.ExitCode(); code != exitDisowned || !strings.Contains(string(out), want) {
			t.Errorf("a process that starts ends with %d, want %d and %q:\n%s", code, exitDisowned, want, out)
		}
	}
}

// TestRestartsOfTheDatabaseChangeNothing restarts it in the fast way and by a crash, under load.
func TestRestartsOfTheDatabaseChangeNothing(t *testing.T) {
	_, first := newInstallation(t)
	f := launch(t, first.url())
	end := f.load(6)
	for n, how := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGINT, syscall.SIGQUIT} {
		f.awaitLoad(60)
		first.stop(how)
		first.start()
		f.awaitLoad(20)
		f.undisturbed(first)
		t.Logf("restart %d, %d accepted", n+1, f.accepted())
	}
	end()
	f.settled(first)
	f.undisturbed(first)
	var nodes int
	first.do(`SELECT count(*) FROM postern.node`, &nodes)
	if nodes != 2 {
		t.Errorf("there were %d nodes, want the two that were started", nodes)
	}
}
