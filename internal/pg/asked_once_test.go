package pg_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// between runs do while a decision of the store waits in its middle, behind the locks of its queues: the decision
// counts the outcomes of a full queue, and their table is locked.
func (w *world) between(decide, do func()) {
	w.T.Helper()
	tx := w.Begin(w.Second(1))
	_, err := tx.Exec(w.Ctx, `LOCK TABLE postern.outcome IN ACCESS EXCLUSIVE MODE`)
	w.Must(err)
	var all sync.WaitGroup
	all.Go(decide)
	w.UntilBlocked(1)
	do()
	w.Must(tx.Rollback(w.Ctx))
	all.Wait()
}

// One ingest of a process finds that a queue was reaped, and the process forgets the queue. Another ingest has locked
// the row that was made anew, and goes on with that row.
func TestAPostGoesOnWithTheQueueThatItLocked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	_, err := w.S.PutQueue(w.Ctx, w.By, pg.Queue{Name: "full", Priority: "Med", MaxDepth: 1, WhenFull: "refuse", OnFailure: "continue"}, 0)
	w.Must(err)
	w.Post("full", "T", "a")
	w.Post("q", "T", "b")
	w.between(func() {
		out, err := w.S.Ingest(w.Ctx, []*pg.Submission{w.Sub("full", "T", "c"), w.Sub("q", "T", "d")}, false)
		if err != nil || out[0].Err == nil || out[1].Err != nil || out[1].ID.Seq != 2 {
			t.Error(out, err)
		}
	}, func() { w.S.ForgetName(w.ID, "q") })
	w.Same(w.Lines(`SELECT uid FROM postern.transactions WHERE queue = 'q' ORDER BY position`), "b", "d")
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

// A refused row that was staged ends in the queue that was locked.
func TestARefusedRowEndsInTheQueueThatWasLocked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	w.Post("full", "T", "a")
	w.Must(w.submit(w.S.Pool(), "full", "T", "b"))
	_, err := w.S.PutQueue(w.Ctx, w.By, pg.Queue{Name: "full", Priority: "Med", MaxDepth: 1, WhenFull: "refuse", OnFailure: "continue"}, 0)
	w.Must(err)
	w.between(func() {
		if _, err := pg.NewDrainer(w.S.Store).Once(w.Ctx); err != nil {
			t.Error(err)
		}
	}, func() { w.S.ForgetName(w.ID, "full") })
	w.drainAll(w.S)
	w.Same(w.Lines(`SELECT uid || ' ' || state FROM postern.transactions WHERE queue = 'full' ORDER BY position`), "a WAITING", "b FAILED")
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

