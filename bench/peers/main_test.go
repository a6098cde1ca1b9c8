package main

import (
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/devpg"
)

func TestMain(m *testing.M) {
	devpg.MaybeChild()
	if len(os.Args) > 1 && os.Args[1] == workerCommand {
		os.Exit(riverWorker(os.Args[2:]))
	}
	os.Exit(m.Run())
}

func testComparison(t *testing.T) *comparison {
	t.Helper()
	b, err := open(t.Context(), time.Minute, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.close)
	return b
}

// Every system that can be had finishes tiny scenarios, and nothing that it promised is broken.
func TestEverySystemFinishesWhatItIsComparedIn(t *testing.T) {
	b := testComparison(t)
	scenarios, err := parseScenarios("fifo-20x3,e2e-20x3")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range scenarios {
		list, err := b.measure(t.Context(), c, systems, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range list {
			t.Run(c.name+"/"+l.System, func(t *testing.T) {
				for _, why := range []string{"skipped: ", "could not be had: "} {
					if strings.HasPrefix(l.Note, why) {
						t.Skip(l.Note)
					}
				}
				if l.Violations != 0 || l.Rate == nil || *l.Rate <= 0 || l.Runs != 1 {
					t.Fatalf("%+v: want one run with a rate and without violations", l)
				}
				if l.System == ours && (l.Ratio == nil || l.BestPeer == "") {
					t.Errorf("%+v: want a ratio to the best peer", l)
				}
			})
		}
	}
}

func TestTheServerIsThatOfPosternBench(t *testing.T) {
	text, err := os.ReadFile(repository + "/internal/bench/bench.go")
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(text), "var ServerSettings = map[string]string{")
	literal, _, closed := strings.Cut(after, "}")
	if !ok || !closed {
		t.Fatal("internal/bench/bench.go has no ServerSettings any more: compare with what took its place")
	}
	theirs := map[string]string{}
	for _, m := range regexp.MustCompile(`"(\w+)":\s*"(\w+)"`).FindAllStringSubmatch(literal, -1) {
		theirs[m[1]] = m[2]
	}
	if !maps.Equal(theirs, serverSettings) {
		t.Errorf("postern bench runs on %v, its peers on %v", theirs, serverSettings)
	}
}

// A worker that cannot finish in time is told by what it finished.
func TestARunThatIsCutShortIsToldByWhatItDid(t *testing.T) {
	b := testComparison(t)
	b.limit = 1500 * time.Millisecond
	chosen, err := pick("river-queue-per-key")
	if err != nil {
		t.Fatal(err)
	}
	run, err := b.try(t.Context(), chosen[0], scenario{name: "slow", kind: fifo, keys: 1, depth: 50}, 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	v := run.verdict
	if run.short == "" || v.ended < 1 || v.ended >= 50 || v.violations() != 0 || run.rate <= 0 {
		t.Fatalf("got %+v: want a few of 50, a rate, and nothing missing", run)
	}
}
