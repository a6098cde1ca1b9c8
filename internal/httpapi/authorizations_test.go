package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const payOnce = `{"label": "pay", "mode": "permissionless", "duration": {"blocks": 5}, "max_concurrent_executions": 2, "actions_config": {"non_atomic": {"functions": [` + addFunction + `]}}}`

func TestAnAuthorizationIsChangedInPart(t *testing.T) {
	d := newPlant(t)
	d.want(201, "POST", "/authorizations", payOnce)
	d.want(200, "PUT", "/processors/main/height", `{"height": 3}`)
	a := d.want(200, "PATCH", "/authorizations/pay", `{"max_concurrent_executions": 7, "mode": {"permissioned": {"without_call_limit": ["ann"]}}}`)
	if a.body["max_concurrent_executions"] != 7.0 || a.str("ends_at_height") != "5" || !strings.Contains(a.raw, `"ann"`) || !strings.Contains(a.raw, `"ADD"`) || a.header.Get("ETag") != `"2"` {
		t.Error(a.raw)
	}
	if a = d.want(200, "PATCH", "/authorizations/pay", `{"duration": {"blocks": 6}}`); a.str("ends_at_height") != "9" {
		t.Error(a.raw)
	}
	if a = d.want(200, "PATCH", "/authorizations/pay", `{"duration": null}`); a.body["ends_at_height"] != nil || a.body["duration"] != "forever" {
		t.Error(a.raw)
	}
	d.refused(412, "precondition_failed", "PATCH", "/authorizations/pay", `{}`, `If-Match: "1"`)
	d.refused(422, "invalid", "PATCH", "/authorizations/pay", `{"priority": "High", "mode": "permissionless"}`)
	d.refused(422, "invalid", "PATCH", "/authorizations/pay", `{"label": "other"}`)
	d.refused(422, "invalid", "PATCH", "/authorizations/pay", `{"actions": {}}`)
	d.refused(404, "not_found", "PATCH", "/authorizations/none", `{}`)
}

// A request that is sent again makes no second batch, and answers with the first as it is by then.
func TestABatchIsMadeOncePerKey(t *testing.T) {
	d := newPlant(t)
	d.want(201, "POST", "/authorizations", payOnce)
	const send = `{"messages": [{"msg": {"add": {}}}]}`
	for i, c := range []struct{ path, body, other string }{
		{"/processors/main/batches", addOne, strings.Replace(addOne, `"n": 1`, `"n": 2`, 1)},
		{"/processors/main/insert", `{"batch": ` + addOne + `}`, `{"position": 1, "batch": ` + addOne + `}`},
		{"/authorizations/pay/send", send, strings.Replace(send, `{}`, `{"n": 2}`, 1)},
	} {
		key := "Idempotency-Key: k" + c.path[len(c.path)-3:]
		first := d.want(201, "POST", c.path, c.body, key)
		d.want(200, "POST", "/processors/main/evict", fmt.Sprintf(`{"id": %v}`, first.body["id"]))
		again := d.want(200, "POST", c.path, c.body, key)
		if again.body["id"] != first.body["id"] || first.body["id"] != float64(i+1) || again.str("state") != "Done" || again.header.Get("Idempotent-Replay") != "true" {
			t.Error(again.raw)
		}
		if r := d.refused(409, "idempotency_conflict", "POST", c.path, c.other, key); !strings.Contains(r.raw, `"existing"`) {
			t.Error(r.raw)
		}
		d.refused(422, "invalid", "POST", c.path, c.body, "Idempotency-Key: :x")
	}
	if a := d.want(200, "GET", "/authorizations/pay", ""); a.body["running"] != 0.0 {
		t.Error(a.raw)
	}
}

func TestABatchSaysWhy(t *testing.T) {
	d := newPlant(t)
	d.want(201, "POST", "/processors/main/batches", addOne)
	if w := d.want(200, "GET", "/processors/main/batches/1/why", ""); w.str("state") != "Queued" || !strings.Contains(w.raw, `"kind":"no_tick"`) || !strings.Contains(w.raw, `"/processors/main/tick"`) {
		t.Error(w.raw)
	}
	d.want(200, "POST", "/processors/main/tick", "")
	if w := d.want(200, "GET", "/processors/main/batches/1/why", ""); !strings.Contains(w.raw, `"kind":"batch_executing"`) || !strings.Contains(w.raw, `"kind":"no_live_node"`) {
		t.Error(w.raw)
	}
	d.refused(404, "not_found", "GET", "/processors/main/batches/x/why", "")
	d.refused(404, "not_found", "GET", "/processors/main/batches/9/why", "")
}

