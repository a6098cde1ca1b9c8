package work_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remotetest"
	"github.com/postern-dev/postern/internal/work"
)

// A job of River's dispatches what its process posts: one job for all of a burst, however many posts it has.
func TestAJobOfRiverDispatches(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.dispatcher("mint", nil)
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch}, remotetest.Done("ok"))
	h.engine("one", func(c *parts) { c.Store = h.s })
	var ids []outbox.ID
	for i := range 200 {
		ids = append(ids, h.post(fmt.Sprint("q-", i%20), "mint", fmt.Sprint(i))...)
	}
	h.await(ids, soon, outbox.DONE)
	running, all := 0, 0
	for end := time.Now().Add(soon); ; time.Sleep(50 * time.Millisecond) { // River notes the ends of jobs now and then
		h.must(h.db.Pool.QueryRow(h.ctx, `SELECT count(*) FILTER (WHERE state = 'running' AND queue = 'node_' || (SELECT node_id FROM postern.node)), count(*)
			FROM river.river_job WHERE kind = 'dispatch'`).Scan(&running, &all))
		if running == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d jobs carry the claims of the one process", running)
		}
	}
	if all > 20 {
		t.Errorf("%d jobs were made for 200 posts", all)
	}
}

// A job is due by any clock: a database whose clock is an hour behind that of a process lets its jobs run at once.
func TestJobsAreDueByAnyClock(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.dispatcher("mint", nil)
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch}, remotetest.Done("ok"))
	h.engine("one", nil)
	h.await(h.post("q", "mint", "a"), time.Minute, outbox.DONE)
	var jobs, late int
	for end := time.Now().Add(time.Minute); jobs == 0 && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		h.must(h.db.Pool.QueryRow(h.ctx, `
			SELECT count(*), count(*) FILTER (WHERE scheduled_at > now() - interval '1 day')
			FROM river.river_job
			WHERE attempt <= 1 AND kind IN ('callback', 'include', 'retry', 'dispatch')`).Scan(&jobs, &late))
	}
	if jobs == 0 || late > 0 {
		t.Errorf("of %d jobs %d are due by the clock of this process", jobs, late)
	}
}

// Without the jobs that dispatch it takes longer, and nothing else: neither in the process that posts nor in another.
func TestWhatJobsWouldDispatchGoesOutWithoutThem(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		others bool
		insert string
	}{
		"lost in one process":          {insert: "RETURN NULL"},
		"lost on the way to another":   {insert: "RETURN NULL", others: true},
		"inserts fail in one process":  {insert: "RAISE EXCEPTION 'no'"},
		"inserts stand in one process": {insert: "PERFORM pg_sleep(60); RETURN NULL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			_, err := h.db.Pool.Exec(h.ctx, `CREATE FUNCTION river.lose() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN `+c.insert+`; END$$;
				CREATE TRIGGER lose BEFORE INSERT ON river.river_job FOR EACH ROW WHEN (NEW.kind = 'dispatch') EXECUTE FUNCTION river.lose()`)
			h.must(err)
			h.dispatcher("mint", nil)
			h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch}, remotetest.Done("ok"))
			if c.others {
				bell, err := work.InsertOnlyDoorbell(h.s.Pool(), slog.New(slog.DiscardHandler))
				h.must(err)
				h.s.Doorbell = bell.Ring
				h.engine("one", nil)
			} else {
				h.engine("one", func(c *parts) { c.Store = h.s })
			}
			for round := range 5 {
				var uids []string
				for i := range 30 {
					uids = append(uids, fmt.Sprint(round, "-", i))
				}
				h.await(h.post(fmt.Sprint("q", round), "mint", uids...), 30*time.Second, outbox.DONE)
			}
			var jobs int
			h.must(h.db.Pool.QueryRow(h.ctx, `SELECT count(*) FROM river.river_job WHERE kind = 'dispatch'`).Scan(&jobs))
			if jobs > 0 {
				t.Errorf("%d jobs were there after all", jobs)
			}
		})
	}
}
