package work_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/reads"
	"github.com/postern-dev/postern/internal/remotetest"
	"github.com/postern-dev/postern/internal/sequencer"
)

// fate is where a transaction comes to rest whose worker always answers the same: its state, how often it was called,
// how many retries that used up, and the kind of blocker that /why names.
type fate struct {
	state   outbox.State
	class   outbox.Class
	calls   int // with more than most, at least so many
	more    bool
	retries int
	why     string
}

// The fates of the table below. A transaction that has not ended goes on once the worker answers as it should.
var fates = map[string]fate{
	"done":     {state: outbox.DONE, calls: 1},
	"accepted": {state: outbox.REVISION, calls: 1},
	"rejected": {state: outbox.FAILED, class: outbox.ClassRejected, calls: 1},
	"failed":   {state: outbox.FAILED, class: outbox.ClassRetry, calls: 3, retries: 2},
	"waits":    {state: outbox.WAITING, class: outbox.ClassBlocked, calls: 2, more: true, why: "queue_blocked"},
	"gated": {state: outbox.WAITING, class: outbox.ClassBlocked, calls: 2, more: true,
		why: "worker_unreachable"},
	"unsent": {state: outbox.WAITING, class: outbox.ClassBlocked, why: "worker_unreachable"},
	"held":   {state: outbox.DISPATCHING, class: outbox.ClassAmbiguous, calls: 1, why: "outcome_unknown"},
	"used":   {state: outbox.DISPATCHING, class: outbox.ClassAmbiguous, calls: 3, retries: 2, why: "outcome_unknown"},
}

