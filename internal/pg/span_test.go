package pg_test

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	pgreads "github.com/postern-dev/postern/internal/pg/reads"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// mostSpans is how many partitions of each table there may be.
const mostSpans = 60

const aDay = 24 * time.Hour

// spans are how many partitions each table has. All have as many.
func (w *world) spans() (n int) {
	w.T.Helper()
	var fewest, most int
	w.Must(w.S.Pool().QueryRow(w.Ctx, `SELECT min(n), max(n) FROM (SELECT count(*) AS n FROM postern.spans
		GROUP BY relation) t`).Scan(&fewest, &most))
	if fewest != most {
		w.T.Fatalf("one table has %d partitions, another %d", fewest, most)
	}
	return most
}

// ages lets the clock go on in steps until an age, as the job partition does its work every hour, and says how many
// partitions there were at most. between is called at each step.
func (w *world) ages(age, step, keep time.Duration, between func()) (most int) {
	w.T.Helper()
	for until := w.Now.Add(age); w.Now.Before(until); {
		w.Later(step)
		w.Must(w.S.Keep(w.Ctx, keep))
		_, err := w.S.EnsureDays(w.Ctx)
		w.Must(err)
		most = max(most, w.spans())
		if keep == 0 {
			w.Must(w.S.RetainAll(w.Ctx))
		} else {
			_, err = w.S.Retain(w.Ctx, keep)
			w.Must(err)
		}
		between()
	}
	return most
}

// simulated is how many spans there are at most, at any moment of years, for a retention that is kept, or changes: as
// postern.ensure_days makes them and Retain drops them, of each day the first hour and the last.
func simulated(width func(keep, spans int) string, keep func(day int) int, days int) (most int) {
	type span struct{ first, last int }
	var list []span
	origin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	bucket := func(unit string, day int) (first, last int) {
		at := origin.AddDate(0, 0, day)
		from, to := at, at.AddDate(0, 0, 1)
		switch y, m := at.Year(), at.Month(); unit {
		case "week":
			from = at.AddDate(0, 0, -(int(at.Weekday())+6)%7)
			to = from.AddDate(0, 0, 7)
		case "month":
			from = time.Date(y, m, 1, 0, 0, 0, 0, time.UTC)
			to = from.AddDate(0, 1, 0)
		case "quarter":
			from = time.Date(y, (m-1)/3*3+1, 1, 0, 0, 0, 0, time.UTC)
			to = from.AddDate(0, 3, 0)
		case "year":
			from = time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC)
			to = from.AddDate(1, 0, 0)
		}
		return int(from.Sub(origin) / aDay), int(to.Sub(origin)/aDay) - 1
	}
	for d := -1; d <= 3; d++ { // the first migrations make days
		list = append(list, span{d, d})
	}
	for today := range days {
		kept := keep(today)
		for d := today - 1; d <= today+3; d++ {
			if d <= list[len(list)-1].last {
				continue
			}
			first, last := bucket(width(kept, len(list)), d)
			list = append(list, span{max(first, list[len(list)-1].last+1), last})
		}
		most = max(most, len(list))
		for kept > 0 && list[0].last < today-kept {
			list = list[1:]
		}
	}
	return most
}

