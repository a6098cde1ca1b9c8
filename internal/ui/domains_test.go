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
	i := h.api("POST", "/domains/tok/intents", fmt.Sprintf(`{"party": "ann", "data": {"text": %q}}`, markup))
	b := h.browser()
	for page, wants := range map[string][]string{
		"domains":             {"tok", "ENDORSER"},
		"domains/tok":         {"bob", "heard", "/intents/" + fmt.Sprint(i["id"]), "/domains/tok/pause"},
		"domains/tok/intents": {fmt.Sprint(i["id"]), "ann@alice"},
		"domains/tok/intents/" + fmt.Sprint(i["id"]): {"Time in each state", "Pending", "/cancel"},
	} {
		s := b.get("/ui/c/default/" + page)
		if s.status != 200 || strings.Contains(s.text, "<script>alert") {
			t.Errorf("%s: %d %s", page, s.status, s.text)
		}
		for _, want := range wants {
			if !strings.Contains(s.text, want) {
				t.Errorf("the page %s lacks %q: %s", page, want, s.text)
			}
		}
	}
}
