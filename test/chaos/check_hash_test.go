package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// hashed is good, with a hash for the first transaction of the queue, which is said to be included once polled.
func hashed() *evidence {
	e := good()
	at := e.calls[0].At
	e.calls[0].Did, e.rows[0].ended = "sent", at.Add(1)
	e.calls = append(e.calls, call{At: at, Token: "1.1", Did: "polled", Said: "pending"},
		call{At: at.Add(1), Token: "1.1", Did: "polled", Said: "included"})
	return e
}

// What is DONE, and what goes on, before a hash is said to be included is found.
func TestTheCheckerWaitsForInclusion(t *testing.T) {
	const invariant = "a hash is no end until it is included"
	look := func(e *evidence) map[string]int {
		found := map[string]int{}
		e.check(func(invariant, _ string, _ ...any) { found[invariant]++ })
		return found
	}
	included := func(e *evidence) *call { return &e.calls[len(e.calls)-1] }
	onlyNext := func(e *evidence) { // that there is no answer is seen by the call of the next one alone
		e.rows[0].state, e.calls = "REVISION", e.calls[:len(e.calls)-1]
	}
	for _, c := range []struct {
		name, invariant string
		spoil           func(*evidence)
	}{
		{"as it should be", "", func(*evidence) {}},
		{"an operator's word", "", func(e *evidence) { included(e).Said, e.said = "pending", map[string]bool{"a": true} }},
		{"posted again", "", func(e *evidence) { included(e).Said, e.posts[0].Repeated = "pending", true }},
		{"another clock", "", func(e *evidence) { e.rows[0].ended, e.clocks = e.rows[0].ended.Add(-time.Hour), true }},
		{"never included", invariant, func(e *evidence) { included(e).Said = "pending" }},
		{"asked by token", invariant, func(e *evidence) { included(e).Did = "asked" }},
		{"of another token", invariant, func(e *evidence) { included(e).Token = "2.1" }},
		{"DONE before", invariant, func(e *evidence) { e.rows[0].ended = included(e).At.Add(-1) }},
		{"the next one is called", invariant, onlyNext},
		{"the next one was called", invariant, func(e *evidence) {
			included(e).At, e.rows[0].ended = e.calls[4].At.Add(1), e.calls[4].At.Add(1)
		}},
		{"reverted, and the next one is called", invariant, func(e *evidence) { onlyNext(e); e.calls[0].Did = "reverted" }},
		{"reverted, and DONE", "what is DONE was executed", func(e *evidence) {
			e.calls[0].Did, included(e).Said = "reverted", "failed"
		}},
		{"what needs it is called", "what depends on another one waits for it", func(e *evidence) {
			e.posts[1].On, included(e).At = "a", e.calls[4].At.Add(1)
		}},
	} {
		e := hashed()
		c.spoil(e)
		found := look(e)
		delete(found, "a callback tells what is recorded")
		delete(found, "it ends as its worker says")
		if c.invariant == "" && len(found) > 0 || c.invariant != "" && found[c.invariant] == 0 {
			t.Errorf("%s: it finds %v, want %q", c.name, found, c.invariant)
		}
	}
}

// A hash is pending for some polls, then included, or failed of some first attempts; a second attempt never fails.
func TestAHashIsIncludedLater(t *testing.T) {
	w, err := newWorker(filepath.Join(t.TempDir(), "worker.jsonl"), workerSettings{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.listener.Close()
	ask := func(path, body string) {
		t.Helper()
		a, err := http.Post(w.url()+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
	}
	seen := map[string]int{}
	for i := range 600 {
		c := &call{UID: fmt.Sprint("u", i), Token: fmt.Sprint("t", i, ".", i%2), Attempt: 1 + i%2}
		if w.execute(c, false, false, false); !c.hashed() {
			continue
		}
		said, polls := "pending", 0
		for ; said == "pending" && polls < 9; polls++ {
			ask("/status/PAY", `{"token":"`+c.Token+`"}`)
			ask("/status/PAY", `{"hash":"0x`+c.Token+`"}`)
			said = w.calls[len(w.calls)-1].Said
		}
		if want := map[bool]string{true: "failed", false: "included"}[c.Did == "reverted"]; said != want || polls > 4 {
			t.Errorf("%s: %s, after %d polls it is %s", c.UID, c.Did, polls, said)
		}
		seen[fmt.Sprint(c.Did, " in attempt ", c.Attempt)]++
		seen[fmt.Sprint(polls, " polls")]++
	}
	if len(seen) != 7 || seen["reverted in attempt 2"] > 0 || seen["reverted in attempt 1"] > seen["sent in attempt 1"] {
		t.Errorf("%v", seen)
	}
}
