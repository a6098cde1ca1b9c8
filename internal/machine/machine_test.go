package machine_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/machine"
	"github.com/postern-dev/postern/internal/machine/machinetest"
)

// door is small, has a birth, a guard, a stay and an end.
var door = machine.Table{
	Name: "door", Follows: "none", Initial: "Shut", Terminal: []string{"Broken"},
	Events: []string{"Built", "Push", "Kick"},
	Rules: []machine.Rule{
		{From: machine.Start, On: "Built", To: "Shut"},
		{From: "Shut", On: "Push", When: "unlocked", To: "Open", Do: []string{"creak"}},
		{From: "Shut", On: "Push", When: "rusty", To: "Shut"},
		{From: "Shut", On: "Kick", When: "weak", To: "Broken", Do: []string{"creak", "shout"}},
		{From: "Shut", On: "Kick", To: "Open"},
		{From: "Open", On: "Push", To: "Shut"},
	},
}

func holds(names ...string) func(string) bool {
	return func(name string) bool { return slices.Contains(names, name) }
}

func TestTheFirstRuleThatMatchesWins(t *testing.T) {
	for _, c := range []struct {
		from, on string
		true     []string
		to       string
		do       []string
	}{
		{"Shut", "Kick", []string{"weak"}, "Broken", []string{"creak", "shout"}},
		{"Shut", "Kick", nil, "Open", nil},
		{"Shut", "Push", []string{"unlocked", "rusty"}, "Open", []string{"creak"}},
		{"Shut", "Push", nil, "Shut", nil}, // known, no guard holds: it stays
		{machine.Start, "Built", nil, "Shut", nil},
	} {
		r, err := door.Next(c.from, c.on, holds(c.true...))
		if err != nil || r.To != c.to || !slices.Equal(r.Do, c.do) {
			t.Errorf("%s in %q with %v leads to %+v, %v; want %s doing %v", c.on, c.from, c.true, r, err, c.to, c.do)
		}
	}
}

func TestAnUnknownPairIsAnErrorThatNamesIt(t *testing.T) {
	for _, c := range [][2]string{{"Open", "Kick"}, {"Broken", "Push"}, {"Gone", "Push"}, {machine.Start, "Push"}} {
		_, err := door.Next(c[0], c[1], holds())
		var illegal *machine.Illegal
		if !errors.As(err, &illegal) || *illegal != (machine.Illegal{Table: "door", State: c[0], Event: c[1]}) {
			t.Errorf("%s in %q gives %v, want Illegal", c[1], c[0], err)
		}
	}
	if got := (&machine.Illegal{Table: "door", Event: "Push"}).Error(); got != "door: event Push means nothing in no state" {
		t.Error(got)
	}
}

func TestCheckAcceptsASoundTableAndNamesEveryFault(t *testing.T) {
	if err := door.Check(); err != nil {
		t.Fatal(err)
	}
	rule := func(from, on, when, to string) machine.Rule {
		return machine.Rule{From: from, On: on, When: when, To: to}
	}
	for _, c := range []struct {
		want  string
		spoil func(*machine.Table)
	}{
		{"needs a name", func(t *machine.Table) { t.Name = "" }},
		{"needs a name and an initial state", func(t *machine.Table) { t.Initial = "" }},
		{"nothing is born in the initial state Open", func(t *machine.Table) { t.Initial = "Open" }},
		{"two rules for Shut on Kick when \"weak\"", func(t *machine.Table) { t.Rules = append(t.Rules, rule("Shut", "Kick", "weak", "Open")) }},
		{"is hidden behind one without guard", func(t *machine.Table) { t.Rules = append(t.Rules, rule("Shut", "Kick", "strong", "Shut")) }},
		{"nothing reaches state Ajar", func(t *machine.Table) { t.Rules = append(t.Rules, rule("Ajar", "Push", "", "Shut")) }},
		{"terminal state Broken is left", func(t *machine.Table) { t.Rules = append(t.Rules, rule("Broken", "Push", "", "Shut")) }},
		{"nothing leaves state Broken: declare it terminal", func(t *machine.Table) { t.Terminal = nil }},
		{"terminal state Lost is in no rule", func(t *machine.Table) { t.Terminal = append(t.Terminal, "Lost") }},
		{"event Ring is declared, but no rule uses it", func(t *machine.Table) { t.Events = append(t.Events, "Ring") }},
		{"event Push is declared twice", func(t *machine.Table) { t.Events = append(t.Events, "Push") }},
		{"event Ring is not declared", func(t *machine.Table) { t.Rules = append(t.Rules, rule("Open", "Ring", "", "Shut")) }},
		{"lacks its event or its target", func(t *machine.Table) { t.Rules = append(t.Rules, rule("Open", "Kick", "", "")) }},
	} {
		spoilt := door
		spoilt.Rules, spoilt.Terminal, spoilt.Events = slices.Clone(door.Rules), slices.Clone(door.Terminal), slices.Clone(door.Events)
		c.spoil(&spoilt)
		if err := spoilt.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Check says %v, want %q in it", err, c.want)
		}
	}
}

