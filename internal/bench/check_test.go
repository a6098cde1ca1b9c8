package bench

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pgtest"
)

func TestEachFaultOfARunIsSeen(t *testing.T) {
	b := open(t)
	ctx := t.Context()
	s, err := b.fill(ctx, load{keys: 6, depth: 5})
	if err != nil {
		t.Fatal(err)
	}
	run, err := b.work(ctx, s, 30, 30, 1)
	if err != nil || run.bad != 0 || run.rate() <= 0 {
		t.Fatalf("a run as it should be: %+v, %v", run, err)
	}
	exec := func(sql string) {
		t.Helper()
		if _, err := b.pool.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	exec(`CREATE TABLE public.tasks AS TABLE postern.task; CREATE TABLE public.outcomes AS TABLE postern.outcome`)
	whole := want{stored: 30, ended: 30, queues: 6, timed: true}
	for _, c := range []struct{ plant, seen string }{
		{`DELETE FROM postern.outcome WHERE seq = 5 AND queue_id = (SELECT min(queue_id) FROM postern.outcome)`, "30 should have ended, 29"},
		{`DELETE FROM postern.outcome WHERE seq = 2 AND queue_id = (SELECT min(queue_id) FROM postern.outcome)`, "1 ended before one that is before"},
		{`DELETE FROM postern.task WHERE seq = 5 AND queue_id = (SELECT min(queue_id) FROM postern.task)`, "30 acknowledged, 29 stored"},
		{`DELETE FROM postern.task WHERE seq = 2 AND queue_id = (SELECT min(queue_id) FROM postern.task)`, "4 stored in queues whose positions have gaps"},
		{`DELETE FROM postern.task WHERE queue_id = (SELECT min(queue_id) FROM postern.task)`, "6 queues, 5 stored"},
		{`INSERT INTO postern.outcome SELECT queue_id, seq, day + 1, context_id, was, state FROM postern.outcome WHERE seq = 3 LIMIT 2`, "2 have a second outcome"},
		{`UPDATE postern.outcome SET state = 'FAILED' WHERE seq = 4`, "6 ended otherwise than DONE"},
		{`UPDATE postern.outcome o
			SET done_at = (SELECT done_at FROM public.outcomes p WHERE p.queue_id = o.queue_id AND p.seq = 5 - o.seq)
			WHERE seq IN (2, 3)`, "out of order"},
		{`UPDATE postern.outcome SET fence = fence - 1 WHERE seq = 5 AND queue_id = (SELECT min(queue_id) FROM postern.outcome)`, "1 are out of order"},
		{`UPDATE postern.task SET data = '{"n": 1}' WHERE seq = 3`, "6 are out of order"},
		{`UPDATE postern.outcome o
			SET started_at = (SELECT done_at FROM public.outcomes p
				WHERE p.queue_id = o.queue_id AND p.seq = o.seq - 1) - interval '1 us'
			WHERE seq = 5`,
			"6 were called before"},
	} {
		exec(c.plant)
		wrong, n, err := b.check(ctx, s, whole)
		if err != nil || n == 0 || !strings.Contains(strings.Join(wrong, "\n"), c.seen) {
			t.Errorf("after %s: %d violations %q, %v; want %q", c.plant, n, wrong, err, c.seen)
		}
		exec(`TRUNCATE postern.task, postern.outcome;
			INSERT INTO postern.task TABLE public.tasks;
			INSERT INTO postern.outcome TABLE public.outcomes`)
	}
	if wrong, n, err := b.check(ctx, s, whole); n != 0 || err != nil {
		t.Errorf("repaired: %q, %v", wrong, err)
	}

	wrong := b.summary("fifo", "postern", []*trial{run, {n: 30, took: run.took, bad: 2, wrong: []string{"2 are lost"}}})
	line, err := json.Marshal(wrong)
	if err != nil || strings.Contains(string(line), `"rate`) || wrong.Violations != 2 {
		t.Errorf("a wrong run prints a rate: %s, %v", line, err)
	}
}

func TestScenariosRunAndAreRight(t *testing.T) {
	b := open(t)
	for _, name := range []string{"fifo-7x3", "fifo-1x20", "e2e", "ingest-batch", "ingest-http-1", "commit-1", "http-worker", "idle-latency", "loaded-latency", "senders", "ingest-sql", "backlog", "replicas", "snapshot", "processor", "batch-insert", "leader"} {
		if !pgtest.Turn(name) {
			continue
		}
		list, err := Find([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		if b.Runs = 1; strings.HasPrefix(name, "fifo") || name == "senders" {
			b.Runs = 2
		}
		results, err := b.Run(t.Context(), list[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if !strings.HasPrefix(r.Scenario, name) || r.Violations != 0 || r.Rate <= 0 || r.RateMin > r.Rate || r.Rate > r.RateMax || r.Skipped != "" || r.Transactions <= 0 || r.Cost == nil || strings.Contains(name, "latency") && (r.P50 <= 0 || r.P99 < r.P50) {
				t.Errorf("%+v", r)
			}
		}
	}
	if d := (load{keys: 100, depth: 10, zipf: true}).depths(); d[0] < 5*d[50] || d[0] < 100 {
		t.Errorf("Zipf gives the first key %d, the 51st %d", d[0], d[50])
	}
	if r, err := b.Run(t.Context(), fifo(load{keys: 50, depth: 2, zipf: true})); err != nil || r[0].Scenario != "fifo-50x2-zipf" || r[0].Violations != 0 || r[0].Transactions != 100 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestACheckComparesWithTheCommitsBesideIt(t *testing.T) {
	b := open(t)
	b.Runs = 1
	by := byClients
	if b.pgbench() != "" {
		by = byPgbench
	}
	if _, _, err := b.Check(t.Context(), &Baseline{Calibration: "something else"}); !errors.Is(err, errOtherCalibration) {
		t.Errorf("a baseline of another calibration is compared with: %v", err)
	}
	list, now, err := b.Check(t.Context(), &Baseline{Calibration: by, Ratios: map[string]Ratio{
		"fifo-deep": {Median: 1e6, Low: 1e6, High: 1e6},
		"e2e":       {Median: 1e-6, Low: 1e-6, High: 1e-6},
	}})
	if err != nil || len(list) != 5 || len(now.Ratios) != 5 {
		t.Fatalf("%+v, %+v, %v", list, now, err)
	}
	for _, c := range list {
		if c.Ratio.Median <= 0 || c.Violations != 0 || c.Slower != (c.Scenario == "fifo-deep") || (c.Baseline != nil) != (c.Scenario == "fifo-deep" || c.Scenario == "e2e") {
			t.Errorf("%+v", c)
		}
	}
	if own, err := b.calibrate(t.Context(), "", 2, b.Length); err != nil || own.rate() <= 0 {
		t.Errorf("without pgbench: %+v, %v", own, err)
	}
	was := &Baseline{Ratios: map[string]Ratio{"x": {Median: 0.3, Low: 0.28, High: 0.32}}}
	for now, slower := range map[Ratio]bool{
		{Median: 0.27, Low: 0.26, High: 0.29}: true,
		{Median: 0.27, Low: 0.2, High: 0.31}:  false, // it reaches the baseline as often as not
		{Median: 0.29, Low: 0.28, High: 0.29}: false, // within the interval of the baseline
		{Median: 0.3, Low: 0.29, High: 0.31}:  false,
		{Median: 0.6, Low: 0.5, High: 0.7}:    false,
	} {
		c := Comparison{Scenario: "x", Ratio: now}
		if c.against(was); c.Slower != slower {
			t.Errorf("%+v beside %+v: slower is %v", now, was.Ratios["x"], c.Slower)
		}
	}
}

func TestTheIntervalOfARatioComesFromOrderStatistics(t *testing.T) {
	for _, c := range []struct {
		list []float64
		want Ratio
	}{
		{[]float64{9, 1, 8, 2, 7, 3, 6, 4, 5}, Ratio{Median: 5, Min: 1, Max: 9, Low: 2, High: 8, Sure: 0.961, Pairs: 9}},
		{[]float64{9, 1, 8}, Ratio{Median: 8, Min: 1, Max: 9, Low: 1, High: 9, Sure: 0.75, Pairs: 3}},
		{[]float64{4}, Ratio{Median: 4, Min: 4, Max: 4, Low: 4, High: 4, Pairs: 1}},
		{nil, Ratio{}},
	} {
		if got := ratioOf(c.list); math.Abs(got.Sure-c.want.Sure) > 0.001 {
			t.Errorf("%v: %+v", c.list, got)
		} else if got.Sure = c.want.Sure; got != c.want {
			t.Errorf("%v: %+v, want %+v", c.list, got, c.want)
		}
	}
	r, right, wrong := &Result{}, []*trial{{n: 10, took: 1}}, []*trial{{n: 10, took: 1, bad: 1}}
	r.compare("x", right, wrong, (*trial).rate)
	if r.compare("y", wrong, right, (*trial).rate); len(r.Ratios) != 0 {
		t.Errorf("a wrong run has a ratio: %+v", r.Ratios)
	}
}

// The line of a run shows what the server's backends wait for.
func TestALineSaysWhatTheServerWaitsFor(t *testing.T) {
	b := open(t)
	ctx := t.Context()
	if err := b.makePlain(ctx); err != nil {
		t.Fatal(err)
	}
	release, err := b.hold(ctx)
	if err != nil {
		t.Fatal(err)
	}
	blocked, err := pgx.Connect(ctx, b.url)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := blocked.Exec(ctx, `TRUNCATE postern_bench.plain`)
		ended <- errors.Join(err, blocked.Close(ctx))
	}()
	s := b.sample(ctx)
	s.stop()
	for s.looks, s.seen = 0, map[string]int{}; s.seen["Lock:relation"] == 0 && ctx.Err() == nil; {
		if err := s.look(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	release()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	s.looks = 2
	seen := s.stop()
	if seen["Lock:relation"] != 0.5 {
		t.Errorf("in one look of two a backend waited for a lock: %v", seen)
	}
	runs := []*trial{{cost: cost{waits: seen}}, {}, {cost: cost{waits: map[string]float64{"rare": 0.001}}}}
	if got := averages(runs); got["Lock:relation"] != 0.25 || got["rare"] != 0 {
		t.Errorf("two runs of three were looked at: %v", got)
	}
}

func TestEachSweepHasItsPicture(t *testing.T) {
	var results []*Result
	for i, name := range []string{"fifo-1x2000", "fifo-1000x10", "ingest-http", "ingest-http-1", "backlog-empty", "backlog-waiting-1M", "replicas-1", "replicas-4", "snapshot-1xn"} {
		r := &Result{Scenario: name, System: "postern", Rate: 1000, RateMin: 900, RateMax: 1100, Settings: map[string]any{"queues": 1 + 999*i, "depth": 10, "connections": 1 + i, "processes": i}}
		if name == "snapshot-1xn" {
			r.Series = []Point{{10, 500}, {20, 400}}
		}
		results = append(results, r)
	}
	files := Plots(append(results, &Result{Scenario: "fifo-9x9", Violations: 3}))
	for _, name := range []string{"keys.svg", "connections.svg", "backlog.svg", "replicas.svg", "snapshot.svg"} {
		var svg struct {
			Texts   []string   `xml:"text"`
			Circles []struct{} `xml:"circle"`
		}
		if err := xml.Unmarshal([]byte(files[name]), &svg); err != nil || len(svg.Circles) != 2 || strings.Contains(files[name], "NaN") {
			t.Errorf("%s: %d points, %v\n%s", name, len(svg.Circles), err, files[name])
		}
	}
	if one := Plots(results[:1]); len(one) != 0 {
		t.Errorf("a picture of one point: %v", one)
	}
}

func TestWhatEndsIsCountedInTheWindowOfItsMiddle(t *testing.T) {
	const s = time.Second
	free, points := windows([]stretch{{-12 * s, 900, 2 * s}, {0, 100, 2 * s}, {-3 * s, 100, 2 * s}, {2 * s, 30, 2 * s}, {11 * s, 60, 4 * s}, {40 * s, 90, 10*s + 1}, {41 * s, 10, s}})
	want := []Point{{10, 15}, {40, 9}, {50, 10}}
	if free != 50 || !slices.Equal(points, want) {
		t.Errorf("free %g, held %v; want 50 and %v", free, points, want)
	}
}

func TestAControlHoldsNothing(t *testing.T) {
	b := open(t)
	if err := b.makePlain(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, b.Control = range []bool{false, true} {
		release, err := b.hold(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var held bool
		err = b.pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks JOIN pg_database d ON d.oid = database
			WHERE d.datname = current_database() AND relation = 'postern_bench.plain'::regclass AND mode = 'RowExclusiveLock')`).Scan(&held)
		if release(); err != nil || held == b.Control {
			t.Errorf("control %t: held %t, %v", b.Control, held, err)
		}
	}
}
