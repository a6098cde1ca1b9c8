package httpapi_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// deadEvent pushes an event and lets it end badly.
func (d *door) deadEvent() string {
	d.t.Helper()
	id := d.event()
	if _, err := d.store.Pool().Exec(d.t.Context(), `UPDATE postern.event SET was = 'Active', status = 'Dead', outcome = 'failed', code = 'http_400', error = 'the tool refuses the call' WHERE event_id = $1::text::uuid`, id); err != nil {
		d.t.Fatal(err)
	}
	return id
}

// event pushes an event.
func (d *door) event() string {
	d.t.Helper()
	if a := d.call("PUT", "/sources/app", pushSource); a.status >= 300 {
		d.t.Fatalf("%s", a.raw)
	}
	d.events++
	a := d.want(201, "POST", "/events", fmt.Sprintf(`{"source": "app", "identity": {"digest": "dead-%d"}, "json": {"tool": "xyz.labs.add@1"}}`, d.events))
	return a.body["items"].([]any)[0].(map[string]any)["id"].(string)
}

func TestADeadEventIsRedrivenOnce(t *testing.T) {
	d := newDoor(t)
	id := d.deadEvent()
	if e := d.want(200, "GET", "/events/"+id, ""); e.str("outcome") != "failed" || !strings.Contains(e.raw, `"error":{"code":"http_400","message":"the tool refuses the call"}`) {
		t.Errorf("%s", e.raw)
	}
	if w := d.want(200, "GET", "/events/"+id+"/why", ""); w.str("state") != "Dead" || !strings.Contains(w.raw, "/events/"+id+"/redrive") {
		t.Errorf("%s", w.raw)
	}
	if dry := d.want(201, "POST", "/events/"+id+"/redrive?dry_run=true", ""); dry.str("redrive_of") != id {
		t.Errorf("%s", dry.raw)
	}
	again := d.want(201, "POST", "/events/"+id+"/redrive", `{"reason": "the tool is mended"}`)
	fresh := again.str("id")
	if again.str("redrive_of") != id || again.str("status") != "Queued" || again.header.Get("Location") != "/events/"+fresh {
		t.Errorf("%s", again.raw)
	}
	d.refused(409, "already_redriven", "POST", "/events/"+id+"/redrive", "")
	d.refused(409, "wrong_state", "POST", "/events/"+fresh+"/redrive", "")
	d.refused(404, "not_found", "POST", "/events/00000000-0000-7000-8000-000000000000/redrive", "")
	if h := d.want(200, "GET", "/events/"+fresh+"/history", ""); !strings.Contains(h.raw, `"event":"Saved","to":"Queued","by":"dev"`) {
		t.Errorf("%s", h.raw)
	}
	if w := d.want(200, "GET", "/events/"+fresh+"/why", ""); !strings.Contains(w.raw, `"kind":"line_turn","object":"/channels/source:app"`) {
		t.Errorf("%s", w.raw)
	}
	other := d.deadEvent()
	body := `{"filter": {"source": "app"}, "max": 10}`
	if b := d.want(200, "POST", "/events:redrive?dry_run=true", body); b.body["changed"] != 1.0 || b.body["dry_run"] != true {
		t.Errorf("%s", b.raw)
	}
	if b := d.want(200, "POST", "/events:redrive", body); b.body["matched"] != 1.0 || b.body["changed"] != 1.0 {
		t.Errorf("%s", b.raw)
	}
	if b := d.want(200, "POST", "/events:redrive", `{"ids": ["`+other+`", "x"]}`); b.body["changed"] != 0.0 || !strings.Contains(b.raw, "already_redriven") || !strings.Contains(b.raw, "not_found") {
		t.Errorf("%s", b.raw)
	}
	d.want(422, "POST", "/events:redrive", `{"filter": {}}`)
}

