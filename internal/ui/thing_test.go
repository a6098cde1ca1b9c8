package ui_test

import (
	"strings"
	"testing"
)

// The page of a channel says which of its messages it lists, and how many others there are.
func TestAChannelSaysWhichMessagesItLists(t *testing.T) {
	h := newHouse(t, "none")
	b := h.browser()
	h.api("PUT", "/channels/ch", `{"kind": "integrity"}`)
	h.api("POST", "/channels/ch/messages", `{"id": "m1", "payload": 1}`)
	s := b.get("/ui/c/default/channels/ch")
	const at = `<a href="/ui/c/default/channels/ch/messages?set=`
	for _, want := range []string{">Messages: queued</a>", at + `offered"><b>1</b> offered</a>`,
		at + `active"><b>0</b> active</a>`, at + `dropped"><b>0</b> dropped</a>`} {
		if !strings.Contains(s.text, want) {
			t.Errorf("the page lacks %s: %s", want, s.text)
		}
	}
	if s := b.get("/ui/c/default/channels/ch/messages?set=offered"); s.status != 200 ||
		!strings.Contains(s.text, "<bdi>m1</bdi>") {
		t.Errorf("what is offered: %d %s", s.status, s.text)
	}
}
