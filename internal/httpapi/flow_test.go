package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/httpapi"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/sequencer"
)

// answerOne claims whatever is ready and settles it as the worker answers.
func (d *door) answerOne(node pg.Node, a outbox.Answer) {
	d.t.Helper()
	l := d.claimOne(node)
	if l == nil {
		return
	}
	step := sequencer.Dispatched(l.Flight(l.Dispatcher.DefaultMaxRetries()), a, l.Dispatcher.Dispatcher, 0.5)
	if _, err := d.store.Settle(context.Background(), []*pg.Answer{{Lease: l, Result: a.Result, Step: step, StartedAt: time.Now()}}); err != nil {
		d.t.Error(err)
	}
}

// hold lets the worker of what is ready answer nothing, and have no /status.
func (d *door) hold(node pg.Node) {
	d.t.Helper()
	l := d.claimOne(node)
	if l == nil {
		return
	}
	step := sequencer.Asked(l.Flight(0), outbox.Status{State: outbox.StatusUnsupported}, l.Dispatcher.Dispatcher, 0.5)
	if _, err := d.store.Settle(context.Background(), []*pg.Answer{{Lease: l, Step: step, StartedAt: time.Now()}}); err != nil {
		d.t.Error(err)
	}
}

// claimOne takes whatever is ready, or fails and returns nil.
func (d *door) claimOne(node pg.Node) *pg.Lease {
	d.t.Helper()
	leases, _, err := d.store.Claim(context.Background(), node, pg.Room{Total: 1, Slots: func(*pg.Dispatcher) int { return 1 }})
	if err != nil || len(leases) != 1 {
		d.t.Errorf("claimed %d: %v", len(leases), err)
		return nil
	}
	return leases[0]
}

// claimAll takes everything that is ready.
func (d *door) claimAll(node pg.Node) {
	d.t.Helper()
	for {
		leases, _, err := d.store.Claim(context.Background(), node, pg.Room{Total: 100, Slots: func(*pg.Dispatcher) int { return 100 }})
		if err != nil {
			d.t.Fatal(err)
		}
		if len(leases) == 0 {
			return
		}
	}
}

func (d *door) node() pg.Node {
	d.t.Helper()
	n, err := d.store.Register(d.t.Context(), "n", "test", time.Minute)
	if err != nil {
		d.t.Fatal(err)
	}
	return n
}

var (
	done     = outbox.Answer{Result: outbox.Result{Done: json.RawMessage(`{"receipt": 12345678901234567890}`)}}
	rejected = outbox.Answer{Class: outbox.ClassRejected, Code: "422", Message: "never"}
	failing  = outbox.Answer{Class: outbox.ClassRetry, Code: "20203", Message: "sending"}
)

func TestAWaitIsAnsweredWhenItEnds(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	n := d.node()
	var wg sync.WaitGroup
	begun := time.Now()
	for i := range 5 {
		wg.Go(func() {
			path := []string{"/transactions/by-uid/a?wait=30s", "/transactions/by-uid/a?wait=30s&until=DONE", "/transactions/by-uid/a?wait=30s&until=change"}[i%3]
			a := d.call("GET", path, "", "Prefer: wait=1")
			for a.status == 404 { // not posted yet
				a = d.call("GET", path, "")
			}
			if a.status != 200 || i%3 != 2 && a.str("state") != "DONE" || i%3 == 2 && a.str("state") == "WAITING" {
				t.Errorf("%s: %d %s", path, a.status, a.raw)
			}
		})
	}
	wg.Go(func() {
		for {
			q := d.call("GET", "/transactions/by-uid/a", "")
			if q.status == 200 {
				break
			}
		}
		d.answerOne(n, done)
	})
	a := d.want(201, "POST", "/transactions?wait=30s", `{"type": "pay", "queue": "q", "uid": "a"}`)
	applied := a.header.Get("Preference-Applied") // absent where it had ended before anybody waited
	if a.str("state") != "DONE" || applied != "" && applied != "wait=30" || !strings.Contains(a.raw, "12345678901234567890") {
		t.Errorf("%s %v", a.raw, a.header)
	}
	wg.Wait()
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("took %s", took)
	}
}

