package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// Flows come to their ends while their runners, the processes and the database are broken, for some twenty seconds.
// make chaos ARGS="-load flows" does it with 500.
func TestFlowsWhileEverythingBreaks(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	breakAll(t, options{load: "flows", seconds: 20, every: 3 * time.Second, flows: 20, open: 8, runners: 3, brief: true,
		box: exec.Command("unshare", "-Urnmpf", "true").Run() == nil})
}

// breakAll is a run with the faults of its load.
func breakAll(t *testing.T, o options) {
	t.Helper()
	if _, err := findPostgres(t.TempDir()); err != nil {
		t.Skip(err)
	}
	o.seed, o.bin, o.bare = 1, buildPostern(t), true
	o.settle = 3 * time.Minute // other tests may use the machine
	var err error
	if o.faults, err = chosenFor(o.load, "", "clock-node"); err != nil {
		t.Fatal(err)
	}
	o.schedule = o.plan()
	out, err := chaos(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	line, _ := json.Marshal(out)
	t.Logf("%s", line)
	if out.wrong() {
		t.Error("something is wrong")
	}
}

// buildPostern builds the program.
func buildPostern(t *testing.T) (bin string) {
	t.Helper()
	bin = filepath.Join(t.TempDir(), "postern")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", bin, "./cmd/postern")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	return bin
}

// goodFlow is a flow of two jobs. The first failed once, and was executed twice in its second try, since it lapsed.
func goodFlow() *flowEvidence {
	at := time.Now()
	ends := []time.Time{at.Add(20), at.Add(40), at.Add(60)}
	says := func(n int, what, job, token, nonce, inputs string) said {
		return said{
			At:     at.Add(time.Duration(n)),
			What:   what,
			Job:    job,
			Token:  token,
			Nonce:  nonce,
			Inputs: json.RawMessage(inputs),
		}
	}
	return &flowEvidence{
		lines: []said{
			says(1, "start", "a", "1.1", "n1", `{}`),
			says(2, "failed", "a", "1.1", "n1", ""),
			says(22, "start", "a", "1.2", "n2", `{}`),
			says(23, "start", "a", "1.2", "n3", `{}`),
			says(24, "finish", "a", "1.2", "n3", ""),
			says(42, "start", "b", "2.1", "n4", `{"1": {"nonce": "n3"}}`),
			says(43, "finish", "b", "2.1", "n4", ""),
		},
		jobs: []flowJob{
			{id: "a", flow: "7", ref: 1, status: "finished", nonce: "n3", tries: []flowTry{
				{ID: "t1", Token: "1.1", State: "Failed", Code: "exit", ExitCode: failsWith, EndedAt: &ends[0]},
				{ID: "t2", Token: "1.2", State: "Finished", Nonce: "n3", Lapses: 1, EndedAt: &ends[1]}}},
			{id: "b", flow: "7", ref: 2, status: "finished", nonce: "n4", needs: []string{"a"}, tries: []flowTry{
				{ID: "t3", Token: "2.1", State: "Finished", Nonce: "n4", EndedAt: &ends[2]}}},
		},
		starts: map[string]int{"t1 1": 1, "t2 2": 1, "t2 3": 1, "t3 4": 1},
		losses: map[string]int{},
	}
}

// The checker of flows finds each violation that it looks for, and none where all is well.
func TestTheCheckerOfFlowsFindsWhatIsWrong(t *testing.T) {
	look := func(e *flowEvidence) (flowCounts, map[string]int) {
		wrong := map[string]int{}
		n := e.check(func(invariant, _ string, _ ...any) { wrong[invariant]++ })
		return n, wrong
	}
	n, wrong := look(goodFlow())
	if len(wrong) > 0 || n.Executions != 4 || n.Failed != 1 || n.Doubled != 1 || n.ByLapse != 1 || n.ByLoss != 0 {
		t.Fatalf("nothing is wrong, and it finds %v, and counts %+v", wrong, n)
	}
	later := time.Now().Add(time.Hour)
	for _, c := range []struct {
		what  string
		spoil func(*flowEvidence)
	}{
		{"a script of a job that is lost", func(e *flowEvidence) { e.lines[2].Job = "c" }},
		{"a job before what it needs", func(e *flowEvidence) { e.lines = slices.Insert(e.lines, 0, e.lines[5]) }},
		{"again after its success", func(e *flowEvidence) { e.lines[3].At = later }},
		{"a double execution", func(e *flowEvidence) { e.jobs[0].tries[1].Lapses = 0 }},
	} {
		e := goodFlow()
		c.spoil(e)
		begun := e.lines[len(e.lines)-1].At.Add(-time.Second)
		for _, far := range []bool{false, true} {
			for _, of := range []span{{begun, later.Add(time.Hour)}, {begun.Add(-time.Hour), begun}} {
				e.gaps = gaps{{far, of}}
				legal := of.from.Equal(begun) && (!far || e.lines[2].Job == "c")
				if _, wrong := look(e); (len(wrong) == 0) != legal {
					t.Errorf("%s, far %t, %v: it finds %v", c.what, far, of, wrong)
				}
			}
		}
	}
	for _, c := range []struct {
		invariant string
		spoil     func(*flowEvidence)
	}{
		{"a job has one recorded result", func(e *flowEvidence) { e.jobs[0].status = "started" }},
		{"a job has one recorded result", func(e *flowEvidence) { e.jobs[0].tries[0].State = "Finished" }},
		{"a job has one recorded result", func(e *flowEvidence) { e.jobs[0].nonce = "n2" }},
		{"a job has one recorded result", func(e *flowEvidence) { e.lines[6].What = "start" }},
		{"a try ends as its script does", func(e *flowEvidence) { e.jobs[0].tries[0].ExitCode = 2 }},
		{"no job starts before what it needs has finished", func(e *flowEvidence) {
			e.lines = slices.Insert(e.lines, 0, e.lines[5])
		}},
		{"a job reads the recorded results", func(e *flowEvidence) {
			e.lines[5].Inputs = json.RawMessage(`{"1": {"nonce": "n2"}}`)
		}},
		{"no job is executed again after a recorded success", func(e *flowEvidence) { e.lines[3].At = later }},
		{"nothing leaves a store that lost something", func(e *flowEvidence) {
			w := &world{quiet: []quiet{restoredAt(later)}}
			w.checkEarly(e, later.Add(1), "t1 "+fmt.Sprint(later.UnixMilli()+1), "runner-1")
			w.checkEarly(e, later.Add(1), "t1 "+fmt.Sprint(later.UnixMilli()-1), "runner-1")
			if len(e.early) > 1 {
				t.Errorf("an old lease is too early: %v", e.early)
			}
		}},
		{"scripts are those of jobs", func(e *flowEvidence) { e.lines[3].Job = "c" }},
		{"each double execution is explained", func(e *flowEvidence) { e.jobs[0].tries[1].Lapses = 0 }},
		{"each double execution is explained", func(e *flowEvidence) { e.starts["t2 3"] = 0 }},
		{"each double execution is explained", func(e *flowEvidence) { e.starts = map[string]int{"t2 2": 2} }},
	} {
		e := goodFlow()
		if c.spoil(e); func() int { _, wrong := look(e); return wrong[c.invariant] }() == 0 {
			_, wrong := look(e)
			t.Errorf("it does not find that %q is violated: %v", c.invariant, wrong)
		}
	}
}
