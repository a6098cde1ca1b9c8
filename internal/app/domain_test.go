package app_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/devnet/ledger"
	"github.com/postern-dev/postern/internal/devnetworker"
)

// tok is the service of a domain of tokens. The ledger sees their ids alone.
type tok struct {
	mu     sync.Mutex
	calls  []string                 // kinds, with the intents
	at     string                   // the node of its notaries; "": self
	resume map[string]bool          // intents that are not parked any more
	answer func(kind string) string // "": as it should
}

// tokCall is what the service is asked.
type tokCall struct {
	Key    string
	Intent struct {
		ID, Party string
		Data      struct {
			Do, Uses  string
			Endorsers []string
		}
	}
	Intents []string
	Pending struct {
		Outputs []struct{ ID string }
	}
	Assembled  struct{ Do string }
	Party      string
	Signatures []json.RawMessage
}

func (s *tok) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var c tokCall
	_ = json.NewDecoder(r.Body).Decode(&c)
	kind := strings.TrimPrefix(r.URL.Path, "/")
	s.mu.Lock()
	s.calls = append(s.calls, kind+" "+c.Intent.Data.Do)
	answer := ""
	if s.answer != nil {
		answer = s.answer(kind)
	}
	parked := c.Intent.Data.Do == "park" && !s.resume[c.Intent.ID]
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case answer != "":
		_, _ = io.WriteString(w, answer)
	case parked:
		_, _ = io.WriteString(w, `{"result": "PARK", "reason": "no address yet"}`)
	default:
		_ = json.NewEncoder(w).Encode(s.does(kind, &c))
	}
}

func (s *tok) does(kind string, c *tokCall) map[string]any {
	type all = map[string]any
	switch kind {
	case "assemble":
		out := all{"result": "OK", "assembled": c.Intent.Data, "outputs": []all{{"id": "state." + c.Intent.ID,
			"data": all{"of": c.Intent.Party}}},
			"plan": []all{{"name": "owner", "type": "sign", "parties": []string{c.Intent.Party}}}}
		switch do := c.Intent.Data.Do; {
		case do == "refuse":
			return all{"result": "REVERT", "reason": "the balance is too low"}
		case do == "notarise", do == "decline":
			out["plan"] = append(out["plan"].([]all), all{"name": "notary", "type": "endorse",
				"parties": []string{do + "@" + cmp.Or(s.at, "self")}})
		case c.Intent.Data.Uses != "":
			out["inputs"] = []string{"state." + c.Intent.Data.Uses}
		}
		return out
	case "sign":
		return all{"signature": "signed by " + c.Party}
	case "endorse":
		if strings.HasPrefix(c.Party, "decline") || len(c.Signatures) == 0 {
			return all{"revert_reason": "not to my liking"}
		}
		return all{"endorsement": "yes"}
	case "prepare":
		data := all{"calls": []all{{"to": "tok.intent." + c.Intent.ID, "method": "create"}}}
		if c.Assembled.Do == "fail" {
			data["simulate"] = all{"fail_in_block": all{"times": 100, "reason": "it cannot be"}}
		}
		return all{"type": "TOK", "data": data}
	case "look":
		return all{"items": []all{{"state": "unknown"}}}
	case "height":
		return all{"height": 7}
	}
	return all{}
}

func (s *tok) called() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// tokens is an installation with a domain tok, its service, and a devnet.
type tokens struct {
	t       *testing.T
	url     string
	service *tok
	serves  string // its address
	ledger  *ledger.Ledger
}

func newTokens(t *testing.T, settings string) *tokens {
	t.Helper()
	t.Parallel()
	l, door := newChain(t)
	n := newTokenNode(t, l, door)
	n.put(settings)
	return n
}

