package httpapi_test

import (
	"strings"
	"testing"
)

func TestAPostIsStoredOnceUnderItsKey(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	const body = `{"queue": "claim-7", "type": "pay", "data": {"to": "é", "amount": 12345678901234567890.10}, "tags": {"k": "v"}}`
	a := d.want(201, "POST", "/transactions", body, "Idempotency-Key: order-1")
	if a.header.Get("Location") != "/transactions/"+a.str("id") || a.header.Get("Idempotent-Replay") != "" || a.str("uid") != "order-1" ||
		a.str("state") != "WAITING" || a.str("queue") != "claim-7" || a.body["position"] != 1.0 {
		t.Fatalf("%s %v", a.raw, a.header)
	}
	if !strings.Contains(a.raw, "12345678901234567890.10") {
		t.Errorf("digits are lost: %s", a.raw)
	}
	b := d.want(200, "POST", "/transactions", `{"tags":{"k":"v"},"type":"pay","data":{"amount":12345678901234567890.10,"to":"é"},"queue":"claim-7"}`, `Idempotency-Key: "order-1"`)
	if b.header.Get("Idempotent-Replay") != "true" || b.str("id") != a.str("id") {
		t.Fatalf("%s %v", b.raw, b.header)
	}
	c := d.refused(409, "idempotency_conflict", "POST", "/transactions", `{"queue": "claim-7", "type": "pay", "data": {"amount": 1}, "uid": "order-1"}`)
	if x := c.body["existing"].(map[string]any); x["id"] != a.str("id") || x["uid"] != "order-1" {
		t.Error(c.raw)
	}
	if x := c.body["differs"].([]any); len(x) != 2 || x[0] != "data" || x[1] != "tags" {
		t.Error(c.raw)
	}
	d.refused(400, "key_mismatch", "POST", "/transactions", `{"type": "pay", "uid": "b"}`, "Idempotency-Key: a")
	got := d.want(200, "GET", "/transactions/"+a.str("id"), "")
	byUID := d.want(200, "GET", "/transactions/by-uid/order-1", "")
	if got.raw != byUID.raw || got.header.Get("ETag") == "" || !strings.Contains(got.raw, "12345678901234567890.10") {
		t.Errorf("%s\n%s", got.raw, byUID.raw)
	}
	if got.raw != a.raw || got.header.Get("ETag") != a.header.Get("ETag") {
		t.Errorf("what was answered differs from what is read:\n%s\n%s", a.raw, got.raw)
	}
	d.want(304, "GET", "/transactions/"+a.str("id"), "", "If-None-Match: "+got.header.Get("ETag"))
	d.refused(404, "not_found", "GET", "/transactions/0193f5b2-0000-8000-8000-000000000000", "")
	d.refused(404, "not_found", "GET", "/transactions/by-uid/nobody", "")
}

func TestUnorderedWorkHasNoQueue(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("tool")
	for _, body := range []string{`{"type": "tool", "queue": null}`, `{"type": "tool"}`} {
		a := d.want(201, "POST", "/transactions", body)
		if q, there := a.body["queue"]; !there || q != nil || a.str("uid") != a.str("id") {
			t.Error(a.raw)
		}
	}
}
