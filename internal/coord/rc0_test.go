package coord

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/machine"
)

// vectors lie beside the checkout: they are of others.
const vectors = "../../../shared/vectors/paladin"

func vector(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(vectors, name))
	if err != nil {
		t.Skipf("the vectors are not beside this checkout: %v", err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

// spelled are names of the reference that the design spells otherwise.
var spelled = map[string]string{
	"Confirming_Dispatchable":    string(ConfirmingDispatch),
	"SubmissionPrepared":         string(Dispatched),
	"DispatchRequestApproved":    string(OnDispatchConfirmed),
	"PreDispatchRequestReceived": string(OnConfirmationRequestReceived),
	"Delegate_Timeout":           string(OnDelegateTimeout),
	"Initial":                    machine.Start,
}

func ours(name string) string {
	for _, prefix := range []string{"common.", "State_", "Event_"} {
		name = strings.TrimPrefix(name, prefix)
	}
	if other, ok := spelled[name]; ok {
		return other
	}
	return name
}

// left are lines of the reference that our tables lack, each with its reason.
var left = map[string]string{
	"coordinator_transaction:  Received Submitted":                      "S3.9: it keeps its row",
	"coordinator_transaction: Ready_For_Dispatch Dispatched Dispatched": "S3.9: the design calls the event Collected",
	"coordinator_transaction: Dispatched Collected Dispatched":          "S3.9: one state in the design",
	"originator_transaction: Reverted AssembleRequestReceived":          "S3.11: answered beside the table",
}

func TestTheReferencesLinesAreInTheTables(t *testing.T) {
	unused := maps.Clone(left)
	for file, table := range map[string]machine.Table{
		"rc0_originator.json":     Originator,
		"rc0_originator_tx.json":  OriginatorTransaction,
		"rc0_coordinator.json":    Coordinator,
		"rc0_coordinator_tx.json": CoordinatorTransaction,
	} {
		var read struct {
			States map[string]struct {
				Events map[string]struct {
					Transitions []struct{ To string }
				}
			}
		}
		vector(t, file, &read)
		for s, state := range read.States {
			for e, event := range state.Events {
				from, on := ours(s), ours(e)
				if file == "rc0_originator_tx.json" && from == string(Gathering) {
					from = string(EndorsementGathering)
				}
				knows := slices.ContainsFunc(table.Rules, func(r machine.Rule) bool {
					return r.From == from && r.On == on
				})
				line := table.Name + ": " + from + " " + on
				if _, listed := left[line]; !knows && !listed && len(event.Transitions) == 0 {
					t.Errorf("%s is unknown", line)
				}
				delete(unused, line)
				for _, to := range event.Transitions {
					target := ours(to.To)
					if file == "rc0_originator_tx.json" && target == string(Gathering) {
						target = string(EndorsementGathering)
					}
					_, listed := left[line+" "+target]
					delete(unused, line+" "+target)
					if !has(table, machine.Edge{From: from, To: target, Label: on}) && !listed {
						t.Errorf("%s does not lead to %s", line, target)
					}
				}
			}
		}
	}
	for line := range unused {
		t.Errorf("%q is listed, and is no line of the reference", line)
	}
}

func TestThePriorityOfNodesIsTheReferences(t *testing.T) {
	var read struct {
		Cases []struct {
			Pool                 []string
			EffectiveBlockHeight int64
			Priority             []string
		}
	}
	vector(t, "coordinator_priority.json", &read)
	if len(read.Cases) < 15 {
		t.Fatalf("%d cases", len(read.Cases))
	}
	for _, c := range read.Cases {
		if got := Priority(c.Pool, c.EffectiveBlockHeight); !slices.Equal(got, c.Priority) {
			t.Errorf("%v at %d: %v, want %v", c.Pool, c.EffectiveBlockHeight, got, c.Priority)
		}
		reversed := slices.Clone(c.Pool)
		slices.Reverse(reversed)
		if got := Priority(append(reversed, c.Pool...), c.EffectiveBlockHeight); !slices.Equal(got, c.Priority) {
			t.Errorf("%v at %d depends on the order of the pool: %v", c.Pool, c.EffectiveBlockHeight, got)
		}
	}
}

func TestTheEffectiveHeightIsTheFirstOfItsRange(t *testing.T) {
	for _, c := range [][3]int64{{0, 100, 0}, {9, 10, 0}, {10, 10, 10}, {99, 100, 0}, {1099, 100, 1000}} {
		if got := EffectiveHeight(c[0], c[1]); got != c[2] {
			t.Errorf("%d of %d: %d, want %d", c[0], c[1], got, c[2])
		}
	}
}
