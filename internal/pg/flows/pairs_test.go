package flows_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/flows"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/sequencer"
)

// world has a node that offers jobs, and runners.
type world struct {
	*pgworld.World
	node   pg.Node
	epochs map[string]int64
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: pgworld.New(t), epochs: map[string]int64{}}
	w.node = w.Node("n")
	return w
}

// post posts a job and offers its first try.
func (w *world) post(retries int) *flows.Job {
	w.T.Helper()
	j, err := w.S.Flows.PostJob(w.Ctx, w.By, flow.Spec{Script: "1", ScriptType: "python", Timeout: time.Minute,
		Retries: retries}, "")
	w.Must(err)
	w.offer()
	return j
}

// offer dispatches what the core has of jobs, and has it accepted.
func (w *world) offer() {
	w.T.Helper()
	for _, l := range w.Claim(w.node, pgworld.Everything()) {
		a := w.S.Flows.Offer(w.Ctx, l, l.Task.Token(l.Attempt))
		if again := w.S.Flows.Offer(w.Ctx, l, l.Task.Token(l.Attempt)); again.Result.Hash != a.Result.Hash {
			w.T.Errorf("the same token is offered as %q and %q", a.Result.Hash, again.Result.Hash)
		}
		w.Settle(w.Answer(l, a))
	}
}

func (w *world) register(names ...string) {
	w.T.Helper()
	for _, name := range names {
		epoch, _, err := w.S.Flows.Register(w.Ctx, w.By, name, flows.Registration{Instance: name,
			Able: []string{"python"}, Slots: 2})
		w.Must(err)
		w.epochs[name] = epoch
	}
}

// claim claims by a store, and says which tries were handed out.
func (w *world) claim(s *stores.Store, name string, holds ...flows.Hold) ([]*flows.Taken, error) {
	c, err := s.Flows.Claim(w.Ctx, w.ID, name, w.epochs[name], 2, holds)
	if err != nil {
		return nil, err
	}
	return c.Taken, nil
}

func (w *world) one(name string) *flows.Taken {
	w.T.Helper()
	list, err := w.claim(w.S, name)
	w.Must(err)
	if len(list) != 1 {
		w.T.Fatalf("%d tries, want 1", len(list))
	}
	return list[0]
}

func (w *world) state(id uuid.UUID) string {
	w.T.Helper()
	var s string
	w.Scan(fmt.Sprintf(`SELECT state || ' ' || lapses FROM postern.job_try WHERE try_id = '%s'`, id), &s)
	return s
}

// silent is longer than a runner may be silent.
const silent = flows.DefaultTTL + time.Second

func finished(n string) flows.Said {
	return flows.Said{Result: json.RawMessage(`{"n": "` + n + `"}`)}
}

func said(err error) string {
	if err == nil {
		return "ok"
	}
	return fault.CodeOf(err)
}

// Two claims at one time share no try: the second skips what the first has locked, and does not wait.
func TestTwoClaimsAtOneTimeShareNoTry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("a", "b")
	w.post(0)
	other := w.Another(4)
	var first []*flows.Taken
	second, waited := w.Beside(func() (err error) {
		first, err = w.claim(w.S, "a")
		return err
	}, func() string {
		list, err := w.claim(other, "b")
		return fmt.Sprint(len(list), " ", said(err))
	})
	if len(first) != 1 || second != "0 ok" || waited {
		t.Errorf("the first has %d, the second %q, and waited: %v", len(first), second, waited)
	}
}

// Two claims of one runner are serial by its row, so that its slots hold.
func TestTwoClaimsOfOneRunnerKeepItsSlots(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("a")
	for range 4 {
		w.post(0)
	}
	other := w.Another(4)
	second, waited := w.Beside(func() error { _, err := w.claim(w.S, "a"); return err }, func() string {
		list, err := w.claim(other, "a")
		return fmt.Sprint(len(list), " ", said(err))
	})
	if second != "0 ok" || !waited {
		t.Errorf("the second has %q, and waited: %v", second, waited)
	}
}

// The end of a try and the sweep that takes it back at one time: the first of them counts, and the other changes
// nothing.
func TestAnEndBesideALapse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("a")
	w.post(0)
	v := w.one("a")
	w.Later(silent)
	other := w.Another(4)
	second, waited := w.Beside(func() error {
		_, err := w.S.Flows.End(w.Ctx, w.ID, v.ID, v.Fence,
			finished("1"))
		return err
	},
		func() string { n, err := other.Flows.Lapse(w.Ctx); return fmt.Sprint(n, " ", said(err)) })
	if second != "0 ok" || waited || w.state(v.ID) != "Finished 0" {
		t.Errorf("the sweep says %q, waited: %v; the try is %s", second, waited, w.state(v.ID))
	}

	w = newWorld(t)
	w.register("a")
	w.post(0)
	v = w.one("a")
	w.Later(silent)
	other = w.Another(4)
	second, waited = w.Beside(func() error { _, err := w.S.Flows.Lapse(w.Ctx); return err }, func() string {
		_, err := other.Flows.End(w.Ctx, w.ID, v.ID, v.Fence, finished("1"))
		return said(err)
	})
	if second != "stale_fence" || !waited || w.state(v.ID) != "Offered 1" {
		t.Errorf("the end says %q, waited: %v; the try is %s", second, waited, w.state(v.ID))
	}
}

