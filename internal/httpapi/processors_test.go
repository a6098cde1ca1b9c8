package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/httpapi"
	"github.com/postern-dev/postern/internal/pg/db"
)

const (
	addFunction = `{"domain": "main", "contract_address": "ADD", "message_details": {"message": {"name": "add"}}}`
	addOne      = `{"actions_config": {"non_atomic": {"functions": [` + addFunction + `]}}, "msgs": [{"msg": {"add": {"n": 1}}}]}`
)

// newPlant is a door with a processor and a type, and without a node.
func newPlant(t *testing.T, change ...func(*httpapi.Config)) *door {
	t.Helper()
	t.Parallel()
	return openPlant(t, change...)
}

// openPlant is newPlant for a test that has one already.
func openPlant(t *testing.T, change ...func(*httpapi.Config)) *door {
	t.Helper()
	d := openDoor(t, change...)
	d.want(201, "PUT", "/dispatchers/ADD", `{"worker_url": "http://127.0.0.1:9/", "capabilities": ["atomic"]}`)
	d.want(201, "PUT", "/processors/main", `{"tick_interval": "0s"}`)
	return d
}

// ids is which batches an answer lists.
func (a answer) ids() string {
	var list []any
	for _, i := range a.items() {
		list = append(list, i["id"])
	}
	return fmt.Sprint(list)
}

func TestAProcessorIsConfiguredPausedAndRemoved(t *testing.T) {
	d := newPlant(t)
	p := d.want(200, "GET", "/processors/main", "")
	if p.str("owner") != "dev" || p.str("tick_interval") != "0s" || p.str("state") != "Active" || p.header.Get("ETag") != `"1"` {
		t.Error(p.raw)
	}
	if p = d.want(200, "PATCH", "/processors/main", `{"fair": true, "tick_interval": null}`); p.body["fair"] != true || p.str("tick_interval") != "1s" {
		t.Error(p.raw)
	}
	d.refused(412, "precondition_failed", "PUT", "/processors/main", `{}`, `If-Match: "1"`)
	d.refused(422, "invalid", "PUT", "/processors/main", `{"tick_interval": "-1s"}`)
	d.refused(422, "invalid", "PUT", "/processors/main", `{"name": "other"}`)
	if p = d.want(200, "PUT", "/processors/main/height", `{"height": "10"}`); p.str("height") != "10" {
		t.Error(p.raw)
	}
	for _, h := range []string{"9", `"9"`, `"-1"`, `"1e3"`, "null"} {
		d.refused(422, "invalid", "PUT", "/processors/main/height", `{"height": `+h+`}`)
	}
	if r := d.refused(409, "nothing_to_process", "POST", "/processors/main/tick", ""); r.str("detail") != "There is currently nothing to process" || r.body["retryable"] != true {
		t.Error(r.raw)
	}
	for _, changed := range []bool{true, false} {
		if r := d.want(200, "POST", "/processors/main/pause", `{"reason": "audit"}`); r.body["changed"] != changed {
			t.Error(r.raw)
		}
	}
	if r := d.refused(409, "processor_paused", "POST", "/processors/main/tick", ""); r.str("detail") != "Processor is currently paused" {
		t.Error(r.raw)
	}
	for path, body := range map[string]string{"batches": addOne, "insert": `{"priority": "Med", "position": 0, "batch": ` + addOne + `}`} {
		d.refused(412, "precondition_failed", "POST", "/processors/main/"+path, body, `If-Match: "1"`)
	}
	d.refused(412, "precondition_failed", "PUT", "/processors/main/height", `{"height": "11"}`, `If-Match: "1"`)
	d.want(201, "POST", "/processors/main/batches", addOne)
	d.refused(409, "in_use", "DELETE", "/processors/main", "")
	d.want(200, "POST", "/processors/main/evict", `{"position": 0}`)
	d.want(200, "POST", "/processors/main/resume?dry_run=true", "")
	if p = d.want(200, "GET", "/processors/main", ""); p.str("state") != "Paused" {
		t.Error(p.raw)
	}
	d.want(204, "DELETE", "/processors/main", "")
	d.refused(404, "not_found", "GET", "/processors/main", "")
	d.refused(404, "not_found", "POST", "/processors/main/tick", "")
}

