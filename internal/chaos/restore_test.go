package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/migrate"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/remotetest"
)

// TestABaseBackupThatWasTakenUnderLoadGivesNothingTwice: a server's base backup is taken while transactions come and
// go, the server is lost some time later, and the backup goes on in its place. Transactions that were acknowledged
// since are gone, and those that are posted now take their positions. A worker that remembers each token sees none with
// two bodies, executes all of them, and sees no fence that falls. An id that was lost is not found, and a reader gets
// no event under a cursor that it knows and misses none.
func TestABaseBackupThatWasTakenUnderLoadGivesNothingTwice(t *testing.T) { losesTime(t, false) }

// TestALaggingStandbyThatIsPromotedGivesNothingTwice, as a base backup.
func TestALaggingStandbyThatIsPromotedGivesNothingTwice(t *testing.T) { losesTime(t, true) }

const lossQueues = 6

func losesTime(t *testing.T, standby bool) {
	c := newCluster(t)
	c.start(c.main)
	must(t, migrate.Up(t.Context(), c.url(c.main), func(string) {}))
	s := c.store(c.main)
	fake := remotetest.NewFake(t)
	fake.IncludeAll(true)
	by := db.By{Context: s.Context("default").ID, Actor: "test", Via: "test"}
	d := outbox.DefaultDispatcher()
	d.Type, d.WorkerURL = "T", fake.URL()
	d.Inclusion.PollEvery = outbox.Duration(30 * time.Millisecond)
	_, err := s.PutDispatcher(t.Context(), by, d, 0)
	must(t, err)
	_, err = s.Deliveries.PutSubscription(t.Context(), by, outbox.Subscription{Name: "p", Kind: "pull", OnError: "skip", Events: []outbox.Event{outbox.EventDone}}, nil, 0)
	must(t, err)
	reader := &feedReader{t: t, seen: map[int64]string{}, uids: map[string]bool{}}
	first := startNode(t, c.url(c.main), "before")

	load := pouring(t, s, by)
	load.reaches(30)
	c.backup(standby)
	if standby { // it follows for a while, and is stopped
		c.start(c.copy)
		c.stop(c.copy, "fast")
	}
	load.reaches(load.count() + 30)
	ids := load.stop()
	reader.until(s, by, func() bool { return len(reader.uids) >= len(ids)-lossQueues })
	first.kill()
	s.Close()
	c.stop(c.main, "immediate")

	c.start(c.copy)
	if standby {
		c.ctl(c.copy, "promote", "-w")
	}
	s = c.store(c.copy)
	lost := map[place]bool{}
	for uid, id := range ids {
		if named(t, s, by, id, uid) == "" {
			lost[place{id.Queue, id.Seq}] = true
		}
	}
	startNode(t, c.url(c.copy), "after")
	retaken, fresh := 0, map[string]outbox.ID{}
	for n := range len(lost)/lossQueues + 10 {
		for uid, id := range postRound(t, s, by, "after", n) {
			if fresh[uid] = id; lost[place{id.Queue, id.Seq}] {
				retaken++
			}
		}
	}
	if t.Logf("%d posted, %d lost, %d of their positions taken", len(ids), len(lost), retaken); retaken == 0 {
		t.Fatal("nothing that was lost had its position taken: this shows nothing")
	}
	for uid, id := range ids {
		named(t, s, by, id, uid)
	}
	ended(t, s, by.Context, slices.Collect(allOf(t, s)), 2*time.Minute)
	toldOnce(t, fake, fresh)
	reader.until(s, by, func() bool {
		for uid := range fresh {
			if !reader.uids[uid] {
				return false
			}
		}
		return true
	})
}

type place struct{ queue, seq int64 }

// named says what uid an id leads to, "" for none; it may be no other than that of what was posted under it.
func named(t *testing.T, s *stores.Store, by db.By, id outbox.ID, uid string) string {
	t.Helper()
	tx, err := s.Transaction(t.Context(), by.Context, id)
	switch {
	case fault.CodeOf(err) == "not_found":
		return ""
	case err != nil:
		t.Fatal(err)
	case tx.UID != uid:
		t.Errorf("%s was given to %s, and leads to %s", id, uid, tx.UID)
	}
	return tx.UID
}

