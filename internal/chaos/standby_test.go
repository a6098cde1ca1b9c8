package chaos

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/merge"
	"github.com/postern-dev/postern/internal/pg/migrate"
)

// TestAStandbyIsNotMigrated: what writes to a database says of a standby that it is one, and names the next step.
func TestAStandbyIsNotMigrated(t *testing.T) {
	c := newCluster(t)
	c.start(c.main)
	must(t, migrate.Up(t.Context(), c.url(c.main), func(string) {}))
	c.backup(true)
	c.start(c.copy)
	_, merged := merge.Run(t.Context(), c.url(c.copy), "", nil)
	for what, err := range map[string]error{
		"migrate up":       migrate.Up(t.Context(), c.url(c.copy), func(string) {}),
		"migrate down":     migrate.Down(t.Context(), c.url(c.copy), func(string) {}),
		"partitions merge": merged,
	} {
		if fault.CodeOf(err) != "read_only" || !strings.Contains(err.Error(), "let DATABASE_URL name the primary") {
			t.Errorf("%s on a standby: %v", what, err)
		}
	}
}