func TestAnActorIsGivenCalls(t *testing.T) {
	d := newPlant(t)
	d.want(201, "POST", "/authorizations", strings.Replace(payOnce, `"permissionless"`, `{"permissioned": {"with_call_limit": {"dev": 1}}}`, 1))
	const send = `{"messages": [{"msg": {"add": {}}}]}`
	d.want(201, "POST", "/authorizations/pay/send", send)
	d.refused(409, "call_limit", "POST", "/authorizations/pay/send", send)
	d.want(200, "PUT", "/authorizations/pay/grants/dev?dry_run=true", `{"calls": 9}`)
	if g := d.want(200, "PUT", "/authorizations/pay/grants/dev", `{"calls": 1}`); g.body["calls"] != 1.0 || g.body["spent"] != 1.0 {
		t.Error(g.raw)
	}
	d.want(201, "POST", "/authorizations/pay/send", send)
	d.refused(409, "call_limit", "POST", "/authorizations/pay/send", send)
	d.want(200, "PUT", "/authorizations/pay/grants/ann", `{"calls": 2}`)
	if a := d.want(200, "GET", "/authorizations/pay", ""); !strings.Contains(a.raw, `"ann":2`) || !strings.Contains(a.raw, `"dev":2`) || a.body["spent"] != 2.0 {
		t.Error(a.raw)
	}
	d.want(200, "POST", "/processors/main/evict", `{"id": 1}`)
	for query, want := range map[string]string{"": "[1 2]", "?result=removed_by_owner": "[1]", "?result=in_process": "[2]", "?limit=1": "[1]"} {
		if l := d.want(200, "GET", "/authorizations/pay/executions"+query, ""); l.ids() != want {
			t.Errorf("%s: %s", query, l.raw)
		}
	}
	d.want(201, "POST", "/authorizations", strings.Replace(payOnce, `"pay"`, `"open"`, 1))
	d.refused(409, "wrong_state", "PUT", "/authorizations/open/grants/dev", `{"calls": 1}`)
	d.refused(404, "not_found", "PUT", "/authorizations/none/grants/dev", `{"calls": 1}`)
	d.refused(404, "not_found", "GET", "/authorizations/none/executions", "")
	d.refused(422, "invalid", "PUT", "/authorizations/pay/grants/eve", `{"calls": 0}`)
}

// S4.14: a batch was not delivered in time. Any caller may have it sent again, under the same id, while its ttl lasts.
func TestWhatWasNotDeliveredIsSentAgain(t *testing.T) {
	d := newPlant(t)
	if p := d.want(200, "PATCH", "/processors/main", `{"deliver_within": "1ms"}`, "Content-Type: application/merge-patch+json"); p.str("deliver_within") != "1ms" {
		t.Error(p.raw)
	}
	d.refused(422, "invalid", "PUT", "/processors/odd", `{"deliver_within": "25h"}`)
	d.want(201, "POST", "/authorizations", payOnce)
	sent := d.want(201, "POST", "/authorizations/pay/send", `{"messages": [{"msg": {"add": {}}}], "ttl": 3600}`)
	created, err1 := time.Parse(time.RFC3339Nano, sent.str("created_at"))
	until, err2 := time.Parse(time.RFC3339Nano, sent.str("ttl"))
	if err1 != nil || err2 != nil || until.Sub(created) != time.Hour || sent.body["result"] != nil {
		t.Error(err1, err2, sent.raw)
	}
	const retry = "/authorizations/pay/executions/1/retry"
	if r := d.refused(409, "wrong_state", "POST", retry, ""); r.str("detail") != "Messages are not retriable" {
		t.Error(r.raw)
	}
	key := "Authorization: Bearer " + d.want(201, "POST", "/api-keys", `{"name": "other", "role": "reader"}`).str("secret")
	for range 2 {
		if k := d.want(200, "POST", "/processors/main/tick?wait=30s", "", key); k.str("outcome") != "waiting" || !strings.Contains(k.raw, `"result":{"kind":"timeout","n":0,"reason":"","retriable":true}`) {
			t.Error(k.raw)
		}
		if l := d.want(200, "GET", "/authorizations/pay/executions?result=timeout", ""); l.ids() != "[1]" {
			t.Error(l.raw)
		}
		if w := d.want(200, "GET", "/processors/main/batches/1/why", ""); !strings.Contains(w.raw, `"kind":"undelivered"`) || !strings.Contains(w.raw, retry) {
			t.Error(w.raw)
		}
		d.refused(409, "in_use", "DELETE", "/processors/main", "")
		if b := d.want(200, "POST", retry, "", key); b.str("state") != "Queued" || b.body["result"] != nil {
			t.Error(b.raw)
		}
	}
	d.refused(404, "not_found", "POST", "/authorizations/pay/executions/2/retry", "")
	d.refused(404, "not_found", "POST", "/authorizations/pay/executions/x/retry", "")
	d.refused(404, "not_found", "POST", "/authorizations/none/executions/1/retry", "")
	if a := d.want(200, "GET", "/authorizations/pay", ""); a.body["running"] != 1.0 {
		t.Error(a.raw)
	}
}
