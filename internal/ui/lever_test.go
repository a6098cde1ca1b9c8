package ui_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// A member that may be any JSON is a field of its form, and is sent as the JSON that it is.
func TestAFieldMayBeJSON(t *testing.T) {
	h := newHouse(t, "none")
	b := h.browser()
	h.api("PUT", "/sources/src", `{"kind": "sui", "url": "http://127.0.0.1:1", "map": {"fqn": "/type"},
		"filter": {"All": []}}`)
	const page, lever = "/ui/c/default/sources/src", "POST /sources/src/rewind"
	s := b.get(page)
	form := s.form(lever)
	if form == nil || !strings.Contains(s.text, `<textarea name="cursor"`) {
		t.Fatalf("no field has the cursor: %s", s.text)
	}
	form.Set("do", "do")
	form.Set("cursor", `{"txDigest": "d", `)
	if s := b.post(page, form); s.status != 422 || !strings.Contains(s.text, "cursor is to be JSON") {
		t.Errorf("half a cursor: %d %s", s.status, s.text)
	}
	form.Set("cursor", `{"txDigest": "d", "eventSeq": 12345678901234567890}`)
	if s := b.post(page, form); s.status != 200 || !strings.Contains(s.text, ">Done<") {
		t.Errorf("a cursor: %d %s", s.status, s.text)
	}
	if s := b.get(page); !strings.Contains(s.text, "12345678901234567890") {
		t.Errorf("the source does not read on there: %s", s.text)
	}
}

// A lever that makes what was not there replaces nothing that somebody has made meanwhile.
func TestALeverThatMakesReplacesNothing(t *testing.T) {
	h := newHouse(t, "none")
	b := h.browser()
	h.api("PUT", "/dispatchers/PAY", `{"worker_url": "noop:", "pool": "p"}`)
	h.api("PUT", "/senders/acc-1", `{"pool": "p"}`)
	id := fmt.Sprint(h.api("POST", "/transactions", `{"queue": "line", "type": "PAY", "data": {}}`)["id"])
	h.api("DELETE", "/senders/acc-1", "")
	page, lever := "/ui/c/default/transactions/"+id, "PUT /senders/acc-1"
	s := b.get(page)
	form := s.form(lever)
	if form == nil || !strings.Contains(s.text, "if there is still none") {
		t.Fatalf("there is no such form: %s", s.text)
	}
	form.Set("body", `{"pool": "p"}`)
	form.Set("do", "do")
	h.api("PUT", "/senders/acc-1", `{"pool": "other"}`)
	if s := b.post(page, form); s.status != http.StatusPreconditionFailed {
		t.Errorf("%d %s", s.status, s.text)
	}
	if pool := h.api("GET", "/senders/acc-1", "")["pool"]; pool != "other" {
		t.Errorf("it was put into %v", pool)
	}
	h.api("DELETE", "/senders/acc-1", "")
	if s := b.post(page, form); s.status != 200 || !strings.Contains(s.text, ">Done<") {
		t.Errorf("%d %s", s.status, s.text)
	}
}

// A redrive may have a uid of the visitor's choice, and null for its queue is no queue.
func TestARedriveIsWhatItsFormSays(t *testing.T) {
	h := newHouse(t, "none")
	b := h.browser()
	h.api("PUT", "/dispatchers/PAY", `{"worker_url": "noop:"}`)
	h.api("PUT", "/queues/line", `{}`)
	h.api("POST", "/queues/line/pause", `{}`)
	id := fmt.Sprint(h.api("POST", "/transactions", `{"queue": "line", "type": "PAY", "data": {}}`)["id"])
	h.api("POST", "/transactions/"+id+"/cancel", `{}`)
	page, lever := "/ui/c/default/transactions/"+id, "POST /transactions/"+id+"/redrive"
	form := b.get(page).form(lever)
	if form == nil {
		t.Fatal("it cannot be redriven")
	}
	form.Set("do", "do")
	form.Set("uid", "again")
	form.Set("queue", "null")
	if s := b.post(page, form); s.status != 200 || !strings.Contains(s.text, ">Done<") {
		t.Fatalf("%d %s", s.status, s.text)
	}
	made := h.api("GET", "/transactions/by-uid/again", "")
	if made["queue"] != nil || made["redrive_of"] != id {
		t.Errorf("%v", made)
	}
}
