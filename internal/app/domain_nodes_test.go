package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/remote"
)

// newTokenPair is two installations with one domain tok, and one devnet: alice and bob, who know each other as peers.
func newTokenPair(t *testing.T, settings string) (alice, bob *tokens) {
	t.Helper()
	t.Parallel()
	l, door := newChain(t)
	alice, bob = newTokenNode(t, l, door), newTokenNode(t, l, door)
	alice.service.at, bob.service.at = "bob", "bob"
	for _, one := range []struct {
		me, other *tokens
		name, of  string
	}{{alice, bob, "alice", "bob"}, {bob, alice, "bob", "alice"}} {
		want(t, 422, "PUT", one.me.url+"/domains/tok", fmt.Sprintf(`{"types": ["TOK"], "service_url": %q, "self": %q,
			"nodes": ["alice", "bob"]}`, one.me.serves, one.name))
		want(t, 201, "PUT", one.me.url+"/peers/"+one.of, fmt.Sprintf(`{"secret": %q}`, wireSecret))
		status, text := send(t, "PUT", one.me.url+"/domains/tok", fmt.Sprintf(`{"types": ["TOK"], "service_url": %q,
			"self": %q, "nodes": ["alice", "bob"]}`, one.me.serves, one.name))
		if status != 422 || !strings.Contains(text, "without a url") {
			t.Errorf("a node that cannot be called: %d %s", status, text)
		}
		want(t, 200, "PATCH", one.me.url+"/peers/"+one.of, fmt.Sprintf(`{"url": %q}`,
			one.other.url+"/contexts/default/peers/"+one.name))
		one.me.put(fmt.Sprintf(`, "self": %q, "nodes": ["bob", "alice"] %s`, one.name, settings))
	}
	return alice, bob
}

// publics lists the public transactions of an installation.
func (n *tokens) publics() []any {
	n.t.Helper()
	return want(n.t, 200, "GET", n.url+"/transactions?type=TOK", "")["items"].([]any)
}

// S3.14: an intent of one installation is coordinated by another: assembled and signed here, endorsed and prepared
// there, and its public transaction is that one's. It has one receipt.
func TestAnIntentIsCarriedOutByAnotherInstallation(t *testing.T) {
	alice, bob := newTokenPair(t, `, "mode": "STATIC", "static": "bob"`)
	id := alice.post(`{"uid": "one", "party": "ann", "data": {"do": "notarise"}}`)
	if r := alice.receipt(id); !strings.HasPrefix(r, "success ") || len(r) < 20 {
		t.Errorf("the receipt is %q", r)
	}
	got := strings.Join(alice.states(id), " ")
	if !strings.HasPrefix(got, "Pending Delegated Assembling Signing EndorsementGathering Prepared Dispatched ") ||
		!strings.HasSuffix(got, "Confirmed") {
		t.Error("the states were", got)
	}
	if n, m := len(alice.publics()), len(bob.publics()); n != 0 || m != 1 {
		t.Errorf("alice has posted %d public transactions, and bob %d", n, m)
	}
	for _, call := range bob.service.called() {
		if strings.HasPrefix(call, "assemble") || strings.HasSuffix(call, "notarise") {
			t.Error("the data of the intent has left its node:", call)
		}
	}
	others := want(t, 200, "GET", alice.url+"/domains/tok", "")["others"].([]any)
	b := others[0].(map[string]any)
	if len(others) != 1 || b["name"] != "bob" || b["heard_at"] == nil || b["agrees"] != true {
		t.Error("alice knows of the other nodes", others)
	}
	for _, end := range []struct{ do, receipt string }{
		{"refuse", "failure the balance is too low"},
		{"decline", "failure not endorsed: not to my liking"},
	} {
		id := alice.post(fmt.Sprintf(`{"party": "ann@alice", "data": {"do": %q}}`, end.do))
		if r := alice.receipt(id); r != end.receipt {
			t.Errorf("%s ends as %q, want %q", end.do, r, end.receipt)
		}
	}
	minted := alice.post(`{"party": "ann", "data": {"do": "mint"}}`)
	spent := alice.post(fmt.Sprintf(`{"party": "ann", "data": {"do": "pay", "uses": %q}}`, minted))
	if r := alice.receipt(spent); !strings.HasPrefix(r, "success") {
		t.Error("what uses an output on its way ends as", r)
	}
	own := bob.post(`{"party": "ben", "data": {"do": "mint"}}`)
	if r := bob.receipt(own); !strings.HasPrefix(r, "success") {
		t.Error("an intent of the coordinator itself ends as", r)
	}
	want(t, 422, "POST", bob.url+"/domains/tok/intents", `{"party": "ann@alice", "data": {"do": "mint"}}`)
	status, text := send(t, "DELETE", alice.url+"/peers/bob", "")
	if status != 409 || !strings.Contains(text, "tok") {
		t.Errorf("a peer that is a node is removed: %d %s", status, text)
	}
}

