package ui_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

var stamps = regexp.MustCompile(`(?:data-stamp|id="present" value)="([0-9a-f]+)"`)

// stampOf is that of a page, or of the last event of a text.
func stampOf(text string) string {
	all := stamps.FindAllStringSubmatch(text, -1)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1][1]
}

// A live page says when its reasons and levers are old: the live part brings the stamp of the present ones, which is
// that of the page until something changes.
func TestALivePageKnowsThatItsLeversAreOld(t *testing.T) {
	h := newHouse(t, "none")
	b := h.browser()
	ids := h.scenario("default")
	for page, change := range map[string]func(){
		"transactions/" + ids["first"]: func() { h.api("POST", "/queues/line/resume", "") },
		"flows/" + ids["flow"]:         func() { h.api("POST", "/flows/"+ids["flow"]+"/cancel", "") },
		"jobs/" + ids["job"]:           func() { h.api("POST", "/jobs/"+ids["job"]+"/cancel", "") },
	} {
		shown := b.get("/ui/c/default/" + page)
		at := stampOf(shown.text)
		if at == "" || !strings.Contains(shown.text, " hidden>The reasons and the levers on this page are of") {
			t.Fatalf("%s has no stamp", page)
		}
		res := b.stream("/ui/c/default/" + page)
		if now := stampOf(read(t, res, 2)); now != at {
			t.Errorf("%s: the stamp is %q, the page has %q, and nothing has changed", page, now, at)
		}
		change()
		until(t, func() bool { now := stampOf(read(t, res, 1)); return now != "" && now != at })
		if again := stampOf(b.get("/ui/c/default/" + page).text); again == at {
			t.Errorf("%s: what is shown anew has the stamp of before", page)
		}
		res.Body.Close()
	}
}

// Two who may pull other levers on one thing share its live part, and neither is told that the page is old.
func TestTheStampIsTheSameForAllWhoLook(t *testing.T) {
	h := newHouse(t, "required")
	h.api("PUT", "/contexts/shop", `{}`)
	h.api("PUT", "/dispatchers/PAY", `{"worker_url": "noop:"}`, "Postern-Context: shop")
	h.api("PUT", "/queues/line", `{}`, "Postern-Context: shop")
	own, other := h.key("shop", "executor"), h.key("shop", "executor")
	id := h.api("POST", "/transactions", `{"queue": "line", "type": "PAY", "uid": "a", "data": {}}`,
		"Postern-Context: shop", "Authorization: Bearer "+own)["id"]
	page := fmt.Sprint("/ui/c/shop/transactions/", id)
	one, two := h.browser().signIn(own).get(page), h.browser().signIn(other).get(page)
	if len(one.levers()) == len(two.levers()) {
		t.Error("both have the same levers")
	}
	if at := stampOf(one.text); at == "" || at != stampOf(two.text) {
		t.Errorf("the stamps are %q and %q", at, stampOf(two.text))
	}
}
