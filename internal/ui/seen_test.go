package ui_test

import (
	"net/http"
	"strings"
	"testing"
)

// A lever on a flow and a job is of what was seen: where it has changed meanwhile, the page says so and shows it.
func TestALeverOnAFlowActsOnWhatWasSeen(t *testing.T) {
	h := newHouse(t, "none")
	b := h.browser()
	ids := h.scenario("default")
	for noun, change := range map[string]string{"flow": "start", "job": "cancel", "message": "cancel"} {
		at := "/" + noun + "s/" + ids[noun]
		page, lever := "/ui/c/default"+at, "POST "+at+"/cancel"
		form := b.get(page).form(lever)
		form.Set("do", "try")
		if s := b.post(page, form); s.status != 200 || !strings.Contains(s.text, "<dt>state</dt><dd><bdi>error</bdi>") {
			t.Errorf("%s tried: %d %s", noun, s.status, s.text)
		}
		h.api("POST", at+"/"+change, "")
		form.Set("do", "do")
		s := b.post(page, form)
		if s.status != http.StatusPreconditionFailed || !strings.Contains(s.text, "The page shows it as it is now") {
			t.Errorf("%s: %d %s", noun, s.status, s.text)
		}
	}
}
