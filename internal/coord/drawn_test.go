package coord

import (
	"slices"
	"testing"

	"github.com/postern-dev/postern/internal/machine"
	"github.com/postern-dev/postern/internal/machine/machinetest"
)

// redrawn are the edges of the published diagrams that our tables draw otherwise, each with its reason. A label that is
// drawn empty stands for any event.
var redrawn = map[machine.Edge]struct {
	as  machine.Edge
	why string
}{
	{From: "Pooled", To: "Assembling", Label: "AssembleRequestSent"}: {
		machine.Edge{From: "Pooled", To: "Assembling", Label: "Selected"},
		"S3.17: selecting a work and asking for it are one step",
	},
	{From: "Endorsement_Gathering", To: "Pooled", Label: "Rejected"}: {
		machine.Edge{From: "Endorsement_Gathering", To: "Pooled", Label: "EndorsedRejected"},
		"S3.17: the event is listed under this name",
	},
	{From: "Confirming_Dispatch", To: "[*]", Label: "DispatchConfirmationRejected"}: {
		machine.Edge{From: "Confirming_Dispatch", To: "Final", Label: "DispatchConfirmationRejected"},
		"S3.9: the row stays, and answers",
	},
	{From: "Reverted", To: "[*]", Label: "HeartbeatInterval"}: {
		machine.Edge{From: "Reverted", To: "Final", Label: "HeartbeatInterval"},
		"S3.9: the row stays, and answers",
	},
	{From: "Confirmed", To: "[*]", Label: "HeartbeatInterval"}: {
		machine.Edge{From: "Confirmed", To: "Final", Label: "HeartbeatInterval"},
		"S3.9: the row stays, and answers",
	},
}

// has says whether a table has an edge, whatever its guard.
func has(t machine.Table, e machine.Edge) bool {
	from := e.From
	if from == machine.Outside {
		from = machine.Start
	}
	return slices.ContainsFunc(t.Rules, func(r machine.Rule) bool {
		return r.From == from && r.To == e.To && (r.On == e.Label || e.Label == "")
	})
}

func TestTheDrawnEdgesAreInTheTables(t *testing.T) {
	published := machinetest.PublishedIn(t, "../../testdata/diagrams.txt", "3-distributed-sequencer.md")
	tables := []machine.Table{OriginatorTransaction, Originator, CoordinatorTransaction, Coordinator}
	if len(published.Diagrams) != len(tables) {
		t.Fatalf("%d diagrams, want %d", len(published.Diagrams), len(tables))
	}
	edges, used := map[machine.Edge]bool{}, 0
	for i, diagram := range published.Diagrams {
		for _, e := range diagram {
			edges[machine.Edge{From: tables[i].Name + "." + e.From, To: e.To, Label: e.Label}] = true
			if other, ok := redrawn[e]; ok && tables[i].Name == CoordinatorTransaction.Name {
				e = other.as
				used++
			}
			if !has(tables[i], e) {
				t.Errorf("%s has no edge from %s to %s by %s", tables[i].Name, e.From, e.To, e.Label)
			}
		}
	}
	if len(edges) != 64 || used != len(redrawn) {
		t.Errorf("%d edges, %d of them drawn otherwise; want 64 and %d", len(edges), used, len(redrawn))
	}
}
