package coord

import (
	"flag"
	"maps"
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
	machinetest.Page(t, Tables(), Meanings, *update)
}
