package app_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// wireSecret is what both installations know.
const wireSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// world is two installations: near sends its batches to a processor of far, whose worker says what was executed.
// Between the two is a wire that can be cut, and can swallow answers.
type world struct {
	t         *testing.T
	near, far string
	cut       atomic.Bool  // calls are refused before they arrive
	swallow   atomic.Int32 // answers to so many dispatches do not arrive
	reached   atomic.Int32 // dispatches that arrived
	asked     atomic.Int32 // questions that arrived
	deaf      atomic.Bool  // dispatches are refused before they arrive
	refused   atomic.Int32 // so many were

	mu    sync.Mutex
	calls []string // of the worker of far
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	w := &world{t: t}
	w.near, w.far = clockedWith(t, nil), clockedWith(t, nil)
	worker := httptest.NewServer(http.HandlerFunc(w.work))
	t.Cleanup(worker.Close)
	want(t, 201, "PUT", w.far+"/dispatchers/ADD", fmt.Sprintf(`{"worker_url": %q, "capabilities": ["atomic"], "retry": {"initial": "10ms", "max_retries": 0}}`, worker.URL))
	want(t, 201, "PUT", w.far+"/processors/ledger", `{"tick_interval": "10ms"}`)
	peer := want(t, 200, "PUT", w.far+"/processors/ledger/peers/near", fmt.Sprintf(`{"secret": %q}`, wireSecret))
	wire := httptest.NewServer(w.wire())
	t.Cleanup(wire.Close)
	want(t, 201, "PUT", w.near+"/dispatchers/FAR", fmt.Sprintf(`{"worker_url": %q, "secret": %q, "inclusion": {"poll_every": "100ms"}, "retry": {"initial": "10ms"}}`,
		wire.URL+peer["worker_url"].(string), wireSecret))
	want(t, 201, "PUT", w.near+"/processors/away", `{"tick_interval": "10ms", "deliver_as": "FAR"}`)
	return w
}

// work executes a message, whose name is its answer: fine, or why not.
func (w *world) work(out http.ResponseWriter, r *http.Request) {
	var call struct {
		TxData struct{ Data json.RawMessage }
	}
	if !strings.HasPrefix(r.URL.Path, "/dispatch/") || json.NewDecoder(r.Body).Decode(&call) != nil {
		http.NotFound(out, r)
		return
	}
	w.mu.Lock()
	w.calls = append(w.calls, strings.ReplaceAll(string(call.TxData.Data), " ", ""))
	w.mu.Unlock()
	if strings.Contains(string(call.TxData.Data), "broken") {
		_, _ = io.WriteString(out, `{"error": {"class": "rejected", "code": "broken", "message": "it is broken"}}`)
		return
	}
	_, _ = io.WriteString(out, `{"done": true}`)
}

func (w *world) executed() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}

func (w *world) wire() http.Handler {
	to, err := url.Parse(w.far)
	if err != nil {
		w.t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		dispatch := strings.Contains(r.URL.Path, "/dispatch/")
		switch {
		case w.cut.Load(): // in the words of the contract: a bare 502 may come behind an execution
			out.Header().Set("Content-Type", "application/json")
			out.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(out, `{"error": {"class": "blocked", "message": "the wire is cut"}}`)
			return
		case dispatch && w.deaf.Load():
			defer w.refused.Add(1)
			out.WriteHeader(http.StatusBadGateway)
			return
		case !dispatch:
			defer w.asked.Add(1)
		default:
			defer w.reached.Add(1)
			if w.swallow.Add(-1) >= 0 {
				proxy.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			}
		}
		proxy.ServeHTTP(out, r)
	})
}

// batchOf is one of these messages, non-atomic unless made so.
func batchOf(kind string, names ...string) string {
	var functions, msgs []string
	for _, n := range names {
		functions = append(functions, fmt.Sprintf(`{"domain": "away", "contract_address": "ADD", "message_details": {"message": {"name": %q}}}`, n))
		msgs = append(msgs, fmt.Sprintf(`{"msg": {%q: {"n": 1}}}`, n))
	}
	return fmt.Sprintf(`{"actions_config": {%q: {"functions": [%s]}}, "msgs": [%s]}`, kind, strings.Join(functions, ","), strings.Join(msgs, ","))
}

