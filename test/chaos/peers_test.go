package main

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// Two installations come to the ends of what they share while they and the line between them are broken, for as many
// seconds as POSTERN_CHAOS_PEERS says. make chaos ARGS="-load peers -flows 1000" does it at length.
func TestTwoInstallationsWhileEverythingBreaks(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv("POSTERN_CHAOS_PEERS"))
	if err != nil {
		t.Skip("POSTERN_CHAOS_PEERS=60s breaks two installations for a minute")
	}
	breakAll(t, options{load: "peers", seconds: int(length.Seconds()), every: 3 * time.Second, flows: 20, open: 8,
		runners: 2,
		brief:   true, box: exec.Command("unshare", "-Urnmpf", "true").Run() == nil})
}

// goodPair is two messages of one actor with their replies, and a job that was executed away.
func goodPair() *pairEvidence {
	a := newActor()
	row := func(id, text, answer string) letterRow {
		return letterRow{ID: id, Key: a.public(), Text: text, Status: "processed", Reply: answer, Results: 1}
	}
	return &pairEvidence{
		actors:  []*actor{a},
		letters: []*letter{{n: 0, id: "m0"}, {n: 1, id: "m1"}},
		near:    []letterRow{row("m0", "0/0", "re: 0/0"), row("m1", "0/1", "re: 0/1")},
		far:     []letterRow{row("m0", "0/0", ""), row("m1", "0/1", "")},
		jobs: []flowJob{{id: "a", flow: "7", ref: 1, status: "finished", nonce: "n1", peer: "far", tries: []flowTry{
			{ID: "t1", State: "Finished", Nonce: "n1"}}}},
		farJobs: []farJob{{ID: "b", Message: "t1", Status: "finished", Nonce: "n1", Tries: []flowTry{
			{ID: "t2", State: "Finished", Nonce: "n1"}}}},
	}
}

// The checker of two installations finds each violation that it looks for, and none where all is well.
func TestTheCheckerOfTwoInstallationsFindsWhatIsWrong(t *testing.T) {
	look := func(e *pairEvidence) (pairCounts, map[string]int) {
		wrong := map[string]int{}
		n := e.check(func(invariant, _ string, _ ...any) { wrong[invariant]++ })
		return n, wrong
	}
	good := goodPair()
	if n, wrong := look(good); len(wrong) > 0 || n.Letters != 2 || n.Away != 1 || good.jobs[0].names() != "b" {
		t.Fatalf("nothing is wrong, and it finds %v, and counts %+v", wrong, n)
	}
	lost := goodPair() // by the other installation, which was restored
	lost.far, lost.farJobs, lost.restored = lost.far[:1], nil, true
	if _, wrong := look(lost); len(wrong) > 0 || lost.jobs[0].names() != anyJob {
		t.Errorf("what another installation has lost is known here, and it finds %v", wrong)
	}
	for _, c := range []struct {
		invariant string
		spoil     func(*pairEvidence)
	}{
		{"every post is answered in the end", func(e *pairEvidence) { e.letters[0].id = "" }},
		{"no message is lost", func(e *pairEvidence) { e.near = e.near[:1] }},
		{"no message is lost", func(e *pairEvidence) { e.far = e.far[:1] }},
		{"no message is processed twice", func(e *pairEvidence) { e.far = append(e.far, e.far[1]) }},
		{"a message is what was posted", func(e *pairEvidence) { e.letters[1].id = "m0" }},
		{"a message has its reply", func(e *pairEvidence) { e.near[0].Reply = "re: 0/1" }},
		{"a message has its reply", func(e *pairEvidence) { e.near[0].Results = 2 }},
		{"a message has its reply", func(e *pairEvidence) { e.far[0].Status = "dispatched" }},
		{"messages of one caller keep their order", func(e *pairEvidence) { slices.Reverse(e.far) }},
		{"a message is of its actor", func(e *pairEvidence) { e.far[0].Key = newActor().public() }},
		{"a job that goes away has one job there", func(e *pairEvidence) { e.farJobs = nil }},
		{"a job that goes away has one job there", func(e *pairEvidence) { e.farJobs = append(e.farJobs, e.farJobs[0]) }},
		{"a job that goes away has one job there", func(e *pairEvidence) { e.farJobs[0].Nonce = "n2" }},
		{"a job that goes away has one job there", func(e *pairEvidence) { e.jobs[0].nonce = "n2" }},
		{"a job has one recorded result", func(e *pairEvidence) { e.jobs[0].tries[0].State = "Sent" }},
	} {
		e := goodPair()
		c.spoil(e)
		if _, wrong := look(e); wrong[c.invariant] == 0 {
			t.Errorf("it does not find that %q is violated: %v", c.invariant, wrong)
		}
	}
}
