package pg_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/pg"
)

// A move looks at the neighbours of its place, and not at all that waits.
func TestAMoveInALongQueueLooksAtNeighboursAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	var uids []string
	for i := range 5000 {
		uids = append(uids, fmt.Sprint(i))
	}
	ids := w.Post("q", "T", uids...)
	_, err := w.S.Pool().Exec(w.Ctx, `ANALYZE postern.task, postern.mark, postern.outcome`)
	w.Must(err)
	w.Lever(w.S.Move(w.Ctx, w.By, ids[4999], pg.Place{}))
	for _, to := range []pg.Place{{}, {Before: &ids[2500]}, {After: &ids[4000]}} {
		anchor, after := int64(0), to.After != nil
		if to.Before != nil {
			anchor = to.Before.Seq
		} else if to.After != nil {
			anchor = to.After.Seq
		}
		plan := w.Plan(true, pg.PlaceSQL, ids[0].Queue, int64(1), ids[0].Day.Time(),
			ids[3000].Seq, anchor, after, int64(5001))
		shape := regexp.MustCompile(`(?:actual rows=|Rows Removed by .*: )(\d+)`)
		for _, m := range shape.FindAllStringSubmatch(plan, -1) {
			if len(m[1]) > 1 {
				t.Errorf("the move to %+v reads more than neighbours: %s\n%s", to, m[0], plan)
				break
			}
		}
		w.Lever(w.S.Move(w.Ctx, w.By, ids[3000], to))
	}
}

// What an application's session asks for the place of an id reads outcomes by their key, however many there are.
func TestThePlaceOfAnIDIsFoundByKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	id := w.Post("q", "T", "a")[0]
	w.Exec(`INSERT INTO postern.outcome (queue_id, seq, day, context_id, was, state)
		SELECT $1 + n, 1, $2, 1, 'WAITING', 'CANCELLED' FROM generate_series(1, 20000) n`, id.Queue, id.Day.Time())
	w.Exec(`ANALYZE postern.outcome`)
	plan := w.Plan(false, `SELECT * FROM postern.place_of(1, $1)`, id.String())
	if !strings.Contains(plan, "outcome") || strings.Contains(plan, "Seq Scan on outcome") {
		t.Error(plan)
	}
}
