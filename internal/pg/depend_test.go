package pg_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// after posts one transaction that depends on others.
func (w *world) after(queue, uid string, on ...string) outbox.ID {
	w.T.Helper()
	out := w.postAll(dependent(queue, uid, on...))
	w.Must(out[0].Err)
	return out[0].ID
}

func dependent(queue, uid string, on ...string) *pg.Submission {
	return &pg.Submission{Queue: queue, Type: "T", UID: uid, Hash: []byte(uid), Data: json.RawMessage(`{}`), DependsOn: on}
}

func (w *world) postAll(subs ...*pg.Submission) []pg.Accepted {
	w.T.Helper()
	for _, s := range subs {
		s.ContextID = w.ID
	}
	out, err := w.S.Ingest(w.Ctx, subs, false)
	w.Must(err)
	return out
}

// states reads how it stands with each, by uid.
func (w *world) states(uids ...string) string {
	w.T.Helper()
	var list []string
	for _, u := range uids {
		id, err := w.S.ByUID(w.Ctx, w.ID, u)
		w.Must(err)
		list = append(list, u+" "+string(w.State(id)))
	}
	return strings.Join(list, ", ")
}

// run lets one node do everything that may go out, each with the answer that its uid begins with: ok or bad.
func (w *world) run(n pg.Node) (order []string) {
	w.T.Helper()
	for {
		leases := w.Claim(n, pgworld.Everything())
		if len(leases) == 0 {
			return order
		}
		for len(leases) > 0 {
			var next []*pg.Lease
			for _, l := range leases {
				order = append(order, l.Task.UID)
				a := outbox.Answer{Result: outbox.Result{Done: json.RawMessage(`"ok"`)}}
				if strings.HasPrefix(l.Task.UID, "bad") {
					a = outbox.Answer{Class: outbox.ClassRejected, Code: "500"}
				}
				out := w.Settle(w.Answer(l, a))
				if out[0].Next != nil {
					next = append(next, out[0].Next)
				}
			}
			leases = next
		}
	}
}

