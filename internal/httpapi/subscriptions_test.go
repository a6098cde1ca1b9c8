package httpapi_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestSubscriptionsAreConfigured(t *testing.T) {
	d := newDoor(t)
	a := d.want(201, "PUT", "/subscriptions/s", `{"kind": "webhook", "url": "https://example.com/hook?tenant=7", "events": ["transaction.done"], "filter": {"queue_prefix": ["a."]}}`)
	secret, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(a.str("secret"), "whsec_"))
	if err != nil || len(secret) != 32 || !strings.HasPrefix(a.str("secret"), "whsec_") || a.header.Get("Location") != "/subscriptions/s" || a.str("on_error") != "skip" ||
		a.body["enabled"] != true || a.body["pending"] != 0.0 || a.body["failing_since"] != nil || a.body["since"] == nil || a.str("cursor") == "" {
		t.Error(a.raw)
	}
	if g := d.want(200, "GET", "/subscriptions/s", ""); g.body["secret"] != nil || strings.Contains(g.raw, "whsec") || g.header.Get("ETag") != `"1"` {
		t.Errorf("a secret is shown again: %s", g.raw)
	}
	p := d.want(200, "PATCH", "/subscriptions/s", `{"events": ["transaction.failed", "transaction.done"], "on_error": "block"}`, `If-Match: "1"`)
	if len(p.body["events"].([]any)) != 2 || p.str("on_error") != "block" || p.str("url") != "https://example.com/hook?tenant=7" || !strings.Contains(p.raw, `"a."`) {
		t.Error(p.raw)
	}
	d.refused(412, "precondition_failed", "PUT", "/subscriptions/s", `{"kind": "webhook", "url": "https://example.com/"}`, `If-Match: "1"`)
	if r := d.want(200, "POST", "/subscriptions/s/rotate-secret", ""); r.str("secret") == a.str("secret") || !strings.HasPrefix(r.str("secret"), "whsec_") || r.body["previous_secret_until"] == nil {
		t.Error(r.raw)
	}
	if r := d.want(200, "POST", "/subscriptions/s/disable", `{"reason": "noisy"}`); r.body["changed"] != true {
		t.Error(r.raw)
	}
	if g := d.want(200, "GET", "/subscriptions/s", ""); g.body["enabled"] != false || g.str("disabled_reason") != "disabled: noisy" {
		t.Error(g.raw)
	}
	d.want(200, "POST", "/subscriptions/s/enable", "")
	d.want(201, "PUT", "/subscriptions/p", `{"kind": "pull"}`)
	if l := d.want(200, "GET", "/subscriptions?limit=1", ""); len(l.body["items"].([]any)) != 1 || l.body["next"] == nil {
		t.Error(l.raw)
	}
	for body, field := range map[string]string{
		`{"kind": "webhook"}`: "/url", `{"kind": "webhook", "url": "ftp://x/"}`: "/url", `{"kind": "webhook", "url": "http://u:p@x/"}`: "/url",
		`{"kind": "pull", "url": "http://x/"}`: "/url", `{"kind": "pull", "events": ["transaction.exploded"]}`: "/events/0",
		`{"kind": "pull", "filter": {"state": ["RETRY"]}}`: "/filter/state/0", `{"kind": "pull", "include": ["secrets"]}`: "/include/0", `{"kind": "webhook", "url": "http://x/"}`: "/kind",
	} {
		if r := d.refused(422, "invalid", "PUT", "/subscriptions/p", body); !strings.Contains(r.raw, `"pointer":"`+field+`"`) {
			t.Errorf("%s: %s", body, r.raw)
		}
	}
	d.refused(409, "wrong_state", "POST", "/subscriptions/p/rotate-secret", "")
	d.refused(422, "invalid", "POST", "/subscriptions/p/redeliver", `{"since": "2026-01-01T00:00:00Z", "only": "all"}`)
	for _, path := range []string{"/enable", "/disable", "/test", "/rotate-secret", "/redeliver", "/ack"} {
		d.refused(404, "not_found", "POST", "/subscriptions/none"+path, map[string]string{"/redeliver": `{"since": "2026-01-01T00:00:00Z"}`, "/ack": `{"cursor": "c1-1"}`}[path])
	}
	d.want(204, "DELETE", "/subscriptions/p", "")
	d.refused(404, "not_found", "GET", "/subscriptions/p", "")
	d.refused(404, "not_found", "GET", "/subscriptions/p/feed", "")
	d.refused(404, "not_found", "GET", "/deliveries/none", "")
}

