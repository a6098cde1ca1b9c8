package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/pgtest"
)

// runnerTTL is the shortest that a runner may have.
const runnerTTL = 3 * time.Second

// workshop is an installation of one process, and runners.
type workshop struct {
	t      *testing.T
	binary string
	api    string
	db     *pgtest.DB
	dir    string
	marker string
	made   int
}

func newWorkshop(t *testing.T) *workshop {
	t.Helper()
	b, err := postern()
	must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	w := &workshop{t: t, binary: b, api: "http://" + l.Addr().String(), db: pgtest.New(t)}
	w.marker = fmt.Sprintf("chaos-%d-%d", os.Getpid(), time.Now().UnixNano())
	w.dir, err = os.MkdirTemp("", "postern-runners-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(w.dir) })
	must(t, os.Chmod(w.dir, 0o711)) // scripts have users of their own
	l.Close()
	w.start("serve", "--listen", l.Addr().String(), "--work")
	eventually(t, time.Minute, "the installation is ready", func() bool {
		res, err := http.Get(w.api + "/readyz")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
	w.ask("PUT", "/dispatchers/job.sh", `{"worker_url": "run:"}`)
	return w
}

// start starts a process of the program, which ends with the test.
func (w *workshop) start(args ...string) *exec.Cmd {
	w.t.Helper()
	cmd := exec.Command(w.binary, args...)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+w.db.URL, "POSTERN_AUTH=none", "POSTERN_METRICS_LISTEN=off",
		"POSTERN_URL="+w.api, "POSTERN_SHUTDOWN_GRACE=1s", "POSTERN_LOG_FORMAT=text", "POSTERN_LOG_LEVEL=warn")
	cmd.SysProcAttr = dieWithParent()
	cmd.Stderr = w.t.Output()
	must(w.t, cmd.Start())
	w.t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd
}

// runner starts a runner under a name that no other has had.
func (w *workshop) runner() (name string, cmd *exec.Cmd) {
	w.t.Helper()
	w.made++
	name = fmt.Sprintf("r%d", w.made)
	w.ask("PUT", "/runners/"+name, fmt.Sprintf(`{"slots": 1, "script_types": ["sh"], "ttl": %q}`, runnerTTL))
	cmd = w.start("runner", "--name", name, "--types", "sh", "--interpreter", "sh=/bin/sh {file}",
		"--isolation", isolation(w.t), "--state", filepath.Join(w.dir, name), "--first-uid", strconv.Itoa(65000+w.made))
	eventually(w.t, time.Minute, "the runner has registered", func() bool {
		return w.one(`SELECT coalesce(max(epoch), 0)::text FROM postern.runner WHERE name = $1`, name) != "0"
	})
	return name, cmd
}

// isolation is what this machine gives.
func isolation(t *testing.T) string {
	if err := exec.Command("unshare", "-Urnmpf", "true").Run(); err != nil {
		t.Logf("no user namespaces here (%v): without isolation", err)
		return "off"
	}
	return "partial"
}

// ask makes a call, and returns a field of the answer.
func (w *workshop) ask(method, path, body string, field ...string) string {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.api+path, bytes.NewReader([]byte(body)))
	must(w.t, err)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	must(w.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	must(w.t, err)
	if res.StatusCode/100 != 2 {
		w.t.Fatalf("%s %s: %d %s", method, path, res.StatusCode, text)
	}
	var out map[string]any
	if len(field) == 0 || json.Unmarshal(text, &out) != nil {
		return string(text)
	}
	return fmt.Sprint(out[field[0]])
}

// one reads one text.
func (w *workshop) one(sql string, args ...any) (text string) {
	w.t.Helper()
	must(w.t, w.db.Pool.QueryRow(w.t.Context(), sql, args...).Scan(&text))
	return text
}

// job posts a job that sleeps, and returns its id and the one of its try.
func (w *workshop) job(seconds int) (id, try string) {
	w.t.Helper()
	id = w.ask("POST", "/jobs", fmt.Sprintf(`{"script_type": "sh", "script": "exec sleep %d", "timeout": 900,
		"env_vars": {"MARKER": %q}}`, seconds, w.marker), "id")
	eventually(w.t, time.Minute, "a runner has the job", func() bool { return w.holder(id) != "" })
	return id, w.one(`SELECT try_id::text FROM postern.job_try WHERE job_id = $1`, id)
}

// holder is the runner that holds a job now.
func (w *workshop) holder(job string) string {
	return w.one(`SELECT coalesce(max(r.name), '') FROM postern.job_try t JOIN postern.runner r USING (runner_id)
		WHERE t.job_id = $1 AND t.state = 'Held'`, job)
}

// scripts counts the processes of scripts.
func (w *workshop) scripts() (n int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		if comm, _ := os.ReadFile(d + "/comm"); strings.TrimSpace(string(comm)) != "sleep" {
			continue
		}
		if text, _ := os.ReadFile(d + "/environ"); bytes.Contains(text, []byte("MARKER="+w.marker)) {
			n++
		}
	}
	return n
}

// until waits for a condition, and returns how long that took since a moment.
func (w *workshop) until(since time.Time, what string, is func() bool) time.Duration {
	w.t.Helper()
	for end := since.Add(runnerTTL + time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("not within %s: %s", time.Since(since), what)
		}
	}
	return time.Since(since)
}

