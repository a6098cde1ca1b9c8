package app_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"
)

// another makes a second domain of a pair, where alice coordinates all. Whether bob hears of her there shows whether
// the way to him is open.
func another(t *testing.T, alice, bob *tokens) {
	t.Helper()
	for name, n := range map[string]*tokens{"alice": alice, "bob": bob} {
		want(t, 201, "PUT", n.url+"/domains/other", fmt.Sprintf(`{"types": ["TOK"], "service_url": %q, "self": %q,
			"nodes": ["bob", "alice"], "mode": "STATIC", "static": "alice", "heartbeat_interval": "1s",
			"request_timeout": "1s", "state_timeout": "3s"}`, n.serves, name))
	}
	told(t, bob)
}

// told posts an intent of bob, and waits until alice has told him to assemble it.
func told(t *testing.T, bob *tokens) {
	t.Helper()
	at := bob.url + "/domains/other/intents"
	id := want(t, 201, "POST", at, `{"party": "ben", "data": {"do": "mint"}}`)["id"].(string)
	for end := time.Now().Add(40 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		switch i := want(t, 200, "GET", at+"/"+id, ""); {
		case i["state"] != "Pending" && i["state"] != "Delegated":
			return
		case time.Now().After(end):
			t.Fatalf("the intent of another domain is still %v", i["state"])
		}
	}
}

// An answer of the service of a domain that no door takes is an error for its own intent. Other messages to the same
// node arrive there meanwhile.
func TestAnAnswerThatNoDoorTakesIsRefusedWhereItIsRead(t *testing.T) {
	alice, bob := newTokenPair(t, `, "mode": "STATIC", "static": "bob"`)
	another(t, alice, bob)
	alice.service.mu.Lock()
	alice.service.answer = func(kind string) string {
		if kind != "assemble" {
			return ""
		}
		return `{"result": "OK", "assembled": {"a": 1, "a": 2}}`
	}
	alice.service.mu.Unlock()
	before := len(alice.service.called())
	id := alice.post(`{"party": "ann", "data": {"do": "mint"}}`)
	for end := time.Now().Add(40 * time.Second); len(alice.service.called()) == before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the service is not asked")
		}
	}
	alice.service.mu.Lock()
	alice.service.answer = nil
	alice.service.mu.Unlock()
	told(t, bob)
	if r := alice.receipt(id); !strings.HasPrefix(r, "success") {
		t.Error("an intent that is assembled at a later call ends as", r)
	}
}

// A message that something between two nodes does not let through holds up no other that goes to the same node.
func TestAMessageThatDoesNotGetThroughHoldsUpNoOther(t *testing.T) {
	alice, bob := newTokenPair(t, `, "mode": "STATIC", "static": "bob"`)
	to, err := url.Parse(bob.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	refused := make(chan struct{}, 1000)
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte("poison")) {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			refused <- struct{}{}
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(gateway.Close)
	want(t, 200, "PATCH", alice.url+"/peers/bob", fmt.Sprintf(`{"url": %q}`,
		gateway.URL+"/contexts/default/peers/alice"))
	another(t, alice, bob)
	for range 5 {
		alice.post(`{"party": "ann", "data": {"do": "poison"}}`)
	}
	select {
	case <-refused:
	case <-time.After(40 * time.Second):
		t.Fatal("nothing comes through the gateway")
	}
	for range 3 {
		told(t, bob)
	}
}
