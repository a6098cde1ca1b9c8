package pg_test

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/machine"
	"github.com/postern-dev/postern/internal/sequencer"
	"github.com/postern-dev/postern/migrations"
)

// phaseToState is how the migration names a stored phase as seed 2 names it (S2.3).
func phaseToState(column string) string {
	return "(CASE " + column + " WHEN 'DISPATCHING' THEN 'BLOCKED' WHEN 'IDLE' THEN 'FREE' WHEN 'READY' THEN 'FREE' WHEN 'HELD' THEN 'FREE' ELSE " + column + " END)"
}

func TestTheSchemaAllowsTheEdgesOfTheMachinesAndNoOther(t *testing.T) {
	text, err := fs.ReadFile(migrations.FS, "00025_edges.sql")
	ok(t, err)
	for _, want := range []string{
		machine.CheckSQL(sequencer.Queue, phaseToState("was"), phaseToState("phase")),
		machine.CheckSQL(sequencer.Transaction, "was", "state"),
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("migrations/00025_edges.sql, or a migration after it, should say\n%s", want)
		}
	}
}