// answers is the table of S2.8: an answer, and the fates where the worker can be asked for the status and where it
// cannot; of each the second is that of an idempotent dispatcher. says is a part of what people read.
var answers = []struct {
	name  string
	reply remotetest.Reply
	fates [4]string // with /status, idempotent too; without, idempotent too
	says  string
}{
	{"done", remotetest.Done(map[string]any{"ok": true}), every("done"), ""},
	{"done, an empty object alone", remotetest.Body(`{"done":{}}`), every("done"), ""},
	{"done beside a hash", remotetest.Body(`{"hash":"0x1","done":true}`), every("done"), ""},
	{"done, typed as a page", remotetest.Body(`{"done":true}`).With("Content-Type", "text/html"), every("done"), ""},
	{"done beside a code, without a hash", remotetest.Body(`{"done":{"x":1},"error":{"code":500}}`), every("done"), ""},
	{"201 done", remotetest.HTTP(201, `{"done":{}}`), every("done"), ""},

	{"accepted", remotetest.Accept(""), every("accepted"), ""},
	{"a hash alone", remotetest.Body(`{"hash":"0x2"}`), every("accepted"), ""},

	{"rejected by the code of the reference", remotetest.Fail(500, "no account"), every("rejected"), "no account"},
	{"200 rejected by class", remotetest.Body(`{"error":{"class":"rejected","message":"too much"}}`), every("rejected"), "too much"},
	{"404 rejected by class", remotetest.HTTP(404, `{"error":{"class":"rejected"}}`), every("rejected"), "HTTP 404"},
	{"500 rejected by class", remotetest.HTTP(500, `{"error":{"class":"rejected"}}`), every("rejected"), "HTTP 500"},

	{"a redirect rejected by class", remotetest.HTTP(302, `{"error":{"class":"rejected"}}`),
		every("rejected"), "class rejected"},

	{"retry by the code of the reference", remotetest.Fail(20203, "sending"), every("failed"), "sending"},
	{"503 retry by class", remotetest.HTTP(503, `{"error":{"class":"retry","message":"later"}}`), every("failed"), "later"},
	{"400", remotetest.HTTP(400, ""), every("failed"), "error.class"},
	{"400 with a code", remotetest.HTTP(400, `{"error":{"code":500}}`), every("failed"), "error.class"},
	{"413", remotetest.HTTP(413, ""), every("failed"), "error.class"},
	{"415", remotetest.HTTP(415, ""), every("failed"), "error.class"},
	{"422", remotetest.HTTP(422, "{}"), every("failed"), "error.class"},

	{"blocked by the code of the reference", remotetest.Fail(502, "no worker"), every("gated"), "no worker"},
	{"503 blocked by class, all that it is sent",
		remotetest.HTTP(503, `{"error":{"class":"blocked","scope":"worker","message":"closed"}}`),
		every("gated"), "closed"},
	{"blocked by class, and no word more", remotetest.Body(`{"error":{"class":"blocked","scope":"worker"}}`),
		every("gated"), "class blocked with scope worker"},
	{"500 blocked by class", remotetest.HTTP(500, `{"error":{"class":"blocked","message":"busy"}}`), every("waits"), "busy"},
	{"401", remotetest.HTTP(401, ""), every("waits"), "HTTP 401"},
	{"403 of a firewall", remotetest.HTTP(403, "<html>no"), every("waits"), "HTML page"},
	{"404", remotetest.HTTP(404, "404 page not found"), every("waits"), "HTTP 404"},
	{"404 of an ingress", remotetest.HTTP(404, "<!doctype html>"), every("waits"), "HTML page"},
	{"404 of a gateway that writes JSON", remotetest.HTTP(404, `{"error":{"code":404}}`), every("waits"), "HTTP 404"},
	{"405", remotetest.HTTP(405, ""), every("waits"), "HTTP 405"},
	{"429", remotetest.HTTP(429, "").With("Retry-After", "1"), every("waits"), "HTTP 429"},
	{"501", remotetest.HTTP(501, ""), every("waits"), "HTTP 501"},
	{"200 with a page", remotetest.Body("<html>log in"), every("waits"), "HTML page"},
	{"502 with a page", remotetest.HTTP(502, "<html>bad gateway"), every("waits"), "HTTP 502"},
	{"502 of a gateway that writes JSON", remotetest.HTTP(502, `{"error":{"code":500}}`), every("waits"), "HTTP 502"},
	{"503", remotetest.HTTP(503, ""), every("waits"), "HTTP 503"},

	{"ambiguous by class", remotetest.HTTP(200, `{"error":{"class":"ambiguous","message":"perhaps"}}`), asked, "perhaps"},
	{"503 ambiguous by class",
		remotetest.HTTP(503, `{"error":{"class":"ambiguous","message":"perhaps"}}`), asked, "perhaps"},
	{"400 ambiguous by class",
		remotetest.HTTP(400, `{"error":{"class":"ambiguous","message":"perhaps"}}`), asked, "perhaps"},
	{"ambiguous by class, with a code that looks like ours",
		remotetest.HTTP(200, `{"error":{"class":"ambiguous","code":"http_502","message":"of the bank"}}`),
		asked, "of the bank"},
	{"409", remotetest.HTTP(409, ""), asked, "HTTP 409"},
	{"500", remotetest.HTTP(500, ""), asked, "HTTP 500"},
	{"500 with a page", remotetest.HTTP(500, "<html>oops"), asked, "HTTP 500"},
	{"500 of a framework", remotetest.HTTP(500, `{"statusCode":500,"error":"Internal Server Error"}`), asked, "HTTP 500"},
	{"500 with a code", remotetest.HTTP(500, `{"error":{"code":500}}`), asked, "HTTP 500"},
	{"504", remotetest.HTTP(504, ""), asked, "HTTP 504"},
	{"redirect", remotetest.Redirect("http://elsewhere/"), asked, "redirect"},
	{"drops the connection", remotetest.Drop(), asked, "connection"},
	{"hangs", remotetest.Hang(), asked, "in time"},
	{"breaks off", remotetest.Body(`{"done":true}`).ThenCut(), asked, "broke off"},

	{"200 of a framework", remotetest.Body(`{"ok":true}`), read, "neither hash, done nor error"},
	{"200 with a code alone", remotetest.Body(`{"error":{"code":500}}`), read, "error.class"},
	{"200 with nothing set", remotetest.Body(`{"hash":"","done":{},"error":null}`), read, "neither hash, done nor error"},
	{"200 text", remotetest.Body("ok"), read, "no TxnResult"},
	{"200 a list", remotetest.Body("[]"), read, "no TxnResult"},
	{"204", remotetest.HTTP(204, ""), read, "it is empty"},
	{"too long", remotetest.Huge(), read, "1 MiB"},
}