func TestAWaitThatRunsOutAnswersThePresentState(t *testing.T) {
	d := newDoor(t, func(c *httpapi.Config) { c.Limits.Waits = 1 })
	d.dispatcher("pay")
	a := d.want(201, "POST", "/transactions", `{"type": "pay"}`, "Prefer: respond-async, wait=1")
	if a.str("state") != "WAITING" || a.header.Get("Preference-Applied") != "wait=1" {
		t.Errorf("%s %v", a.raw, a.header)
	}
	path := "/transactions/" + a.str("id")
	d.want(304, "GET", path+"?wait=60ms&until=change", "", "If-None-Match: "+a.header.Get("ETag"))
	if b := d.want(200, "GET", path+"?wait=60ms", "", "Prefer: wait=60"); b.str("state") != "WAITING" {
		t.Error(b.raw)
	}
	// the only slot is taken by one who gives up when we let him
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for ctx.Err() == nil { // he may find it taken by us
			req, _ := http.NewRequestWithContext(ctx, "GET", d.url+path+"?wait=60s", nil)
			if res, err := http.DefaultClient.Do(req); err == nil {
				res.Body.Close()
			}
		}
	}()
	for d.want(200, "GET", path+"?wait=10ms", "").header.Get("Preference-Applied") != "" {
	}
	cancel()
	<-gone
}

func TestABatchAnswersEachItem(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	a := d.want(201, "POST", "/transactions:batch", `{"items": [{"type": "pay", "queue": "q"}, {"type": "pay", "queue": "q", "uid": "own"}]}`, "Idempotency-Key: K")
	items := a.body["items"].([]any)
	first, second := items[0].(map[string]any)["transaction"].(map[string]any), items[1].(map[string]any)["transaction"].(map[string]any)
	if first["uid"] != "K:0" || second["uid"] != "own" || first["position"] != 1.0 || second["position"] != 2.0 {
		t.Error(a.raw)
	}
	d.want(200, "POST", "/transactions:batch", `{"items": [{"type": "pay", "queue": "q"}]}`, "Idempotency-Key: K")
	mixed := d.want(207, "POST", "/transactions:batch", "{\"type\": \"pay\"}\n{\"type\": \"nope\"}\n\n{\"type\": \"pay\", \"a\": 1, \"a\": 2}\n{\"type\": \"pay\", \"max_retries\": -1}\n{\"type\":\"pay\",\"uid\":\"own\"}\n",
		"Content-Type: application/x-ndjson")
	var got []string
	for _, i := range mixed.body["items"].([]any) {
		item := i.(map[string]any)
		code := ""
		if p, ok := item["problem"].(map[string]any); ok {
			code = p["code"].(string)
		}
		got = append(got, fmt.Sprint(item["status"], " ", code))
	}
	if s := strings.Join(got, ", "); s != "201 , 422 unknown_type, 400 malformed_json, 422 invalid, 409 idempotency_conflict" {
		t.Error(s)
	}
	before := len(d.want(200, "GET", "/transactions", "").body["items"].([]any))
	atomic := d.refused(422, "unknown_type", "POST", "/transactions:batch", `{"atomic": true, "items": [{"type": "pay"}, {"type": "pay"}, {"type": "pay"}, {"type": "nope"}]}`)
	if e := atomic.body["errors"].([]any)[0].(map[string]any); e["pointer"] != "/items/3" {
		t.Error(atomic.raw)
	}
	atomic = d.refused(422, "invalid", "POST", "/transactions:batch", `{"atomic": true, "items": [{"type": "pay"}, {"type": "pay", "queue": "a b"}]}`)
	if e := atomic.body["errors"].([]any)[0].(map[string]any); e["pointer"] != "/items/1/queue" {
		t.Error(atomic.raw)
	}
	if after := len(d.want(200, "GET", "/transactions", "").body["items"].([]any)); after != before {
		t.Errorf("%d transactions more", after-before)
	}
	d.want(201, "POST", "/transactions:batch", `{"atomic": true, "items": [`+strings.Repeat(`{"type": "pay"},`, 999)+`{"type": "pay"}]}`)
	d.refused(413, "too_large", "POST", "/transactions:batch", `{"items": [`+strings.Repeat(`{"type": "pay"},`, 1000)+`{"type": "pay"}]}`)
	d.refused(413, "too_large", "POST", "/transactions:batch", `{"items": ["`+strings.Repeat("x", 8<<20)+`"]}`)
	d.refused(422, "invalid", "POST", "/transactions:batch", `{"items": []}`)
	d.refused(422, "invalid", "POST", "/transactions:batch", `{"item": [{"type": "pay"}]}`)
	d.refused(422, "invalid", "POST", "/transactions:batch", `[1]`)
	d.refused(400, "malformed_json", "POST", "/transactions:batch", `{"items": [`)
	d.refused(422, "invalid", "POST", "/transactions:batch", `{"items": [{"type": "pay"}]}`, "Idempotency-Key: a b")
}

