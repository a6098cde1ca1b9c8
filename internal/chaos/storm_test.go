package chaos

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/devpg"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/migrate"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pg/verify"
	"github.com/postern-dev/postern/internal/remotetest"
)

// TestStormsLeaveNoQueueStanding ends all sessions of the database again and again while three processes work, and
// restarts the server. One of the processes takes the transactions that are posted in it. Leases live for longer than
// the test, so that no burial helps: a process has to find itself which queues it lost. Afterwards everything ends,
// once, in order, and a call is made again only after its worker was asked.
func TestStormsLeaveNoQueueStanding(t *testing.T) {
	const storms, restarts, queues = 20, 5, 40
	opts, server := ownServer(t)
	var err error
	must(t, migrate.Up(t.Context(), (*server).URL, nil))
	t.Setenv(ttlEnv, "10m")
	fake := remotetest.NewFake(t)
	fake.IncludeAll(true) // a question about a token that was called hears that it is done
	fake.Script(dispatches, remotetest.Done("ok").Slow(3*time.Millisecond))
	load := newLoad(t, (*server).URL, fake, queues)
	startNode(t, (*server).URL, "first")
	startNode(t, (*server).URL, "second")
	load.begin(6)
	load.working(3)
	for range storms {
		time.Sleep(200 * time.Millisecond)
		load.storm()
	}
	for range restarts {
		time.Sleep(500 * time.Millisecond)
		must(t, (*server).Close()) // the fast way, as pg_ctl does it
		*server, err = devpg.Start(t.Context(), opts)
		must(t, err)
		load.storm()
	}
	load.end()
	calm := time.Now()
	load.ended(time.Minute)
	t.Logf("%d transactions; the last ended %s after the last storm", len(load.ids), time.Since(calm).Round(time.Millisecond))
	load.check()
}

// ownServer starts a server that belongs to the test alone, on data that outlives it: Close and Start restart it.
func ownServer(t *testing.T) (devpg.Options, **devpg.Server) {
	t.Helper()
	dir, err := os.MkdirTemp("", "postern-storm-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755)) // the user that runs it for root has to pass
	opts := devpg.Options{
		StateDir: dir,
		BinDir:   os.Getenv("POSTERN_PG_BIN"),
		Log:      func(line string) { t.Log(line) },
		// Commits wait, so that most storms end one whose session has committed and not yet said so.
		Settings: map[string]string{"commit_delay": "20000", "commit_siblings": "0"},
	}
	server, err := devpg.Start(t.Context(), opts)
	must(t, err)
	t.Cleanup(func() { _ = server.Close() })
	return opts, &server
}

// load posts to queues from several goroutines, in a process that works, and says again what was not answered.
type load struct {
	t     *testing.T
	url   string
	s     *stores.Store
	by    db.By
	fake  *remotetest.Fake
	depth int
	ids   map[string]outbox.ID

	mu   sync.Mutex
	stop chan struct{}
	all  sync.WaitGroup
}

func newLoad(t *testing.T, url string, fake *remotetest.Fake, queues int) *load {
	t.Helper()
	l := &load{t: t, url: url, fake: fake, depth: queues, ids: map[string]outbox.ID{}, stop: make(chan struct{})}
	l.s = engine(t, url, "poster")
	l.by = db.By{Context: l.s.Context("default").ID, Actor: "test", Via: "test"}
	d := outbox.DefaultDispatcher()
	d.Type, d.WorkerURL = "T", fake.URL()
	_, err := l.s.PutDispatcher(t.Context(), l.by, d, 0)
	must(t, err)
	return l
}

// begin posts from n goroutines, each to queues of its own, so that what was posted later stands later.
func (l *load) begin(n int) {
	for g := range n {
		l.all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-l.stop:
					return
				case <-l.t.Context().Done():
					return
				default:
				}
				l.post(fmt.Sprintf("q%d-%d", g, i%(l.depth/n)), fmt.Sprintf("%d-%d", g, i))
			}
		})
	}
}

