package httpapi_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postern-dev/postern/internal/outbox"
)

func TestWhatIsDrainedAcceptsNothingMoreAndWorksOffTheRest(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	d.dispatcher("other")
	const post = `{"type": "pay", "queue": "q", "uid": "before"}`
	for _, c := range []struct{ path, also string }{{"/dispatchers/pay",
		`{"type": "other"}`}, {"/contexts/default", ""}} {
		d.call("POST", "/transactions", post)
		if r := d.want(200, "POST", c.path+"/drain", `{"reason": "closing"}`); r.body["changed"] != true {
			t.Error(r.raw)
		}
		if r := d.want(200, "POST", c.path+"/drain", ""); r.body["changed"] != false {
			t.Error(r.raw)
		}
		if v := d.want(200, "GET", c.path, ""); v.body["draining"] != true {
			t.Error(v.raw)
		}
		d.refused(409, "queue_draining", "POST", "/transactions", `{"type": "pay"}`)
		d.want(200, "POST", "/transactions", post) // it is there
		var e *pgconn.PgError
		if err := d.stage(`SELECT postern.submit('q', 'pay', '{}')`); !errors.As(err, &e) || e.Code != "ZP409" {
			t.Error(err)
		}
		if err := d.stage(`SELECT postern.submit('q', 'pay', '{}', uid => 'before')`); err != nil {
			t.Error(err)
		}
		if c.also != "" {
			d.want(201, "POST", "/transactions", c.also)
		}
		if w := d.want(200, "GET", "/transactions/by-uid/before/why", ""); w.body["state"] != "WAITING" {
			t.Error(w.raw)
		}
		d.want(200, "POST", c.path+"/resume", "")
		d.want(201, "POST", "/transactions", `{"type": "pay"}`)
	}
}

// What a drained context has taken is answered as before where it is posted again. It takes nothing new, whatever that
// is.
func TestADrainedContextAcceptsNothingNewOfAnyKind(t *testing.T) {
	d := newPlant(t)
	d.want(201, "PUT", "/sources/app", pushSource)
	d.want(201, "PUT", "/domains/tok", `{"types": ["ADD"], "service_url": "http://127.0.0.1:1"}`)
	const job, chat = `"script": "1", "script_type": "python"`, `"to": {"context": "default"}, "message_type": "chat"`
	posts := []struct{ path, body string }{
		{"/events", `{"source": "app", "identity": {"digest": "ID"}, "json": {"tool": "xyz.labs.add@1"}}`},
		{"/domains/tok/intents", `{"uid": "ID", "party": "ann", "data": 1}`},
		{"/processors/main/batches", addOne},
		{"/flows", `{"ref": REF, "jobs": [{"ref": 1, ` + job + `}]}`},
		{"/jobs", `{"ref": REF, ` + job + `}`},
		{"/messages", `{"ref": REF, ` + chat + `, "message": "hello"}`},
	}
	as := func(body, id, ref string) string { return strings.NewReplacer("ID", id, "REF", ref).Replace(body) }
	for _, p := range posts {
		d.want(201, "POST", p.path, as(p.body, "old", "1"), "Idempotency-Key: old")
	}
	d.want(200, "POST", "/contexts/default/drain", "")
	for _, p := range posts {
		if a := d.call("POST", p.path, as(p.body, "old", "1"), "Idempotency-Key: old"); a.status >= 300 {
			t.Errorf("%s again: %d %s", p.path, a.status, a.raw)
		}
		d.refused(409, "queue_draining", "POST", p.path, as(p.body, "new", "2"), "Idempotency-Key: new")
	}
	d.want(200, "POST", "/contexts/default/resume", "")
	for _, p := range posts {
		d.want(201, "POST", p.path, as(p.body, "new", "2"), "Idempotency-Key: new")
	}
	d.want(200, "POST", "/dispatchers/job.python/drain", "")
	d.refused(409, "queue_draining", "POST", "/jobs", `{"ref": 3, `+job+`}`)
	d.refused(409, "queue_draining", "POST", "/flows", `{"ref": 3, "jobs": [{"ref": 1, `+job+`}]}`)
	d.want(200, "POST", "/dispatchers/ADD/drain", "")
	d.refused(409, "queue_draining", "POST", "/processors/main/batches", addOne)
}