// asked are the fates after an answer that tells nothing, and read those after one that can never be read.
var (
	asked = [4]string{"waits", "waits", "held", "waits"}
	read  = [4]string{"used", "used", "held", "used"}
)

func every(fate string) [4]string { return [4]string{fate, fate, fate, fate} }

// cell is one cell of the table at work.
type cell struct {
	name, typ, says string
	fate            fate
	fake            *remotetest.Fake
	id              outbox.ID
}

func TestWhatEachAnswerMeans(t *testing.T) {
	h := newHouse(t)
	mute := remotetest.NewFake(t)
	mute.HasStatus(false)
	var cells []*cell
	for i, a := range answers {
		for n, name := range a.fates {
			c := &cell{name: fmt.Sprintf("%s, %s", a.name, columns[n]), typ: fmt.Sprintf("T%d-%d", i, n), says: a.says, fate: fates[name], fake: h.fake}
			if n >= 2 {
				c.fake = mute
			}
			h.cell(c, func(d *outbox.Dispatcher) {
				d.WorkerURL, d.Idempotent = c.fake.URL(), n%2 == 1
				if a.says != "in time" { // a busy machine is no worker that hangs
					d.Timeouts.Dispatch = outbox.Duration(30 * time.Second)
				}
			})
			c.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, Type: c.typ}, a.reply)
			cells = append(cells, c)
		}
	}
	gone := remotetest.NewFake(t)
	gone.Refuse()
	for name, url := range map[string]string{"dns": "http://worker.invalid", "connection_refused": gone.URL(),
		"address_refused": "http://10.1.2.3:9", "tls": "https" + strings.TrimPrefix(mute.URL(), "http")} {
		for n := range 2 {
			c := &cell{name: name + " " + columns[n], typ: fmt.Sprintf("%s-%d", name, n), fate: fates["unsent"], fake: gone}
			h.cell(c, func(d *outbox.Dispatcher) { d.WorkerURL, d.Idempotent = url, n == 1 })
			cells = append(cells, c)
		}
	}
	h.engine("n1", nil)
	for _, c := range cells {
		t.Run(c.name, func(t *testing.T) {
			h := *h
			h.t = t
			h.rests(c)
		})
	}
	for _, c := range cells {
		if c.goesOn() && c.fake != gone {
			h.mend(c)
		}
	}
	for _, c := range cells {
		if c.goesOn() && c.fake != gone {
			t.Run(c.name+", then done", func(t *testing.T) {
				h := *h
				h.t = t
				tx := h.await([]outbox.ID{c.id}, 90*time.Second, outbox.DONE)[c.id]
				if tx.Retries != c.fate.retries || tx.Attempt != 1 {
					t.Errorf("done after %d retries in attempt %d, want %d in the first", tx.Retries, tx.Attempt, c.fate.retries)
				}
			})
		}
	}
}

// goesOn says whether a transaction with the fate of the cell has not ended, and waits for its worker or for an
// operator.
func (c *cell) goesOn() bool { return !c.fate.state.Terminal() && c.fate.state != outbox.REVISION }

// columns name the fates of an answer.
var columns = [4]string{"with /status", "with /status, idempotent", "without /status", "without /status, idempotent"}

// cell makes a dispatcher for a type of its own, and posts one transaction of it.
func (h *house) cell(c *cell, change func(*outbox.Dispatcher)) {
	h.t.Helper()
	h.dispatcher(c.typ, func(d *outbox.Dispatcher) {
		most := 2
		d.Retry.MaxRetries = &most
		d.Timeouts.Dispatch = outbox.Duration(2 * time.Second)
		change(d)
	})
	c.id = h.post(c.typ, c.typ, c.typ)[0]
}