// The width of spans is a thirtieth of the retention, rounded up; there are never more than sixty in ten years,
// whatever the retention is, becomes, or is kept from doing.
func TestWidthsOfSpans(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const tenYears = 3653
	widths := map[[2]int]string{}
	width := func(keep, spans int) (unit string) {
		k := [2]int{keep, spans}
		if widths[k] == "" {
			w.Must(w.S.Pool().QueryRow(w.Ctx, `SELECT postern.span_width(nullif($1::int, 0), $2)`, keep,
				spans).Scan(&unit))
			widths[k] = unit
		}
		return widths[k]
	}
	always := func(keep int) func(int) int { return func(int) int { return keep } }
	for _, c := range []struct {
		keep  int
		width string
	}{{1, "day"}, {2, "day"}, {7, "day"}, {30, "day"}, {31, "week"}, {90, "week"}, {180, "week"}, {210, "week"}, {211,
		"month"}, {365, "month"}, {730, "month"},
		{900, "month"}, {901, "quarter"}, {1826, "quarter"}, {3653, "quarter"}, {0, "quarter"}} {
		if got := width(c.keep, 0); got != c.width {
			t.Errorf("where %d days are kept, a span is a %s, want a %s", c.keep, got, c.width)
		}
		if most := simulated(width, always(c.keep), tenYears); most > mostSpans {
			t.Errorf("where %d days are kept there are %d spans", c.keep, most)
		}
	}
	for name, keep := range map[string]func(day int) int{
		"30 days, then all":              func(day int) int { return map[bool]int{true: 30}[day < 100] },
		"all, then 30 days":              func(day int) int { return map[bool]int{false: 30}[day < 1000] },
		"30 days and all by turns":       func(day int) int { return day / 50 % 2 * 30 },
		"two processes, day by day":      func(day int) int { return day % 2 * 30 },
		"210 days, then 900, then all":   func(day int) int { return []int{210, 900, 0, 0}[day*4/tenYears] },
		"30 days, then 210, then 1 year": func(day int) int { return []int{30, 210, 365, 365}[day*4/tenYears] },
	} {
		if most := simulated(width, keep, tenYears); most > mostSpans {
			t.Errorf("%s: there are %d spans", name, most)
		}
	}
	held := simulated(func(_, spans int) string { return width(30, spans) }, always(0), 5*366)
	if held > mostSpans {
		t.Errorf("where something holds a retention of 30 days for five years, there are %d spans", held)
	}
}

// The clock goes on for ten years, with real partitions. Transactions are found by its id, and listed, as long as
// each is kept, and not longer than by one width.
func TestPartitionsOverTenYears(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		keep  time.Duration
		width int // days, at most
		years int
	}{{"forever", 0, 92, 10}, {"a year", 365 * aDay, 31, 10}, {"thirty days", 30 * aDay, 1, 1}} {
		if os.Getenv("POSTERN_AGE") != "" {
			c.years = 10
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Dispatcher("T", nil)
			w.Must(w.S.Keep(w.Ctx, c.keep))
			var posted []outbox.ID
			n := w.Node("n")
			age := time.Duration(c.years) * 366 * aDay
			next := w.Now
			most := w.ages(age, 4*aDay, c.keep, func() {
				if w.Now.Before(next) {
					return
				}
				next = w.Now.Add(age / 20)
				posted = append(posted, w.Post(fmt.Sprint("q", len(posted)), "T", fmt.Sprint("u", len(posted)))[0])
				w.Exec(`UPDATE postern.node SET heartbeat_at = clock_timestamp()`)
				w.settleAll(w.Claim(n, pgworld.Everything()))
				w.Exec(`UPDATE postern.delivery SET state = 'delivered', next_at = NULL WHERE state = 'pending'`)
			})
			if most > mostSpans {
				t.Errorf("there were %d partitions of each table", most)
			}
			t.Logf("at most %d partitions of each table in %d years", most, c.years)
			var listed []outbox.ID
			list, _, err := w.S.Reads.ListTransactions(w.Ctx, w.ID, pgreads.ListFilter{Limit: 100, Ascending: true})
			w.Must(err)
			for _, x := range list {
				listed = append(listed, x.ID)
			}
			for _, id := range posted {
				kept := outbox.DayOf(w.Now) - id.Day
				x, err := w.S.Transaction(w.Ctx, w.ID, id)
				there := err == nil && x.State == outbox.DONE
				if must := c.keep == 0 || kept <= outbox.Day(c.keep/aDay); must && !there || slices.Contains(listed,
					id) != there {
					t.Errorf("%s of %s is there: %t (%v), listed: %t", id, id.Day.Time().Format(time.DateOnly), there,
						err, slices.Contains(listed, id))
				} else if !must && there && kept > outbox.Day(c.keep/aDay)+outbox.Day(c.width)+4 {
					t.Errorf("%s of %s is still there after %d days", id, id.Day.Time().Format(time.DateOnly), kept)
				}
			}
			w.Same(w.Lines(`SELECT DISTINCT (days_longer IS NULL OR days_longer <= last_day - day)::text
				FROM report.retention WHERE NOT droppable`), "true")
			pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
		})
	}
}

