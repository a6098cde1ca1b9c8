package main

import (
	"fmt"
	"slices"
	"strings"
)

// systemCounts is what a run of the load systems has to tell besides what is wrong.
type systemCounts struct {
	Batches  int            `json:"batches"`
	Events   int            `json:"events"`
	Results  map[string]int `json:"results"` // of batches
	Dead     int            `json:"dead"`    // events whose tool answered with a lie
	Unheard  int            `json:"unheard"` // calls of tools that were given up, and executed
	Executed int            `json:"executed"`
	Again    int            `json:"answered_from_memory"`
}

// thingRow is what the database says of a batch or an event.
type thingRow struct {
	kind, context, name, id, state, result string
	n                                      int
	content, reason                        string
}

// systemsEvidence is what is compared: what was posted, what the worker did, and the rows.
type systemsEvidence struct {
	batches, events []*thing
	calls           []call
	rows            []thingRow
}

// check compares them.
func (e *systemsEvidence) check(say found) (n systemCounts) {
	n.Results = map[string]int{}
	rows := map[string]thingRow{}
	for _, r := range e.rows {
		key := r.kind + " " + r.context + "/" + r.name
		if _, twice := rows[key]; twice {
			say("one row per key", "%s has two", key)
		}
		if !r.belongs() {
			say("a context is a wall", "%s is %s", key, r.content)
		}
		rows[key] = r
	}
	done, order, lied := map[string]int{}, map[string][]string{}, map[string]bool{}
	unheard := map[string]int{} // calls of tools that were executed once they had been given up
	for _, c := range e.calls {
		for _, a := range c.Acts {
			of, _, _ := strings.Cut(strings.TrimPrefix(a, "call of "), ".")
			lied[of] = lied[of] || c.Mode == "lie" && c.Did == "nothing"
		}
		if c.Did == "again" {
			n.Again++
		}
		if c.Did != "done" && c.Did != "sent" {
			continue
		}
		n.Executed++
		for _, a := range c.Acts {
			if strings.HasPrefix(a, "call of ") && c.Done.Sub(c.At) >= givenUp {
				unheard[a]++
			}
			done[a]++
			of, _, _ := strings.Cut(a, ".")
			order[of] = append(order[of], a)
		}
	}
	for what, times := range done {
		if n.Unheard += unheard[what]; times-unheard[what] > 1 {
			say("nothing is executed twice", "%s was executed %d times", what, times)
		}
	}
	n.Batches, n.Events = len(e.batches), len(e.events)
	for _, t := range e.batches {
		r, there := rows["batch "+t.context+"/"+t.name]
		checkPosted(t, r, there, say)
		n.Results[r.result]++
		checkBatch(t, r, order[t.context+"/"+t.name], lied[t.context+"/"+t.name], say)
	}
	for _, t := range e.events {
		r, there := rows["event "+t.context+"/"+t.name]
		checkPosted(t, r, there, say)
		of := t.context + "/" + t.name
		if lied[of] && r.state == "Dead" && done["call of "+of] == 0 { // such an answer is its result
			n.Dead++
			continue
		}
		// a call that was not answered in time is made again as another one: a tool is not asked what it did
		called := max(done["call of "+of]-unheard["call of "+of], min(done["call of "+of], 1))
		if r.state != "Successful" || called != 1 || done["result of "+of] != 1 {
			say("an event calls its tool once, and its result is told once", "%s is %s %s, called %d times, told %d times",
				of, r.state, r.reason, done["call of "+of], done["result of "+of])
		}
	}
	return n
}

// checkPosted: what was acknowledged is there, under the id that was told.
func checkPosted(t *thing, r thingRow, there bool, say found) {
	switch of := t.context + "/" + t.name; {
	case t.bad != "":
		say("every answer is a success or retryable", "%s: %s", of, t.bad)
	case t.id == "":
		say("every post is answered in the end", "%s, after %d tries", of, t.tries)
	case !there:
		say("nothing acknowledged is lost", "%s is gone", of)
	case r.id != t.id:
		say("one row per key", "%s was acknowledged as %s, and is %s", of, t.id, r.id)
	}
}

// checkBatch: a batch ends as its messages do: an atomic one whole or not at all, another with all before the first
// that is rejected, in their order. Where the worker has done nothing and answered with a lie, it may be that nothing is
// known of the last: that one and what comes behind it was not executed then.
func checkBatch(t *thing, r thingRow, did []string, lied bool, say found) {
	want, n := "executed", t.length
	if t.fails >= 0 {
		if want, n = "partially_executed", t.fails; t.atomic || n == 0 {
			want, n = "rejected", 0
		}
	}
	of := t.context + "/" + t.name
	if lied && r.result == "unexpected_error" && r.n <= n {
		want, n = r.result, r.n
	}
	if r.result != want || want == "partially_executed" && r.n != n {
		say("a batch ends as its messages do", "%s is %s, %s of %d: %s; want %s of %d", of, r.state, r.result, r.n,
			r.reason, want, n)
	}
	var order []string
	for i := range n {
		order = append(order, fmt.Sprintf("%s.%d", of, i))
	}
	if !slices.Equal(did, order) {
		say("messages are executed in their order", "%s: %v, want %v", of, did, order)
	}
}
