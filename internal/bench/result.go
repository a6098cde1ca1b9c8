package bench

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Result is the JSON line of a scenario. Rates are transactions a second, times milliseconds; of a figure with a value
// per run it tells the median. A wrong run has no rate, but violations.
type Result struct {
	Scenario     string `json:"scenario"`
	System       string `json:"system"`
	Transactions int    `json:"transactions,omitempty"` // of a run
	Runs         int    `json:"runs"`

	Rate    float64 `json:"rate,omitempty"`
	RateMin float64 `json:"rate_min,omitempty"`
	RateMax float64 `json:"rate_max,omitempty"`

	P50   float64          `json:"p50_ms,omitempty"`
	P99   float64          `json:"p99_ms,omitempty"`
	P999  float64          `json:"p999_ms,omitempty"`
	Times map[string]Times `json:"times,omitempty"` // where there are several; the first one's are above

	Ratios map[string]Ratio `json:"ratios,omitempty"` // of runs that alternated, run by run
	Series []Point          `json:"series,omitempty"` // how the rate went in the course of a run

	Cost     *Cost              `json:"cost,omitempty"`
	Waits    map[string]float64 `json:"backends,omitempty"`  // how many of the server's were at what, on average: running, or waiting for it
	RSS      map[string]int64   `json:"rss_bytes,omitempty"` // the highest resident memory of each process
	Settings map[string]any     `json:"settings,omitempty"`

	Violations int      `json:"violations"`
	Wrong      []string `json:"wrong,omitempty"`
	Skipped    string   `json:"skipped,omitempty"` // why it was not run
}

// Times are quantiles of durations.
type Times struct {
	N    int64   `json:"n"`
	P50  float64 `json:"p50_ms"`
	P99  float64 `json:"p99_ms"`
	P999 float64 `json:"p999_ms"`
	Max  float64 `json:"max_ms"`
}

// Point is the rate in one stretch of a run.
type Point struct {
	Second float64 `json:"s"` // its end, from the run's beginning
	Rate   float64 `json:"rate"`
}

// Cost is what a run used, most of it per transaction.
type Cost struct {
	Postern    float64 `json:"cpu_postern_s"`  // Postern's processes
	Postgres   float64 `json:"cpu_postgres_s"` // PostgreSQL's; 0 where they cannot be seen
	Load       float64 `json:"cpu_load_s"`     // ours: clients and checks
	PosternUs  float64 `json:"cpu_postern_us_per_tx"`
	PostgresUs float64 `json:"cpu_postgres_us_per_tx"`
	WAL        float64 `json:"wal_bytes_per_tx"`
	Fsyncs     float64 `json:"fsyncs_per_tx"`
	HOTQueue   float64 `json:"hot_share_queue"` // of updates of postern.queue; 1 where there were none
	HOT        float64 `json:"hot_share_all"`
	Growth     int64   `json:"growth_bytes"`
	GrowthPer  float64 `json:"growth_bytes_per_tx"`
}

// summary makes the line of a scenario from its runs.
func (b *Bench) summary(scenario, system string, trials []*trial) *Result {
	r := &Result{Scenario: scenario, System: system, Runs: len(trials), Settings: map[string]any{
		"postgresql": b.version, "server": b.settings, "processors": processors()}}
	for _, t := range trials {
		r.Violations += t.bad
		r.Wrong = append(r.Wrong, t.wrong...)
	}
	if r.Violations > 0 || len(trials) == 0 {
		return r
	}
	r.Transactions = int(median(each(trials, func(t *trial) float64 { return float64(t.n) })))
	rates := each(trials, (*trial).rate)
	r.Rate, r.RateMin, r.RateMax = round(median(rates)), round(slices.Min(rates)), round(slices.Max(rates))
	of := func(f func(*trial) float64) float64 { return median(each(trials, f)) }
	per := func(f func(*trial) float64) float64 {
		return of(func(t *trial) float64 { return f(t) / float64(max(t.n, 1)) })
	}
	r.Cost = &Cost{
		Postern:   round(of(func(t *trial) float64 { return t.cost.postern })),
		Postgres:  round(of(func(t *trial) float64 { return t.cost.postgres })),
		Load:      round(of(func(t *trial) float64 { return t.cost.load })),
		PosternUs: round(1e6 * per(func(t *trial) float64 { return t.cost.postern })), PostgresUs: round(1e6 * per(func(t *trial) float64 { return t.cost.postgres })),
		WAL:       round(per(func(t *trial) float64 { return float64(t.cost.wal) })),
		Fsyncs:    round(per(func(t *trial) float64 { return float64(t.cost.fsyncs) })),
		HOTQueue:  round(of(func(t *trial) float64 { return share(t.cost.queueHot, t.cost.queueUpdates) })),
		HOT:       round(of(func(t *trial) float64 { return share(t.cost.hot, t.cost.updates) })),
		Growth:    int64(of(func(t *trial) float64 { return float64(t.cost.size) })),
		GrowthPer: round(per(func(t *trial) float64 { return float64(t.cost.size) })),
	}
	r.Waits, r.RSS = averages(trials), map[string]int64{}
	for _, t := range trials {
		for name, n := range t.cost.rss {
			r.RSS[name] = max(r.RSS[name], n)
		}
	}
	return r
}

