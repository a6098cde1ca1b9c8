package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// again adds the callback at an index once more, as spoil makes it.
func (e *evidence) again(i int, spoil func(*call)) {
	c := e.calls[i]
	c.At = c.At.Add(time.Second)
	spoil(&c)
	e.calls = append(e.calls, c)
}

// Each callback that tells what is not so, under another id or out of its turn is found.
func TestTheCheckerFindsWrongCallbacks(t *testing.T) {
	const recorded, once, turns = "a callback tells what is recorded", "a callback has one id",
		"callbacks of a queue keep their order"
	for _, c := range []struct {
		name, invariant string
		spoil           func(*evidence)
	}{
		{"another state", recorded, func(e *evidence) { e.calls[1].State = "FAILED" }},
		{"another event", recorded, func(e *evidence) { e.calls[1].Event = "transaction.failed" }},
		{"both", recorded, func(e *evidence) { e.calls[1].State, e.calls[1].Event = "FAILED", "transaction.failed" }},
		{"another id", recorded, func(e *evidence) { e.calls[1].ID = "2" }},
		{"another queue", recorded, func(e *evidence) { e.calls[1].Queue = "r" }},
		{"another position", recorded, func(e *evidence) { e.calls[1].Position = 2 }},
		{"before its end", recorded, func(e *evidence) { e.calls[1].At = e.rows[0].ended.Add(-1) }},
		{"not ended", recorded, func(e *evidence) { e.rows[0].state = "REVISION" }},
		{"no row", recorded, func(e *evidence) { e.rows = e.rows[1:] }},
		{"no transaction", recorded, func(e *evidence) { e.again(1, func(c *call) { c.UID, c.Token = "", "x" }) }},
		{"not wanted", recorded, func(e *evidence) { e.posts[0].Told = false }},
		{"a second id", once, func(e *evidence) { e.again(1, func(c *call) { c.Token = "1.else" }) }},
		{"no id", once, func(e *evidence) { e.calls[1].Token = "" }},
		{"one id of two", once, func(e *evidence) { e.calls[1].Token = e.calls[7].Token }},
		{"one id of two events", once, func(e *evidence) { e.again(1, func(c *call) { c.Event = "transaction.failed" }) }},
		{"the second first", turns, func(e *evidence) { e.calls[1].At = e.calls[7].At.Add(1) }},
		{"ended the other way round", turns, func(e *evidence) { e.rows[0].ended = e.rows[1].ended.Add(1) }},
		{"both ended at once", turns, func(e *evidence) {
			e.rows[0].ended, e.calls[1].At = e.rows[1].ended, e.calls[7].At.Add(1)
		}},
	} {
		e, found := good(), map[string]int{}
		c.spoil(e)
		if e.check(func(invariant, _ string, _ ...any) { found[invariant]++ }); found[c.invariant] == 0 {
			t.Errorf("%s: it does not find that %q is violated: %v", c.name, c.invariant, found)
		}
	}
}

// A callback may come again, late; one that a restore has taken back may have told something else; and times that
// cannot be compared are not.
func TestTheCheckerKnowsWhatACallbackMayTell(t *testing.T) {
	for name, spoil := range map[string]func(*evidence){
		"again":           func(e *evidence) { e.again(1, func(*call) {}) },
		"another clock":   func(e *evidence) { e.rows[1].ended, e.clocks = e.rows[1].ended.Add(time.Hour), true },
		"an unknown turn": func(e *evidence) { e.calls[1].At, e.unordered = e.calls[7].At.Add(1), true },
		"of another queue": func(e *evidence) {
			e.calls[1].At, e.calls[1].Queue, e.rows[0].queue = e.calls[7].At.Add(1), "r", "r"
		},
		"taken back": func(e *evidence) {
			e.quiet = []quiet{{restored: e.calls[1].At.Add(1)}}
			e.calls[1].State, e.calls[1].ID = "FAILED", "9"
			e.again(1, func(c *call) { c.Token, c.State, c.ID = "1.else", "DONE", "1" })
			e.unordered = true
		},
		"posted again": func(e *evidence) { e.calls[1].Token, e.posts[0].Repeated, e.calls[1].State = "0", true, "FAILED" },
	} {
		e := good()
		spoil(e)
		byUID := map[string]row{}
		for _, r := range e.rows {
			byUID[r.uid] = r
		}
		e.checkTold(byUID, func(invariant, format string, args ...any) {
			t.Errorf("%s: it finds %q: "+format, append([]any{name, invariant}, args...)...)
		})
	}
}

// The worker logs all that a callback tells.
func TestACallbackIsLogged(t *testing.T) {
	w, err := newWorker(filepath.Join(t.TempDir(), "worker.jsonl"), workerSettings{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.listener.Close()
	r := httptest.NewRequest(http.MethodPost, "/told", strings.NewReader(`{"type": "transaction.done", "data": {"id": "7",
		"uid": "u", "queue": "q", "position": 3, "state": "DONE"}}`))
	r.Header.Set("webhook-id", "7.done")
	w.told(httptest.NewRecorder(), r)
	calls, err := w.logged()
	if err != nil || len(calls) != 1 || calls[0].At.IsZero() {
		t.Fatal(calls, err)
	}
	calls[0].At, calls[0].Done = time.Time{}, time.Time{}
	want := call{Did: "told", Token: "7.done", ID: "7", UID: "u", Queue: "q", Position: 3, Event: "transaction.done",
		State: "DONE"}
	got, _ := json.Marshal(calls[0])
	if all, _ := json.Marshal(want); string(got) != string(all) {
		t.Error(fmt.Sprintf("logged is %s, want %s", got, all))
	}
}
