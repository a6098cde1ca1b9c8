package main

import (
	"math/rand/v2"
	"testing"
)

// A seed fixes which faults come and what they draw, however long each takes.
func TestASeedFixesTheSchedule(t *testing.T) {
	draw := func(seed uint64) (names []string) {
		r := rand.New(rand.NewPCG(seed, 0))
		for range 50 {
			r.Float64()
			names = append(names, faults[r.IntN(len(faults))].name)
			r.Uint64()
		}
		return names
	}
	a, b, c := draw(1), draw(1), draw(2)
	same := true
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("one seed, two schedules: %s and %s at %d", a[i], b[i], i)
		}
		same = same && a[i] == c[i]
	}
	if same {
		t.Error("two seeds have one schedule")
	}
}

// The checker finds each violation that it looks for.
func TestTheCheckerFindsWhatIsWrong(t *testing.T) {
	good := map[string]row{"a": {id: "1", uid: "a", queue: "q", state: "DONE", position: 1, n: 1}, "b": {id: "2", uid: "b", queue: "q", state: "DONE", position: 2, n: 2}}
	calls := []call{{Token: "1.1", UID: "a", Did: "done"}, {Token: "2.1", UID: "b", Did: "done"}}
	posts := []*post{{UID: "a", ID: "1", Queue: "q", N: 1, Acked: true}, {UID: "b", ID: "2", Queue: "q", N: 2, Acked: true}}
	look := func(posts []*post, calls []call, rows map[string]row) map[string]int {
		found := map[string]int{}
		say := func(invariant, _ string, _ ...any) { found[invariant]++ }
		var list []row
		for _, r := range rows {
			list = append(list, r)
		}
		checkPosts(posts, rows, say)
		checkCalls(calls, rows, say)
		checkOrder(list, calls, say)
		return found
	}
	if found := look(posts, calls, good); len(found) > 0 {
		t.Fatalf("nothing is wrong, and it finds %v", found)
	}
	for invariant, found := range map[string]map[string]int{
		"nothing acknowledged is lost":           look(append(posts, &post{UID: "c", Acked: true}), calls, good),
		"a transaction is what was posted":       look([]*post{{UID: "a", ID: "1", Queue: "q", N: 9, Acked: true}}, calls, good),
		"every answer is a success or retryable": look([]*post{{UID: "a", Bad: "500"}}, calls, good),
		"every post is answered in the end":      look([]*post{{UID: "a"}}, calls, good),
		"a token is one transaction's":           look(posts, append(calls, call{Token: "1.1", UID: "b", Did: "again"}), good),
		"a token is one sender's":                look(posts, append(calls, call{Token: "1.1", UID: "a", Did: "again", Sender: "s"}), good),
		"executed once":                          look(posts, append(calls, call{Token: "1.2", UID: "a", Did: "done"}), good),
		"what is DONE was executed":              look(posts, calls[:1], good),
		"order of a queue":                       look(posts, []call{calls[1], calls[0]}, good),
	} {
		if found[invariant] == 0 {
			t.Errorf("it does not find that %q is violated: %v", invariant, found)
		}
	}
}