// allOf are the ids of all that is stored.
func allOf(t *testing.T, s *stores.Store) func(func(outbox.ID) bool) {
	return func(yield func(outbox.ID) bool) {
		rows, err := s.Pool().Query(t.Context(), `SELECT id::text FROM postern.tx`)
		must(t, err)
		defer rows.Close()
		for rows.Next() {
			var text string
			must(t, rows.Scan(&text))
			id, err := outbox.ParseID(text)
			must(t, err)
			if !yield(id) {
				return
			}
		}
		must(t, rows.Err())
	}
}

// toldOnce compares what the worker saw over both lives.
func toldOnce(t *testing.T, fake *remotetest.Fake, fresh map[string]outbox.ID) {
	t.Helper()
	bodies, fences, executed := map[string]string{}, map[string]int64{}, map[string]bool{}
	for _, call := range fake.Calls(dispatches) {
		body := call.UID + " " + string(call.Data)
		if other, known := bodies[call.Token]; known && other != body {
			t.Errorf("token %s was given to %s and to %s", call.Token, other, body)
		} else if !known {
			executed[call.UID] = true
		}
		bodies[call.Token] = body
		if call.Fence < fences[call.Queue] {
			t.Errorf("in queue %s fence %d came after %d", call.Queue, call.Fence, fences[call.Queue])
		}
		fences[call.Queue] = call.Fence
	}
	for uid := range fresh {
		if !executed[uid] {
			t.Errorf("%s is DONE and was never executed", uid)
		}
	}
}

// feedReader reads a subscription and keeps its place itself, as a consumer does that stores what it read.
type feedReader struct {
	t    *testing.T
	at   int64
	seen map[int64]string
	uids map[string]bool
}

// until reads until it has seen enough.
func (r *feedReader) until(s *stores.Store, by db.By, enough func() bool) {
	r.t.Helper()
	sub, err := s.Deliveries.Subscription(r.t.Context(), by.Context, "p")
	must(r.t, err)
	for begun := time.Now(); !enough(); time.Sleep(50 * time.Millisecond) {
		if time.Since(begun) > 2*time.Minute {
			r.t.Fatalf("the reader stands at %d with %d events, and gets no more", r.at, len(r.uids))
		}
		list, _, err := s.Deliveries.Feed(r.t.Context(), sub.ID, nil, r.at, 100)
		must(r.t, err)
		for _, e := range list {
			var body struct{ UID string }
			must(r.t, json.Unmarshal(e.Body, &body))
			if other, known := r.seen[e.Position]; known {
				r.t.Errorf("position %d is that of %s, and now of %s", e.Position, other, body.UID)
			}
			r.at, r.seen[e.Position], r.uids[body.UID] = e.Position, body.UID, true
		}
	}
}

// pour posts without an end.
type pour struct {
	t    *testing.T
	end  context.CancelFunc
	done chan struct{}
	mu   sync.Mutex
	ids  map[string]outbox.ID
}

func pouring(t *testing.T, s *stores.Store, by db.By) *pour {
	ctx, end := context.WithCancel(t.Context())
	p := &pour{t: t, end: end, done: make(chan struct{}), ids: map[string]outbox.ID{}}
	go func() {
		defer close(p.done)
		for n := 0; ctx.Err() == nil; n++ {
			round := postRound(t, s, by, "before", n)
			p.mu.Lock()
			for uid, id := range round {
				p.ids[uid] = id
			}
			p.mu.Unlock()
			time.Sleep(20 * time.Millisecond)
		}
	}()
	return p
}

func (p *pour) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ids)
}

