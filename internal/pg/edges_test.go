package pg_test

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/machine/machinetest"
	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/processor"
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
	for _, c := range []struct{ file, edges string }{
		{"00022_queue.sql", machinetest.CheckSQL(sequencer.Queue, "was", "phase", phasesOf)},
		{"00023_task.sql", machinetest.CheckSQL(sequencer.Transaction, "was", "state", nil)},
		{"00040_processor.sql", machinetest.CheckSQL(processor.Machine, "was", "state", nil)},
		{"00042_source.sql", machinetest.CheckSQL(leader.Event, "was", "status", nil)},
		{"00048_job.sql", machinetest.CheckSQL(flow.Job, "was", "status", nil)},
		{"00048_job.sql", machinetest.CheckSQL(flow.Flow, "was", "status", nil)},
		{"00053_far_job.sql", machinetest.CheckSQL(flow.Try, "was", "state", nil)},
		{"00050_message.sql", machinetest.CheckSQL(message.Message, "was", "status", nil)},
		{"00052_domain.sql", machinetest.CheckSQL(coord.OriginatorTransaction, "was", "state", nil)},
		{"00052_domain.sql", machinetest.CheckSQL(coord.CoordinatorTransaction, "was", "state", nil)},
	} {
		text, err := fs.ReadFile(migrations.FS, c.file)
		pgworld.OK(t, err)
		if !strings.Contains(string(text), c.edges) {
			t.Errorf("migrations/%s should say\n%s", c.file, c.edges)
		}
	}
}