func processors() int { return runtime.NumCPU() }

// timed adds the durations of some names to r, all runs together; the first name's stand at the top.
func (r *Result) timed(trials []*trial, names ...string) {
	if r.Violations > 0 {
		return
	}
	r.Times = map[string]Times{}
	for i, name := range names {
		var all histogram
		for _, t := range trials {
			if h := t.times[name]; h != nil {
				all.merge(h)
			}
		}
		ms := func(d time.Duration) float64 { return round(d.Seconds() * 1000) }
		q := Times{N: all.n, P50: ms(all.quantile(0.5)), P99: ms(all.quantile(0.99)), P999: ms(all.quantile(0.999)), Max: ms(all.max)}
		r.Times[name] = q
		if i == 0 {
			r.P50, r.P99, r.P999 = q.P50, q.P99, q.P999
		}
	}
}

func each(trials []*trial, f func(*trial) float64) []float64 {
	list := make([]float64, len(trials))
	for i, t := range trials {
		list[i] = f(t)
	}
	return list
}

func share(part, whole int64) float64 {
	if whole == 0 {
		return 1
	}
	return float64(part) / float64(whole)
}

// round keeps four digits, which is more than any of this is worth.
func round(v float64) float64 {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return 0
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}

// Table is what people read of results: the header and a row for each.
func Table(results []*Result) [][]string {
	rows := [][]string{{"scenario", "system", "tx", "runs", "rate/s", "min-max", "p50 ms", "p99", "p99.9", "cpu us/tx ours+pg", "WAL B/tx", "fsync/tx", "notes"}}
	for _, r := range results {
		if r.Violations > 0 || r.Skipped != "" {
			rows = append(rows, []string{r.Scenario, r.System, "", fmt.Sprint(r.Runs), "", "", "", "", "", "", "", "", strings.Join(append(r.Wrong, r.notes()...), "; ")})
			continue
		}
		row := []string{r.Scenario, r.System, fmt.Sprint(r.Transactions), fmt.Sprint(r.Runs), fmt.Sprintf("%.0f", r.Rate), fmt.Sprintf("%.0f-%.0f", r.RateMin, r.RateMax)}
		if r.P50 > 0 {
			row = append(row, fmt.Sprintf("%.2f", r.P50), fmt.Sprintf("%.2f", r.P99), fmt.Sprintf("%.2f", r.P999))
		} else {
			row = append(row, "", "", "")
		}
		if r.Cost != nil {
			row = append(row, fmt.Sprintf("%.0f+%.0f", r.Cost.PosternUs, r.Cost.PostgresUs), fmt.Sprintf("%.0f", r.Cost.WAL), fmt.Sprintf("%.3f", r.Cost.Fsyncs))
		} else {
			row = append(row, "", "", "")
		}
		rows = append(rows, append(row, strings.Join(r.notes(), "; ")))
	}
	return rows
}

// notes are what has no column.
func (r *Result) notes() []string {
	var list []string
	if r.Violations > 0 {
		list = append(list, fmt.Sprintf("WRONG: %d violations", r.Violations))
	}
	if r.Skipped != "" {
		list = append(list, "skipped: "+r.Skipped)
	}
	for _, name := range sorted(r.Ratios) {
		list = append(list, name+" "+r.Ratios[name].String())
	}
	for _, name := range sorted(r.Times) {
		if t := r.Times[name]; t.P50 != r.P50 || t.P99 != r.P99 {
			list = append(list, fmt.Sprintf("%s p50 %.2f p99 %.2f ms", name, t.P50, t.P99))
		}
	}
	for _, at := range sorted(r.Waits) {
		if n := r.Waits[at]; n >= 0.5 {
			list = append(list, fmt.Sprintf("%.1f %s", n, at))
		}
	}
	for _, name := range sorted(r.RSS) {
		list = append(list, fmt.Sprintf("%s %d MiB", name, r.RSS[name]>>20))
	}
	return list
}
