package work_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/remotetest"
)

// outage is how large the backlog of TestABacklogLosesNothingToAnOutage is, how long the outage lasts, and how long
// after its end all must have gone out. POSTERN_TEST_BACKLOG=1000 makes it as large and as strict as what is promised.
func outage(t *testing.T) (backlog int, lasts, within time.Duration) {
	text := os.Getenv("POSTERN_TEST_BACKLOG")
	if text == "" {
		return 100, 4 * time.Second, 3 * time.Minute
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("POSTERN_TEST_BACKLOG=%s: want a number of transactions, such as 1000", text)
	}
	return n, time.Minute, 40 * time.Second
}

// A backlog meets an ingress that answers everything itself for a while. Not one transaction is lost or sent twice,
// none uses up a retry, and all go out soon after it is mended. Behind a worker that can neither be asked nor be sent
// the same twice, what had a 500 is held with its levers, and no probe adds to it.
func TestABacklogLosesNothingToAnOutage(t *testing.T) {
	for _, answer := range []struct {
		status int
		body   string
	}{{404, "404 page not found"}, {403, "<html>forbidden"}, {429, ""}, {500, ""}, {502, "<html>bad gateway"}} {
		for _, kind := range []string{"asked", "mute", "idempotent"} {
			t.Run(fmt.Sprintf("%d %s", answer.status, kind), func(t *testing.T) {
				t.Parallel() // they mostly wait
				h := newHouse(t)
				h.fake.HasStatus(kind == "asked")
				h.fake.Script(dispatches, remotetest.Done("ok"))
				in := newIngress(t, h.fake)
				h.dispatcher("T", func(d *outbox.Dispatcher) {
					d.WorkerURL, d.Idempotent = in.URL, kind == "idempotent"
				})
				in.breaks(answer.status, answer.body)
				backlog, lasts, within := outage(t)
				ids := h.backlog(backlog)
				h.engine("n1", nil)
				h.until("the gate closes", func() bool { return h.failures("T") > 0 })
				time.Sleep(lasts)
				held := 0
				if kind == "mute" && answer.status == 500 {
					held = h.burned(in)
				}
				in.mend()
				h.goOut(ids, held, within)
			})
		}
	}
}

// A backlog stands behind a process that may not call its worker's address, as by default a private one, until it is
// started anew with the flag.
func TestABacklogLosesNothingToAMissingCIDR(t *testing.T) {
	h := newHouse(t)
	h.fake.Script(dispatches, remotetest.Done("ok"))
	h.dispatcher("T", nil)
	strict := remote.New(remote.Config{})
	t.Cleanup(strict.Close)
	backlog, lasts, within := outage(t)
	ids := h.backlog(backlog)
	stop := h.engine("n1", func(p *parts) { p.Worker = remote.Mux{Next: strict} })
	h.until("the gate closes", func() bool { return h.failures("T") > 0 })
	time.Sleep(lasts)
	stop()
	var why string
	h.must(h.s.Pool().QueryRow(h.ctx, `SELECT gate_reason FROM postern.dispatcher WHERE type = 'T'`).Scan(&why))
	if !strings.Contains(why, "--worker-allow-cidr") {
		t.Errorf("the gate is closed for %q", why)
	}
	h.engine("n1", nil)
	h.goOut(ids, 0, within)
}

// backlog posts one transaction to each of n queues.
func (h *house) backlog(n int) (ids []outbox.ID) {
	h.t.Helper()
	var subs []*pg.Submission
	for i := range n {
		uid := fmt.Sprintf("x%d", i)
		subs = append(subs, &pg.Submission{
			ContextID: h.by.Context,
			Queue:     fmt.Sprintf("q%d", i),
			Type:      "T",
			UID:       uid,
			Hash:      []byte(uid),
			Data:      []byte(`{}`),
		})
	}
	out, err := h.s.Ingest(h.ctx, subs, false)
	h.must(err)
	for _, a := range out {
		h.must(a.Err)
		ids = append(ids, a.ID)
	}
	return ids
}

// burned returns how many transactions have had the answer of the ingress, so that no process knows their outcomes, and
// sees to it that probes add none.
func (h *house) burned(in *ingress) int {
	h.t.Helper()
	const calls = "/dispatch/"
	before, failures := in.answered(calls), h.failures("T")
	h.until("probes go out", func() bool { return h.failures("T") > failures+1 })
	if n := in.answered(calls); n != before {
		h.t.Errorf("probes have burned %d transactions", n-before)
	}
	return before
}

// goOut waits until all has gone out but what is to be held, and then, by an operator's word, that as well. Nothing was
// sent twice under another token, and no retry was used.
func (h *house) goOut(ids []outbox.ID, held int, within time.Duration) {
	h.t.Helper()
	begun := time.Now()
	open := func() (open []*pg.Transaction) {
		all, err := h.s.Reads.Transactions(h.ctx, h.by.Context, ids)
		h.must(err)
		for _, tx := range all {
			if tx.State != outbox.DONE {
				open = append(open, tx)
			}
		}
		return open
	}
	for left := open(); len(left) > held; left = open() {
		if time.Since(begun) > within {
			h.t.Fatalf("%s after it was mended %d have not gone out, and %d are held", within, len(left)-held, held)
		}
		time.Sleep(100 * time.Millisecond)
	}
	spent := time.Since(begun).Round(100 * time.Millisecond)
	h.t.Logf("%d of %d went out within %s, %d are held", len(ids)-held, len(ids), spent, held)
	for _, tx := range open() {
		h.until("it is held with its levers", func() bool {
			why, err := h.s.Reads.Why(h.ctx, h.by.Context, tx.ID)
			h.must(err)
			b := h.blocker(why, &cell{id: tx.ID, fate: fates["held"]})
			return b != nil && len(b.Levers) == 3
		})
		_, err := h.s.WasNotDone(h.ctx, h.by, tx.ID)
		h.must(err)
	}
	for _, tx := range h.await(ids, 3*time.Minute, outbox.DONE) {
		if tx.Retries != 0 || tx.Attempt != 1 {
			h.t.Errorf("%s used up %d retries, and was done in attempt %d", tx.UID, tx.Retries, tx.Attempt)
		}
	}
	executed := map[string]int{}
	for _, c := range h.fake.Calls(dispatches) {
		if executed[c.UID]++; executed[c.UID] > 1 {
			h.t.Errorf("%s reached its worker %d times", c.UID, executed[c.UID])
		}
	}
	h.holdsTrue()
}