// reaches waits until n were posted.
func (p *pour) reaches(n int) {
	for p.count() < n {
		select {
		case <-p.done:
			p.t.Fatal("nothing is posted any more")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (p *pour) stop() map[string]outbox.ID {
	p.end()
	<-p.done
	return p.ids
}

// postRound posts one into each queue, under a uid that says in which life and round.
func postRound(t *testing.T, s *stores.Store, by db.By, life string, n int) map[string]outbox.ID {
	ids := map[string]outbox.ID{}
	for q := range lossQueues {
		uid := fmt.Sprintf("%s-%d-%d", life, q, n)
		out, err := s.Ingest(context.WithoutCancel(t.Context()), []*pg.Submission{{ContextID: by.Context, Queue: fmt.Sprintf("q%d", q), Type: "T", UID: uid,
			Hash: []byte(uid), Data: json.RawMessage(fmt.Sprintf(`{"life": %q, "n": %d}`, life, n))}}, false)
		if err == nil {
			err = out[0].Err
		}
		if err != nil {
			t.Error(err)
			return ids
		}
		ids[uid] = out[0].ID
	}
	return ids
}

// cluster is a server of its own, and a copy that takes its place.
type cluster struct {
	t          *testing.T
	bin        string
	main, copy string // directories
	ports      map[string]int
	as         *syscall.SysProcAttr
}

func newCluster(t *testing.T) *cluster {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if len(found) == 0 {
		t.Skip("no PostgreSQL is installed under /usr/lib/postgresql, whose base backups this is about")
	}
	slices.Sort(found)
	dir, err := os.MkdirTemp("", "postern-restore-")
	must(t, err)
	c := &cluster{t: t, bin: found[len(found)-1], main: filepath.Join(dir, "main"), copy: filepath.Join(dir, "copy")}
	c.ports = map[string]int{c.main: emptyPort(t), c.copy: emptyPort(t)}
	t.Cleanup(func() {
		for _, d := range []string{c.main, c.copy} {
			_ = c.command("pg_ctl", "stop", "-D", d, "-m", "immediate", "-s").Run()
		}
		os.RemoveAll(dir)
	})
	if os.Getuid() == 0 { // the server refuses to run as root
		u, err := user.Lookup("postgres")
		if err != nil {
			t.Skip("root may not run a PostgreSQL, and there is no user postgres")
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		c.as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		must(t, os.Chown(dir, uid, gid))
	}
	c.run("initdb", "-D", c.main, "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8")
	settings := fmt.Sprintf("port = %d\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = ''\nfsync = off\nmax_connections = 60\nwal_keep_size = '512MB'\n", c.ports[c.main])
	f, err := os.OpenFile(filepath.Join(c.main, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteString(settings)
	must(t, err)
	must(t, f.Close())
	return c
}

func emptyPort(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func (c *cluster) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(c.bin, name), args...)
	cmd.SysProcAttr, cmd.Dir = c.as, "/"
	return cmd
}

func (c *cluster) run(name string, args ...string) {
	c.t.Helper()
	if out, err := c.command(name, args...).CombinedOutput(); err != nil {
		c.t.Fatalf("%s %v: %s\n%s", name, args, err, out)
	}
}

func (c *cluster) ctl(dir, verb string, args ...string) {
	c.t.Helper()
	c.run("pg_ctl", append([]string{verb, "-D", dir, "-t", "120"}, args...)...)
}

// start starts the server of a directory, each on a port of its own.
func (c *cluster) start(dir string) {
	c.t.Helper()
	c.ctl(dir, "start", "-w", "-l", dir+".log", "-o", fmt.Sprintf("-p %d", c.ports[dir]))
}

func (c *cluster) stop(dir, mode string) { c.ctl(dir, "stop", "-m", mode) }

// backup takes a base backup of the main server; one of a standby knows which server to follow.
func (c *cluster) backup(standby bool) {
	args := []string{"-D", c.copy, "-h", "127.0.0.1", "-p", strconv.Itoa(c.ports[c.main]), "-U", "postgres", "-c", "fast", "-X", "stream"}
	if standby {
		args = append(args, "-R")
	}
	c.run("pg_basebackup", args...)
}

func (c *cluster) url(dir string) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres", c.ports[dir])
}

func (c *cluster) store(dir string) *stores.Store {
	pool, err := pg.Connect(c.t.Context(), c.url(dir), 6)
	must(c.t, err)
	s, err := stores.Open(c.t.Context(), pool, slog.New(slog.DiscardHandler))
	must(c.t, err)
	c.t.Cleanup(s.Close)
	return s
}
