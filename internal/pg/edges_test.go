package pg_test

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/machine"
	"github.com/postern-dev/postern/internal/sequencer"
	"github.com/postern-dev/postern/migrations"
)

// phasesOf are the phases under which the rows of queues keep a state of seed 2 (S2.3).
func phasesOf(state string) []string {
	switch state {
	case "FREE":
		return []string{"IDLE", "READY", "HELD"}
	case "BLOCKED":
		return []string{"DISPATCHING"}
	}
	return []string{state}
}

func TestTheSchemaAllowsTheEdgesOfTheMachinesAndNoOther(t *testing.T) {
	text, err := fs.ReadFile(migrations.FS, "00025_edges.sql")
	ok(t, err)
	for _, want := range []string{
		machine.CheckSQL(sequencer.Queue, "was", "phase", phasesOf),
		machine.CheckSQL(sequencer.Transaction, "was", "state", nil),
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("migrations/00025_edges.sql, or a migration after it, should say\n%s", want)
		}
	}
}
