package ui_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// A bulk that was tried acts on what the try found: not on what was moved into its queue since, and still on what was
// moved out of it.
func TestABulkActsOnWhatItsTryFound(t *testing.T) {
	h := newHouse(t, "none")
	b := h.browser()
	h.api("PUT", "/dispatchers/PAY", `{"worker_url": "noop:"}`)
	ids := map[string]string{}
	for _, queue := range []string{"other", "line", "third"} {
		h.api("PUT", "/queues/"+queue, `{}`)
		h.api("POST", "/queues/"+queue+"/pause", `{}`)
		for n := range 2 {
			uid := fmt.Sprint(queue, n)
			ids[uid] = fmt.Sprint(h.api("POST", "/transactions",
				fmt.Sprintf(`{"queue": %q, "type": "PAY", "uid": %q, "data": {}}`, queue, uid))["id"])
		}
	}
	const page, lever = "/ui/c/default/transactions?queue=line", "POST /transactions:suspend"
	form := b.get(page).form(lever)
	form.Set("do", "try")
	tried := b.post(page, form)
	if !strings.Contains(tried.text, "<dt>matched</dt><dd><bdi>2</bdi>") {
		t.Fatalf("try: %s", tried.text)
	}
	h.api("POST", "/transactions/"+ids["other0"]+"/move", `{"queue": "line"}`) // it came before those of the queue
	h.api("POST", "/transactions/"+ids["line1"]+"/move", `{"queue": "third"}`)
	form = tried.form(lever)
	form.Set("do", "do")
	done := b.post(page, form)
	if done.status != 200 || !strings.Contains(done.text, "<dt>matched</dt><dd><bdi>2</bdi>") {
		t.Errorf("do: %d %s", done.status, done.text)
	}
	for uid, want := range map[string]bool{"other0": false, "other1": false, "line0": true, "line1": true,
		"third0": false} {
		if is := h.api("GET", "/transactions/by-uid/"+uid, "")["suspended"] == true; is != want {
			t.Errorf("%s is suspended: %v, want %v", uid, is, want)
		}
	}
	if again := done.form(lever); again.Get("ids") != "" {
		t.Error("the form acts on the same once more")
	}
}

// A bulk whose try found nothing acts on nothing that has come into its filter since.
func TestABulkWhoseTryFoundNothingActsOnNothing(t *testing.T) {
	h := newHouse(t, "none")
	b := h.browser()
	h.api("PUT", "/dispatchers/PAY", `{"worker_url": "noop:"}`)
	h.api("PUT", "/queues/line", `{}`)
	id := fmt.Sprint(h.api("POST", "/transactions", `{"queue": "line", "type": "PAY", "uid": "a", "data": {}}`)["id"])
	const page, lever = "/ui/c/default/transactions?queue=line&suspended=true", "POST /transactions:cancel"
	form := b.get(page).form(lever)
	form.Set("do", "try")
	tried := b.post(page, form)
	if !strings.Contains(tried.text, "Tried: it finds nothing") {
		t.Fatalf("try: %s", tried.text)
	}
	h.api("POST", "/transactions/"+id+"/suspend", `{}`)
	for range 2 {
		form = tried.form(lever)
		form.Set("do", "do")
		tried = b.post(page, form)
		if tried.status != 422 || !strings.Contains(tried.text, "its try found nothing") {
			t.Errorf("do: %d %s", tried.status, tried.text)
		}
	}
	if state := h.api("GET", "/transactions/"+id, "")["state"]; state != "WAITING" {
		t.Errorf("it is %v", state)
	}
}

// A bulk that was tried, and whose lever or whose next try was refused, still acts on what its try found.
func TestABulkThatWasRefusedActsOnWhatItsTryFound(t *testing.T) {
	h := newHouse(t, "none")
	b := h.browser()
	h.api("PUT", "/dispatchers/PAY", `{"worker_url": "noop:"}`)
	post := func(queue, uid string) string {
		return fmt.Sprint(h.api("POST", "/transactions",
			fmt.Sprintf(`{"queue": %q, "type": "PAY", "uid": %q, "data": {}}`, queue, uid))["id"])
	}
	for _, queue := range []string{"other", "line"} {
		h.api("PUT", "/queues/"+queue, `{}`)
		h.api("POST", "/queues/"+queue+"/pause", `{}`)
	}
	other := post("other", "a")
	post("line", "b")
	const page, lever = "/ui/c/default/transactions?queue=line", "POST /transactions:suspend"
	press := func(s seen, do, reason string) seen {
		form := s.form(lever)
		form.Set("do", do)
		form.Set("reason", reason)
		return b.post(page, form)
	}
	s := press(b.get(page), "try", "")
	h.api("POST", "/transactions/"+other+"/move", `{"queue": "line"}`)
	for _, do := range []string{"do", "try"} {
		if s = press(s, do, strings.Repeat("r", 9000)); s.status != http.StatusUnprocessableEntity {
			t.Fatalf("%s: %d %s", do, s.status, s.text)
		}
	}
	if s = press(s, "do", ""); s.status != 200 || !strings.Contains(s.text, "<dt>matched</dt><dd><bdi>1</bdi>") {
		t.Errorf("do: %d %s", s.status, s.text)
	}
	if h.api("GET", "/transactions/"+other, "")["suspended"] == true {
		t.Error("it has acted on what was not tried")
	}
}

// A bulk on a queue means all that stands there, also where what was moved to its end was received first.
func TestABulkOnAQueueMeansItsOtherPages(t *testing.T) {
	h := newHouse(t, "none")
	b := h.browser()
	h.api("PUT", "/dispatchers/PAY", `{"worker_url": "noop:"}`)
	for _, queue := range []string{"early", "line"} {
		h.api("PUT", "/queues/"+queue, `{}`)
		h.api("POST", "/queues/"+queue+"/pause", `{}`)
		for n := range 50 { // a page
			h.api("POST", "/transactions",
				fmt.Sprintf(`{"queue": %q, "type": "PAY", "uid": "%s-%d", "data": {}}`, queue, queue, n))
		}
	}
	h.api("POST", "/transactions:move", `{"filter": {"queue": ["early"]}, "queue": "line", "max": 50}`)
	const page, lever = "/ui/c/default/transactions?queue=line", "POST /transactions:suspend"
	form := b.get(page).form(lever)
	form.Set("do", "try")
	if s := b.post(page, form); !strings.Contains(s.text, "<dt>matched</dt><dd><bdi>100</bdi>") {
		t.Errorf("try: %s", s.text)
	}
}
