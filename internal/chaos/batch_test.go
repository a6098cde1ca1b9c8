package chaos

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/devnet"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/batches"
	pgdb "github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pg/verify"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/processor"
)

// expected is how a batch must end, and what its target must have seen.
type expected struct {
	typ     string
	result  processor.Result
	effects int
}

// TestBatchesSurviveKills executes batches against a ledger and against a database while nodes, workers and the ledger
// itself are killed in the middle: each batch has one result. An atomic batch has all of its effects or none, the
// others have those that they report, each once and in order. Subscribers hear of every result.
func TestBatchesSurviveKills(t *testing.T) {
	const processors = 6
	rounds := 1 // POSTERN_CHAOS=10: ten times as many batches, and kills (make test-kills)
	if n, err := strconv.Atoi(os.Getenv("POSTERN_CHAOS")); err == nil {
		rounds = max(n, 1)
	}
	each := 5 * rounds
	db := pgtest.New(t)
	s := db.Store(t, 6)
	by := pgdb.By{Context: s.Context("default").ID, Actor: "test", Via: "test"}
	_, err := s.Pool().Exec(t.Context(), sqlWorkerTables)
	must(t, err)
	chain := startServer(t, "ledger", "")
	signer := startServer(t, "worker", chain.url)
	table := startServer(t, "sql", db.URL)
	for typ, url := range map[string]string{"EXECUTE": signer.url, "SQL": table.url} {
		d := outbox.DefaultDispatcher()
		d.Type, d.WorkerURL, d.Capabilities = typ, url, []string{"atomic"}
		d.Timeouts.Dispatch = outbox.Duration(2 * time.Second)
		d.Inclusion = outbox.Inclusion{PollEvery: outbox.Duration(50 * time.Millisecond), Deadline: outbox.Duration(30 * time.Second),
			UnknownGrace: outbox.Duration(10 * time.Second), Confirmations: 1}
		if typ == "EXECUTE" {
			d.Pool = "signers"
		}
		_, err := s.PutDispatcher(t.Context(), by, d, 0)
		must(t, err)
	}
	for i := range 4 {
		_, err := s.PutSender(t.Context(), by, pg.Sender{Account: fmt.Sprintf("acct-%d", i), Pool: "signers"}, 0)
		must(t, err)
	}
	heard, url := listen(t)
	_, err = s.Deliveries.PutSubscription(t.Context(), by, outbox.Subscription{Name: "results", Kind: "webhook", URL: url, OnError: "block",
		Events: []outbox.Event{outbox.EventResult}}, []byte("0123456789abcdef0123456789abcdef"), 0)
	must(t, err)
	time.Sleep(2 * time.Second) // until the subscription is complete

	want := map[int64]expected{}
	for p := range processors {
		name, typ := fmt.Sprint("p", p), []string{"EXECUTE", "SQL"}[p%2]
		_, err := s.Batches.PutProcessor(t.Context(), by, batches.Processor{Name: name, TickInterval: 10 * time.Millisecond}, 0)
		must(t, err)
		for i := range each {
			id, e := enqueue(t, s, by, name, typ, i)
			want[id] = e
		}
	}
	nodes := []*process{startNode(t, db.URL, "first"), startNode(t, db.URL, "second")} // the older one is the next to be killed
	started := func() (n int) {
		must(t, s.Pool().QueryRow(t.Context(), `SELECT coalesce(sum(run), 0) FROM postern.batch`).Scan(&n))
		return n
	}
	goOn := func(from int) { // until some more executions have begun
		for until := time.Now().Add(30 * time.Second); started() < from && unfinished(t, s) > 0 && time.Now().Before(until); {
			time.Sleep(5 * time.Millisecond)
		}
	}
	killNode := func() {
		next := len(nodes) - 2
		nodes[next].kill()
		nodes = append(nodes, startNode(t, db.URL, fmt.Sprint("heir-", next)))
	}
	kills := []func(){
		func() { signer.kill(); signer.start() },
		killNode,
		func() { chain.kill(); chain.start() },
		func() { table.kill(); table.start() },
		func() { signer.kill(); chain.kill(); chain.start(); signer.start() },
		killNode,
	}
	for i := range rounds * len(kills) {
		goOn(8 * (i + 1))
		kills[i%len(kills)]()
	}
	for until := time.Now().Add(time.Duration(rounds) * 5 * time.Minute); unfinished(t, s) > 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d batches have not ended", unfinished(t, s))
		}
	}
	ledger := devnet.NewClient(chain.url, 10*time.Second)
	defer ledger.Close()
	for id, e := range want {
		b, err := s.Batches.Batch(t.Context(), by.Context, processorOf(t, s, id), id)
		must(t, err)
		if b.Result == nil || b.Result.Kind != e.result.Kind || b.Result.N != e.result.N {
			t.Errorf("batch %d (%s) is %s with %+v, want %+v", id, e.typ, b.State, b.Result, e.result)
		}
		var effects int
		if e.typ == "SQL" {
			must(t, s.Pool().QueryRow(t.Context(), `SELECT count(*) FROM target.effect WHERE batch = $1`, fmt.Sprintf("processor:%s:%d", b.Processor, id)).Scan(&effects))
		} else if a, err := ledger.App(t.Context(), appOf(b.Messages)); err == nil {
			effects = int(a.Calls)
		}
		if effects != e.effects {
			t.Errorf("batch %d (%s), %s: %d effects, want %d", id, e.typ, b.Result.Kind, effects, e.effects)
		}
	}
	if found, err := verify.Violations(t.Context(), s.Pool()); err != nil || len(found) > 0 {
		t.Errorf("%v %v", found, err)
	}
	for until := time.Now().Add(time.Minute); len(heard()) < len(want); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("heard of %d results, want %d", len(heard()), len(want))
		}
	}
	var rows int
	must(t, s.Pool().QueryRow(t.Context(), `SELECT count(*) FROM postern.delivery WHERE event = 'result'`).Scan(&rows))
	if rows != len(want) {
		t.Errorf("%d results are told of, want %d", rows, len(want))
	}
}