// number does what a process that works does.
func (d *door) number() {
	d.t.Helper()
	busy, err := d.store.Deliveries.BusyTracks(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	for _, line := range busy {
		if _, err := d.store.Deliveries.Deliver(d.t.Context(), line, nil, 0); err != nil {
			d.t.Fatal(err)
		}
	}
}

func (a answer) items() (list []map[string]any) {
	items, _ := a.body["items"].([]any)
	for _, i := range items {
		list = append(list, i.(map[string]any))
	}
	return list
}

func TestAFeedIsPulledAndAcknowledged(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	s := d.want(201, "PUT", "/subscriptions/p", `{"kind": "pull", "include": ["data"]}`)
	tx := d.want(201, "POST", "/transactions", `{"type": "pay", "queue": "q", "uid": "one", "data": {"n": 12345678901234567890}, "tags": {"a": "b"}}`)
	d.want(200, "POST", "/transactions/"+tx.str("id")+"/cancel", `{"reason": "no"}`)
	if f := d.want(200, "GET", "/subscriptions/p/feed", ""); len(f.items()) != 0 || f.str("cursor") != s.str("cursor") {
		t.Errorf("what is not numbered is shown: %s", f.raw)
	}
	d.number()
	f := d.want(200, "GET", "/subscriptions/p/feed", "")
	if got := f.items(); len(got) != 2 || got[0]["type"] != "transaction.accepted" || got[1]["type"] != "transaction.cancelled" || !strings.Contains(f.raw, "12345678901234567890") {
		t.Fatal(f.raw)
	}
	// each field that the event tells is as the list shows it
	var listed map[string]any
	for _, i := range d.want(200, "GET", "/transactions?uid=one&include=data", "").items() {
		listed = i
	}
	told := f.items()[1]["data"].(map[string]any)
	for k, v := range told {
		if k == "from" || k == "event" || k == "at" {
			continue
		}
		want, there := listed[k]
		if at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(v)); err == nil { // with other digits
			if on, err := time.Parse(time.RFC3339Nano, fmt.Sprint(want)); err == nil && on.Equal(at) {
				continue
			}
		}
		if x, y := mustJSON(t, v), mustJSON(t, want); !there || x != y {
			t.Errorf("%s is told as %s and listed as %s", k, x, y)
		}
	}
	if told["from"] != "WAITING" || told["event"] != "transaction.cancelled" || told["state"] != "CANCELLED" {
		t.Error(told)
	}
	first := f.items()[0]["cursor"].(string)
	if a := f.items()[0]["data"].(map[string]any); a["state"] != "WAITING" || a["from"] != nil || a["done_at"] != nil || a["queue_state"] != "FREE" {
		t.Errorf("what was accepted is told as it is now: %v", a)
	}
	if g := d.want(200, "GET", "/subscriptions/p", ""); g.body["pending"] != 2.0 {
		t.Error(g.raw)
	}
	if a := d.want(200, "POST", "/subscriptions/p/ack", `{"cursor": "`+first+`"}`); a.body["changed"] != true {
		t.Error(a.raw)
	}
	if a := d.want(200, "POST", "/subscriptions/p/ack", `{"cursor": "`+first+`"}`); a.body["changed"] != false {
		t.Error(a.raw)
	}
	if g := d.want(200, "GET", "/subscriptions/p/feed", ""); len(g.items()) != 1 {
		t.Error(g.raw)
	}
	if g := d.want(200, "GET", "/subscriptions/p/feed?after="+first+"&limit=1", ""); len(g.items()) != 1 || g.items()[0]["cursor"] != f.str("cursor") {
		t.Error(g.raw)
	}
	if l := d.want(200, "GET", "/deliveries?subscription=p", ""); len(l.items()) != 2 || l.items()[0]["state"] != "pending" || l.items()[1]["state"] != "delivered" {
		t.Error(l.raw)
	}
	d.refused(400, "bad_cursor", "GET", "/subscriptions/p/feed?after=nonsense", "")
	d.refused(400, "bad_cursor", "POST", "/subscriptions/p/ack", `{"cursor": "`+strings.Split(first, "-")[0]+`-9000000000000000000"}`)
	d.refused(410, "cursor_expired", "GET", "/subscriptions/p/feed?after=c999-1", "")
	if r := d.want(202, "POST", "/subscriptions/p/redeliver", `{"since": "2020-01-01T00:00:00Z"}`); r.body["matched"] != 1.0 {
		t.Error(r.raw)
	}
	if g := d.want(200, "GET", "/subscriptions/p/feed", ""); len(g.items()) != 2 {
		t.Error(g.raw)
	}

	// waiting ends with the next event
	got := make(chan answer, 1)
	go func() { got <- d.call("GET", "/subscriptions/p/feed?wait=20s&after="+f.str("cursor"), "") }()
	d.want(201, "POST", "/transactions", `{"type": "pay", "queue": "q", "uid": "two"}`)
	d.number()
	if g := <-got; len(g.items()) != 1 || g.items()[0]["data"].(map[string]any)["uid"] != "two" {
		t.Error(g.raw)
	}

	// a day that retention has dropped leaves no silent gap
	if _, err := d.store.Pool().Exec(t.Context(), `WITH gone AS (DELETE FROM postern.delivery
		WHERE cursor = (SELECT cursor FROM postern.delivery WHERE cursor IS NOT NULL ORDER BY cursor OFFSET 1 LIMIT 1) RETURNING cursor)
		UPDATE postern.subscription SET dropped = (SELECT cursor FROM gone) WHERE name = 'p'`); err != nil {
		t.Fatal(err)
	}
	r := d.refused(410, "cursor_expired", "GET", "/subscriptions/p/feed?after="+first, "")
	if g := d.want(200, "GET", "/subscriptions/p/feed?after="+r.str("next"), ""); len(g.items()) != 1 {
		t.Errorf("%s\n%s", r.raw, g.raw)
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// listen opens a stream and returns its events as "id event uid"; the channel is closed at its end.
func (d *door) listen(path, last string, headers ...string) (events <-chan [3]string, hangUp func()) {
	d.t.Helper()
	ctx, cancel := context.WithCancel(d.t.Context())
	d.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", d.url+path, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	for _, h := range headers {
		k, v, _ := strings.Cut(h, ": ")
		req.Header.Set(k, v)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" {
		d.t.Fatalf("%s: %s %s", path, res.Status, res.Header)
	}
	out := make(chan [3]string, 1000)
	go func() {
		defer close(out)
		defer res.Body.Close()
		var e [3]string
		data := false
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			switch key, value, _ := strings.Cut(lines.Text(), ": "); key {
			case "id":
				e[0] = value
			case "event":
				e[1] = value
			case "data":
				var tx struct{ UID string }
				if data = true; json.Unmarshal([]byte(value), &tx) == nil {
					e[2] = tx.UID
				}
			case "": // as clients do: an id is kept, and what has no data is no event
				if data {
					out <- e
				}
				data, e[1], e[2] = false, "", ""
			}
		}
	}()
	return out, cancel
}