func TestBatchesArePutListedAndEvicted(t *testing.T) {
	d := newPlant(t)
	for range 3 {
		if b := d.want(201, "POST", "/processors/main/batches", addOne); b.str("state") != "Queued" || b.str("priority") != "Med" ||
			b.header.Get("Location") != fmt.Sprintf("/processors/main/batches/%v", b.body["id"]) {
			t.Error(b.raw)
		}
	}
	d.want(201, "POST", "/processors/main/insert", `{"position": 1, "batch": `+addOne+`}`)
	d.want(201, "POST", "/processors/main/insert", `{"after": 4, "priority": "Med", "batch": `+addOne+`}`)
	if r := d.refused(422, "invalid", "POST", "/processors/main/insert", `{"position": 6, "batch": `+addOne+`}`); r.str("detail") != "Index out of bounds" {
		t.Error(r.raw)
	}
	d.refused(422, "invalid", "POST", "/processors/main/insert", `{"before": 1, "after": 4, "batch": `+addOne+`}`)
	for query, want := range map[string]string{
		"priority=Med": "[1 4 5 2 3]", "priority=Med&from=1&to=3": "[4 5]", "priority=Med&order=desc": "[3 2 5 4 1]", "priority=Med&limit=2": "[1 4]", "priority=Med&order=desc&limit=2": "[3 2]", "priority=High": "[]",
		"": "[1 2 3 4 5]", "result=in_process&limit=2": "[1 2]", "result=executed": "[]", "waiting=callback": "[]",
	} {
		if l := d.want(200, "GET", "/processors/main/batches?"+query, ""); l.ids() != want {
			t.Errorf("%s: %s, want %s", query, l.ids(), want)
		}
	}
	first := d.want(200, "GET", "/processors/main/batches?limit=3", "")
	if next := d.want(200, "GET", "/processors/main/batches?limit=3&cursor="+first.str("next"), ""); next.ids() != "[4 5]" || next.body["next"] != nil {
		t.Error(next.raw)
	}
	for _, query := range []string{"priority=Med&from=3&to=1", "priority=Med&to=6", "priority=High&from=1", "from=1", "priority=Med&result=executed"} {
		d.refused(422, "invalid", "GET", "/processors/main/batches?"+query, "")
	}
	// an eviction that names no batch is refused
	for _, which := range []string{`{}`, `{"priority": "Med"}`, `{"id": 1, "position": 0}`} {
		d.refused(422, "invalid", "POST", "/processors/main/evict", which)
	}
	if b := d.want(200, "POST", "/processors/main/evict", `{"priority": "Med", "position": 2, "reason": "no"}`); b.body["id"] != 5.0 ||
		b.body["result"].(map[string]any)["kind"] != "removed_by_owner" {
		t.Error(b.raw)
	}
	d.want(200, "POST", "/processors/main/evict", `{"id": 1}`)
	d.refused(409, "wrong_state", "POST", "/processors/main/evict", `{"id": 1}`)
	d.refused(404, "not_found", "POST", "/processors/main/evict", `{"id": 99}`)
	if r := d.refused(422, "invalid", "POST", "/processors/main/evict", `{"position": 3}`); r.body["most"] != 2.0 {
		t.Error(r.raw)
	}
	empty := d.refused(422, "invalid", "POST", "/processors/main/evict", `{"priority": "High", "position": 0}`)
	if most, there := empty.body["most"]; there || empty.body["length"] != 0.0 { // -1 is no position
		t.Errorf("%v: %s", most, empty.raw)
	}
	if b := d.want(200, "GET", "/processors/main/batches/5/history", ""); len(b.items()) != 2 || b.items()[1]["reason"] != "no" {
		t.Error(b.raw)
	}
	d.refused(404, "not_found", "GET", "/processors/main/batches/x", "")
	if b := d.want(200, "POST", "/processors/main/batches", strings.Replace(addOne, `"msgs"`, `"expiration_time": "2020-01-01T00:00:00Z", "msgs"`, 1)); b.body["result"].(map[string]any)["kind"] != "expired" {
		t.Error(b.raw)
	}
	for _, c := range []struct{ from, to, want string }{
		{`"domain": "main"`, `"domain": "side"`, "/actions_config"},
		{`"functions"`, `"functons"`, "/actions_config"},
		{`"non_atomic"`, `"other"`, "/actions_config"},
		{`{"add": {"n": 1}}`, `{"sub": 1}`, "/messages/0/msg"},
		{`"domain": "main", `, `"domain": "main", "retry_logic": {"times": "often"}, `, "/actions_config"},
	} {
		if r := d.refused(422, "invalid", "POST", "/processors/main/batches", strings.Replace(addOne, c.from, c.to, 1)); !strings.Contains(r.raw, c.want) {
			t.Errorf("%s: %s", c.to, r.raw)
		}
	}
}