// times is how often a test does what it does: once, unless POSTERN_RUNNER_KILLS says more. Then it measures, and
// judges the times, too.
func times(t *testing.T) (n int, measures bool) {
	t.Helper()
	s := os.Getenv("POSTERN_RUNNER_KILLS")
	if s == "" {
		return 1, false
	}
	n, err := strconv.Atoi(s)
	must(t, err)
	return n, true
}

// tell writes the figures of some times, and whether they keep what is promised.
func tell(t *testing.T, what string, list []time.Duration, promise time.Duration, judges bool) {
	t.Helper()
	slices.Sort(list)
	at := func(q float64) time.Duration {
		return list[min(len(list)-1, int(math.Ceil(q*float64(len(list))))-1)].Round(time.Millisecond)
	}
	t.Logf("%s: n %d, p50 %s, p99 %s, largest %s; promised %s", what, len(list), at(0.5), at(0.99), at(1), promise)
	if judges && at(0.99) > promise {
		t.Errorf("%s: p99 %s, promised %s", what, at(0.99), promise)
	}
}

// A runner is killed while it executes a job. Nothing of the script is left, and another runner has the job within the
// ttl and a second: the same attempt under a higher fence, with one lapse more. POSTERN_RUNNER_KILLS=50 measures.
func TestAKilledRunnerLosesItsJobsToAnother(t *testing.T) {
	n, measures := times(t)
	w := newWorkshop(t)
	name, cmd := w.runner()
	var moved, gone []time.Duration
	for range n {
		id, try := w.job(900)
		holder := w.holder(id)
		if holder != name {
			t.Fatalf("%q has the job, and %q is the only one", holder, name)
		}
		fence := w.one(`SELECT fence::text FROM postern.job_try WHERE try_id = $1`, try)
		w.until(time.Now(), "the script runs", func() bool { return w.scripts() == 1 })
		next, heir := w.runner()
		killed := time.Now()
		must(t, cmd.Process.Kill())
		gone = append(gone, w.until(killed, "nothing of its script is left", func() bool { return w.scripts() == 0 }))
		moved = append(moved, w.until(killed, "another has the job", func() bool { return w.holder(id) == next }))
		got := w.one(`SELECT format('%s %s %s %s', count(*), max(attempt), max(lapses), max(fence) > $2::bigint)
			FROM postern.job_try WHERE job_id = $1`, id, fence)
		if got != "1 1 1 t" {
			t.Errorf("tries, attempt, lapses, fence above: %s, want 1 1 1 t", got)
		}
		w.ask("POST", "/jobs/"+id+"/cancel", `{"reason": "seen"}`)
		w.until(time.Now(), "the job has ended", func() bool { return w.holder(id) == "" && w.scripts() == 0 })
		name, cmd = next, heir
	}
	tell(t, "its job is with another after", moved, runnerTTL+time.Second, measures)
	tell(t, "its script is gone after", gone, time.Second, measures)
}

// A runner is frozen for longer than its ttl, and wakes up when another has its job: it kills its script, and what it
// says changes nothing. POSTERN_RUNNER_KILLS=50 measures.
func TestARunnerThatWakesUpChangesNothing(t *testing.T) {
	n, measures := times(t)
	w := newWorkshop(t)
	name, cmd := w.runner()
	next, other := w.runner()
	must(t, other.Process.Signal(syscall.SIGSTOP))
	var dead []time.Duration
	for range n {
		eventually(t, time.Minute, "the one is silent", func() bool {
			return w.one(`SELECT (seen_at + ttl < clock_timestamp())::text
				FROM postern.runner
				WHERE name = $1`, next) == "true"
		})
		id, try := w.job(900)
		w.until(time.Now(), "the script runs", func() bool { return w.scripts() == 1 })
		must(t, cmd.Process.Signal(syscall.SIGSTOP))
		must(t, other.Process.Signal(syscall.SIGCONT))
		w.until(time.Now(), "another runner has the job", func() bool { return w.holder(id) == next })
		w.until(time.Now(), "both execute it", func() bool { return w.scripts() == 2 })
		const row = `SELECT format('%s %s %s %s', state, fence, attempt, lapses) FROM postern.job_try WHERE try_id = $1`
		before := w.one(row, try)
		woken := time.Now()
		must(t, cmd.Process.Signal(syscall.SIGCONT))
		dead = append(dead, w.until(woken, "the script of the one that woke up is gone",
			func() bool { return w.scripts() == 1 }))
		w.until(time.Now(), "it lives again", func() bool {
			return w.one(`SELECT (seen_at > $2)::text FROM postern.runner WHERE name = $1`, name, woken) == "true"
		})
		if after := w.one(row, try); after != before || w.holder(id) != next || w.scripts() != 1 {
			t.Errorf("the try is %s, held by %q, with %d scripts; it was %s", after, w.holder(id), w.scripts(), before)
		}
		w.ask("POST", "/jobs/"+id+"/cancel", `{"reason": "seen"}`)
		w.until(time.Now(), "the job has ended", func() bool { return w.holder(id) == "" && w.scripts() == 0 })
		must(t, other.Process.Signal(syscall.SIGSTOP))
	}
	must(t, other.Process.Signal(syscall.SIGCONT))
	tell(t, "its script is gone after it woke up", dead, time.Second, measures)
}
