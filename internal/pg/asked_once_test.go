package pg_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
)

// between runs do while a decision of the store waits in its middle, behind the locks of its queues: the decision counts the
// outcomes of a full queue, and their table is locked.
func (w *world) between(decide, do func()) {
	w.t.Helper()
	tx := w.begin(w.second(1))
	_, err := tx.Exec(w.ctx, `LOCK TABLE postern.outcome IN ACCESS EXCLUSIVE MODE`)
	w.must(err)
	var all sync.WaitGroup
	all.Go(decide)
	w.untilBlocked(1)
	do()
	w.must(tx.Rollback(w.ctx))
	all.Wait()
}

// What one ingest of a process finds reaped, it forgets; another, that has locked the row that was made anew, goes on with
// that row.
func TestAPostGoesOnWithTheQueueThatItLocked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	_, err := w.s.PutQueue(w.ctx, w.by, pg.Queue{Name: "full", Priority: "Med", MaxDepth: 1, WhenFull: "refuse", OnFailure: "continue"}, 0)
	w.must(err)
	w.post("full", "T", "a")
	w.post("q", "T", "b")
	w.between(func() {
		out, err := w.s.Ingest(w.ctx, []*pg.Submission{w.sub("full", "T", "c"), w.sub("q", "T", "d")}, false)
		if err != nil || out[0].Err == nil || out[1].Err != nil || out[1].ID.Seq != 2 {
			t.Error(out, err)
		}
	}, func() { w.s.ForgetName(w.id, "q") })
	w.same(w.lines(`SELECT uid FROM postern.transactions WHERE queue = 'q' ORDER BY position`), "b", "d")
	holdsTrue(t, w.ctx, w.s.Pool())
}

// A refused row that was staged ends in the queue that was locked.
func TestARefusedRowEndsInTheQueueThatWasLocked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	w.post("full", "T", "a")
	w.must(w.submit(w.s.Pool(), "full", "T", "b"))
	_, err := w.s.PutQueue(w.ctx, w.by, pg.Queue{Name: "full", Priority: "Med", MaxDepth: 1, WhenFull: "refuse", OnFailure: "continue"}, 0)
	w.must(err)
	w.between(func() {
		if _, err := pg.NewDrainer(w.s.Store).Once(w.ctx); err != nil {
			t.Error(err)
		}
	}, func() { w.s.ForgetName(w.id, "full") })
	w.drainAll(w.s)
	w.same(w.lines(`SELECT uid || ' ' || state FROM postern.transactions WHERE queue = 'full' ORDER BY position`), "a WAITING", "b FAILED")
	holdsTrue(t, w.ctx, w.s.Pool())
}

// While a process forgets names at any moment, as reaping makes it, posts, levers and settings of queues do what they are for.
func TestAQueueThatIsForgottenAtAnyMomentIsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	end := make(chan struct{})
	var forgets sync.WaitGroup
	forgets.Go(func() {
		for {
			select {
			case <-end:
				return
			case <-time.After(20 * time.Millisecond): // one try of eight takes as long
				w.s.ForgetName(w.id, "q")
			}
		}
	})
	queue := pg.Queue{Name: "q", Priority: "Med", WhenFull: "refuse", OnFailure: "continue"}
	for i := range 50 {
		w.post("q", "T", fmt.Sprint("u", i))
		if _, err := w.s.PutQueue(w.ctx, w.by, queue, 0); err != nil {
			t.Error("put:", err)
		}
		if _, err := w.s.PauseQueue(w.ctx, w.by, "q", i%2 == 0); err != nil {
			t.Error("pause:", err)
		}
		w.must(w.submit(w.s.Pool(), "q", "T", fmt.Sprint("s", i)))
		w.drainAll(w.s)
		moved := w.post("r", "T", fmt.Sprint("m", i))[0]
		if _, err := w.s.MoveTo(w.ctx, w.by, moved, "q", nil); err != nil {
			t.Error("move:", err)
		}
	}
	close(end)
	forgets.Wait()
	var n, tail int
	w.scan(`SELECT count(*), max(position) FROM postern.transactions WHERE queue = 'q'`, &n, &tail)
	if n != 150 || tail != 150 {
		t.Errorf("%d transactions, the last of which is at %d", n, tail)
	}
	holdsTrue(t, w.ctx, w.s.Pool())
}

