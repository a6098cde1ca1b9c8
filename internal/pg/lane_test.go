package pg_test

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
)

// A lane that cannot be made is told by what went wrong, and is not tried again and again.
func TestALaneThatCannotBeMadeSaysWhy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", func(d *outbox.Dispatcher) { d.Exclusive = "type" })
	w.Exec(`CREATE FUNCTION public.refuse_lane() RETURNS trigger LANGUAGE plpgsql
		AS $$ BEGIN RAISE 'no lanes today' USING ERRCODE = '53100'; END $$`)
	w.Exec(`CREATE TRIGGER refused BEFORE INSERT ON postern.lane FOR EACH ROW EXECUTE FUNCTION public.refuse_lane()`)
	out, err := w.S.Ingest(w.Ctx, []*pg.Submission{w.Sub("q", "T", "a")}, false)
	if err == nil && len(out) == 1 {
		err = out[0].Err
	}
	if fault.CodeOf(err) != "disk_full" || strings.Contains(err.Error(), "in the way") {
		t.Errorf("%v (%s), want disk_full", err, fault.CodeOf(err))
	}
}
