package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Baseline is what some machine once reached: not rates, but what part they are of the durable commits that
// the same machine made in the same minutes. These parts are alike on machines that are not.
type Baseline struct {
	PostgreSQL  string           `json:"postgresql"`
	Processors  int              `json:"processors"`
	Calibration string           `json:"calibration"` // what made the commits: pgbench, or our own clients
	Runs        int              `json:"runs"`
	Ratios      map[string]Ratio `json:"ratios"`
}

// Comparison is one line of a check.
type Comparison struct {
	Scenario   string   `json:"scenario"`
	To         string   `json:"to"` // the calibration
	Ratio      Ratio    `json:"ratio"`
	Baseline   *Ratio   `json:"baseline,omitempty"`
	Change     float64  `json:"change"` // of the median: -0.1 is a tenth slower
	Slower     bool     `json:"slower"` // by more than noise: see Ratio.below
	Violations int      `json:"violations"`
	Wrong      []string `json:"wrong,omitempty"`
}

// errOtherCalibration says what to do about a baseline that cannot be compared with.
var errOtherCalibration = errors.New("install pgbench (it comes with PostgreSQL's server or contrib packages), or write another baseline with --update")

// checked are the scenarios of a check: short, and between them most of the paths that carry load.
func (b *Bench) checked() []struct {
	name    string
	clients int // of the calibration that limits it in the same way
	run     func(context.Context) (*trial, error)
} {
	drain := func(l load) func(context.Context) (*trial, error) {
		return func(ctx context.Context) (*trial, error) { return b.drain(ctx, l) }
	}
	few := max(b.Queues/2, 1)
	return []struct {
		name    string
		clients int
		run     func(context.Context) (*trial, error)
	}{
		{"fifo-one-queue", 1, drain(load{keys: 1, depth: few})},
		{"fifo-deep", b.Connections, drain(load{keys: b.Queues, depth: b.Depth})},
		{"fifo-wide", b.Connections, drain(load{keys: b.Queues * b.Depth, depth: 1})},
		{"ingest-http", b.Connections, func(ctx context.Context) (*trial, error) {
			return b.ingest(ctx, RoleServe, &traffic{path: "/transactions", connections: b.Connections, length: b.Length})
		}},
		{"e2e", b.Connections, b.both},
	}
}

// Check runs a few short scenarios in turns with calibrations and compares what part of the commits they
// reach with a baseline, where there is one. It returns what could be a new baseline.
func (b *Bench) Check(ctx context.Context, old *Baseline) (list []Comparison, now *Baseline, err error) {
	parts := b.checked()
	program, by := b.pgbench(), byPgbench
	if program == "" {
		by = byClients
	}
	if old != nil && old.Calibration != by {
		return nil, nil, fmt.Errorf("the baseline is of %q and this machine calibrates by %q, which is not the same: %w", old.Calibration, by, errOtherCalibration)
	}
	trials, limits := make([][]*trial, len(parts)), make([][]*trial, len(parts))
	for i := range b.Runs {
		var last *trial
		for j, p := range parts {
			// what limits it is measured before and after it, so that a machine that changes its pace is noticed
			if j == 0 || p.clients != parts[j-1].clients {
				if last, err = b.calibrate(ctx, program, p.clients, b.Length/2); err != nil {
					return nil, nil, err
				}
			}
			t, err := p.run(ctx)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", p.name, err)
			}
			after, err := b.calibrate(ctx, program, p.clients, b.Length/2)
			if err != nil {
				return nil, nil, err
			}
			both := &trial{n: last.n + after.n, took: last.took + after.took}
			b.told(p.name, i, t)
			b.Progress(fmt.Sprintf("%s-%d beside it: %.0f commits a second", by, p.clients, both.rate()))
			trials[j], limits[j], last = append(trials[j], t), append(limits[j], both), after
		}
	}
	now = &Baseline{PostgreSQL: b.version, Processors: processors(), Calibration: by, Runs: b.Runs, Ratios: map[string]Ratio{}}
	for j, p := range parts {
		c := Comparison{Scenario: p.name, To: fmt.Sprintf("%s-%d", by, p.clients)}
		for _, t := range trials[j] {
			c.Violations, c.Wrong = c.Violations+t.bad, append(c.Wrong, t.wrong...)
		}
		if c.Violations == 0 {
			var list []float64
			for i, t := range trials[j] {
				list = append(list, t.rate()/limits[j][i].rate())
			}
			c.Ratio = ratioOf(list)
			now.Ratios[p.name] = c.Ratio
			c.against(old)
		}
		list = append(list, c)
	}
	return list, now, b.reset(ctx)
}

// Beside makes one list of the runs of two builds that took turns, one check of one run each: what part of the commits
// ours reached, compared with the other build as with a baseline. On a machine that is not like that of the committed
// baseline this alone tells whether a change made something slower.
func Beside(ours, theirs [][]Comparison) (list []Comparison) {
	other := &Baseline{Ratios: map[string]Ratio{}}
	for _, c := range together(theirs) {
		other.Ratios[c.Scenario] = c.Ratio
	}
	for _, c := range together(ours) {
		if c.Violations == 0 {
			c.against(other)
		}
		list = append(list, c)
	}
	return list
}

// together makes one line of each scenario of several runs.
func together(runs [][]Comparison) (list []Comparison) {
	at, parts := map[string]int{}, map[string][]float64{}
	for _, run := range runs {
		for _, c := range run {
			if _, ok := at[c.Scenario]; !ok {
				at[c.Scenario] = len(list)
				list = append(list, Comparison{Scenario: c.Scenario, To: c.To})
			}
			all := &list[at[c.Scenario]]
			all.Violations, all.Wrong = all.Violations+c.Violations, append(all.Wrong, c.Wrong...)
			parts[c.Scenario] = append(parts[c.Scenario], c.Ratio.Median)
		}
	}
	for i, c := range list {
		list[i].Ratio = ratioOf(parts[c.Scenario])
	}
	return list
}

// against compares with the baseline of the same name.
func (c *Comparison) against(old *Baseline) {
	if old == nil {
		return
	}
	if was, ok := old.Ratios[c.Scenario]; ok && was.Median > 0 {
		c.Baseline, c.Change = &was, round(c.Ratio.Median/was.Median-1)
		c.Slower = c.Ratio.below(was)
	}
}

// CheckSizes are those of a check: small enough to be run before a commit, large enough to mean something.
func CheckSizes() Sizes {
	s := DefaultSizes
	s.Length = 2 * time.Second
	return s
}