func TestATickAnswersOnceTheExecutionHasBegun(t *testing.T) {
	d := newPlant(t)
	d.want(201, "POST", "/processors/main/batches", addOne)
	r := d.want(200, "POST", "/processors/main/tick", "")
	if r.str("outcome") != "executing" || r.body["batch"].(map[string]any)["state"] != "Executing" || r.body["result"] != nil {
		t.Error(r.raw)
	}
	if p := d.want(200, "GET", "/processors/main", ""); p.body["executing"] != 1.0 || p.body["med"] != 0.0 {
		t.Error(p.raw)
	}
	d.refused(409, "wrong_state", "POST", "/processors/main/evict", `{"id": 1}`)
	tx := d.want(200, "GET", "/transactions/"+d.want(200, "GET", "/transactions?queue=processor:main:1", "").items()[0]["id"].(string), "")
	if tx.str("queue") != "processor:main:1" || tx.str("type") != "ADD" || tx.body["max_retries"] != 0.0 || tx.str("uid") != ":processor:1:1" {
		t.Error(tx.raw)
	}
	d.want(200, "POST", "/transactions/"+tx.str("id")+"/cancel", "")
	d.refused(409, "nothing_to_process", "POST", "/processors/main/tick", "")
	if b := d.want(200, "GET", "/processors/main/batches/1", ""); b.body["result"].(map[string]any)["reason"] != "cancelled" {
		t.Error(b.raw)
	}
	d.want(201, "POST", "/processors/main/batches", addOne)
	if r = d.want(200, "POST", "/processors/main/tick?wait=100ms", ""); r.str("outcome") != "executing" {
		t.Error(r.raw)
	}
	for _, id := range []string{"2", "x"} {
		if r = d.refused(404, "not_found", "POST", "/processors/main/callbacks/"+id, `{"payload": 1}`); r.str("detail") != "Pending callback not found" {
			t.Error(r.raw)
		}
	}
}

func TestAnAuthorizationSaysWhoMaySend(t *testing.T) {
	d := newPlant(t)
	pay := `{"label": "pay", "mode": {"permissioned": {"with_call_limit": {"dev": 1}}}, "duration": {"blocks": 5}, "actions_config": {"atomic": {"functions": [` + addFunction + `]}}}`
	a := d.want(201, "POST", "/authorizations", pay)
	if a.str("state") != "Enabled" || a.str("priority") != "Med" || a.body["max_concurrent_executions"] != 1.0 || a.str("ends_at_height") != "5" || a.header.Get("ETag") != `"1"` {
		t.Error(a.raw)
	}
	if r := d.refused(409, "in_use", "POST", "/authorizations", pay); r.str("detail") != "Authorization with label pay already exists" {
		t.Error(r.raw)
	}
	d.refused(409, "in_use", "PUT", "/authorizations/pay", pay)
	d.want(200, "PUT", "/authorizations/pay", strings.Replace(pay, `"label": "pay", `, "", 1), `If-Match: "1"`)
	if r := d.refused(422, "invalid", "POST", "/authorizations", strings.Replace(pay, `"pay"`, `""`, 1)); r.str("detail") != "Authorization must have a label" {
		t.Error(r.raw)
	}
	d.refused(422, "invalid", "POST", "/authorizations", strings.Replace(pay, `"permissioned"`, `"all"`, 1))
	d.refused(422, "invalid", "PUT", "/authorizations/other", pay)
	const send = `{"messages": [{"msg": {"add": {}}}]}`
	if r := d.refused(422, "invalid", "POST", "/authorizations/pay/send", `{"messages": []}`); !strings.Contains(r.str("detail"), "must match the amount of functions") {
		t.Error(r.raw)
	}
	if b := d.want(201, "POST", "/authorizations/pay/send", send); b.str("label") != "pay" || b.str("by") != "User" || b.str("initiator") != "dev" {
		t.Error(b.raw)
	}
	d.refused(409, "call_limit", "POST", "/authorizations/pay/send", send)
	d.refused(409, "in_use", "DELETE", "/authorizations/pay", "")
	d.want(200, "POST", "/authorizations/pay/disable", "")
	if r := d.refused(403, "forbidden", "POST", "/authorizations/pay/send", send); r.str("detail") != "The authorization is not enabled" {
		t.Error(r.raw)
	}
	d.want(200, "POST", "/authorizations/pay/enable", "")
	d.refused(404, "not_found", "POST", "/authorizations/none/send", send)
	d.want(201, "POST", "/authorizations", strings.NewReplacer(`"pay"`, `"open"`, `{"permissioned": {"with_call_limit": {"dev": 1}}}`, `"permissionless"`).Replace(pay))
	d.want(201, "POST", "/authorizations/open/send", send)
	d.refused(409, "concurrency_limit", "POST", "/authorizations/open/send", send)
	if l := d.want(200, "GET", "/authorizations?limit=1", ""); len(l.items()) != 1 || l.str("next") == "" || l.items()[0]["running"] != 1.0 {
		t.Error(l.raw)
	}
	d.want(200, "POST", "/processors/main/evict", `{"id": 1}`)
	d.want(204, "DELETE", "/authorizations/pay", "")
}

