package chaos

import (
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/merge"
	"github.com/postern-dev/postern/internal/pg/migrate"
)

// TestAStandbyIsNotMigrated: what writes to a database says of a standby that it is one, and names the next step.
func TestAStandbyIsNotMigrated(t *testing.T) {
	c := newCluster(t)
	c.start(c.main)
	c.backup(true)
	c.start(c.copy)
	refused := func(what string, err error) {
		t.Helper()
		if fault.CodeOf(err) != "read_only" || !strings.Contains(err.Error(), "let DATABASE_URL name the primary") {
			t.Errorf("%s on a standby: %v", what, err)
		}
	}
	must(t, migrate.Down(t.Context(), c.url(c.copy), func(string) {})) // there is nothing
	refused("migrate up", migrate.Up(t.Context(), c.url(c.copy), func(string) {}))
	must(t, migrate.Up(t.Context(), c.url(c.main), func(string) {}))
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) { // until all of it has arrived
		if migrate.Up(t.Context(), c.url(c.copy), func(string) {}) == nil { // there is nothing to do
			break
		}
		if time.Now().After(end) {
			t.Fatal("the standby does not follow")
		}
	}
	refused("migrate down", migrate.Down(t.Context(), c.url(c.copy), func(string) {}))
	_, err := merge.Run(t.Context(), c.url(c.copy), "", nil)
	refused("partitions merge", err)
}