func TestListsArePagedAndFiltered(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	d.dispatcher("tool")
	var ids []string
	for i := range 7 {
		typ := []string{"pay", "tool"}[i%2]
		ids = append(ids, d.want(201, "POST", "/transactions", fmt.Sprintf(`{"type": %q, "queue": "q%d", "uid": "u%d", "data": {"n": %d}}`, typ, i%3, i, i)).str("id"))
	}
	walk := func(query string) string {
		t.Helper()
		var seen []string
		next := ""
		for page := 0; ; page++ {
			a := d.want(200, "GET", "/transactions?limit=2&"+query+next, "")
			for _, x := range a.body["items"].([]any) {
				v := x.(map[string]any)
				seen = append(seen, v["uid"].(string))
				if _, there := v["data"]; there != strings.Contains(query, "include=data") {
					t.Errorf("data shown: %v", there)
				}
			}
			if a.body["next"] == nil || page > 9 {
				return strings.Join(seen, " ")
			}
			next = "&cursor=" + a.str("next")
			if link := a.header.Get("Link"); !strings.Contains(link, a.str("next")) {
				t.Errorf("Link %q", link)
			}
		}
	}
	for query, want := range map[string]string{
		"":                            "u6 u5 u4 u3 u2 u1 u0",
		"order=asc":                   "u0 u1 u2 u3 u4 u5 u6",
		"order=asc&include=data":      "u0 u1 u2 u3 u4 u5 u6",
		"queue=q1&order=asc":          "u1 u4",
		"queue=q1&queue=q2&order=asc": "u1 u2 u4 u5",
		"type=tool&order=asc":         "u1 u3 u5",
		"type=tool&queue=q1":          "u1",
		"state=DONE":                  "",
		"state=WAITING&state=DONE":    "u6 u5 u4 u3 u2 u1 u0",
		"uid=u3&uid=u1&uid=none":      "u3 u1",
		"id=" + ids[2] + "&type=pay":  "u2",
		"id=" + ids[2] + "&type=tool": "",
		"received_before=2020-01-01T00:00:00Z&received_after=2019-01-01T00:00:00Z": "",
	} {
		if got := walk(query); got != want {
			t.Errorf("%q: %q, want %q", query, got, want)
		}
	}
	a := d.want(200, "GET", "/transactions?limit=2", "")
	if a.body["window"] == nil {
		t.Error(a.raw)
	}
	d.refused(400, "bad_cursor", "GET", "/transactions?limit=2&type=pay&cursor="+a.str("next"), "")
	h := d.want(200, "GET", "/transactions?include=history&limit=1", "")
	if len(h.body["items"].([]any)[0].(map[string]any)["history"].([]any)) != 1 {
		t.Error(h.raw)
	}
}

func TestAShortPageIsNotTheEnd(t *testing.T) {
	d := newDoor(t, func(c *httpapi.Config) { c.Limits.Examined = 2 })
	d.dispatcher("pay")
	d.dispatcher("tool")
	for _, typ := range []string{"pay", "tool", "tool", "tool", "tool"} {
		id := d.want(201, "POST", "/transactions", `{"type": "`+typ+`"}`).str("id")
		if typ == "pay" {
			d.want(200, "POST", "/transactions/"+id+"/cancel", "")
		}
	}
	found, pages, next := 0, 0, ""
	for ; pages < 9; pages++ {
		a := d.want(200, "GET", "/transactions?type=pay"+next, "")
		found += len(a.body["items"].([]any))
		if a.body["next"] == nil {
			break
		}
		next = "&cursor=" + a.str("next")
	}
	if found != 1 || pages != 2 {
		t.Errorf("found %d on %d pages with a next", found, pages)
	}
}