func TestChannelsOfBothKinds(t *testing.T) {
	d := newDoor(t)
	c := d.want(201, "PUT", "/channels/cap-1", `{"kind": "cap", "cap": "0xca", "gas_coin": "0x6a5", "wallet": "w"}`)
	if c.str("state") != "open" || c.str("cap") != "0xca" || c.str("gas_coin") != "0x6a5" || c.str("wallet") != "w" || c.body["capacity"] != nil {
		t.Errorf("%s", c.raw)
	}
	// what the channel keeps are the attributes of its sender, which go out with each call
	if s := d.want(200, "GET", "/senders/cap-1", ""); !maps.Equal(s.body["attributes"].(map[string]any),
		map[string]any{"cap": "0xca", "gas_coin": "0x6a5", "wallet": "w"}) {
		t.Error(s.raw)
	}
	if p := d.want(200, "GET", "/pools/leader", ""); p.str("after_failure") != "block" || p.str("block_for") != "24h" {
		t.Errorf("%s", p.raw)
	}
	d.want(200, "POST", "/channels/cap-1/block", `{"for": "1h", "reason": "it smells"}`)
	if c := d.want(200, "GET", "/channels/cap-1", ""); c.str("state") != "blocked" || c.body["blocked_until"] == nil || !strings.Contains(c.raw, "it smells") {
		t.Errorf("%s", c.raw)
	}
	d.want(200, "POST", "/channels/cap-1/unblock", "")
	if c := d.want(200, "PATCH", "/channels/cap-1", `{"wallet": "v"}`); c.str("wallet") != "v" || c.str("cap") != "0xca" || c.str("state") != "open" {
		t.Errorf("%s", c.raw)
	}
	i := d.want(201, "PUT", "/channels/between", `{"kind": "integrity", "capacity": 1, "max_retries": 1, "stale_after": "90s"}`)
	if i.body["capacity"] != 1.0 || i.str("stale_after") != "1m30s" || i.str("retry_interval") != "5s" || i.body["queued"] != 0.0 {
		t.Errorf("%s", i.raw)
	}
	d.refused(409, "in_use", "PUT", "/channels/between", `{"kind": "cap"}`)
	d.refused(409, "wrong_state", "POST", "/channels/between/block", "")
	if a := d.want(422, "PUT", "/channels/bad", `{"kind": "integrity", "capacity": 0}`); !strings.Contains(a.str("detail"), "channel capacity must be greater than zero") {
		t.Errorf("%s", a.raw)
	}
	if l := d.want(200, "GET", "/channels?limit=1", ""); !strings.Contains(l.raw, `"between"`) || l.body["next"] == nil {
		t.Errorf("%s", l.raw)
	} else if l = d.want(200, "GET", "/channels?limit=1&cursor="+l.str("next"), ""); !strings.Contains(l.raw, `"cap-1"`) || l.body["next"] != nil {
		t.Errorf("%s", l.raw)
	}

	const m = "/channels/between/messages"
	if a := d.want(204, "POST", "/channels/between/receive", ""); a.raw != "" {
		t.Errorf("%s", a.raw)
	}
	for _, want := range []struct {
		id     string
		status int
		sent   bool
	}{{"a", 201, true}, {"b", 201, false}, {"a", 200, false}} {
		if a := d.want(want.status, "POST", m, `{"id": "`+want.id+`", "payload": {"n": 1}}`); a.body["sent"] != want.sent {
			t.Errorf("%s: %s", want.id, a.raw)
		}
	}
	held := d.want(200, "POST", "/channels/between/receive?wait=1s", "")
	fence, _ := held.body["fence"].(float64)
	if held.str("id") != "a" || fence < 1e12 {
		t.Errorf("%s", held.raw)
	}
	d.refused(409, "stale_fence", "POST", m+"/a/ack", fmt.Sprintf(`{"fence": %.0f}`, fence+1))
	d.want(200, "POST", m+"/a/nack", fmt.Sprintf(`{"fence": %.0f, "reason": "no"}`, fence))
	if l := d.want(200, "GET", m, ""); !strings.Contains(l.raw, `"id":"a","set":"queued","retries":1`) || !strings.Contains(l.raw, `"id":"b"`) {
		t.Errorf("%s", l.raw)
	}
	if _, err := d.store.Channels.TendChannels(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l := d.want(200, "GET", m+"?set=dropped", ""); !strings.Contains(l.raw, "max retries reached (1): no") {
		t.Errorf("%s", l.raw)
	}
	b := d.want(200, "POST", "/channels/between/receive", "")
	d.refused(409, "in_use", "DELETE", "/channels/between", "")
	for _, first := range []bool{true, false} {
		a := d.want(200, "POST", m+"/b/ack", fmt.Sprintf(`{"fence": %.0f}`, b.body["fence"]))
		if a.body["changed"] != first {
			t.Errorf("first %v: %s", first, a.raw)
		}
	}
	d.want(204, "DELETE", "/channels/between", "")
	d.want(204, "DELETE", "/channels/cap-1", "")
	d.refused(404, "not_found", "GET", "/channels/cap-1", "")

	d.want(201, "PUT", "/sources/app", pushSource)
	d.refused(409, "in_use", "DELETE", "/channels/source:app", "")
	d.refused(409, "in_use", "POST", "/channels/leader:results/receive", "")
	d.refused(422, "invalid", "PUT", "/sources/none", `{"kind": "push", "map": {"fqn": "/tool"}, "buffer": 0}`)
}

// An id that was sent again after its end has several ends. Pages have each of them once, also where a page is full
// between two.
func TestPagesOfEndedChannelMessagesHaveEachEndOnce(t *testing.T) {
	d := newDoor(t)
	d.want(201, "PUT", "/channels/between", `{"kind": "integrity", "capacity": 1}`)
	const m = "/channels/between/messages"
	var want, got []float64
	for range 3 {
		d.want(201, "POST", m, `{"id": "a", "payload": {}}`)
		fence, _ := d.want(200, "POST", "/channels/between/receive", "").body["fence"].(float64)
		d.want(200, "POST", m+"/a/ack", fmt.Sprintf(`{"fence": %.0f}`, fence))
		want = append(want, fence)
	}
	for cursor := ""; ; {
		page := d.want(200, "GET", m+"?set=acked&limit=1"+cursor, "")
		for _, one := range page.body["items"].([]any) {
			got = append(got, one.(map[string]any)["fence"].(float64))
		}
		if page.body["next"] == nil {
			break
		}
		cursor = "&cursor=" + page.str("next")
	}
	if !slices.Equal(got, want) {
		t.Errorf("pages have the fences %.0f, want %.0f", got, want)
	}
}