func TestADependentGoesOutAfterAllThatItDependsOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	n := w.Node("n1")
	w.Post("a", "T", "ok-a1", "ok-a2")
	w.Post("b", "T", "ok-b")
	w.after("b", "ok-x", "ok-a2", "ok-b") // behind one of them in its queue
	w.after("", "ok-y", "ok-x", "ok-a1")
	w.after("c", "ok-z")
	w.after("c", "ok-last", "ok-y")
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	order := strings.Join(w.run(n), " ")
	for _, pair := range []string{"a2 x", "b x", "x y", "a1 y", "y last", "z last"} {
		first, second, _ := strings.Cut(pair, " ")
		if strings.Index(order, "ok-"+first) > strings.Index(order, "ok-"+second) {
			t.Errorf("%s went out before %s: %s", second, first, order)
		}
	}
	if got := w.states("ok-a1", "ok-a2", "ok-b", "ok-x", "ok-y", "ok-z", "ok-last"); strings.Count(got, "DONE") != 7 {
		t.Error(got)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

func TestWhatFailsFailsItsDependentsInTheSameTransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	n := w.Node("n1")
	w.Post("a", "T", "bad-a")
	w.after("b", "ok-x", "bad-a")
	w.after("b", "ok-free") // goes on behind what failed at the head
	w.after("c", "ok-c0")
	w.after("c", "ok-y", "ok-x")
	w.after("c", "ok-c1")
	w.after("", "ok-u", "ok-y", "ok-free")
	w.after("a", "ok-same", "bad-a") // behind it in its own queue
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	leases := w.Claim(n, pgworld.Everything())
	for _, l := range leases {
		if l.Task.UID == "bad-a" {
			w.Settle(w.Answer(l, outbox.Answer{Class: outbox.ClassRejected, Code: "500"}))
		}
	}
	if got := w.states("bad-a", "ok-x", "ok-y", "ok-u", "ok-same"); got != "bad-a FAILED, ok-x FAILED, ok-y FAILED, ok-u FAILED, ok-same FAILED" {
		t.Error(got)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	for _, l := range leases {
		if l.Task.UID != "bad-a" {
			w.Settle(w.Answer(l, pgworld.Done()))
		}
	}
	w.Must(releaseAll(w, n))
	w.run(n)
	if got := w.states("ok-free", "ok-c0", "ok-c1"); strings.Count(got, "DONE") != 3 {
		t.Error(got)
	}
	w.after("d", "ok-late", "ok-u") // it had failed before this one was posted
	w.after("", "ok-later", "ok-late")
	w.after("d", "ok-behind")
	w.run(n)
	if got := w.states("ok-late", "ok-later", "ok-behind"); got != "ok-late FAILED, ok-later FAILED, ok-behind DONE" {
		t.Error(got)
	}
	tx, err := w.S.Transaction(w.Ctx, w.ID, w.UID("ok-y"))
	w.Must(err)
	if tx.Code != pg.CodeDependency || len(tx.DependsOn) != 1 || tx.DependsOn[0] != w.UID("ok-x").String() {
		t.Errorf("%+v", tx)
	}
	h, err := w.S.Reads.History(w.Ctx, w.ID, w.UID("ok-y"))
	w.Must(err)
	if h[len(h)-1].Event != "DependencyFailed" {
		t.Errorf("%+v", h)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

// releaseAll gives up what a node holds and cannot have called.
func releaseAll(w *world, n pg.Node) error {
	_, err := w.S.GiveUpAll(w.Ctx, n)
	if err != nil {
		return err
	}
	for _, l := range w.Claim(n, pgworld.Everything()) {
		w.Settle(w.Answer(l, pgworld.Done()))
	}
	return nil
}

func TestCancelAndAbandonFailDependents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	n := w.Node("n1")
	id := w.Post("a", "T", "ok-a", "ok-b")
	w.after("a", "ok-x", "ok-b")
	w.after("z", "ok-y", "ok-a")
	if _, err := w.S.Cancel(w.Ctx, w.By, id[1]); err != nil {
		t.Fatal(err)
	}
	if got := w.states("ok-b", "ok-x", "ok-y"); got != "ok-b CANCELLED, ok-x FAILED, ok-y WAITING" {
		t.Error(got)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	w.Claim(n, pgworld.Everything())
	if _, err := w.S.Abandon(w.Ctx, w.By, id[0]); err != nil {
		t.Fatal(err)
	}
	if got := w.states("ok-a", "ok-y"); got != "ok-a UNRESOLVED, ok-y FAILED" {
		t.Error(got)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

func TestCyclesAndStrangersAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	n := w.Node("n1")
	refused := func(a pg.Accepted, code, text string) {
		t.Helper()
		if fault.CodeOf(a.Err) != code || !strings.Contains(a.Err.Error(), text) {
			t.Errorf("%v, want %s with %q", a.Err, code, text)
		}
	}
	out := w.postAll(dependent("q", "a", "b"), dependent("r", "b", "c"), dependent("", "c", "a"), dependent("q", "d", "a"), dependent("s", "e"))
	refused(out[0], "dependency_cycle", "a -> b -> c -> a")
	refused(out[1], "dependency_cycle", "a -> b -> c -> a")
	refused(out[2], "dependency_cycle", "a -> b -> c -> a")
	refused(out[3], "unknown_dependency", `"a", which was refused itself`)
	if out[4].Err != nil {
		t.Error(out[4].Err)
	}
	out = w.postAll(dependent("q", "f", "g"), dependent("q", "g"), dependent("q", "self", "self"))
	refused(out[0], "dependency_cycle", "f -> g -> f")
	refused(out[2], "dependency_cycle", "self -> self")
	if out[1].Err != nil {
		t.Error(out[1].Err)
	}
	out = w.postAll(dependent("q", "h", "nobody"), dependent("t", "i", "h"), dependent("t", "j", "k"), dependent("u", "k", "l"), dependent("v", "l"))
	refused(out[0], "unknown_dependency", `"nobody"`)
	refused(out[1], "unknown_dependency", `"h", which was refused itself`)
	if out[2].Err != nil || out[3].Err != nil || out[4].Err != nil { // forward, and no cycle
		t.Error(out)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	if got := strings.Join(w.run(n), " "); strings.Index(got, "l") > strings.Index(got, "k") || strings.Index(got, "k") > strings.Index(got, "j") {
		t.Error(got)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

func TestAnEndReachesMoreDependentsThanOneTransactionTakes(t *testing.T) {
	t.Parallel()
	const dependents = 1100 // a ripple takes a thousand
	w := newWorld(t)
	w.S.FailAtOnce(50)
	w.Dispatcher("T", nil)
	n := w.Node("n1")
	for _, root := range []string{"ok-root", "bad-root"} {
		w.Post(root, "T", root)
		var subs []*pg.Submission
		for i := range dependents {
			on := root
			if i%10 != 0 { // chains of ten
				on = fmt.Sprintf("ok-%s-%d", root, i-1)
			}
			subs = append(subs, dependent(fmt.Sprintf("%s-%d", root, i%300), fmt.Sprintf("ok-%s-%d", root, i), on))
		}
		for _, a := range w.postAll(subs...) {
			w.Must(a.Err)
		}
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	leases := w.Claim(n, pgworld.Everything())
	if len(leases) != 2 {
		t.Fatalf("%d may go out", len(leases))
	}
	for _, l := range leases {
		a := pgworld.Done()
		if l.Task.UID == "bad-root" {
			a = outbox.Answer{Class: outbox.ClassRejected, Code: "500"}
		}
		w.Settle(w.Answer(l, a))
	}
	if !w.S.Rippling() {
		t.Error("nobody is told that dependents are left")
	}
	for w.S.Rippling() {
		_, err := w.S.Ripple(w.Ctx)
		w.Must(err)
	}
	var failed, left int
	w.Must(w.S.Pool().QueryRow(w.Ctx, `SELECT count(*) FROM postern.tx WHERE uid LIKE 'ok-bad-root-%' AND state = 'FAILED'`).Scan(&failed))
	w.Must(w.S.Pool().QueryRow(w.Ctx, `SELECT count(*) FROM postern.ripple`).Scan(&left))
	if failed != dependents || left != 0 {
		t.Errorf("%d of %d failed, %d ends are left", failed, dependents, left)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	if got := len(w.run(n)); got != dependents {
		t.Errorf("%d of %d went out", got, dependents)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

// S3.2, S2.15: all dependents, in a chain and side by side, fail in the SQL transaction of the end that they depend on.
// If that is lost half-way, none has failed.
func TestTenThousandDependentsFailWithWhatTheyDependOn(t *testing.T) {
	t.Parallel()
	const chain, fan = 8000, 2000
	w := newWorld(t)
	w.Dispatcher("T", nil)
	root := w.Post("root", "T", "bad-root")[0].String()
	var subs []*pg.Submission
	for i := range chain {
		on := root
		if i > 0 {
			on = fmt.Sprint("chain-", i-1)
		}
		subs = append(subs, dependent("chain", fmt.Sprint("chain-", i), on))
	}
	for i := range fan {
		queue := "" // every other one alone
		if i%2 == 0 {
			queue = fmt.Sprint("fan-", i%20)
		}
		subs = append(subs, dependent(queue, fmt.Sprint("fan-", i), root))
	}
	for part := range slices.Chunk(subs, 1000) {
		for _, a := range w.postAll(part...) {
			w.Must(a.Err)
		}
	}
	w.Post("fan-0", "T", "behind")
	a := w.Answer(w.Claim(w.Node("n1"), pgworld.Everything())[0], outbox.Answer{Class: outbox.ClassRejected, Code: "500"})
	ended := func() (n, moments int) {
		w.Must(w.S.Pool().QueryRow(w.Ctx, `SELECT count(*), count(DISTINCT done_at) FROM postern.outcome`).Scan(&n, &moments))
		return n, moments
	}
	w.S.HoldCommits(func(ctx context.Context, pid uint32) error {
		_, err := w.S.Pool().Exec(ctx, `SELECT pg_terminate_backend($1)`, pid)
		return err
	})
	out, err := w.S.Settle(w.Ctx, []*pg.Answer{a})
	w.S.HoldCommits(nil)
	if n, _ := ended(); n != 0 || err == nil && out[0].Err == nil {
		t.Fatalf("%d have ended, %v %+v", n, err, out)
	}
	for range 5 { // as a node does: the server ends a session whose client computes for 4 s, as under the race detector
		if out = w.Settle(a); out[0].Err == nil || fault.KindOf(out[0].Err) != fault.Retry {
			break
		}
	}
	w.Must(out[0].Err)
	if n, moments := ended(); n != chain+fan+1 || moments != 1 || w.S.Rippling() {
		t.Errorf("%d have ended at %d times, more are to come: %v", n, moments, w.S.Rippling())
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	if got := w.run(w.Node("n2")); len(got) != 1 || got[0] != "behind" {
		t.Errorf("what was behind them: %v", got)
	}
}

// An end that others depend on is settled by itself. The outcome of the common commit beside it is told all the same.
func TestACommonCommitThatFailsIsToldBesideOneThatOthersDependOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	w.Post("a", "T", "ok-a")
	w.Post("b", "T", "ok-b")
	w.after("c", "ok-c", "ok-a")
	var answers []*pg.Answer
	for _, l := range w.Claim(w.Node("n"), pgworld.Everything()) {
		answers = append(answers, w.Answer(l, pgworld.Done()))
	}
	if len(answers) != 2 {
		t.Fatalf("%d leases, want two", len(answers))
	}
	refused := fmt.Errorf("not today")
	w.S.HoldCommits(func(context.Context, uint32) error { return refused })
	if out, err := w.S.Settle(w.Ctx, answers); err == nil {
		t.Errorf("a commit that failed is no error: %+v", out)
	}
	w.S.HoldCommits(nil)
	if got, want := w.states("ok-a", "ok-b", "ok-c"), "ok-a DISPATCHING, ok-b DISPATCHING, ok-c WAITING"; got != want {
		t.Errorf("after a commit that failed: %s, want %s", got, want)
	}
	w.Settle(answers...)
	if got, want := w.states("ok-a", "ok-b"), "ok-a DONE, ok-b DONE"; got != want {
		t.Errorf("once more: %s, want %s", got, want)
	}
	if order := w.run(w.Node("m")); len(order) != 1 || order[0] != "ok-c" {
		t.Errorf("went out then: %v, want ok-c", order)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}