func TestLeversOnTransactions(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	n := d.node()
	id := d.want(201, "POST", "/transactions", `{"type": "pay", "queue": "q", "data": {"a": 1}, "tags": {"k": "v"}}`).str("id")
	behind := d.want(201, "POST", "/transactions", `{"type": "pay", "queue": "q"}`).str("id")
	w := d.want(200, "GET", "/transactions/"+behind+"/why", "")
	if b := w.body["blockers"].([]any); b[0].(map[string]any)["kind"] != "head_of_line" || !strings.HasPrefix(w.str("summary"), "second in q") {
		t.Error(w.raw)
	}
	if c := d.want(200, "POST", "/transactions/"+behind+"/cancel", `{"reason": "typo"}`); c.str("result") != "done" || c.body["changed"] != true {
		t.Error(c.raw)
	}
	d.want(200, "POST", "/transactions/"+behind+"/cancel", "")
	d.refused(409, "wrong_state", "POST", "/transactions/"+id+"/retry", "")
	d.refused(409, "wrong_state", "POST", "/transactions/"+id+"/redrive", "")
	d.refused(409, "wrong_state", "POST", "/transactions/"+id+"/abandon", `{"reason": "r"}`)
	d.refused(422, "invalid", "POST", "/transactions/"+id+"/abandon", "")
	d.answerOne(n, failing)
	if s := d.want(200, "GET", "/transactions/"+id, ""); s.str("state") != "RETRY" || s.body["next_at"] == nil || s.body["error"].(map[string]any)["code"] != "20203" {
		t.Error(s.raw)
	}
	d.want(200, "POST", "/transactions/"+id+"/retry", "")
	if c := d.want(202, "POST", "/transactions/"+id+"/cancel", ""); c.str("result") != "pending" || c.str("at") == "" {
		t.Error(c.raw)
	}
	if q := d.want(200, "GET", "/queues/q/why", ""); !strings.Contains(q.raw, "retry_delay") {
		t.Error(q.raw)
	}
	a := d.want(200, "GET", "/transactions/"+id+"/attempts", "")
	if l := a.body["items"].([]any); len(l) != 1 || !regexp.MustCompile("^"+id+`\.[0-9a-f]{13}\.1$`).MatchString(l[0].(map[string]any)["token"].(string)) || l[0].(map[string]any)["class"] != "retry" {
		t.Error(a.raw)
	}
	if page := d.want(200, "GET", "/transactions/"+id+"/attempts?limit=1", ""); page.body["next"] != nil {
		t.Error(page.raw)
	}
	d.refused(400, "bad_cursor", "GET", "/transactions/"+id+"/attempts?cursor=x", "")
	if last := d.want(200, "GET", "/transactions/"+id+"/attempts?last=true", ""); last.raw != a.raw {
		t.Error(last.raw)
	}
	d.refused(422, "invalid", "GET", "/transactions/"+id+"/attempts?last=true&cursor=x", "")
	d.want(200, "POST", "/transactions/"+id+"/abandon", `{"reason": "the chain is gone"}`)
	h := d.want(200, "GET", "/transactions/"+id+"/history", "")
	items := h.body["items"].([]any)
	if last := items[len(items)-1].(map[string]any); last["event"] != "Abandoned" || last["by"] != "dev" || last["detail"] != "the chain is gone" {
		t.Error(h.raw)
	}
	r := d.want(201, "POST", "/transactions/"+id+"/redrive", `{"data": {"a": 2}}`, "Idempotency-Key: again")
	if r.str("redrive_of") != id || r.str("queue") != "q" || r.str("uid") != "again" || r.header.Get("Location") != "/transactions/"+r.str("id") ||
		r.body["data"].(map[string]any)["a"] != 2.0 || r.body["tags"].(map[string]any)["k"] != "v" {
		t.Error(r.raw)
	}
	if again := d.want(200, "POST", "/transactions/"+id+"/redrive", `{"data": {"a": 2}}`, "Idempotency-Key: again"); again.str("id") != r.str("id") || again.header.Get("Idempotent-Replay") != "true" {
		t.Error(again.raw)
	}
	other := d.refused(409, "already_redriven", "POST", "/transactions/"+id+"/redrive", "")
	if other.body["redriven_by"] != r.str("id") {
		t.Error(other.raw)
	}
	if u := d.want(201, "POST", "/transactions/"+behind+"/redrive", `{"queue": null}`); u.body["queue"] != nil {
		t.Error(u.raw)
	}
	d.answerOne(n, rejected)
	for _, verb := range []string{"cancel", "retry", "redrive"} {
		d.refused(404, "not_found", "POST", "/transactions/0193f5b2-0000-8000-8000-000000000000/"+verb, "")
	}
	for _, noun := range []string{"why", "history", "attempts"} {
		d.refused(404, "not_found", "GET", "/transactions/0193f5b2-0000-8000-8000-000000000000/"+noun, "")
	}
}

func TestTwoAtOnceWithOneKeyMakeOneTransaction(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	var wg sync.WaitGroup
	var mu sync.Mutex
	created, ids := 0, map[string]bool{}
	for range 20 {
		wg.Go(func() {
			a := d.call("POST", "/transactions", `{"type": "pay", "queue": "q"}`, "Idempotency-Key: k")
			mu.Lock()
			defer mu.Unlock()
			if a.status == 201 {
				created++
			} else if a.status != 200 {
				t.Errorf("%d %s", a.status, a.raw)
			}
			ids[a.str("id")] = true
		})
	}
	wg.Wait()
	if created != 1 || len(ids) != 1 {
		t.Errorf("%d created, %d ids", created, len(ids))
	}
}