// Two processes post to the same queues and take them out of the hot table when they are idle, while their clocks jump by days.
// POSTERN_REAP_RACE says for how long, 10s unless said.
func TestTwoProcessesPostAndReapTheSameQueues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	w.s.SetNow(nil)
	length := 10 * time.Second
	if v := os.Getenv("POSTERN_REAP_RACE"); v != "" {
		d, err := time.ParseDuration(v)
		w.must(err)
		length = d
	}
	two, err := stores.Open(w.ctx, w.second(6), slog.New(slog.DiscardHandler))
	w.must(err)
	ctx, cancel := context.WithTimeout(w.ctx, length)
	defer cancel()
	n := w.node("n")
	var all, works sync.WaitGroup
	var reaped, posted, settled atomic.Int64
	var mu sync.Mutex
	acked := map[string]outbox.ID{}
	for p, s := range []*stores.Store{w.s, two} {
		for g := range 3 {
			all.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					for posted.Load()-settled.Load() > 200 && ctx.Err() == nil { // a queue that never runs empty is never reaped
						time.Sleep(time.Millisecond)
					}
					uid := fmt.Sprint(p, "-", g, "-", i)
					subs := []*pg.Submission{w.sub(fmt.Sprint("q", i%5), "T", uid), w.sub(fmt.Sprint("q", (i+g+1)%5), "T", uid+"x")}
					out, err := s.Ingest(w.ctx, subs, false)
					for tries := 1; fault.KindOf(err) == fault.Retry && tries < 50; tries++ { // as the answer tells a client
						out, err = s.Ingest(w.ctx, subs, false)
					}
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					for k, a := range out {
						if a.Err != nil {
							t.Error(a.Err)
							continue
						}
						acked[subs[k].UID] = a.ID
					}
					mu.Unlock()
					posted.Add(2)
				}
			})
		}
		all.Go(func() {
			for ctx.Err() == nil {
				n, err := s.Reap(w.ctx, time.Now().AddDate(90, 0, 0), 2)
				if err != nil {
					t.Error("reap:", err)
				}
				reaped.Add(int64(n))
			}
		})
		all.Go(func() {
			for i := 0; i < 20 && ctx.Err() == nil; i++ { // each day costs every statement some of its planning
				if _, err := s.AdvanceClock(w.ctx, 90*24*time.Hour); err != nil {
					t.Error("clock:", err)
				}
				select {
				case <-ctx.Done():
				case <-time.After(length / 20):
				}
			}
		})
	}
	stop := make(chan struct{})
	works.Go(func() {
		for ended := false; ; {
			leases, _, err := w.s.Claim(w.ctx, n, everything())
			if err != nil {
				t.Error("claim:", err)
			}
			for _, l := range leases {
				for l != nil {
					out, err := w.s.Settle(w.ctx, []*pg.Answer{w.answer(l, done())})
					if err != nil {
						t.Error("settle:", err)
						break
					}
					settled.Add(1)
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
	})
	all.Wait()
	close(stop)
	works.Wait()
	t.Logf("%d posted, %d reaped", posted.Load(), reaped.Load())
	if reaped.Load() == 0 {
		t.Error("nothing was reaped: this shows nothing")
	}
	found := map[string]string{}
	for _, line := range w.lines(`SELECT uid || ' ' || state FROM postern.transactions`) {
		uid, state, _ := strings.Cut(line, " ")
		found[uid] += state
	}
	for uid := range acked {
		if found[uid] != "DONE" {
			t.Errorf("%s is %q", uid, found[uid])
		}
	}
	if len(found) != len(acked) {
		t.Errorf("%d are there of %d", len(found), len(acked))
	}
	holdsTrue(t, w.ctx, w.s.Pool())
}
