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
	row := func(id, text, answer string, minute int) letterRow {
		at := pairAt(minute)
		return letterRow{ID: id, Key: a.public(), Text: text, Status: "processed", Reply: answer, Results: 1, At: &at}
	}
	ended := pairAt(13)
	return &pairEvidence{
		actors:  []*actor{a},
		letters: []*letter{{n: 0, id: "m0", from: pairAt(0)}, {n: 1, id: "m1", from: pairAt(10)}},
		near:    []letterRow{row("m0", "0/0", "re: 0/0", 2), row("m1", "0/1", "re: 0/1", 12)},
		far:     []letterRow{row("m0", "0/0", "", 1), row("m1", "0/1", "", 11)},
		jobs: []flowJob{{id: "a", flow: "7", ref: 1, status: "finished", nonce: "n1", peer: "far", tries: []flowTry{
			{ID: "t1", State: "Finished", Nonce: "n1", OfferedAt: pairAt(10), EndedAt: &ended}}}},
		farJobs: []farJob{{ID: "b", Message: "t1", Status: "finished", Nonce: "n1", At: pairAt(11), Tries: []flowTry{
			{ID: "t2", State: "Finished", Nonce: "n1"}}}},
	}
}

// pairBegan is when two installations were started.
var pairBegan = time.Now()

func pairAt(minute int) time.Time { return pairBegan.Add(time.Duration(minute) * time.Minute) }

// putBack is a restore of one of them.
func putBack(far bool, from, to int) gaps { return gaps{{far, span{pairAt(from), pairAt(to)}}} }

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
	for _, c := range []struct {
		what  string
		spoil func(*pairEvidence)
		by    gaps // legal by
		not   gaps
	}{
		{"a letter lost by the second", func(e *pairEvidence) { e.far = e.far[:1] }, putBack(true, 9, 20), putBack(false, 9, 20)},
		{"and not while it was put back", func(e *pairEvidence) { e.far = e.far[:1] }, putBack(true, 9, 20),
			putBack(true, 3, 9)},
		{"letters on their way", func(e *pairEvidence) { slices.Reverse(e.far) }, putBack(true, 9, 20), putBack(true, 3, 9)},
		{"or of the first", func(e *pairEvidence) { slices.Reverse(e.far) }, putBack(false, 9, 20), putBack(false, 15, 20)},
		{"a job lost by the second", func(e *pairEvidence) { e.farJobs = nil }, putBack(true, 9, 20), putBack(true, 14, 20)},
		{"a job executed again", func(e *pairEvidence) { e.farJobs[0].Nonce = "n2" }, putBack(true, 9, 20),
			putBack(true, 14, 20)},
	} {
		e := goodPair()
		c.spoil(e)
		e.gaps = c.by
		if _, wrong := look(e); len(wrong) > 0 {
			t.Errorf("%s: a restore makes it legal, and it finds %v", c.what, wrong)
		}
		e = goodPair()
		c.spoil(e)
		e.gaps = c.not
		if _, wrong := look(e); len(wrong) == 0 {
			t.Errorf("%s: another restore makes it legal", c.what)
		}
	}
	again := goodPair()
	again.farJobs[0].Nonce, again.gaps = "n2", putBack(true, 9, 20)
	if look(again); again.jobs[0].names() != anyJob || !again.strange["b"] {
		t.Errorf("what was executed again is %s, strange are %v", again.jobs[0].names(), again.strange)
	}
	left := goodPair()
	left.farJobs = append(left.farJobs, farJob{ID: "c", Message: "t9", At: pairAt(12)})
	for _, g := range []gaps{putBack(false, 9, 20), putBack(false, 3, 9), putBack(true, 9, 20)} {
		left.gaps = g
		if look(left); left.strange["c"] != (!g[0].far && g[0].to.Equal(pairAt(20))) {
			t.Errorf("%+v: strange are %v", g, left.strange)
		}
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