func TestOnlyTheOwnerReachesTheLines(t *testing.T) {
	d := newPlant(t)
	ann := d.actorHere()
	d.want(201, "PUT", "/processors/theirs", `{"owner": "`+ann+`"}`)
	for path, body := range map[string]string{"batches": strings.Replace(addOne, `"main"`, `"theirs"`, 1), "evict": `{"id": 1}`, "pause": "", "resume": ""} {
		if r := d.refused(403, "forbidden", "POST", "/processors/theirs/"+path, body); r.str("detail") != "Only authorization module can execute this action" {
			t.Error(r.raw)
		}
	}
	hers := db.By{Context: d.id, Actor: ann}
	if _, err := d.store.Batches.PauseProcessor(t.Context(), hers, "theirs", true); err != nil {
		t.Error(err)
	}
}

// S4.9: a processor stays with its owner when another admin puts it. A PUT that says what is there changes nothing, and
// the audit shows who gave it to whom.
func TestAnotherAdminsPutTakesNoProcessor(t *testing.T) {
	d := newPlant(t)
	key := d.want(201, "POST", "/api-keys", `{"name": "deploy", "role": "admin"}`)
	other := "Authorization: Bearer " + key.str("secret")
	const settings = `{"tick_interval": "2s", "fair": true}`
	first := d.want(201, "PUT", "/processors/lines", settings)
	changes := func() []map[string]any {
		return d.want(200, "GET", "/audit?object=/processors/lines&order=asc", "").items()
	}
	for range 2 {
		again := d.want(200, "PUT", "/processors/lines", settings, other)
		if again.str("owner") != "dev" || again.header.Get("ETag") != first.header.Get("ETag") {
			t.Errorf("put again by another: %s, %s", again.raw, again.header.Get("ETag"))
		}
	}
	if n := len(changes()); n != 1 {
		t.Errorf("%d rows of the audit, want the first alone", n)
	}
	p := d.want(200, "PUT", "/processors/lines", `{"fair": false}`, other)
	if p.str("owner") != "dev" || p.body["fair"] != false {
		t.Error(p.raw)
	}
	ann := d.actorHere()
	p = d.want(200, "PUT", "/processors/lines", `{"fair": false, "owner": "`+ann+`"}`, other)
	if p.str("owner") != ann {
		t.Error(p.raw)
	}
	rows := changes()
	last := rows[len(rows)-1]
	before, after := last["before"].(map[string]any), last["after"].(map[string]any)
	if before["owner"] != "dev" || after["owner"] != ann {
		t.Errorf("the audit says %v", last)
	}
	d.refused(403, "forbidden", "POST", "/processors/lines/pause", "")
}

// actorHere is a new actor that is an executor of the context default.
func (d *door) actorHere() string {
	d.t.Helper()
	id := d.want(201, "POST", "/actors", `{}`).str("id")
	d.want(200, "PUT", "/contexts/default/members/"+id, `{"roles": ["executor"]}`)
	return id
}