// calls are the dispatches of a cell; all of one attempt have one token.
func (h *house) calls(c *cell) int {
	h.t.Helper()
	seen := c.fake.Calls(remotetest.Match{Op: remotetest.OpDispatch, Type: c.typ})
	for _, s := range seen {
		if s.Attempt == 1 && s.Token != seen[0].Token {
			h.t.Errorf("one attempt has the tokens %s and %s", s.Token, seen[0].Token)
		}
	}
	return len(seen)
}

// rests waits until a transaction has the fate of its cell.
func (h *house) rests(c *cell) {
	h.t.Helper()
	var tx *pg.Transaction
	var why *reads.Why
	var err error
	ok := func() bool {
		tx, err = h.s.Transaction(h.ctx, h.by.Context, c.id)
		h.must(err)
		why, err = h.s.Reads.Why(h.ctx, h.by.Context, c.id)
		h.must(err)
		n := h.calls(c)
		if n < c.fate.calls || tx.Class != c.fate.class || c.fate.why != "" && h.blocker(why, c) == nil {
			return false
		}
		return tx.State == c.fate.state || c.fate.more && !tx.State.Terminal()
	}
	for end := time.Now().Add(90 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			h.t.Fatalf("after %d calls it is %s, class %q (%s), retries %d, why %+v; want %+v that says %q", h.calls(c), tx.State, tx.Class, tx.Error, tx.Retries, why, c.fate, c.says)
		}
	}
	if n := h.calls(c); tx.Retries != c.fate.retries || n != c.fate.calls && !c.fate.more {
		h.t.Errorf("%d calls, retries %d; want %+v", n, tx.Retries, c.fate)
	}
	if !strings.Contains(tx.Error, c.says) {
		h.t.Errorf("it ended, or waits, with %q; want %q in it", tx.Error, c.says)
	}
	if c.fate.why == "outcome_unknown" {
		if b := h.blocker(why, c); !strings.Contains(b.Detail, c.says) || len(b.Levers) != 3 {
			h.t.Errorf("why says %q with levers %v, want %q in it", b.Detail, b.Levers, c.says)
		}
	}
	if tx.State == outbox.FAILED {
		if _, err := c.fake.WaitCall(h.ctx, remotetest.Match{Op: remotetest.OpOnFailure, Type: c.typ}); err != nil {
			h.t.Error(err)
		}
	}
}

// blocker is the one that the fate of a cell names, nil if why does not.
func (h *house) blocker(why *reads.Why, c *cell) *reads.Blocker {
	for i := range why.Blockers {
		b := &why.Blockers[i]
		if b.Kind == c.fate.why && (b.Kind != "outcome_unknown" || b.Next == nil) {
			return b
		}
	}
	return nil
}

// mend lets the worker answer as it should. A held transaction has not been called
// again, and is once an operator says that nothing was done.
func (h *house) mend(c *cell) {
	h.t.Helper()
	c.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, Type: c.typ}, remotetest.Done("ok"))
	if c.fate.why == "outcome_unknown" {
		if n := h.calls(c); n != c.fate.calls {
			h.t.Errorf("%s: it is held after %d calls, and was called %d times", c.name, c.fate.calls, n)
		}
		_, err := h.s.WasNotDone(h.ctx, h.by, c.id)
		h.must(err)
	}
}

// An operator's word ends a held transaction, calls its hook, and lets the next of its queue go out.
func TestWhatIsHeldEndsByAnOperatorsWord(t *testing.T) {
	h := newHouse(t)
	h.fake.HasStatus(false)
	h.dispatcher("T", nil)
	h.fake.Script(dispatches, remotetest.Done("ok"))
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, UID: "a"}, remotetest.HTTP(500, ""))
	h.engine("n1", nil)
	ids := h.post("q", "T", "a", "b")
	c := &cell{typ: "T", fate: fates["held"], fake: h.fake, id: ids[0], says: "HTTP 500"}
	h.rests(c)
	if _, err := h.s.WasDone(h.ctx, h.by, ids[0]); err != nil {
		t.Fatal(err)
	}
	h.await(ids, 30*time.Second, outbox.DONE)
	if _, err := h.fake.WaitCall(h.ctx, remotetest.Match{Op: remotetest.OpOnSuccess, UID: "a"}); err != nil {
		t.Error(err)
	}
	list, err := h.s.Reads.History(h.ctx, h.by.Context, ids[0])
	h.must(err)
	if last := list[len(list)-1]; last.Event != string(sequencer.FoundDone) && !strings.Contains(fmt.Sprint(list), string(sequencer.FoundDone)) {
		t.Errorf("the history ends with %+v", last)
	}
}

