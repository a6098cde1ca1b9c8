package ui_test

import (
	"fmt"
	"strings"
	"testing"
)

// The page of a domain has its other nodes and its intents, and that of an intent how long it was in each state.
func TestADomainShowsItsNodesAndAnIntentItsSeconds(t *testing.T) {
	h := newHouse(t, "none")
	h.api("PUT", "/dispatchers/PAY", `{"worker_url": "http://127.0.0.1:1/"}`)
	h.api("PUT", "/peers/bob", `{"secret": "whsec_YmVuY2gtYmVuY2gtYmVuY2gtYmVuY2gtYmVuY2gh",
		"url": "http://127.0.0.1:1/contexts/default/peers/alice"}`)
	h.api("PUT", "/domains/tok", `{"types": ["PAY"], "service_url": "http://127.0.0.1:1", "self": "alice",
		"nodes": ["alice", "bob"], "mode": "ENDORSER"}`)
	i := h.api("POST", "/domains/tok/intents", `{"party": "ann", "data": {}}`)
	b := h.browser()
	for page, wants := range map[string][]string{
		"domains/tok": {"bob", "heard", "/intents/" + fmt.Sprint(i["id"]), "ann@alice", "/domains/tok/pause"},
		"domains/tok/intents/" + fmt.Sprint(i["id"]): {"Time in each state", "Pending", "/cancel"},
	} {
		s := b.get("/ui/c/default/" + page)
		for _, want := range wants {
			if !strings.Contains(s.text, want) {
				t.Errorf("the page %s lacks %q: %s", page, want, s.text)
			}
		}
	}
}
