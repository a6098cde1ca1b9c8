package main

import (
	"slices"
	"testing"
	"time"
)

// Batches and events of two contexts end as they are to while the processes, the database and the worker are broken, for
// some twenty seconds. make chaos ARGS="-load systems" does it at length.
func TestBatchesAndEventsWhileEverythingBreaks(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	breakAll(t, options{load: "systems", seconds: 20, rate: 40, every: 2 * time.Second})
}

// goodSystems is a batch of three messages, of which the last is rejected, and an event.
func goodSystems() *systemsEvidence {
	batch := &thing{context: "two", name: "b1", fails: 2, length: 3, id: "7", tries: 1}
	event := &thing{context: "two", name: "e1", id: "u", tries: 1}
	return &systemsEvidence{
		batches: []*thing{batch},
		events:  []*thing{event},
		calls: []call{
			{Did: "done", Acts: []string{"two/b1.0"}},
			{Did: "sent", Acts: []string{"two/b1.1"}},
			{Did: "again", Acts: []string{"two/b1.1"}},
			{Did: "rejected", Acts: []string{"two/b1.2"}},
			{Did: "done", Acts: []string{"call of two/e1"}},
			{Did: "done", Acts: []string{"result of two/e1"}},
		},
		rows: []thingRow{
			{kind: "batch", context: "two", name: "b1", id: "7", state: "Done", result: "partially_executed", n: 2,
				content: string(batch.batch())},
			{kind: "event", context: "two", name: "e1", id: "u", state: "Successful", content: string(event.event())},
		},
	}
}

// The checker of batches and events finds each violation that it looks for, and none where all is well.
func TestTheCheckerOfSystemsFindsWhatIsWrong(t *testing.T) {
	look := func(e *systemsEvidence) (systemCounts, map[string]int) {
		wrong := map[string]int{}
		n := e.check(func(invariant, _ string, _ ...any) { wrong[invariant]++ })
		return n, wrong
	}
	n, wrong := look(goodSystems())
	if len(wrong) > 0 || n.Executed != 4 || n.Again != 1 || n.Results["partially_executed"] != 1 {
		t.Fatalf("nothing is wrong, and it finds %v, and counts %+v", wrong, n)
	}
	hung := goodSystems() // and was called again
	hung.calls = append(hung.calls, hung.calls[4])
	hung.calls[4].Done = hung.calls[4].At.Add(givenUp)
	if n, wrong := look(hung); len(wrong) > 0 || n.Unheard != 1 {
		t.Errorf("a call that was given up may come again, and it finds %v", wrong)
	}
	lie := func(e *systemsEvidence) {
		e.rows[0].result, e.rows[0].n, e.rows[1].state = "unexpected_error", 1, "Dead"
		e.calls = []call{e.calls[0], {Did: "nothing", Mode: "lie", Acts: []string{"two/b1.1"}},
			{Did: "nothing", Mode: "lie", Acts: []string{"call of two/e1"}}}
	}
	lies := goodSystems()
	lie(lies)
	if n, wrong := look(lies); len(wrong) > 0 || n.Dead != 1 {
		t.Errorf("a lie is what is known, and it finds %v", wrong)
	}
	for _, c := range []struct {
		invariant string
		spoil     func(*systemsEvidence)
	}{
		{"nothing is executed twice", func(e *systemsEvidence) { e.calls = append(e.calls, e.calls[4]) }},
		{"a batch ends as its messages do", func(e *systemsEvidence) { lie(e); e.calls[1].Mode = "" }},
		{"messages are executed in their order", func(e *systemsEvidence) { lie(e); e.rows[0].n = 0 }},
		{"an event calls its tool once, and its result is told once", func(e *systemsEvidence) {
			lie(e)
			e.calls[2].Mode = ""
		}},
		{"nothing acknowledged is lost", func(e *systemsEvidence) { e.rows = e.rows[1:] }},
		{"one row per key", func(e *systemsEvidence) { e.rows = append(e.rows, e.rows[0]) }},
		{"one row per key", func(e *systemsEvidence) { e.rows[0].id = "8" }},
		{"a context is a wall", func(e *systemsEvidence) { e.rows[0].content = "default/b1" }},
		{"every post is answered in the end", func(e *systemsEvidence) { e.events[0].id = "" }},
		{"every answer is a success or retryable", func(e *systemsEvidence) { e.events[0].bad = "500" }},
		{"nothing is executed twice", func(e *systemsEvidence) { e.calls[2].Did = "done" }},
		{"messages are executed in their order", func(e *systemsEvidence) {
			e.calls[0], e.calls[1] = e.calls[1], e.calls[0]
		}},
		{"messages are executed in their order", func(e *systemsEvidence) { e.calls = slices.Delete(e.calls, 1, 3) }},
		{"a batch ends as its messages do", func(e *systemsEvidence) { e.rows[0].result = "executed" }},
		{"a batch ends as its messages do", func(e *systemsEvidence) { e.rows[0].n = 1 }},
		{"an event calls its tool once, and its result is told once", func(e *systemsEvidence) {
			e.calls[5].Acts[0] = "call of two/e1"
		}},
	} {
		e := goodSystems()
		c.spoil(e)
		if _, wrong := look(e); wrong[c.invariant] == 0 {
			t.Errorf("it does not find that %q is violated: %v", c.invariant, wrong)
		}
	}
}