// Lists are the same whether they look into the newest span first or not, across spans of several widths, for what
// has ended, waits, was posted by a clock that went back, and in queues that began to be worked on in an earlier
// span.
func TestListsAcrossSpans(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.At(time.Date(w.Now.Year()+1, 5, 20, 12, 0, 0, 0, time.UTC))
	w.Dispatcher("T", nil)
	n := w.Node("n")
	post := func(after time.Duration, keep time.Duration, tag string) {
		w.Later(after)
		w.Must(w.S.Keep(w.Ctx, keep))
		_, err := w.S.EnsureDays(w.Ctx)
		w.Must(err)
		w.Exec(`UPDATE postern.node SET heartbeat_at = clock_timestamp()`)
		w.Post("worked", "T", tag+"1", tag+"2")
		w.settleAll(w.Claim(n, pgworld.Everything()))
		waits := w.Sub("waits", "T", tag+"3")
		waits.NotBefore = w.Now.Add(1000 * aDay)
		w.Ingest(w.S, waits)
		w.Post("", "T", tag+"4")
	}
	post(0, 30*aDay, "a")
	post(10*aDay, 0, "b")
	w.Post("slow", "T", "s1", "s2", "s3")
	leases := w.Claim(n, pgworld.Everything())
	post(40*aDay, 0, "c")
	post(80*aDay, 90*aDay, "d")
	post(4*aDay, 90*aDay, "e")
	w.Later(-2 * aDay)
	w.Post("worked", "T", "back")
	w.Later(2 * aDay)
	w.Post("slow", "T", "s4")
	if len(leases) == 0 || w.spans() < 6 {
		t.Fatalf("%d leases, %d spans", len(leases), w.spans())
	}
	spans := w.S.Spans()
	var filters []pgreads.ListFilter
	for _, f := range []pgreads.ListFilter{{}, {Queues: []string{"worked"}}, {Queues: []string{"slow"}},
		{Queues: []string{"waits", "slow"}}, {States: []string{"DONE"}},
		{States: []string{"WAITING"}}, {States: []string{"DISPATCHING", "WAITING"}}, {States: []string{"FAILED"}},
		{ReceivedAfter: w.Now.Add(-5 * aDay)},
		{ReceivedBefore: w.Now.Add(-3 * aDay)}, {ReceivedBefore: w.Now.Add(-100 * aDay), Queues: []string{"worked"}}} {
		for _, limit := range []int{1, 3, 7, 100} {
			for _, ascending := range []bool{false, true} {
				f.Limit, f.Ascending = limit, ascending
				filters = append(filters, f)
			}
		}
	}
	all := func(f pgreads.ListFilter) (lines []string) {
		for range 100 {
			list, next, err := w.S.Reads.ListTransactions(w.Ctx, w.ID, f)
			w.Must(err)
			for _, x := range list {
				lines = append(lines, fmt.Sprint(x.UID, " ", x.State, " ", x.QueueState, " ", x.Attempt, " ",
					x.ReceivedAt))
			}
			if next == nil {
				return lines
			}
			f.From = next
		}
		t.Fatalf("%+v has no end", f)
		return nil
	}
	shown := 0
	for _, f := range filters {
		w.S.Remember(spans)
		got := all(f)
		w.S.Remember(nil)
		want := all(f)
		if !slices.Equal(got, want) {
			t.Errorf("%+v\n got %s\nwant %s", f, strings.Join(got, "; "), strings.Join(want, "; "))
		}
		w.S.Remember(days(spans))
		if got = all(f); !slices.Equal(got, want) {
			t.Errorf("in windows %+v\n got %s\nwant %s", f, strings.Join(got, "; "), strings.Join(want, "; "))
		}
		shown += len(got)
	}
	if shown < 200 {
		t.Errorf("only %d rows were compared", shown)
	}
}