// A heartbeat beside the sweep: one that came first is seen, and the runner keeps what it holds.
func TestAHeartbeatBesideALapse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("a")
	w.post(0)
	v := w.one("a")
	w.Later(silent)
	other := w.Another(4)
	second, waited := w.Beside(func() error {
		_, err := w.S.Flows.Renew(w.Ctx, w.ID, "a", w.epochs["a"], []flows.Hold{{Try: v.ID, Fence: v.Fence}})
		return err
	}, func() string { n, err := other.Flows.Lapse(w.Ctx); return fmt.Sprint(n, " ", said(err)) })
	if second != "0 ok" || waited || w.state(v.ID) != "Held 0" {
		t.Errorf("the sweep says %q, waited: %v; the try is %s", second, waited, w.state(v.ID))
	}
}

// A cancel beside a claim: either the job has started and is told to stop, or it has ended and no runner gets it.
func TestACancelBesideAClaim(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("a")
	j := w.post(0)
	other := w.Another(4)
	second, waited := w.Beside(func() error { _, err := w.claim(w.S, "a"); return err }, func() string {
		r, err := other.Flows.Cancel(w.Ctx, w.By, j.ID)
		return fmt.Sprint(r.Changed, r.Pending, " ", said(err))
	})
	if second != "true true ok" || !waited {
		t.Errorf("the cancel says %q, waited: %v", second, waited)
	}
	j = w.post(0)
	second, waited = w.Beside(func() error { _, err := w.S.Flows.Cancel(w.Ctx, w.By, j.ID); return err },
		func() string {
			list, err := w.claim(other, "a")
			return fmt.Sprint(len(list), " ", said(err))
		})
	if second != "0 ok" {
		t.Errorf("the claim says %q, waited: %v", second, waited)
	}
}

// Whatever is said under an old fence changes nothing, and is kept as late; under an old epoch it is refused.
func TestAnOldFenceChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("a", "b")
	w.post(0)
	v := w.one("a")
	w.Later(silent)
	_, err := w.S.Flows.Lapse(w.Ctx)
	w.Must(err)
	stale := map[string]func() error{
		"finish": func() error { _, err := w.S.Flows.End(w.Ctx, w.ID, v.ID, v.Fence, finished("1")); return err },
		"fail": func() error {
			_, err := w.S.Flows.End(w.Ctx, w.ID, v.ID, v.Fence, flows.Said{Code: "exit", Error: "it broke"})
			return err
		},
		"log": func() error {
			return w.S.Flows.AppendLog(w.Ctx, w.ID, v.ID, v.Fence, []flows.Line{{N: 1, Stream: "stdout", Text: "x"}})
		},
	}
	for name, say := range stale {
		if got := said(say()); got != "stale_fence" || w.state(v.ID) != "Offered 1" {
			t.Errorf("%s: %s, and the try is %s", name, got, w.state(v.ID))
		}
	}
	now := w.one("b")
	for name, say := range stale {
		if got := said(say()); got != "stale_fence" || w.state(v.ID) != "Held 1" {
			t.Errorf("%s: %s, and the try is %s", name, got, w.state(v.ID))
		}
	}
	r, err := w.S.Flows.Renew(w.Ctx, w.ID, "a", w.epochs["a"], []flows.Hold{{Try: v.ID, Fence: v.Fence}})
	w.Must(err)
	if len(r.Lost) != 1 {
		t.Errorf("%+v", r)
	}
	changed, err := w.S.Flows.End(w.Ctx, w.ID, now.ID, now.Fence, finished("2"))
	if !changed || err != nil {
		t.Errorf("%v %v", changed, err)
	}
	for name, say := range stale {
		if got := said(say()); got != "stale_fence" || w.state(v.ID) != "Finished 1" {
			t.Errorf("%s: %s, and the try is %s", name, got, w.state(v.ID))
		}
	}
	var late int
	w.Scan(`SELECT count(*) FROM postern.try_late`, &late)
	if late != 1 {
		t.Errorf("%d rows of try_late, want one for each fence", late)
	}
	w.register("a")
	for name, err := range map[string]error{
		"claim": func() error { _, err := w.S.Flows.Claim(w.Ctx, w.ID, "a", 1, 1, nil); return err }(),
		"renew": func() error { _, err := w.S.Flows.Renew(w.Ctx, w.ID, "a", 1, nil); return err }(),
	} {
		if said(err) != "stale_epoch" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The answer to a claim is lost: the runner does not name the try in two calls, and is handed it again under its
// fence by a claim. A renew that was sent before that answer leaves it to the runner, which executes it; where that
// answer is lost, too, a renew offers it to others, and that is no lapse.
func TestAClaimWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("a")
	w.post(0)
	v := w.one("a")
	if list, err := w.claim(w.S, "a"); err != nil || len(list) != 0 {
		t.Errorf("%d %v: it may be under way", len(list), err)
	}
	w.Later(6 * time.Second)
	list, err := w.claim(w.S, "a")
	w.Must(err)
	if len(list) != 1 || list[0].ID != v.ID || list[0].Fence != v.Fence || list[0].Posted.Script != "1" {
		t.Errorf("%+v", list)
	}
	renew := func(holds ...flows.Hold) {
		_, err = w.S.Flows.Renew(w.Ctx, w.ID, "a", w.epochs["a"], holds)
		w.Must(err)
	}
	for range 3 {
		renew()
	}
	if got := w.state(v.ID); got != "Held 0" {
		t.Errorf("the try is %s, and the runner executes it", got)
	}
	w.Later(time.Second)
	renew(flows.Hold{Try: v.ID, Fence: v.Fence}) // it has the answer
	w.Later(6 * time.Second)
	renew()
	if got := w.state(v.ID); got != "Held 0" {
		t.Errorf("the try is %s", got)
	}
	renew()
	if got := w.state(v.ID); got != "Offered 0" {
		t.Errorf("the try is %s", got)
	}
}

