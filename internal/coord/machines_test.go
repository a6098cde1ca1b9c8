package coord

import (
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/machine"
	"github.com/postern-dev/postern/internal/machine/machinetest"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

func TestTheTablesAreSound(t *testing.T) {
	for _, table := range Tables() {
		if err := table.Check(); err != nil {
			t.Error(err)
		}
		for _, s := range table.States() {
			if Meanings[table.Name+"."+s] == "" {
				t.Errorf("%s.%s has no meaning", table.Name, s)
			}
		}
	}
	for key := range Meanings {
		name, state, _ := strings.Cut(key, ".")
		if !slices.ContainsFunc(Tables(), func(m machine.Table) bool {
			return m.Name == name && slices.Contains(m.States(), state)
		}) {
			t.Errorf("%q has a meaning, but no table has that state", key)
		}
	}
}

func bound[T any](t *testing.T, b binding[T]) {
	t.Helper()
	for _, c := range []struct {
		what        string
		named, have []string
	}{
		{"guard", b.table.Guards(), slices.Collect(maps.Keys(b.guards))},
		{"effect", b.table.Effects(), slices.Collect(maps.Keys(b.effects))},
	} {
		for _, n := range c.named {
			if !slices.Contains(c.have, n) {
				t.Errorf("%s: %s %s is named, but bound to nothing", b.table.Name, c.what, n)
			}
		}
		for _, n := range c.have {
			if !slices.Contains(c.named, n) {
				t.Errorf("%s: %s %s is bound, but not named", b.table.Name, c.what, n)
			}
		}
	}
}

func TestEveryNameIsBoundAndEveryBindingUsed(t *testing.T) {
	bound(t, originators)
	bound(t, intents)
	bound(t, coordinators)
	bound(t, works)
}

func TestThePageBesideTheCodeIsRenderedFromTheTables(t *testing.T) {
	page, err := machine.Markdown(Tables(), Meanings)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("machine.md", []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := os.ReadFile("machine.md")
	if err != nil || string(stored) != page {
		t.Errorf("machine.md is not what the tables say (%v): run this test with -update and read the diff", err)
	}
	ds, err := machinetest.ParseMarkdown(page)
	if err != nil || len(ds) != len(Tables()) {
		t.Fatalf("the page has %d diagrams that can be read, %v; want %d", len(ds), err, len(Tables()))
	}
	for i, d := range ds {
		if !slices.Equal(d.Edges, machine.Arrows(Tables()[i])) {
			t.Errorf("the diagram of %s does not have the edges of its table", Tables()[i].Name)
		}
	}
}