// While a process forgets names at any moment, as reaping makes it, posts, levers and settings of queues do what they
// are for.
func TestAQueueThatIsForgottenAtAnyMomentIsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	end := make(chan struct{})
	var left atomic.Int32 // fewer for one call than it tries again, on however slow a machine
	var forgets sync.WaitGroup
	forgets.Go(func() {
		for {
			select {
			case <-end:
				return
			case <-time.After(time.Duration(rand.Int64N(int64(20 * time.Millisecond)))):
				if left.Add(-1) >= 0 {
					w.S.ForgetName(w.ID, "q")
				}
			}
		}
	})
	begin := func() { left.Store(db.Attempts - 3) }
	queue := pg.Queue{Name: "q", Priority: "Med", WhenFull: "refuse", OnFailure: "continue"}
	for i := range 50 {
		begin()
		w.Post("q", "T", fmt.Sprint("u", i))
		begin()
		if _, err := w.S.PutQueue(w.Ctx, w.By, queue, 0); err != nil {
			t.Error("put:", err)
		}
		begin()
		if _, err := w.S.PauseQueue(w.Ctx, w.By, "q", i%2 == 0); err != nil {
			t.Error("pause:", err)
		}
		begin()
		w.Must(w.submit(w.S.Pool(), "q", "T", fmt.Sprint("s", i)))
		begin()
		w.drainAll(w.S)
		begin()
		moved := w.Post("r", "T", fmt.Sprint("m", i))[0]
		begin()
		if _, err := w.S.MoveTo(w.Ctx, w.By, moved, "q", nil); err != nil {
			t.Error("move:", err)
		}
	}
	close(end)
	forgets.Wait()
	var n, tail int
	w.Scan(`SELECT count(*), max(position) FROM postern.transactions WHERE queue = 'q'`, &n, &tail)
	if n != 150 || tail != 150 {
		t.Errorf("%d transactions, the last of which is at %d", n, tail)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

// Two processes post to the same queues and take them out of the hot table when they are idle, while their clocks jump
// by days. POSTERN_REAP_RACE says for how long, 10s unless said.
func TestTwoProcessesPostAndReapTheSameQueues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	w.S.SetNow(nil)
	length := 10 * time.Second
	if v := os.Getenv("POSTERN_REAP_RACE"); v != "" {
		d, err := time.ParseDuration(v)
		w.Must(err)
		length = d
	}
	two, err := stores.Open(w.Ctx, w.Second(6), slog.New(slog.DiscardHandler))
	w.Must(err)
	ctx, cancel := context.WithTimeout(w.Ctx, length)
	defer cancel()
	n := w.Node("n")
	var all, works sync.WaitGroup
	r := &reapRace{world: w, t: t, acked: map[string]outbox.ID{}}
	for p, s := range []*stores.Store{w.S, two} {
		for g := range 3 {
			all.Go(func() { r.post(ctx, s, p, g) })
		}
		all.Go(func() { r.reap(ctx, s) })
		all.Go(func() { r.jump(ctx, s, length) })
	}
	stop := make(chan struct{})
	works.Go(func() { r.work(n, stop) })
	all.Wait()
	close(stop)
	works.Wait()
	r.allDone()
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

// reapRace is what the processes of that test have done so far.
type reapRace struct {
	*world
	t                       *testing.T
	reaped, posted, settled atomic.Int64
	mu                      sync.Mutex
	acked                   map[string]outbox.ID
}

// post posts to two queues at a time, as the gth poster of process p.
func (r *reapRace) post(ctx context.Context, s *stores.Store, p, g int) {
	for i := 0; ctx.Err() == nil; i++ {
		for r.posted.Load()-r.settled.Load() > 200 && ctx.Err() == nil { // a queue that never runs empty is never reaped
			time.Sleep(time.Millisecond)
		}
		uid := fmt.Sprint(p, "-", g, "-", i)
		subs := []*pg.Submission{r.Sub(fmt.Sprint("q", i%5), "T", uid), r.Sub(fmt.Sprint("q", (i+g+1)%5), "T", uid+"x")}
		out, err := s.Ingest(r.Ctx, subs, false)
		for tries := 1; fault.KindOf(err) == fault.Retry && tries < 50; tries++ { // as the answer tells a client
			out, err = s.Ingest(r.Ctx, subs, false)
		}
		if err != nil {
			r.t.Error(err)
			return
		}
		r.mu.Lock()
		for k, a := range out {
			if a.Err != nil {
				r.t.Error(a.Err)
				continue
			}
			r.acked[subs[k].UID] = a.ID
		}
		r.mu.Unlock()
		r.posted.Add(2)
	}
}

// reap takes idle queues out of the hot table, two at a time.
func (r *reapRace) reap(ctx context.Context, s *stores.Store) {
	for ctx.Err() == nil {
		n, err := s.Reap(r.Ctx, time.Now().AddDate(90, 0, 0), 2)
		if err != nil {
			r.t.Error("reap:", err)
		}
		r.reaped.Add(int64(n))
	}
}

// jump advances the clock of a process twenty times, by 90 days each.
func (r *reapRace) jump(ctx context.Context, s *stores.Store, length time.Duration) {
	for i := 0; i < 20 && ctx.Err() == nil; i++ { // each day costs every statement some of its planning
		if _, err := s.AdvanceClock(r.Ctx, 90*24*time.Hour); err != nil {
			r.t.Error("clock:", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(length / 20):
		}
	}
}

// work claims and settles until stop is closed and nothing is left.
func (r *reapRace) work(n pg.Node, stop <-chan struct{}) {
	for ended := false; ; {
		leases, _, err := r.S.Claim(r.Ctx, n, pgworld.Everything())
		if err != nil {
			r.t.Error("claim:", err)
		}
		for _, l := range leases {
			for l != nil {
				out, err := r.S.Settle(r.Ctx, []*pg.Answer{r.Answer(l, pgworld.Done())})
				if err != nil {
					r.t.Error("settle:", err)
					break
				}
				r.settled.Add(1)
				l = out[0].Next
			}
		}
		if ended && len(leases) == 0 {
			return
		}
		select {
		case <-stop:
			ended = true
		default:
		}
	}
}

// allDone checks that every transaction whose post was answered is there, and DONE.
func (r *reapRace) allDone() {
	r.t.Helper()
	r.t.Logf("%d posted, %d reaped", r.posted.Load(), r.reaped.Load())
	if r.reaped.Load() == 0 {
		r.t.Error("nothing was reaped: this shows nothing")
	}
	found := map[string]string{}
	for _, line := range r.Lines(`SELECT uid || ' ' || state FROM postern.transactions`) {
		uid, state, _ := strings.Cut(line, " ")
		found[uid] += state
	}
	for uid := range r.acked {
		if found[uid] != "DONE" {
			r.t.Errorf("%s is %q", uid, found[uid])
		}
	}
	if len(found) != len(r.acked) {
		r.t.Errorf("%d are there of %d", len(found), len(r.acked))
	}
}