// What a runner held when it missed its answer, or when a backup was taken, is not handed to it again in quarantine:
// another may have executed it in the time that is lost.
func TestNothingIsHandedAgainInQuarantine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("a")
	w.post(0)
	v := w.one("a")
	_, err := w.claim(w.S, "a")
	w.Must(err)
	w.Later(6 * time.Second)
	w.Must(w.S.EnterQuarantine(w.Ctx, w.By, pg.Quarantine{Context: "default", Reason: "test"}))
	if list, err := w.claim(w.S, "a"); err != nil || len(list) != 0 {
		t.Errorf("%d are handed out in quarantine %v", len(list), err)
	}
	_, err = w.S.ReleaseQuarantine(w.Ctx, w.By, pg.Quarantine{Context: "default", Reason: "test"}, true)
	w.Must(err)
	list, err := w.claim(w.S, "a")
	w.Must(err)
	if len(list) != 1 || list[0].ID != v.ID || list[0].Fence != v.Fence {
		t.Errorf("once it is released it is handed %+v", list)
	}
}

// settleEnd has the core ask about the one try that has ended, and end its transaction.
func (w *world) settleEnd() {
	w.T.Helper()
	n, _, err := w.S.Flows.Unsettled(w.Ctx)
	w.Must(err)
	woken, err := w.S.Wake(w.Ctx, w.node, 10, 10)
	w.Must(err)
	if n != 1 || len(woken.Polls) != 1 {
		w.T.Fatalf("%d unsettled, %d polls", n, len(woken.Polls))
	}
	l := woken.Polls[0]
	status := w.S.Flows.StatusBatch(w.Ctx, l.Hashes())[0]
	a := &pg.Answer{Lease: l, StartedAt: w.Now, Step: sequencer.Polled(l.Flight(0), status, l.Dispatcher.Dispatcher,
		0.5)}
	a.Result.Hash, a.Result.Done = status.Hash, status.Done
	w.Settle(a)
}

// Two that bring ended jobs to their ends at one time: each row of job_due is taken once.
func TestTwoThatAdvanceAtOneTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("a")
	j := w.post(0)
	v := w.one("a")
	_, err := w.S.Flows.End(w.Ctx, w.ID, v.ID, v.Fence, finished("1"))
	w.Must(err)
	w.settleEnd()
	other := w.Another(4)
	second, waited := w.Beside(func() error { _, err := w.S.Flows.Advance(w.Ctx); return err },
		func() string { n, err := other.Flows.Advance(w.Ctx); return fmt.Sprint(n, " ", said(err)) })
	if second != "0 ok" || waited {
		t.Errorf("%q, waited: %v", second, waited)
	}
	got, err := w.S.Flows.Job(w.Ctx, w.ID, j.ID)
	w.Must(err)
	if got.Status != flow.JobFinished || string(got.Result) != `{"n": "1"}` || got.TxOpen {
		t.Errorf("%s %s", got.Status, got.Result)
	}
	if n, _, err := w.S.Flows.Unsettled(w.Ctx); n != 0 || err != nil {
		t.Errorf("%d %v", n, err)
	}
}
