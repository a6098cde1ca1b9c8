package httpapi_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
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
