package machinetest

import (
	"os"
	"slices"
	"testing"

	"github.com/postern-dev/postern/internal/machine"
)

// Sound checks each table by itself.
func Sound(t *testing.T, tables []machine.Table) {
	t.Helper()
	for _, table := range tables {
		if err := table.Check(); err != nil {
			t.Error(err)
		}
	}
}

// Page compares machine.md, which lies beside the code, with what the tables say, and the diagrams in it with their
// edges. With update it writes the page first. A state without a meaning is an error.
func Page(t *testing.T, tables []machine.Table, meanings map[string]string, update bool) {
	t.Helper()
	page, err := machine.Markdown(tables, meanings)
	if err != nil {
		t.Fatal(err)
	}
	if update {
		if err := os.WriteFile("machine.md", []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := os.ReadFile("machine.md")
	if err != nil || string(stored) != page {
		t.Errorf("machine.md is not what the tables say (%v): run this test with -update and read the diff", err)
	}
	ds, err := ParseMarkdown(page)
	if err != nil || len(ds) != len(tables) {
		t.Fatalf("the page has %d diagrams that can be read, %v; want %d", len(ds), err, len(tables))
	}
	for i, d := range ds {
		if !slices.Equal(d.Edges, machine.Arrows(tables[i])) {
			t.Errorf("the diagram of %s does not have the edges of its table", tables[i].Name)
		}
	}
}
