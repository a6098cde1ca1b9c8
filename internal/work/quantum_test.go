package work_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remotetest"
)

// A queue whose calls are slow gives its place to who waits, after a quarter of a second of calls; one that waits for
// commits keeps it.
func TestAQuantumIsOfCalls(t *testing.T) {
	for name, c := range map[string]struct {
		call, commit time.Duration
		keeps        bool
	}{
		"slow calls":   {130 * time.Millisecond, 0, false},
		"slow commits": {0, 130 * time.Millisecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.dispatcher("T", nil)
			h.fake.Script(dispatches, remotetest.Done("ok").Slow(c.call))
			_, err := h.s.Pool().Exec(h.ctx, fmt.Sprintf(`CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(%f); RETURN NULL; END $$;
				CREATE TRIGGER slow AFTER INSERT ON postern.outcome EXECUTE FUNCTION slow()`, c.commit.Seconds()))
			h.must(err)
			ids := h.post("first", "T", "1", "2", "3", "4", "5", "6")
			ids = append(ids, h.post("second", "T", "other")...)
			h.engine("n1", func(c *parts) { c.Concurrency = 1 })
			h.await(ids, 20*time.Second, outbox.DONE)
			at := slices.IndexFunc(h.fake.Calls(dispatches), func(s remotetest.Seen) bool {
				return s.Queue == "second"
			})
			if keeps := at == 6; keeps != c.keeps {
				t.Errorf("the other queue was called after %d of the first", at)
			}
		})
	}
}