// A processor is not given to a name that no actor of its context has, by whatever door: no owner could reach its
// lines. Its owner may stay, also where the key was revoked since.
func TestAProcessorBelongsToAnActorOfItsContext(t *testing.T) {
	d := newPlant(t)
	d.want(201, "PUT", "/contexts/shop", `{}`)
	gone := d.want(201, "POST", "/api-keys", `{"name": "gone", "role": "admin"}`)
	far := d.want(201, "POST", "/api-keys", `{"name": "far", "role": "admin"}`, "Postern-Context: shop").str("actor")
	stranger := d.want(201, "POST", "/actors", `{}`).str("id")
	for _, owner := range []string{"ann", "gone", "key:none", "config-file", "executor", far, stranger, " dev"} {
		body := `{"owner": "` + owner + `"}`
		for _, r := range []answer{
			d.refused(422, "invalid", "PUT", "/processors/main", body),
			d.refused(422, "invalid", "PUT", "/processors/new", body),
			d.refused(422, "invalid", "PATCH", "/processors/main", body),
			d.call("POST", "/apply", these("", `{"kind": "processor", "name": "new", "settings": `+body+`}`)),
		} {
			if r.status != 422 || !strings.Contains(r.raw, `/owner"`) || !strings.Contains(r.raw, "GET /api-keys") ||
				!strings.Contains(r.raw, "leave it out") {
				t.Errorf("%s: %d %s", owner, r.status, r.raw)
			}
		}
	}
	d.refused(404, "not_found", "GET", "/processors/new", "")
	for _, owner := range []string{d.actorHere(), gone.str("actor"), "dev", gone.str("actor")} {
		if p := d.want(200, "PATCH", "/processors/main", `{"owner": "`+owner+`"}`); p.str("owner") != owner {
			t.Error(p.raw)
		}
	}
	d.want(204, "DELETE", "/api-keys/"+gone.str("id"), "")
	p := d.want(200, "PATCH", "/processors/main", `{"fair": true}`)
	if p.str("owner") != gone.str("actor") || p.body["fair"] != true {
		t.Error(p.raw)
	}
	d.want(200, "PUT", "/processors/main", `{"owner": "`+gone.str("actor")+`"}`)
	d.want(200, "PUT", "/processors/main", `{"owner": "dev"}`)
	d.refused(422, "invalid", "PUT", "/processors/main", `{"owner": "`+gone.str("actor")+`"}`)
}

// Where credentials are wanted, dev is no actor. A key of a system admin may own a processor of any context, and a
// member of system may.
func TestAnAdminOfSystemMayOwnAProcessor(t *testing.T) {
	d, root := closedDoor(t)
	const in = "Postern-Context: default"
	d.refused(422, "invalid", "PUT", "/processors/main", `{"owner": "dev"}`, root, in)
	boss := d.want(201, "POST", "/actors", `{}`, root).str("id")
	d.want(200, "PUT", "/contexts/system/members/"+boss, `{"roles": ["admin"]}`, root)
	p := d.want(201, "PUT", "/processors/main", `{}`, root, in)
	if p.str("owner") != "key:bootstra" {
		t.Error(p.raw)
	}
	for _, owner := range []string{boss, "key:bootstra"} {
		p := d.want(200, "PUT", "/processors/main", `{"owner": "`+owner+`"}`, root, in)
		if p.str("owner") != owner {
			t.Error(p.raw)
		}
	}
}

// S4.4: anybody may tick, as often as the limit says.
func TestTicksAreLimitedForEachActor(t *testing.T) {
	d := newPlant(t, func(c *httpapi.Config) { c.Limits.Ticks = 2 })
	seen := map[string]int{}
	answers := make(chan answer)
	const at = 20 // at once: one after another, a slow machine never asks for three within a second
	for range at {
		go func() { answers <- d.call("POST", "/processors/main/tick", "") }()
	}
	for range at {
		r := <-answers
		seen[fmt.Sprint(r.status, " ", r.str("code"), " ", r.header.Get("Retry-After"))]++
	}
	if n := seen["429 rate_limited 1"]; n == 0 || n > at-2 || seen["409 nothing_to_process 1"] != at-n {
		t.Error(seen)
	}
	key := d.want(201, "POST", "/api-keys", `{"name": "other", "role": "reader"}`).str("secret")
	d.refused(409, "nothing_to_process", "POST", "/processors/main/tick", "", "Authorization: Bearer "+key)
	// a client cannot take the uid of an execution
	d.refused(422, "invalid", "POST", "/transactions", `{"type": "ADD", "uid": ":processor:1:1", "data": {}}`)
}

// S4.4: a tick waits for the execution of another batch, and looks at the next one then.
func TestATickWaitsForWhatIsBeingExecuted(t *testing.T) {
	d := newPlant(t)
	d.want(201, "POST", "/processors/main/batches", addOne)
	d.want(201, "POST", "/processors/main/batches", addOne)
	d.want(200, "POST", "/processors/main/tick", "")
	second := make(chan answer, 1)
	go func() { second <- d.call("POST", "/processors/main/tick", "") }()
	first := d.want(200, "GET", "/transactions?queue=processor:main:1", "").items()[0]["id"].(string)
	for d.api.Waiting() == 0 {
		select {
		case a := <-second:
			t.Fatalf("it did not wait: %s", a.raw)
		case <-time.After(time.Millisecond):
		}
	}
	d.want(200, "POST", "/transactions/"+first+"/cancel", "")
	if a := <-second; a.status != 200 || a.str("outcome") != "executing" || a.body["batch"].(map[string]any)["id"] != 2.0 {
		t.Error(a.raw)
	}
	d.want(200, "GET", "/processors/main/batches/1", "")
}