// coord brings messages to a node as its peer, signed with a secret.
func (n *tokens) coord(peer, secret, body string) (int, string) {
	n.t.Helper()
	key, err := remote.ParseSecret(secret)
	if err != nil {
		n.t.Fatal(err)
	}
	at := n.url + "/contexts/default/peers/" + peer
	installation := fmt.Sprint(want(n.t, 200, "GET", at+"/health", "")["installation"])
	r, err := http.NewRequestWithContext(n.t.Context(), "POST", at+"/coord", strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	if secret != "" {
		m := remote.Message{ID: remote.PeerPath(installation, "default", peer, "coord") + "/" + fmt.Sprint(len(body)),
			Body: []byte(body), Secrets: [][]byte{key}}
		r.Header = m.Header(time.Now())
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		n.t.Fatal(err)
	}
	defer res.Body.Close()
	said := map[string]any{}
	_ = json.NewDecoder(res.Body).Decode(&said)
	text, _ := json.Marshal(said)
	return res.StatusCode, string(text)
}

// S3.14: what no node of the domain could have said is refused with its place, and changes nothing.
func TestWhatOtherNodesMayNotSayIsRefused(t *testing.T) {
	alice, bob := newTokenPair(t, `, "mode": "STATIC", "static": "bob"`)
	const id = "0190c1e6-0000-7000-8000-000000000001"
	message := func(fields string) string {
		base := `"domain": "tok", "kind": "Ask", "from": "alice", "to": "bob", "install": 1, "beat": 1, "height": 0`
		return "{" + base + fields + "}"
	}
	call := func(list ...string) string { return `{"messages": [` + strings.Join(list, ", ") + `]}` }
	good := message(`, "ids": ["` + id + `"]`)
	another := "whsec_" + strings.Repeat("QUFB", 8)
	if status, text := bob.coord("alice", another, call(good)); status != 401 {
		t.Errorf("a call under another secret: %d %s", status, text)
	}
	unsigned, text := send(t, "POST", bob.url+"/contexts/default/peers/alice/coord", call(good))
	if unsigned != 401 {
		t.Errorf("a call that is not signed: %d %s", unsigned, text)
	}
	want(t, 201, "PUT", bob.url+"/peers/eve", fmt.Sprintf(`{"secret": %q}`, wireSecret))
	for _, c := range []struct {
		peer, body, says string
		status           int
	}{
		{"alice", `{"messages": 1}`, "messages", 422},
		{"alice", call(), "/messages", 422},
		{"alice", call(strings.Split(strings.Repeat(good+"\n", 1001), "\n")[:1001]...), "1001 items", 422},
		{"eve", call(good), "/messages/0/from", 403},
		{"eve", call(strings.Replace(good, "alice", "eve", 1)), "/messages/0/domain", 403},
		{"alice", call(good, strings.Replace(good, "tok", "none", 1)), "/messages/1/domain", 403},
		{"alice", call(strings.Replace(good, `"to": "bob"`, `"to": "carol"`, 1)), "/messages/0/to", 403},
		{"alice", call(message(`, "ids": ["a\u0000b"]`)), "/messages/0/ids", 400},
		{"alice", call(message(`, "reason": "a\u0000b"`)), "/messages/0/reason", 400},
		{"alice", call(message(`, "id": "` + id + `"`)), "/messages/0/id", 422},
		{"alice", call(strings.Replace(good, `"height": 0`, `"height": -1`, 1)), "/messages/0/height", 422},
		{"alice", call(message(`, "state": "Zzz"`)), "/messages/0/state", 422},
		{"alice", call(message(`, "entries": [{"id": "` + id + `", "state": "Zzz"}]`)),
			"/messages/0/entries/0/state", 422},
		{"alice", call(message(`, "entries": [{"id": "` + id + `", "outcome": "ok"}]`)),
			"/messages/0/entries/0/outcome", 422},
		{"alice", call(strings.Replace(good, `"install": 1`, `"install": 0`, 1)), "/messages/0/install", 422},
		{"alice", call(strings.Replace(good, `"beat": 1`, `"beat": "x"`, 1)), "/messages/0", 422},
		{"alice", call(strings.Replace(message(`, "id": "`+id+`", "key": "k", "hash": "h", "made": {"plan": [{
			"name": "n", "type": "endorse", "parties": ["x@carol"]}]}`), "Ask", "EndorsementRequest", 1)),
			"/messages/0/made", 422},
		{"alice", call(strings.Replace(message(`, "id": "`+id+`", "key": "k", "hash": "h", "made": {}`), "Ask",
			"EndorsementRequest", 1)), "/messages/0/hash", 422},
	} {
		status, text := bob.coord(c.peer, wireSecret, c.body)
		if status != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%.200s\nanswers %d, want %d with %s: %s", c.body, status, c.status, c.says, text)
		}
	}
	// A kind of a newer version is left out, and the rest is taken.
	status, text := bob.coord("alice", wireSecret, call(strings.Replace(good, "Ask", "Sing", 1), good))
	if status != 202 || !strings.Contains(text, `"unsupported":[0]`) || !strings.Contains(text, `"taken":1`) {
		t.Errorf("a call with an unknown kind: %d %s", status, text)
	}
	if d := want(t, 200, "GET", bob.url+"/domains/tok", ""); len(d["works"].(map[string]any)) != 0 {
		t.Error("bob coordinates", d["works"])
	}
	if r := alice.receipt(alice.post(`{"party": "ann", "data": {"do": "mint"}}`)); !strings.HasPrefix(r, "success") {
		t.Error("behind all that an intent ends as", r)
	}
}