// A gateway that asks for hours holds a queue for minutes, and the lever that why names ends also that.
func TestHoursThatAGatewayAsksForEndByALever(t *testing.T) {
	h := newHouse(t)
	h.dispatcher("T", nil)
	h.fake.Script(dispatches, remotetest.HTTP(503, "<html>maintenance").With("Retry-After", "14400"))
	h.engine("n1", nil)
	c := &cell{typ: "T", fate: fates["waits"], fake: h.fake, says: "HTTP 503", id: h.post("q", "T", "a")[0]}
	c.fate.calls = 1
	h.rests(c)
	why, err := h.s.Reads.Why(h.ctx, h.by.Context, c.id)
	h.must(err)
	b := h.blocker(why, c)
	if b.Next == nil || time.Until(b.Next.At) > 6*time.Minute || time.Until(b.Next.At) < time.Minute {
		t.Errorf("it is tried again %+v", b.Next)
	}
	if !strings.HasSuffix(b.Levers[0].Path, "/retry") {
		t.Errorf("the levers are %+v", b.Levers)
	}
	h.fake.Script(dispatches, remotetest.Done("ok"))
	if r, err := h.s.RetryNow(h.ctx, h.by, c.id); err != nil || !r.Changed {
		t.Errorf("%+v, %v", r, err)
	}
	h.await([]outbox.ID{c.id}, 60*time.Second, outbox.DONE)
}

// The lever of one transaction does not open the gate that a worker closed for hours, and says which one does.
func TestTheGateThatAWorkerClosedForHoursIsNamedByTheLever(t *testing.T) {
	h := newHouse(t)
	h.dispatcher("T", nil)
	until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	blocked := fmt.Sprintf(`{"error":{"class":"blocked","scope":"worker","until":%q}}`, until)
	h.fake.Script(dispatches, remotetest.HTTP(503, blocked))
	h.engine("n1", nil)
	id := h.post("q", "T", "a")[0]
	h.until("the gate is closed", func() bool { return h.failures("T") > 0 })
	_, err := h.s.RetryNow(h.ctx, h.by, id)
	if fault.CodeOf(err) != "wrong_state" || !strings.Contains(err.Error(), "/dispatchers/T") {
		t.Errorf("%v", err)
	}
}

// A rejection pauses a queue that wants that, fails what depends on it.
func TestARejectionFailsWhatFollowsFromAFailure(t *testing.T) {
	h := newHouse(t)
	h.dispatcher("T", nil)
	h.fake.Script(dispatches, remotetest.Done("ok"))
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, UID: "a"}, remotetest.FailWith(map[string]any{"class": "rejected"}))
	_, err := h.s.PutQueue(h.ctx, h.by, pg.Queue{Name: "q", Priority: "Med", WhenFull: "refuse", OnFailure: "pause"}, 0)
	h.must(err)
	ids := h.post("q", "T", "a", "b")
	out, err := h.s.Ingest(h.ctx, []*pg.Submission{{ContextID: h.by.Context, Queue: "r", Type: "T", UID: "c", Hash: []byte("c"),
		Data: []byte(`{}`), DependsOn: []string{"a"}}}, false)
	h.must(err)
	h.must(out[0].Err)
	h.engine("n1", nil)
	all := h.await([]outbox.ID{ids[0], out[0].ID}, 30*time.Second, outbox.FAILED)
	if all[ids[0]].Class != outbox.ClassRejected || all[out[0].ID].Code != pg.CodeDependency {
		t.Errorf("%+v, %+v", all[ids[0]], all[out[0].ID])
	}
	if q, err := h.s.Queue(h.ctx, h.by.Context, "q"); err != nil || !q.Paused {
		t.Errorf("%+v, %v", q, err)
	}
}
