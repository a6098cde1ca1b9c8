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
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// between runs do while a decision of the store waits in its middle, behind the locks of its queues: the decision counts the
// outcomes of a full queue, and their table is locked.
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

// What one ingest of a process finds reaped, it forgets; another, that has locked the row that was made anew, goes on with
// that row.
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

// While a process forgets names at any moment, as reaping makes it, posts, levers and settings of queues do what they are for.
func TestAQueueThatIsForgottenAtAnyMomentIsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	end := make(chan struct{})
	var forgets sync.WaitGroup
	forgets.Go(func() {
		for {
			select {
			case <-end:
				return
			case <-time.After(20 * time.Millisecond): // one try of eight takes as long
				w.S.ForgetName(w.ID, "q")
			}
		}
	})
	queue := pg.Queue{Name: "q", Priority: "Med", WhenFull: "refuse", OnFailure: "continue"}
	for i := range 50 {
		w.Post("q", "T", fmt.Sprint("u", i))
		if _, err := w.S.PutQueue(w.Ctx, w.By, queue, 0); err != nil {
			t.Error("put:", err)
		}
		if _, err := w.S.PauseQueue(w.Ctx, w.By, "q", i%2 == 0); err != nil {
			t.Error("pause:", err)
		}
		w.Must(w.submit(w.S.Pool(), "q", "T", fmt.Sprint("s", i)))
		w.drainAll(w.S)
		moved := w.Post("r", "T", fmt.Sprint("m", i))[0]
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

// Two processes post to the same queues and take them out of the hot table when they are idle, while their clocks jump by days.
// POSTERN_REAP_RACE says for how long, 10s unless said.
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
	var reaped, posted, settled atomic.Int64
	var mu sync.Mutex
	acked := map[string]outbox.ID{}
	for p, s := range []*stores.Store{w.S, two} {
		for g := range 3 {
			all.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					for posted.Load()-settled.Load() > 200 && ctx.Err() == nil { // a queue that never runs empty is never reaped
						time.Sleep(time.Millisecond)
					}
					uid := fmt.Sprint(p, "-", g, "-", i)
					subs := []*pg.Submission{w.Sub(fmt.Sprint("q", i%5), "T", uid), w.Sub(fmt.Sprint("q", (i+g+1)%5), "T", uid+"x")}
					out, err := s.Ingest(w.Ctx, subs, false)
					for tries := 1; fault.KindOf(err) == fault.Retry && tries < 50; tries++ { // as the answer tells a client
						out, err = s.Ingest(w.Ctx, subs, false)
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
				n, err := s.Reap(w.Ctx, time.Now().AddDate(90, 0, 0), 2)
				if err != nil {
					t.Error("reap:", err)
				}
				reaped.Add(int64(n))
			}
		})
		all.Go(func() {
			for i := 0; i < 20 && ctx.Err() == nil; i++ { // each day costs every statement some of its planning
				if _, err := s.AdvanceClock(w.Ctx, 90*24*time.Hour); err != nil {
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
			leases, _, err := w.S.Claim(w.Ctx, n, pgworld.Everything())
			if err != nil {
				t.Error("claim:", err)
			}
			for _, l := range leases {
				for l != nil {
					out, err := w.S.Settle(w.Ctx, []*pg.Answer{w.Answer(l, pgworld.Done())})
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
	for _, line := range w.Lines(`SELECT uid || ' ' || state FROM postern.transactions`) {
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
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}