func (d *door) next(events <-chan [3]string) [3]string {
	d.t.Helper()
	select {
	case e, open := <-events:
		if !open {
			d.t.Fatal("the stream ended")
		}
		return e
	case <-time.After(patience):
		d.t.Fatal("no event came")
	}
	return [3]string{}
}

func TestAStreamGoesOnWhereItBrokeOff(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		for ctx.Err() == nil {
			if busy, err := d.store.Deliveries.BusyTracks(ctx); err == nil {
				for _, line := range busy {
					_, _ = d.store.Deliveries.Deliver(ctx, line, nil, 0)
				}
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	d.want(201, "POST", "/transactions", `{"type": "pay", "queue": "q", "uid": "before"}`)
	events, hangUp := d.listen("/transactions:stream?queue_prefix=q", "")
	const n = 60
	posted := make(chan struct{})
	go func() {
		defer close(posted)
		for i := range n {
			d.want(201, "POST", "/transactions", fmt.Sprintf(`{"type": "pay", "queue": "q%d", "uid": "u%d"}`, i%3, i))
			d.want(201, "POST", "/transactions", fmt.Sprintf(`{"type": "pay", "queue": "other", "uid": "o%d"}`, i))
		}
	}()
	var got []string
	last := ""
	for len(got) < n { // hang up after every seventh
		e := d.next(events)
		if e[1] != "WAITING" {
			t.Errorf("%v", e)
		}
		got, last = append(got, e[2]), e[0]
		if len(got)%7 == 0 {
			hangUp()
			events, hangUp = d.listen("/transactions:stream?queue_prefix=q", last)
		}
	}
	<-posted
	place := map[string]int{}
	for i, uid := range got {
		if _, twice := place[uid]; twice {
			t.Errorf("%s came twice", uid)
		}
		place[uid] = i
	}
	for i := range n {
		uid := fmt.Sprintf("u%d", i)
		if at, there := place[uid]; !there {
			t.Errorf("%s is missing", uid)
		} else if i >= 3 && at < place[fmt.Sprintf("u%d", i-3)] {
			t.Errorf("%s came before the one before it", uid)
		}
	}
	d.refused(410, "cursor_expired", "GET", "/transactions:stream", "", "Last-Event-ID: c999-3")
	d.refused(400, "bad_cursor", "GET", "/transactions:stream", "", "Last-Event-ID: x")
	d.refused(422, "invalid", "GET", "/transactions:stream?state=RETRY", "")
	if l := d.want(200, "GET", "/subscriptions", ""); len(l.items()) != 0 {
		t.Errorf("the stream of the context is shown as somebody's subscription: %s", l.raw)
	}
	d.api.Drain()
	if _, open := <-events; open {
		t.Error("a process that stops keeps its streams")
	}
}
