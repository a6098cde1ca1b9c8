package ui_test

import (
	"slices"
	"strings"
	"testing"
)

// A thing that has ended has the levers that still fit it, and no others; so has a webhook that is called.
func TestWhatHasEndedKeepsTheLeversThatFit(t *testing.T) {
	h := newHouse(t, "none")
	b := h.browser()
	ids := h.scenario("default")
	h.api("PUT", "/subscriptions/web", `{"kind": "webhook", "url": "http://127.0.0.1:1/",
		"events": ["transaction.done"]}`)
	h.api("PUT", "/sources/src", `{"kind": "push", "map": {"fqn": "/tool"}}`)
	if _, err := h.store.Pool().Exec(t.Context(), `
		INSERT INTO postern.event (event_id, context_id, source_id, identity, json, fqn, was, status, created_at,
			updated_at, entered_at)
		SELECT ('00000000-0000-7000-8000-00000000000' || x.n)::uuid, s.context_id, s.source_id, x.n, '{}', 'f', '',
			x.status, clock_timestamp(), clock_timestamp(), clock_timestamp()
		FROM postern.source s, (VALUES ('1', 'Queued'), ('2', 'Dead')) x(n, status)
		WHERE s.name = 'src'`); err != nil {
		t.Fatal(err)
	}
	has := func(page, want string) {
		t.Helper()
		s := b.get("/ui/c/default/" + page)
		if s.status != 200 {
			t.Fatalf("%s: %d %s", page, s.status, s.text)
		}
		verbs := []string{}
		for _, l := range s.levers() {
			if verb, ok := strings.CutPrefix(l, "POST /"+page+"/"); ok && !slices.Contains(verbs, verb) {
				verbs = append(verbs, verb)
			}
		}
		slices.Sort(verbs)
		if have := strings.Join(verbs, " "); have != want {
			t.Errorf("%s has the levers %q, want %q", page, have, want)
		}
	}
	has("flows/"+ids["flow"], "cancel start")
	has("jobs/"+ids["job"], "cancel")
	has("messages/"+ids["message"], "cancel")
	has("domains/notes/intents/"+ids["intent"], "cancel")
	for _, path := range []string{"/flows/" + ids["flow"], "/jobs/" + ids["job"], "/messages/" + ids["message"]} {
		h.api("POST", path+"/cancel", "")
	}
	if _, err := h.store.Pool().Exec(t.Context(), `
		UPDATE postern.coord_intent
		SET was = 'Submitted', state = 'Confirmed', held = false, receipt = 'success', ended_at = clock_timestamp()
		WHERE intent_id = $1`, ids["intent"]); err != nil {
		t.Fatal(err)
	}
	has("flows/"+ids["flow"], "redrive")
	has("jobs/"+ids["job"], "")
	has("messages/"+ids["message"], "")
	has("domains/notes/intents/"+ids["intent"], "")
	has("events/00000000-0000-7000-8000-000000000001", "")
	has("events/00000000-0000-7000-8000-000000000002", "redrive")
	has("subscriptions/web", "disable redeliver test")
	h.api("POST", "/subscriptions/web/disable", "")
	has("subscriptions/web", "enable redeliver test")
}