// days are the days of spans, each as a span: a list goes through them in windows.
func days(spans []db.Span) (list []db.Span) {
	for _, s := range spans {
		for d := s.First; d <= s.Last; d++ {
			list = append(list, db.Span{First: d, Last: d})
		}
	}
	return list
}

// Two processes with different retentions, which make and drop partitions at the same time: all days have one, none
// has two, and what the longer one keeps is dropped by the shorter one, as each of them was told.
func TestTwoProcessesOfDifferentRetentions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := w.Other()
	for range 40 {
		w.Later(5 * aDay)
		other.S.SetNow(&w.Now)
		var both sync.WaitGroup
		for s, keep := range map[*stores.Store]time.Duration{w.S: 0, other.S: 30 * aDay} {
			both.Go(func() {
				for range 2 {
					if err := s.Keep(w.Ctx, keep); err != nil {
						t.Error(err)
					}
					if _, err := s.EnsureDays(w.Ctx); err != nil {
						t.Error(err)
					}
				}
				if keep == 0 {
					return
				}
				if _, err := s.Retain(w.Ctx, keep); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		if n := w.spans(); n > mostSpans {
			t.Fatalf("%d partitions", n)
		}
		for ahead := range 3 {
			var n int
			w.Must(w.S.Pool().QueryRow(w.Ctx, `SELECT count(*) FROM postern.spans
				WHERE $1::timestamptz::date BETWEEN first AND last`, w.Now.Add(time.Duration(ahead)*aDay)).Scan(&n))
			if n != 4 {
				t.Fatalf("the day in %d days lies in %d partitions, want one of each table", ahead, n)
			}
		}
	}
}

// A retention that changes from all to thirty days and back makes new widths from then on; older spans stay until
// its last day is old enough, and is then gone as a whole.
func TestARetentionThatChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	widths := func() (list []string) {
		return w.Lines(`SELECT (last - first + 1)::text FROM postern.spans WHERE relation = 'task' AND first > $1
			ORDER BY first`, w.Now)
	}
	w.At(time.Date(w.Now.Year()+1, 1, 2, 12, 0, 0, 0, time.UTC))
	w.ages(20*aDay, 4*aDay, 0, func() {})
	w.Same(w.Lines(`SELECT first || ' ' || last FROM postern.spans WHERE relation = 'task' AND last > $1`, w.Now),
		fmt.Sprintf("%d-01-01 %d-03-31", w.Now.Year(), w.Now.Year()))
	w.ages(80*aDay, 4*aDay, 30*aDay, func() {}) // into April
	if got := widths(); !slices.Contains(got, "1") {
		t.Errorf("behind the quarter come spans of %v days", got)
	}
	quarter := w.Lines(`SELECT (days_longer <= 90 AND NOT droppable)::text FROM report.retention
		WHERE relation = 'task' AND last_day - day > 80`)
	w.Same(quarter, "true")
	w.ages(20*aDay, 4*aDay, 30*aDay, func() {})
	if n := w.Lines(`SELECT relation FROM report.retention WHERE last_day - day > 80`); len(n) != 0 {
		t.Errorf("the quarter is kept: %v", n)
	}
	days := w.spans()
	w.ages(60*aDay, 4*aDay, 0, func() {})
	if n := w.spans(); n > days+2 {
		t.Errorf("%d spans became %d in two months in which all is kept", days, n)
	}
}

// The number of locks that a statement takes does not depend on the age of the database: neither where a connection
// begins, nor where posts are stored, claimed and settled, nor where the newest transactions are listed. The same holds
// for the pages of memory that PostgreSQL reads for their plans.
func TestLocksDoNotGrowWithAge(t *testing.T) {
	t.Parallel()
	type cost struct{ locks, buffers int }
	costs := map[string][2]cost{}
	for i, ago := range []int{4, 1100} {
		d := pgtest.New(t)
		dropDays(t, d)
		_, err := d.Pool.Exec(t.Context(), `SELECT postern.ensure_days((now() AT TIME ZONE 'UTC')::date - $1::int,
			(now() AT TIME ZONE 'UTC')::date)`, ago)
		pgworld.OK(t, err)
		pool, err := pg.Connect(t.Context(), d.URL, 1)
		pgworld.OK(t, err)
		t.Cleanup(pool.Close)
		s, err := stores.Open(t.Context(), pool, slog.New(slog.DiscardHandler))
		pgworld.OK(t, err)
		w := &world{World: pgworld.Over(t, s)}
		w.Now = time.Now().UTC()
		w.Dispatcher("T", nil)
		w.Post("q", "T", "a")
		if n := len(s.Spans()); n > mostSpans || i == 0 && n > 2 || i == 1 && n < 12 {
			t.Fatalf("%d partitions of each table after %d days", n, ago)
		}
		texts, err := s.Rehearse(pg.Posts | pg.Works)
		pgworld.OK(t, err)
		texts = append(texts, slices.Sorted(maps.Keys(s.Store.Reads()))...)
		for _, f := range []pgreads.ListFilter{{}, {States: []string{"FAILED"}}, {States: []string{"WAITING"}},
			{Types: []string{"T"}}, {Queues: []string{"q"}}} {
			f.Limit = 50
			sql, _, err := s.Reads.NewestSQL(t.Context(), s.Context("default").ID, f)
			pgworld.OK(t, err)
			texts = append(texts, sql)
		}
		// The least of three connections counts: definitions that others of the server change meanwhile, in databases
		// of their own, may empty what a connection knows of the catalog.
		for round := range 3 {
			acquired, err := pool.Acquire(t.Context())
			pgworld.OK(t, err)
			conn := acquired.Hijack()
			for k, sql := range texts {
				if sql == "BEGIN" || sql == "COMMIT" {
					continue
				}
				name := fmt.Sprint("s", k)
				described, err := conn.Prepare(t.Context(), name, sql)
				pgworld.OK(t, err)
				args := strings.Repeat(", NULL", len(described.ParamOIDs))
				if args != "" {
					args = "(" + args[2:] + ")"
				}
				// The text names the span, which differs from day to day, and the database.
				key := fmt.Sprint(k, " ", strings.Join(strings.Fields(sql), " "))
				locks, buffers := planned(t, conn, "EXPLAIN (COSTS OFF, BUFFERS, FORMAT JSON) EXECUTE "+name+args)
				c := costs[key]
				if round == 0 || buffers < c[i].buffers {
					c[i] = cost{locks, buffers}
				}
				costs[key] = c
			}
			pgworld.OK(t, conn.Close(t.Context()))
		}
	}
	if len(costs) < 40 {
		t.Fatalf("%d statements were compared", len(costs))
	}
	var young, old cost
	for sql, c := range costs {
		young.locks, young.buffers = young.locks+c[0].locks, young.buffers+c[0].buffers
		old.locks, old.buffers = old.locks+c[1].locks, old.buffers+c[1].buffers
		if c[1].locks*10 > c[0].locks*12 {
			t.Errorf("locks %d tables and indexes after 4 days, %d after 1,100: %.200s", c[0].locks, c[1].locks, sql)
		}
	}
	if old.buffers*10 > young.buffers*12 {
		t.Errorf("the plans of a connection read %d pages after 4 days, %d after 1,100", young.buffers, old.buffers)
	}
	t.Logf("after 4 days %+v, after 1,100 %+v", young, old)
}

// planned returns how many tables and indexes the plan of a statement locks, and how many pages it reads.
func planned(t *testing.T, c *pgx.Conn, explain string) (locks, buffers int) {
	t.Helper()
	tx, err := c.Begin(t.Context())
	pgworld.OK(t, err)
	defer tx.Rollback(t.Context())
	var plan []struct {
		Planning struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		} `json:"Planning"`
	}
	pgworld.OK(t, tx.QueryRow(t.Context(), explain, pgx.QueryExecModeSimpleProtocol).Scan(&plan))
	pgworld.OK(t, tx.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks
		WHERE pid = pg_backend_pid() AND locktype = 'relation' AND relation > 16383`).Scan(&locks))
	return locks, plan[0].Planning.Hit + plan[0].Planning.Read
}