// enqueue puts the ith batch of a processor: every second one atomic, every third one with an action that fails.
func enqueue(t *testing.T, s *stores.Store, by pgdb.By, name, typ string, i int) (int64, expected) {
	t.Helper()
	fails, atomic := i%3 == 2, i%2 == 1
	calls := []string{"set", "add", "end"}
	if fails {
		calls[2] = map[string]string{"EXECUTE": "revert", "SQL": "fail"}[typ]
	}
	sub := &processor.Subroutine{}
	var m []processor.Message
	for n, c := range calls {
		sub.Functions = append(sub.Functions, processor.Function{Domain: name, ContractAddress: typ, MessageDetails: processor.MessageDetails{Message: processor.MessageShape{Name: c}}})
		m = append(m, processor.Message{Msg: json.RawMessage(fmt.Sprintf(`{%q:{"to":"app-%s-%d","n":%d}}`, c, name, i, n))})
	}
	e := expected{typ, processor.Result{Kind: processor.Executed}, 3}
	a := processor.Actions{NonAtomic: sub}
	switch {
	case atomic && fails:
		a, e = processor.Actions{Atomic: sub}, expected{typ, processor.Result{Kind: processor.Rejected}, 0}
	case atomic:
		a = processor.Actions{Atomic: sub}
	case fails:
		e = expected{typ, processor.Result{Kind: processor.PartiallyExecuted, N: 2}, 2}
	}
	b, err := s.Batches.Enqueue(t.Context(), by, name, batches.NewBatch{Actions: a, Messages: m, Priority: processor.Priority(i % 2)})
	must(t, err)
	return b.ID, e
}

// appOf is the app that the messages of a batch call.
func appOf(m []processor.Message) string {
	var call map[string]struct{ To string }
	_ = json.Unmarshal(m[0].Msg, &call)
	for _, c := range call {
		return c.To
	}
	return ""
}

func processorOf(t *testing.T, s *stores.Store, id int64) (name string) {
	t.Helper()
	must(t, s.Pool().QueryRow(t.Context(), `SELECT p.name FROM postern.batch b JOIN postern.processor p USING (processor_id) WHERE b.batch_id = $1`, id).Scan(&name))
	return name
}

// unfinished counts the batches that have not ended.
func unfinished(t *testing.T, s *stores.Store) (n int) {
	t.Helper()
	must(t, s.Pool().QueryRow(t.Context(), `SELECT count(*) FROM postern.batch WHERE state <> 'Done'`).Scan(&n))
	return n
}

// listen receives webhooks, and returns which ids have come.
func listen(t *testing.T) (heard func() map[string]bool, url string) {
	var mu sync.Mutex
	ids := map[string]bool{}
	r := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		ids[q.Header.Get("Webhook-Id")] = true
	}))
	t.Cleanup(r.Close)
	return func() map[string]bool {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(ids)
	}, r.URL
}