// A batch of a peer waits there while the context is drained: a refusal for good would end it.
func TestABatchOfAPeerWaitsForADrainedContext(t *testing.T) {
	d := newPlant(t)
	d.want(200, "PUT", "/processors/main/peers/near", peerSecret)
	d.want(200, "POST", "/contexts/default/drain", "")
	c := newCaller(d)
	const at = "main/peers/near"
	if a, _ := c.send(at, 1, envelope(1, `{"msg": {"add": {}}}`)); a.Class != outbox.ClassBlocked ||
		a.Code != "queue_draining" {
		t.Errorf("a batch of a peer is answered %+v", a)
	}
	d.want(200, "POST", "/contexts/default/resume", "")
	if a, said := c.send(at, 1, envelope(1, `{"msg": {"add": {}}}`)); a.Class != "" {
		t.Errorf("behind a resume: %s %s", said, a.Message)
	}
}

func TestADrainedSenderIsNamedNoMore(t *testing.T) {
	d := newDoor(t)
	d.want(201, "PUT", "/senders/acct", `{"pool": "crew"}`)
	d.want(201, "PUT", "/dispatchers/sign", `{"worker_url": "http://127.0.0.1:1/", "pool": "crew"}`)
	if r := d.want(200, "POST", "/senders/acct/drain", `{"reason": "a new key"}`); r.body["changed"] != true {
		t.Error(r.raw)
	}
	if v := d.want(200, "GET", "/senders/acct", ""); v.body["draining"] != true || v.body["paused"] != false {
		t.Error(v.raw)
	}
	d.refused(409, "queue_draining", "POST", "/transactions", `{"type": "sign", "sender": "acct"}`)
	d.want(201, "POST", "/transactions", `{"type": "sign", "uid": "anybody"}`)
	d.want(200, "POST", "/senders/acct/resume", "")
	d.want(201, "POST", "/transactions", `{"type": "sign", "sender": "acct"}`)
	d.refused(404, "not_found", "POST", "/senders/nobody/drain", "")
}

func TestAPurgeCancelsWhatWaitsOfAContextATypeOrASender(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	d.want(201, "PUT", "/senders/acct", `{"pool": "crew"}`)
	d.want(201, "PUT", "/dispatchers/sign", `{"worker_url": "http://127.0.0.1:1/", "pool": "crew"}`)
	d.post("a", 3)
	d.post("b", 2)
	d.want(201, "POST", "/transactions", `{"type": "pay"}`)
	for range 2 {
		d.want(201, "POST", "/transactions", `{"type": "sign", "queue": "a", "sender": "acct"}`)
		d.want(201, "POST", "/transactions", `{"type": "sign", "queue": "b"}`)
	}
	purge := func(path, body string, cancelled int, more bool) {
		t.Helper()
		if r := d.want(200, "POST", path, body); r.body["cancelled"] != float64(cancelled) || r.body["more"] != more {
			t.Errorf("%s: %s", path, r.raw)
		}
	}
	purge("/senders/acct/purge?dry_run=true", "", 2, false)
	purge("/senders/acct/purge", "", 2, false)
	purge("/dispatchers/pay/purge", `{"max": 4}`, 4, true)
	purge("/dispatchers/pay/purge", "", 2, false)
	purge("/contexts/default/purge", "", 2, false)
	purge("/contexts/default/purge", "", 0, false)
	if l := d.want(200, "GET", "/transactions?state=CANCELLED", ""); len(l.body["items"].([]any)) != 10 {
		t.Error(l.raw)
	}
	d.refused(404, "not_found", "POST", "/senders/nobody/purge", "")
	d.refused(404, "not_found", "POST", "/dispatchers/nothing/purge", "")
}
