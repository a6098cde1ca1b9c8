package machinetest_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/postern-dev/postern/internal/machine/machinetest"
)

var update = flag.Bool("update", false, "write testdata/diagrams.txt from the published designs")

const (
	facts = "../../../testdata/diagrams.txt"
	head  = `# What the published designs say of states: the edges of their diagrams, and the states of those without.
# document, number of the diagram, composite state, region of it, from, to, event; or document, "state", name.
# go test ./internal/machine/machinetest -run TestTheFacts -update writes it from the designs.
`
)

// compared says which test holds a design against our tables, or why none does. A design without a line fails.
var compared = map[string]string{
	"1-leader.md":                "internal/leader: TestTheSeedsDiagramsAreInTheTable",
	"2-sequencer.md":             "internal/sequencer: TestTheSeedDrawsNoDiagramToCompareWith",
	"3-distributed-sequencer.md": "internal/coord: TestTheDrawnEdgesAreInTheTables",
	"4-processor.md":             "draws no states, and names none",
	"5-coordinator.md":           "internal/flow: TestTheDrawnEdgesAreInTheTables",
}

// The table has what the designs say, edge by edge, and is read as it is written.
func TestTheFactsAreThoseOfTheDesigns(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(seeds, "*.md"))
	if err != nil || len(pages) == 0 {
		t.Skip("the published designs are not beside this checkout: the table stands for them")
	}
	var list []machinetest.Published
	for _, path := range pages {
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		p, err := machinetest.Read(filepath.Base(path), string(page))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if compared[p.Document] == "" {
			t.Errorf("%s: which test compares it with our tables?", p.Document)
		}
		list = append(list, p)
	}
	want := head + machinetest.Facts(list)
	if *update {
		if err := os.WriteFile(facts, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(facts); err != nil || string(got) != want {
		t.Errorf("%s is not what the designs say (%v): run this test with -update and read the diff", facts, err)
	}
}

// The table is whole without the designs: it is written as it is read, and each design of it is compared or accounted
// for.
func TestTheTableOfFactsIsWhole(t *testing.T) {
	text, err := os.ReadFile(facts)
	if err != nil {
		t.Fatal(err)
	}
	list, err := machinetest.ReadFacts(string(text))
	if err != nil || head+machinetest.Facts(list) != string(text) {
		t.Fatalf("it is not written as it is read: %v", err)
	}
	edges := map[string][]int{}
	for _, p := range list {
		if compared[p.Document] == "" {
			t.Errorf("%s: which test compares it with our tables?", p.Document)
		}
		for _, d := range p.Diagrams {
			edges[p.Document] = append(edges[p.Document], len(d))
		}
	}
	for document, want := range map[string][]int{
		"1-leader.md":                {21, 16},
		"3-distributed-sequencer.md": {26, 5, 23, 11},
		"5-coordinator.md":           {9},
	} {
		if got := edges[document]; len(got) != len(want) {
			t.Errorf("%s has diagrams with %v edges, want %v", document, got, want)
			continue
		}
		for i, n := range want {
			if edges[document][i] != n {
				t.Errorf("diagram %d of %s has %d edges, want %d", i+1, document, edges[document][i], n)
			}
		}
	}
}
