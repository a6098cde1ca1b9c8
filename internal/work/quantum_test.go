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
			for round := 0; ; round++ {
				keeps := h.keepsItsPlace(round)
				if keeps == c.keeps {
					return
				}
				if keeps || round == 20 { // calls may take long though their worker is quick: where the machine is busy
					t.Fatalf("a queue keeps its place: %t", keeps)
				}
			}
		})
	}
}

// keepsItsPlace says whether six transactions of one queue are called before that of another.
func (h *house) keepsItsPlace(round int) bool {
	h.t.Helper()
	before := len(h.fake.Calls(dispatches))
	var uids []string
	for i := range 6 {
		uids = append(uids, fmt.Sprint(round, "-", i))
	}
	first, second := fmt.Sprint("first-", round), fmt.Sprint("second-", round)
	ids := append(h.post(first, "T", uids...), h.post(second, "T", fmt.Sprint(round, "-other"))...)
	stop := h.engine(fmt.Sprint("n", round), func(c *parts) { c.Concurrency = 1 })
	h.await(ids, soon, outbox.DONE)
	stop()
	return slices.IndexFunc(h.fake.Calls(dispatches)[before:], func(s remotetest.Seen) bool {
		return s.Queue == second
	}) == 6
}