func (w *world) send(body string) string {
	w.t.Helper()
	return fmt.Sprint(w.near, "/processors/away/batches/", want(w.t, 201, "POST", w.near+"/processors/away/batches", body)["id"])
}

// result waits for one, and returns it as kind(n) and why.
func (w *world) result(path string) string {
	w.t.Helper()
	for {
		b := want(w.t, 200, "GET", path, "")
		if r, ok := b["result"].(map[string]any); ok {
			return strings.TrimSpace(fmt.Sprintf("%v(%v) %v", r["kind"], r["n"], r["reason"]))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (w *world) wants(path, result string) {
	w.t.Helper()
	if got := w.result(path); got != result {
		w.t.Errorf("%s ended as %s, want %s", path, got, result)
	}
}

// S4.14: a batch goes whole to the processor of another installation, and its result comes back, once.
func TestABatchGoesToAnotherInstallationAndItsResultComesBack(t *testing.T) {
	w := newWorld(t)
	w.wants(w.send(batchOf("non_atomic", "one", "two")), "executed(0)")
	w.wants(w.send(batchOf("atomic", "three", "four")), "executed(0)")
	w.wants(w.send(batchOf("non_atomic", "five", "broken", "six")), "partially_executed(1) it is broken")
	w.wants(w.send(batchOf("atomic", "seven", "broken")), "rejected(0) it is broken")
	if got := strings.Join(w.executed(), " "); got != `{"one":{"n":1}} {"two":{"n":1}} [{"three":{"n":1}},{"four":{"n":1}}] {"five":{"n":1}} {"broken":{"n":1}} [{"seven":{"n":1}},{"broken":{"n":1}}]` {
		t.Errorf("executed was %s", got)
	}
	list := want(t, 200, "GET", w.far+"/processors/ledger/batches", "")["items"].([]any)
	if len(list) != 4 || list[0].(map[string]any)["initiator"] != "peer:near" || list[0].(map[string]any)["by"] != "Owner" {
		t.Error(list)
	}
}

// more waits until so many more calls have been answered.
func (w *world) more(calls *atomic.Int32, n int32) {
	for until := calls.Load() + n; calls.Load() < until; {
		time.Sleep(10 * time.Millisecond)
	}
}

func (w *world) ledger(verb, body string) {
	w.t.Helper()
	want(w.t, 200, "POST", w.far+"/processors/ledger/"+verb, body)
}

// A batch that the wire loses is sent again, and is one batch. If far cannot be reached in time, that is a timeout, and
// the batch is sent again under the same id.
func TestWhatIsLostBetweenTwoInstallationsIsSentAgain(t *testing.T) {
	w := newWorld(t)
	w.swallow.Store(2) // far has stored it, and near does not know
	w.wants(w.send(batchOf("non_atomic", "one")), "executed(0)")

	secret := func(s string) {
		want(t, 200, "PATCH", w.near+"/dispatchers/FAR", fmt.Sprintf(`{"secret": %q}`, s))
	}
	secret("whsec_" + strings.Repeat("A", 43) + "=")
	unsigned := w.send(batchOf("non_atomic", "two"))
	w.more(&w.reached, 1)
	if b := want(t, 200, "GET", unsigned, ""); b["state"] != "Executing" {
		t.Errorf("what far does not believe is %v", b["state"])
	}
	secret(wireSecret)
	w.wants(unsigned, "executed(0)")

	// far is away for longer than near waits
	w.cut.Store(true)
	want(t, 200, "PATCH", w.near+"/processors/away", `{"deliver_within": "100ms"}`)
	config, _, _ := strings.Cut(batchOf("non_atomic", "three"), `, "msgs"`)
	want(t, 201, "POST", w.near+"/authorizations", config+`, "label": "afar", "mode": "permissionless", "max_concurrent_executions": 2}`)
	late := want(t, 201, "POST", w.near+"/authorizations/afar/send", `{"messages": [{"msg": {"three": {"n": 1}}}], "ttl": 3600}`)["id"]
	at := fmt.Sprint(w.near, "/processors/away/batches/", late)
	w.wants(at, "timeout(0)")
	lost := want(t, 201, "POST", w.near+"/authorizations/afar/send", `{"messages": [{"msg": {"three": {"n": 1}}}]}`)["id"]
	w.wants(fmt.Sprint(w.near, "/processors/away/batches/", lost), "timeout(0)")
	w.cut.Store(false)
	want(t, 200, "PATCH", w.near+"/processors/away", `{"deliver_within": "1h"}`)
	want(t, 200, "POST", fmt.Sprint(w.near, "/authorizations/afar/executions/", late, "/retry"), "")
	w.wants(at, "executed(0)")
	if status, body := send(t, "POST", fmt.Sprint(w.near, "/authorizations/afar/executions/", lost, "/retry"), ""); status != 409 || !strings.Contains(body, "Messages are not retriable") {
		t.Errorf("what is no longer retriable: %d %s", status, body)
	}
	if got := strings.Join(w.executed(), " "); got != `{"one":{"n":1}} {"two":{"n":1}} {"three":{"n":1}}` {
		t.Errorf("executed was %s", got)
	}
}

// S4.14: a result that cannot be brought back is pending until it can. After an abandon its end is unknown.
func TestAResultThatDoesNotComeBackIsPendingOrUnknown(t *testing.T) {
	w := newWorld(t)
	hold := func(names ...string) string {
		w.ledger("pause", "")
		before := w.reached.Load()
		path := w.send(batchOf("non_atomic", names...))
		for w.reached.Load() == before {
			time.Sleep(10 * time.Millisecond)
		}
		w.more(&w.asked, 1)
		return path
	}
	// far does not know near for a while; and it takes longer than near waits for an inclusion
	want(t, 200, "PATCH", w.near+"/dispatchers/FAR", `{"inclusion": {"deadline": "100ms"}}`)
	one := hold("one")
	w.more(&w.reached, 2)
	if status, body := send(t, "DELETE", w.far+"/processors/ledger/peers/near", ""); status != 204 {
		t.Fatal(status, body)
	}
	want(t, 200, "PATCH", w.near+"/dispatchers/FAR", `{"inclusion": {"deadline": "1h"}}`)
	w.more(&w.asked, 2)
	want(t, 200, "PUT", w.far+"/processors/ledger/peers/near", fmt.Sprintf(`{"secret": %q}`, wireSecret))
	if b := want(t, 200, "GET", one, ""); b["state"] != "Executing" || b["result"] != nil {
		t.Error(b)
	}
	w.ledger("resume", "")
	w.wants(one, "executed(0)")

	// it is sent again, and does not arrive: that is no timeout, since far has it
	want(t, 200, "PATCH", w.near+"/processors/away", `{"deliver_within": "100ms"}`)
	again := hold("again")
	w.deaf.Store(true)
	want(t, 200, "PATCH", w.near+"/dispatchers/FAR", `{"inclusion": {"deadline": "100ms"}}`)
	w.more(&w.refused, 2)
	if b := want(t, 200, "GET", again, ""); b["state"] != "Executing" || b["result"] != nil {
		t.Error(b)
	}
	w.deaf.Store(false)
	want(t, 200, "PATCH", w.near+"/dispatchers/FAR", `{"inclusion": {"deadline": "1h"}}`)
	w.ledger("resume", "")
	w.wants(again, "executed(0)")
	want(t, 200, "PATCH", w.near+"/processors/away", `{"deliver_within": "0s"}`)

	two := hold("two")
	w.ledger("evict", `{"position": 0}`)
	w.wants(two, "removed_by_owner(0)")

	three := hold("three")
	tx := want(t, 200, "GET", w.near+"/transactions?type=FAR&state=REVISION", "")["items"].([]any)
	want(t, 200, "POST", fmt.Sprint(w.near, "/transactions/", tx[0].(map[string]any)["id"], "/abandon"), `{"reason": "far is gone"}`)
	if got := w.result(three); !strings.HasPrefix(got, "unexpected_error(0) the result did not come back: ") {
		t.Error(got)
	}
	w.ledger("resume", "")
	if status, body := send(t, "DELETE", w.far+"/processors/ledger/peers/near", ""); status != 204 {
		t.Fatal(status, body)
	}
	w.wants(w.send(batchOf("non_atomic", "four")), `rejected(0) processor "ledger" has no peer "near"`)
	if list := want(t, 200, "GET", w.far+"/processors/ledger/batches", "")["items"].([]any); len(list) != 4 {
		t.Errorf("far has %d batches", len(list))
	}
}
