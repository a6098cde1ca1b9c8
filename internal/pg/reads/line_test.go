package reads_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/reads"
)

// line is what of a queue goes out next, by uids.
func (w *world) line(queue string, most int) string {
	w.T.Helper()
	list, err := w.S.Reads.Line(w.Ctx, w.ID, queue, most)
	w.Must(err)
	var uids []string
	for _, t := range list {
		uids = append(uids, t.UID)
	}
	return strings.Join(uids, " ")
}

// A line stands as it goes out: those that were placed at their places, and nothing that has ended.
func TestALineStandsAsItGoesOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	ids := w.Post("q", "T", "a", "b", "c", "d", "e", "f")
	w.Post("other", "T", "x")
	for _, step := range []struct {
		do   func() (pg.LeverResult, error)
		want string
	}{
		{func() (pg.LeverResult, error) { return w.S.Move(w.Ctx, w.By, ids[4], pg.Place{}) }, "e a b c d f"},
		{func() (pg.LeverResult, error) { return w.S.Move(w.Ctx, w.By, ids[0], pg.Place{After: &ids[3]}) },
			"e b c d a f"},
		{func() (pg.LeverResult, error) { return w.S.Cancel(w.Ctx, w.By, ids[2]) }, "e b d a f"},
		{func() (pg.LeverResult, error) { return w.S.Cancel(w.Ctx, w.By, ids[4]) }, "b d a f"},
	} {
		w.Lever(step.do())
		if got := w.line("q", 20); got != step.want {
			t.Errorf("the line is %q, want %q", got, step.want)
		}
		if got, want := w.line("q", 2), strings.Join(strings.Fields(step.want)[:2], " "); got != want {
			t.Errorf("the first two are %q, want %q", got, want)
		}
	}
	if _, err := w.S.Reads.Line(w.Ctx, w.ID, "none", 1); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a queue that is not there: %v", err)
	}
}

// The first of a long line are read alone.
func TestALongLineIsNotReadThrough(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	var uids []string
	for i := range 3000 {
		uids = append(uids, fmt.Sprint(i))
	}
	ids := w.Post("q", "T", uids...)
	_, err := w.S.Pool().Exec(w.Ctx, `ANALYZE postern.task, postern.mark, postern.outcome`)
	w.Must(err)
	w.Lever(w.S.Move(w.Ctx, w.By, ids[2999], pg.Place{}))
	if got := w.line("q", 3); got != "2999 0 1" {
		t.Errorf("the line is %q", got)
	}
	plan := w.Plan(true, reads.LineSQL, w.ID, "q", 20)
	for _, m := range regexp.MustCompile(`(?:actual rows=|Rows Removed by .*: )(\d+)`).FindAllStringSubmatch(plan, -1) {
		if len(m[1]) > 2 {
			t.Fatalf("it reads %s\n%s", m[0], plan)
		}
	}
}
