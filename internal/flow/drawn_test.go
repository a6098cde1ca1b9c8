package flow

import (
	"testing"

	"github.com/postern-dev/postern/internal/machine"
	"github.com/postern-dev/postern/internal/machine/machinetest"
)

// beyond are the edges between two states of ours that the published diagram does not draw, each with its reason. An
// edge that stays where it is counts nothing there.
var beyond = map[string]map[machinetest.Move]string{
	"flow": {
		{From: "dispatched", To: "error"}: "its only job may be refused before it starts, and it may be cancelled",
	},
	"job": {
		{From: "dispatched", To: "error"}: "it is cancelled, or its transaction is refused, before a runner has it",
	},
}

// The published diagram is that of a flow, and its text gives a job the same statuses: each of its edges is in both
// tables.
func TestTheDrawnEdgesAreInTheTables(t *testing.T) {
	published := machinetest.PublishedIn(t, "../../testdata/diagrams.txt", "5-coordinator.md")
	if len(published.Diagrams) != 1 {
		t.Fatalf("%d diagrams, want 1", len(published.Diagrams))
	}
	for _, table := range []machine.Table{Flow, Job} {
		ours := map[machinetest.Move]bool{}
		for _, m := range machinetest.Edges(table) {
			if m.From != m.To {
				ours[m] = true
			}
		}
		for _, e := range published.Diagrams[0] {
			m := machinetest.Move{From: e.From, To: e.To}
			if e.To == machine.Outside { // an end
				continue
			}
			if e.From == machine.Outside {
				m.From = machine.Start
			}
			if !ours[m] {
				t.Errorf("%s has no edge from %s to %s", table.Name, e.From, e.To)
			}
			delete(ours, m)
		}
		for m := range ours {
			if beyond[table.Name][m] == "" {
				t.Errorf("the design draws no edge from %s to %s, which %s has: say why", m.From, m.To, table.Name)
			}
		}
		if len(ours) != len(beyond[table.Name]) {
			t.Errorf("%s has %d edges beyond the design, and %d are explained", table.Name, len(ours),
				len(beyond[table.Name]))
		}
	}
}
