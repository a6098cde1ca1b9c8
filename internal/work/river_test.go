package work_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remotetest"
	"github.com/postern-dev/postern/internal/work"
)

// What a process posts is dispatched by a job of River's in that process: one for all of a burst, however many posts it has.
func TestAJobOfRiverDispatches(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.dispatcher("mint", nil)
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch}, remotetest.Done("ok"))
	h.engine("one", func(c *work.Config) { c.Store = h.s })
	var all []outbox.ID
	for i := range 200 {
		all = append(all, h.post(fmt.Sprint("q-", i%20), "mint", fmt.Sprint(i))...)
	}
	h.await(all, 10*time.Second, outbox.DONE)
	running, others := 0, 0
	h.must(h.db.Pool.QueryRow(h.ctx, `SELECT count(*) FILTER (WHERE state = 'running' AND queue = 'node_' || (SELECT node_id FROM postern.node)),
		count(*) FILTER (WHERE state <> 'running') FROM river.river_job WHERE kind = 'dispatch'`).Scan(&running, &others))
	if running != 1 || others > 20 {
		t.Errorf("%d jobs carry the claims of the one process, and %d more were made for 200 posts", running, others)
	}
}

// Losing every job of River's costs time, and nothing else: neither in the process that posts nor in another.
func TestWhatJobsWouldDispatchGoesOutWithoutThem(t *testing.T) {
	t.Parallel()
	for _, second := range []bool{false, true} {
		t.Run(map[bool]string{false: "in one process", true: "from another process"}[second], func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			_, err := h.db.Pool.Exec(h.ctx, `CREATE FUNCTION river.lose() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
				CREATE TRIGGER lose BEFORE INSERT ON river.river_job FOR EACH ROW WHEN (NEW.kind = 'dispatch') EXECUTE FUNCTION river.lose()`)
			h.must(err)
			h.dispatcher("mint", nil)
			h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch}, remotetest.Done("ok"))
			if second {
				h.engine("one", nil)
			} else {
				h.engine("one", func(c *work.Config) { c.Store = h.s })
			}
			for round := range 3 {
				var uids []string
				for i := range 30 {
					uids = append(uids, fmt.Sprint(round, "-", i))
				}
				h.await(h.post(fmt.Sprint("q", round), "mint", uids...), 10*time.Second, outbox.DONE)
			}
			var jobs int
			h.must(h.db.Pool.QueryRow(h.ctx, `SELECT count(*) FROM river.river_job WHERE kind = 'dispatch'`).Scan(&jobs))
			if jobs > 0 {
				t.Errorf("%d jobs were there after all", jobs)
			}
		})
	}
}