func TestATableTellsItsStatesGuardsEffectsAndEdges(t *testing.T) {
	if got := door.States(); !slices.Equal(got, []string{"Shut", "Open", "Broken"}) {
		t.Errorf("states %v", got)
	}
	if got := door.Guards(); !slices.Equal(got, []string{"unlocked", "rusty", "weak"}) {
		t.Errorf("guards %v", got)
	}
	if got := door.Effects(); !slices.Equal(got, []string{"creak", "shout"}) {
		t.Errorf("effects %v", got)
	}
	want := []machinetest.Move{
		{From: "", To: "Shut"},
		{From: "Shut", To: "Open"},
		{From: "Shut", To: "Shut"},
		{From: "Shut", To: "Broken"},
		{From: "Open", To: "Shut"},
	}
	if got := machinetest.Edges(door); !slices.Equal(got, want) {
		t.Errorf("edges %v, want %v", got, want)
	}
}

func TestTheCheckOfLegalEdgesIsALiteral(t *testing.T) {
	odd := machine.Table{Rules: []machine.Rule{{From: machine.Start, To: "A"}, {From: "A", To: "it's"}, {From: "A", To: "it's", When: "x"}}}
	if got, want := machinetest.CheckSQL(odd, "from_state", "to_state", nil), "CASE from_state WHEN '' THEN to_state IN ('A') WHEN 'A' THEN to_state IN ('it''s') ELSE false END"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestADiagramParsesBackToTheEdgesItWasRenderedFrom(t *testing.T) {
	unborn := door
	unborn.Rules = door.Rules[1:]
	for _, table := range []machine.Table{door, unborn} {
		d, err := machinetest.ParseMermaid(machine.Mermaid(table))
		if err != nil {
			t.Fatal(err)
		}
		if want := machine.Arrows(table); !slices.Equal(d.Edges, want) {
			t.Errorf("read %v, want %v", d.Edges, want)
		}
		if d.Kind != "stateDiagram-v2" || d.Direction != "LR" {
			t.Errorf("read kind %q, direction %q", d.Kind, d.Direction)
		}
	}
}

func TestAPageNeedsAMeaningForEveryState(t *testing.T) {
	meanings := map[string]string{"door.Shut": "closed", "door.Open": "lets people through"}
	if _, err := machine.Markdown([]machine.Table{door}, meanings); err == nil || !strings.Contains(err.Error(), "state Broken") {
		t.Errorf("a state without meaning gives %v", err)
	}
	meanings["door.Broken"] = "for good"
	page, err := machine.Markdown([]machine.Table{door}, meanings)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"## door", "| Broken | for good |", "| - | Built |  | Shut |  |", "| Shut | Kick | weak | Broken | creak, shout |"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	ds, err := machinetest.ParseMarkdown(page)
	if err != nil || len(ds) != 1 || !reflect.DeepEqual(ds[0].Edges, machine.Arrows(door)) {
		t.Errorf("the page's diagram reads back as %v, %v", ds, err)
	}
}