func (l *load) post(queue, uid string) {
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		sub := &pg.Submission{
			ContextID: l.by.Context,
			Queue:     queue,
			Type:      "T",
			UID:       uid,
			Hash:      []byte(uid),
			Data:      []byte(`{}`),
		}
		out, err := l.s.Ingest(l.t.Context(), []*pg.Submission{sub}, false)
		if err == nil && out[0].Err == nil {
			l.mu.Lock()
			l.ids[uid] = out[0].ID
			l.mu.Unlock()
			return
		}
		if l.t.Context().Err() != nil || time.Now().After(end) {
			l.t.Errorf("post %s: %v", uid, err)
			return
		}
	}
}

func (l *load) end() {
	close(l.stop)
	l.all.Wait()
}

// working waits until so many nodes work: a process that is just starting may end in a storm.
func (l *load) working(nodes int) {
	l.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		var n int
		must(l.t, l.s.Pool().QueryRow(l.t.Context(), `SELECT count(*) FROM river.river_queue WHERE name LIKE 'node_%'`).Scan(&n))
		if n >= nodes {
			return
		}
		if time.Now().After(end) {
			l.t.Fatalf("%d of %d nodes work", n, nodes)
		}
	}
}

// storm ends all sessions but its own.
func (l *load) storm() {
	ctx := l.t.Context()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := pgx.Connect(ctx, l.url)
		if err == nil {
			_, err = conn.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'`)
			_ = conn.Close(context.WithoutCancel(ctx))
		}
		if err == nil {
			return
		}
		if time.Now().After(end) {
			l.t.Fatal(err)
		}
	}
}

// ended waits until everything that was posted has ended.
func (l *load) ended(within time.Duration) {
	l.t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
		var open int
		err := l.s.Pool().QueryRow(l.t.Context(), `SELECT count(*) FROM postern.transactions WHERE done_at IS NULL`).Scan(&open)
		if err == nil && open == 0 {
			return
		}
		if time.Now().After(end) {
			rows, _ := l.s.Pool().Query(l.t.Context(), `
				SELECT format('%s %s cur %s fence %s node %s since %s', queue_id, phase, cur_seq, fence, node_id, entered_at)
				FROM postern.queue
				WHERE phase <> 'IDLE'
				UNION ALL SELECT format('timer of %s at %s', queue_id, due_at) FROM postern.timer`)
			lines, _ := pgx.CollectRows(rows, pgx.RowTo[string])
			l.t.Fatalf("%d stand: %v, %q", open, err, lines)
		}
	}
}

// check compares what was recorded and called with what was posted.
func (l *load) check() {
	l.t.Helper()
	var tasks, good int
	must(l.t, l.s.Pool().QueryRow(l.t.Context(), `SELECT count(*), count(*) FILTER (WHERE state = 'DONE')
		FROM postern.transactions`).Scan(&tasks, &good))
	if tasks != len(l.ids) || good != tasks {
		l.t.Errorf("%d were acknowledged, %d are there, %d are DONE", len(l.ids), tasks, good)
	}
	found, err := verify.Violations(l.t.Context(), l.s.Pool())
	if err != nil || len(found) > 0 {
		l.t.Errorf("%v %v", found, err)
	}
	calls, asked, again := map[string]int{}, map[string]int{}, 0
	last := map[string]int64{}
	for _, c := range l.fake.Calls(remotetest.Match{}) {
		switch c.Op {
		case remotetest.OpStatus:
			asked[c.Token]++
		case remotetest.OpDispatch:
			if calls[c.Token]++; calls[c.Token] > 1 {
				again++
			}
			if calls[c.Token] > asked[c.Token]+1 {
				l.t.Errorf("%s was called %d times and asked about %d times", c.Token, calls[c.Token], asked[c.Token])
			}
			if c.Position < last[c.Queue] {
				l.t.Errorf("queue %s: position %d was called after %d", c.Queue, c.Position, last[c.Queue])
			}
			last[c.Queue] = c.Position
		}
	}
	var back int
	must(l.t, l.s.Pool().QueryRow(l.t.Context(), `SELECT count(*) FROM postern.attempt WHERE code = 'handed_back'`).Scan(&back))
	l.t.Logf("%d tokens, %d calls again after a question, %d queues handed back in a call", len(calls), again, back)
}