// newChain runs a devnet, and returns its address.
func newChain(t *testing.T) (*ledger.Ledger, string) {
	t.Helper()
	l, err := ledger.Open(ledger.Config{BlockEvery: 40 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var blocks sync.WaitGroup
	blocks.Go(func() { l.Run(ctx) })
	door := httptest.NewServer(l.Handler())
	t.Cleanup(func() {
		door.Close()
		cancel()
		blocks.Wait()
		l.Close()
	})
	return l, door.URL
}

// newTokenNode is an installation that may have a domain of tokens.
func newTokenNode(t *testing.T, l *ledger.Ledger, door string) *tokens {
	t.Helper()
	dir := t.TempDir()
	w, err := devnetworker.Open(devnetworker.Config{Ledger: door, Keys: filepath.Join(dir, "keys"),
		Data: filepath.Join(dir, "data"), Auto: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	worker := httptest.NewServer(w.Handler())
	n := &tokens{t: t, service: &tok{resume: map[string]bool{}}, ledger: l}
	service := httptest.NewServer(n.service)
	t.Cleanup(func() {
		service.Close()
		worker.Close()
		w.Close()
	})
	n.serves = service.URL
	n.url = clockedWith(t, nil)
	want(t, 201, "PUT", n.url+"/pools/signers", `{}`)
	want(t, 201, "PUT", n.url+"/senders/acct-1", `{"pool": "signers"}`)
	want(t, 201, "PUT", n.url+"/senders/acct-2", `{"pool": "signers"}`)
	want(t, 201, "PUT", n.url+"/dispatchers/TOK", fmt.Sprintf(`{"worker_url": %q, "pool": "signers",
		"posted_by": "admin",
		"inclusion": {"poll_every": "50ms", "confirmations": 3}, "retry": {"on_failed": false}}`, worker.URL))
	return n
}

func (n *tokens) put(settings string) {
	n.t.Helper()
	want(n.t, 201, "PUT", n.url+"/domains/tok", fmt.Sprintf(`{"types": ["TOK"], "service_url": %q,
		"heartbeat_interval": "1s",
		"request_timeout": "1s", "state_timeout": "3s", "base_ledger_revert_threshold": 1 %s}`, n.serves, settings))
}

func (n *tokens) post(body string) string {
	n.t.Helper()
	return want(n.t, 201, "POST", n.url+"/domains/tok/intents", body)["id"].(string)
}

func (n *tokens) intent(id string) map[string]any {
	n.t.Helper()
	return want(n.t, 200, "GET", n.url+"/domains/tok/intents/"+id, "")
}

// until waits for a state of an intent.
func (n *tokens) until(id string, states ...string) map[string]any {
	n.t.Helper()
	for end := time.Now().Add(40 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		i := n.intent(id)
		if slices.Contains(states, i["state"].(string)) {
			return i
		}
		if time.Now().After(end) {
			h, _ := json.MarshalIndent(want(n.t, 200, "GET", n.url+"/domains/tok/intents/"+id+"/history",
				"")["items"], "", " ")
			n.t.Fatalf("intent %s is %v, want %v: %s", id, i["state"], states, h)
		}
	}
}

func (n *tokens) receipt(id string) string {
	n.t.Helper()
	r, ok := n.until(id, "Confirmed", "Reverted")["receipt"].(map[string]any)
	if !ok {
		n.t.Fatalf("intent %s has ended without a receipt", id)
	}
	return fmt.Sprintf("%v %v", r["outcome"], r["text"])
}

func (n *tokens) states(id string) (list []string) {
	n.t.Helper()
	for _, v := range want(n.t, 200, "GET", n.url+"/domains/tok/intents/"+id+"/history", "")["items"].([]any) {
		if s := v.(map[string]any); s["machine"] == "originator_transaction" {
			list = append(list, s["to"].(string))
		}
	}
	return list
}

// S3.2, S3.9, S3.11: an intent is assembled, signed, endorsed and prepared; its public transaction is confirmed, and it
// has one receipt.
func TestAnIntentIsCarriedOutOnce(t *testing.T) {
	n := newTokens(t, "")
	id := n.post(`{"uid": "one", "party": "alice", "data": {"do": "notarise"}}`)
	if r := n.receipt(id); !strings.HasPrefix(r, "success ") || len(r) < 20 {
		t.Errorf("the receipt is %q", r)
	}
	got := strings.Join(n.states(id), " ")
	if !strings.HasPrefix(got, "Pending Delegated Assembling Signing EndorsementGathering Prepared Dispatched ") ||
		!strings.HasSuffix(got, "Submitted Confirmed") {
		t.Error("the states were", got)
	}
	if again := want(t, 200, "POST", n.url+"/domains/tok/intents", `{"uid": "one", "party": "alice",
		"data": {"do": "notarise"}}`); again["id"] != id {
		t.Error("the same uid is another intent:", again)
	}
	want(t, 409, "POST", n.url+"/domains/tok/intents", `{"uid": "one", "party": "alice", "data": {"do": "other"}}`)
	if by := n.intent("one"); by["id"] != id || by["public_uid"] == nil {
		t.Error(by)
	}
	public := want(t, 200, "GET", n.url+"/transactions?uid="+n.intent(id)["public_uid"].(string), "")["items"].([]any)
	if len(public) != 1 || public[0].(map[string]any)["state"] != "DONE" {
		t.Error("its public transactions are", public)
	}
	for _, end := range []struct{ do, receipt string }{
		{"refuse", "failure the balance is too low"},
		{"decline", "failure not endorsed: not to my liking"},
		{"fail", "failure it cannot be"},
	} {
		id := n.post(fmt.Sprintf(`{"party": "alice@self", "data": {"do": %q}}`, end.do))
		if r := n.receipt(id); !strings.HasPrefix(r, strings.TrimSuffix(end.receipt, "it cannot be")) {
			t.Errorf("%s ends as %q, want %q", end.do, r, end.receipt)
		}
	}
}

// S3.2: what depends on another goes after it, and ends with it. Inputs of what is still under way are waited for.
func TestDependentsComeBehindAndEndWithWhatTheyNeed(t *testing.T) {
	n := newTokens(t, "")
	list := want(t, 201, "POST", n.url+"/domains/tok/intents:batch", `{"intents": [
		{"uid": "b", "party": "alice", "data": {"do": "mint"}, "depends_on": ["a"]},
		{"uid": "a", "party": "alice", "data": {"do": "mint"}},
		{"uid": "bad", "party": "alice", "data": {"do": "refuse"}},
		{"uid": "after", "party": "alice", "data": {"do": "mint"}, "depends_on": ["bad"]},
		{"uid": "later", "party": "alice", "data": {"do": "mint"}, "depends_on": ["after", "a"]}]}`)["items"].([]any)
	if len(list) != 5 {
		t.Fatal(list)
	}
	for _, id := range []string{"a", "b"} {
		if r := n.receipt(id); !strings.HasPrefix(r, "success") {
			t.Errorf("%s ends as %s", id, r)
		}
	}
	if a, b := at(t, n.intent("a")["ended_at"]), at(t, n.intent("b")["ended_at"]); !a.Before(b) {
		t.Error("b ended before a:", b, a)
	}
	bad := n.intent(n.until("bad", "Reverted")["id"].(string))
	for _, id := range []string{"after", "later"} {
		i := n.until(id, "Reverted")
		if i["ended_at"] != bad["ended_at"] || !strings.HasPrefix(i["receipt"].(map[string]any)["text"].(string),
			"dependency failed: ") {
			t.Errorf("%s: %v", id, i)
		}
	}
	late := want(t, 201, "POST", n.url+"/domains/tok/intents", `{"party": "alice", "data": {"do": "late"},
		"depends_on": ["bad"]}`)
	if late["state"] != "Reverted" || slices.Contains(n.service.called(), "assemble late") {
		t.Error("what depends on a failed intent is", late)
	}
	minted := n.post(`{"party": "alice", "data": {"do": "mint"}}`)
	spent := n.post(fmt.Sprintf(`{"party": "alice", "data": {"do": "pay", "uses": %q}}`, minted))
	if r := n.receipt(spent); !strings.HasPrefix(r, "success") {
		t.Error("what uses an output on its way ends as", r)
	}
	if a, b := at(t, n.intent(minted)["ended_at"]), at(t, n.intent(spent)["ended_at"]); !a.Before(b) {
		t.Error("an input was there after what spends it")
	}
}

// S3.11: a parked intent holds up no other, and goes on when it is resumed; others are cancelled.
func TestAParkedIntentWaitsUntilItIsResumed(t *testing.T) {
	n := newTokens(t, `, "service_calls": ["look", "height"]`)
	id := n.post(`{"party": "alice", "data": {"do": "park"}}`)
	if i := n.until(id, "Parked"); i["parked"] != "no address yet" {
		t.Error(i)
	}
	other := n.post(`{"party": "alice", "data": {"do": "mint"}}`)
	if r := n.receipt(other); !strings.HasPrefix(r, "success") {
		t.Error(r)
	}
	want(t, 409, "POST", n.url+"/domains/tok/intents/"+other+"/cancel", `{}`)
	want(t, 409, "POST", n.url+"/domains/tok/intents/"+other+"/resume", `{}`)
	want(t, 409, "POST", n.url+"/domains/tok/intents/"+id+"/release", `{"outcome": "done", "reason": "as I say"}`)
	want(t, 409, "DELETE", n.url+"/domains/tok", "")
	n.service.mu.Lock()
	n.service.resume[id] = true
	n.service.mu.Unlock()
	if r := want(t, 200, "POST", n.url+"/domains/tok/intents/"+id+"/resume",
		`{"reason": "it has one"}`); r["changed"] != true {
		t.Error(r)
	}
	if r := n.receipt(id); !strings.HasPrefix(r, "success") {
		t.Error(r)
	}
	again := n.post(`{"party": "alice", "data": {"do": "park"}}`)
	n.until(again, "Parked")
	want(t, 200, "POST", n.url+"/domains/tok/intents/"+again+"/cancel", `{}`)
	if r := n.receipt(again); r != "failure cancelled" {
		t.Error(r)
	}
	if d := want(t, 200, "GET", n.url+"/domains/tok", ""); d["height"] != "7" {
		t.Error("the height is", d["height"])
	}
	for want := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if status, text := send(t, "DELETE", n.url+"/domains/tok", ""); status == 204 {
			break
		} else if time.Now().After(want) {
			t.Fatal(text)
		}
	}
}

// Answers that are not of the contract count as errors, and stop nothing.
func TestAServiceThatAnswersNonsenseStopsNothing(t *testing.T) {
	n := newTokens(t, "")
	nonsense := []string{`<html>`, `{"result": "YES"}`, `{"result": "OK", "inputs": ["x", "x"]}`,
		`{"result": "OK", "plan": [{"name": "n", "type": "endorse", "parties": ["a@nowhere"]}]}`,
		`{"result": "OK", "plan": [{"name": "n", "type": "endorse", "parties": ["a@self"], "threshold": 2}]}`,
		`{"result": "OK", "plan": [{"name": "n", "type": "endorse", "parties": ["a@self"], "threshold": 0}]}`}
	n.service.answer = func(kind string) string {
		if kind != "assemble" || len(nonsense) == 0 {
			return ""
		}
		next := nonsense[0]
		nonsense = nonsense[1:]
		return next
	}
	id := n.post(`{"party": "alice", "data": {"do": "mint"}}`)
	if r := n.receipt(id); !strings.HasPrefix(r, "success") {
		t.Error(r)
	}
}

func TestWhatADomainCannotDoIsRefused(t *testing.T) {
	n := newTokens(t, "")
	for _, c := range []struct{ method, path, body, says string }{
		{"PUT", "/domains/x", `{"types": ["TOK"], "service_url": "http://127.0.0.1:1", "nodes": []}`, "/nodes"},
		{"PUT", "/domains/x", `{"types": ["TOK"], "service_url": "http://127.0.0.1:1", "nodes": ["self", "self"]}`,
			"/nodes/1"},
		{"PUT", "/domains/x", `{"types": ["TOK"], "service_url": "http://127.0.0.1:1", "nodes": ["self", "bob"]}`,
			"/nodes/1"},
		{"PUT", "/domains/x", `{"types": ["TOK"], "service_url": "http://127.0.0.1:1", "self": "a", "nodes": ["b"]}`,
			"/nodes"},
		{"PUT", "/domains/x", `{"types": ["NONE"], "service_url": "http://127.0.0.1:1"}`, "/types/0"},
		{"PUT", "/domains/x", `{"types": ["leader.tool"], "service_url": "http://127.0.0.1:1"}`, "/types/0"},
		{"PUT", "/domains/x", `{"types": ["TOK"], "service_url": "http://127.0.0.1:1", "service_calls": ["sing"]}`,
			"/service_calls/0"},
		{"PUT", "/domains/x", `{"types": ["TOK"], "service_url": "http://127.0.0.1:1", "mode": "STATIC"}`, "/static"},
		{"PUT", "/domains/x", `{"types": ["TOK"], "service_url": "http://127.0.0.1:1", "finality": 30}`, "/finality"},
		{"PUT", "/domains/x", `{"types": ["TOK"], "service_url": "http://127.0.0.1:1", "finality": -1}`, "/finality"},
		{"POST", "/domains/tok/intents", `{"party": "alice@nowhere", "data": {}}`, "/party"},
		{"POST", "/domains/tok/intents", `{"party": "alice", "data": {}, "depends_on": ["missing"]}`, "/depends_on/0"},
		{"POST", "/domains/tok/intents:batch", `{"intents": [{"uid": "a", "party": "x", "data": 1,
			"depends_on": ["b"]}, {"uid": "b", "party": "x", "data": 1, "depends_on": ["a"]}]}`, "dependency_cycle"},
		{"POST", "/domains/tok/intents:batch", `{"intents": [{"uid": "a", "party": "x", "data": 1}, {"uid": "a",
			"party": "x", "data": 1}]}`, "/intents/1/uid"},
		{"PUT", "/domains/tok/height", `{"height": -1}`, "height"},
	} {
		status, text := send(t, c.method, n.url+c.path, c.body)
		if status != 422 || !strings.Contains(text, c.says) {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, status, text)
		}
	}
	if got := want(t, 200, "GET", n.url+"/domains/tok/intents", "")["items"].([]any); len(got) != 0 {
		t.Error("what was refused is there:", got)
	}
	d := want(t, 200, "PATCH", n.url+"/domains/tok", `{"block_range": 0, "heartbeat_interval": "0s"}`)
	if fmt.Sprint(d["clamped"]) != "[heartbeat_interval block_range]" || d["heartbeat_interval"] != "1s" {
		t.Error("clamped are", d["clamped"])
	}
	want(t, 200, "PUT", n.url+"/domains/tok/height", `{"height": "5000"}`)
	want(t, 422, "PUT", n.url+"/domains/tok/height", `{"height": "4999"}`)
	want(t, 422, "PUT", n.url+"/domains/tok/height", `{"height": "9000"}`)
	want(t, 200, "PUT", n.url+"/domains/tok/height", `{"height": "9000", "force": true}`)
	want(t, 404, "GET", n.url+"/domains/none", "")
	want(t, 404, "GET", n.url+"/domains/tok/intents/none", "")
}
