package ui_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// A lever that names no account asks for one, and makes no sender that is called as the word in its place.
func TestALeverAsksForTheAccountThatItLacks(t *testing.T) {
	h := newHouse(t, "none")
	b := h.browser()
	h.api("PUT", "/dispatchers/PAY", `{"worker_url": "noop:", "pool": "p"}`)
	id := h.api("POST", "/transactions", `{"queue": "line", "type": "PAY", "data": {}}`)["id"]
	page, lever := fmt.Sprint("/ui/c/default/transactions/", id), "PUT /senders/ACCOUNT"
	s := b.get(page)
	form := s.form(lever)
	if form == nil || !strings.Contains(s.text, `name="account" value="" autocomplete="off" required>`) {
		t.Fatalf("no field asks for the account: %s", s.text)
	}
	form.Set("body", `{"pool": "p"}`)
	form.Set("do", "do")
	if s := b.post(page, form); s.status != 422 || !strings.Contains(s.text, "an account that signs: say which") {
		t.Errorf("without an account: %d %s", s.status, s.text)
	}
	form.Set("account", "acc:9@x")
	s = b.post(page, form)
	if s.status != 200 || !strings.Contains(s.text, ">Done<") || !strings.Contains(s.text, "PUT /senders/acc:9@x") {
		t.Errorf("with an account: %d %s", s.status, s.text)
	}
	list := h.api("GET", "/senders", "")["items"].([]any)
	if len(list) != 1 || list[0].(map[string]any)["account"] != "acc:9@x" {
		t.Errorf("the senders are %v", list)
	}
}

// A body that has the word in place of an address is not sent.
func TestALeverSaysThatTheAddressIsMissing(t *testing.T) {
	h := newHouse(t, "none")
	b := h.browser()
	const page = "/ui/c/default/dispatchers"
	form := url.Values{"token": {b.get("/ui/c/default/transactions").input("token")}, "do": {"do"},
		"lever": {"PUT /dispatchers/PAY"}, "body": {`{"worker_url": "http://WORKER"}`}}
	s := b.post(page, form)
	if s.status != 422 || !strings.Contains(s.text, "http://WORKER stands for the address of your worker") {
		t.Errorf("%d %s", s.status, s.text)
	}
	if list := h.api("GET", "/dispatchers", "")["items"].([]any); len(list) != 0 {
		t.Errorf("the dispatchers are %v", list)
	}
	form.Set("body", `{"worker_url": "noop:"}`)
	if s := b.post(page, form); s.status != 200 || !strings.Contains(s.text, ">Done<") {
		t.Errorf("with an address: %d %s", s.status, s.text)
	}
}
