package pg_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/deliveries"
	pgreads "github.com/postern-dev/postern/internal/pg/reads"
)

// A page of a list reads the partitions of sixty spans, whatever it looks for, and the next page those that follow:
// the statements of a page plan and lock no other partition.
func TestAPageReadsTheSpansOfItsWindow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.At(time.Date(w.Now.Year()+1, 5, 20, 12, 0, 0, 0, time.UTC))
	w.Dispatcher("T", nil)
	today := outbox.DayOf(w.Now)
	w.Exec(`SELECT postern.ensure_days($1::date, $2::date, 'week')`, (today - 200).Time(), (today + 10).Time())
	spans, err := db.ReadSpans(w.Ctx, w.S.Pool())
	w.Must(err)
	w.S.Remember(days(spans))
	for back := range outbox.Day(200) {
		w.Exec(`INSERT INTO postern.delivery
			(queue_id, seq, day, context_id, event, subscription_id, at, state, created_at)
			VALUES (1, $1, $2, $3, 'done', -1, $4, 'failed', $4)`, 1000-back, (today - back).Time(), w.ID, w.Now)
	}
	partition := regexp.MustCompile(`(?:task|outcome|delivery)_\d{8}(?:_\d{8})?\b`)
	read := func(sql string, args ...any) int {
		t.Helper()
		names := map[string]bool{}
		for _, line := range w.Lines(`EXPLAIN (COSTS OFF) `+sql, args...) {
			for _, name := range partition.FindAllString(line, -1) {
				_, of, _ := strings.Cut(name, "_")
				names[of] = true
			}
		}
		return len(names)
	}
	for name, f := range map[string]pgreads.ListFilter{"all": {}, "ended": {States: []string{"FAILED"}},
		"oldest": {Ascending: true}, "queues": {Queues: []string{"a", "b"}}} {
		f.Limit = 10
		sql, args, err := w.S.Reads.ListSQL(w.Ctx, w.ID, f)
		w.Must(err)
		days, _ := w.S.Below(0)
		if f.Ascending {
			days, _ = w.S.Above(0)
		}
		most := 0
		for _, s := range spans {
			if s.Last >= days.First && (days.Until == 0 || s.First < days.Until) {
				most++
			}
		}
		if n := read(sql, args...); n == 0 || n > most || most > len(spans)/2 {
			t.Errorf("%s: a page reads %d partitions of each table, want %d of %d:\n%s", name, n, most, len(spans), sql)
		}
	}
	for _, ascending := range []bool{false, true} {
		var seqs []int64
		pages := 0
		for from := (*db.Window)(nil); pages < 10; pages++ {
			days, following := w.S.Deliveries.DeliveryDays(nil, ascending, from)
			filter := deliveries.DeliveryFilter{Days: days, Ascending: ascending, Limit: 1000}
			list, err := w.S.Deliveries.Deliveries(w.Ctx, w.ID, filter)
			w.Must(err)
			for _, d := range list {
				seqs = append(seqs, d.ID.Seq)
			}
			if from = following; from == nil {
				break
			}
		}
		sorted := slices.Clone(seqs)
		if slices.Sort(sorted); !ascending {
			slices.Reverse(sorted)
		}
		if len(slices.Compact(sorted)) != 200 || !slices.Equal(seqs, sorted) || pages < 3 {
			t.Errorf("ascending %t: %d deliveries on %d pages: %v", ascending, len(seqs), pages, seqs)
		}
	}
}

// A transaction of long ago is on the first page, though the spans between are those of several windows: a page goes on
// with the next window while it is not full. A cursor that names more spans than a page reads is none of ours.
func TestAPageGoesOnWithTheNextWindow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.At(time.Date(w.Now.Year()+1, 5, 20, 12, 0, 0, 0, time.UTC))
	w.Dispatcher("T", nil)
	w.Post("q", "T", "old")
	old := w.Now.Add(time.Hour)
	w.At(w.Now.Add(200 * 24 * time.Hour))
	w.Post("p", "T", "new")
	today := outbox.DayOf(w.Now)
	w.Exec(`SELECT postern.ensure_days($1::date, $2::date, 'week')`, (today - 210).Time(), (today + 10).Time())
	w.Exec(`INSERT INTO postern.delivery (queue_id, seq, day, context_id, event, subscription_id, at, state, created_at)
		VALUES (1, 1, $1, $2, 'done', -1, $3, 'failed', $3)`, (today - 200).Time(), w.ID, old)
	spans, err := db.ReadSpans(w.Ctx, w.S.Pool())
	w.Must(err)
	w.S.Remember(days(spans))
	for name, f := range map[string]pgreads.ListFilter{
		"received before":           {ReceivedBefore: old, Limit: 1},
		"both":                      {Limit: 2},
		"both, from the oldest":     {Limit: 2, Ascending: true},
		"received since":            {ReceivedAfter: old.Add(-2 * time.Hour), Limit: 2},
		"of two queues":             {Queues: []string{"p", "q"}, Limit: 2},
		"with room for more":        {Limit: 50},
		"the rest behind the first": {Limit: 1},
	} {
		list, next, err := w.S.Reads.ListTransactions(w.Ctx, w.ID, f)
		w.Must(err)
		if name == "the rest behind the first" {
			f.From, f.Limit = next, 50
			list, next, err = w.S.Reads.ListTransactions(w.Ctx, w.ID, f)
			w.Must(err)
		}
		if n := min(f.Limit, 2); len(list) != n && !(len(list) == 1 && f.From != nil) || f.Limit == 50 && next != nil {
			t.Errorf("%s: a page of %d, next %+v", name, len(list), next)
		}
	}
	before := &deliveries.DeliveryFilter{Before: old.Add(time.Hour), Limit: 1}
	found, _, err := w.S.Deliveries.Page(w.Ctx, w.ID, before, nil)
	w.Must(err)
	if len(found) != 1 {
		t.Errorf("a page of %d deliveries", len(found))
	}
	wide := pgreads.ListFilter{Limit: 10, From: &pgreads.ListCursor{Days: &db.Window{First: 1, Until: 1 << 15}}}
	if _, _, err := w.S.Reads.ListTransactions(w.Ctx, w.ID, wide); fault.CodeOf(err) != "bad_cursor" {
		t.Errorf("a cursor of %d spans: %v", len(w.S.Spans()), err)
	}
}
