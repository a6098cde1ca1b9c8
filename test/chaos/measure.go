package main

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// recovery is how long it took until all went on again, over the faults of a kind.
type recovery struct {
	N    int     `json:"n"`
	P50  float64 `json:"p50_s"`
	P99  float64 `json:"p99_s"`
	Max  float64 `json:"max_s"`
	Late int     `json:"never"` // not within a minute
}

// within is for how long a recovery is waited for.
const within = time.Minute

// measure notes how long it takes from a moment until something is so.
func (w *world) measure(ctx context.Context, kind string, from time.Time, until func(context.Context) bool) {
	if until == nil {
		return
	}
	w.background(func(ctx context.Context) { w.measured(ctx, kind, from, within, until) })
}

// measured waits until something is so. What takes longer than it may is late, also if the look that found it began
// in time.
func (w *world) measured(ctx context.Context, kind string, from time.Time, most time.Duration,
	until func(context.Context) bool) {
	for time.Since(from) < most {
		so := until(ctx)
		if took := time.Since(from); so && took <= most {
			w.mu.Lock()
			w.times[kind] = append(w.times[kind], took)
			w.mu.Unlock()
			return
		}
		if !so && !wait(ctx, min(100*time.Millisecond, time.Since(from)/20)) { // what is soon over is looked at more often
			return
		}
	}
	w.mu.Lock()
	w.late[kind]++
	w.mu.Unlock()
}

// background runs something that a fault does not wait for, and the end of the run does.
func (w *world) background(do func(context.Context)) { w.behind.Go(func() { do(w.life) }) }

// most keeps the largest number of its name.
func (w *world) most(what string, n int) {
	w.mu.Lock()
	w.largest[what] = max(w.largest[what], n)
	w.mu.Unlock()
}

// query asks for one text, "" where there is none.
func (w *world) query(ctx context.Context, sql string, args ...any) (text string, err error) {
	return w.queryOf(ctx, w.pg, sql, args...)
}

func (w *world) queryOf(ctx context.Context, pg *postgres, sql string, args ...any) (text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second) // a count of all rows takes seconds on a busy machine
	defer cancel()
	c, err := pgx.Connect(ctx, pg.url())
	if err != nil {
		return "", err
	}
	defer c.Close(context.WithoutCancel(ctx))
	err = c.QueryRow(ctx, sql, args...).Scan(&text)
	return text, err
}

// released returns what says whether nothing is left under its fence of what a process has now; nil if it has nothing.
func (w *world) released(ctx context.Context, p *process) func(context.Context) bool {
	had, err := w.query(ctx, `SELECT coalesce(string_agg(q.queue_id || ':' || q.fence, ','), '')
		FROM postern.queue q JOIN postern.node n ON (n.node_id, n.epoch) = (q.node_id, q.node_epoch)
		WHERE n.name = $1 AND n.dead_at IS NULL`, p.name)
	if err != nil || had == "" {
		return nil
	}
	return func(ctx context.Context) bool {
		left, err := w.query(ctx, `SELECT count(*)::text FROM postern.queue q
			WHERE q.node_id IS NOT NULL AND q.queue_id || ':' || q.fence = ANY (string_to_array($1, ','))`, had)
		return err == nil && left == "0"
	}
}

// answers returns what says whether a process works again: its API takes a post, or knows that there is no such type in
// its database, or its heart beats.
func (w *world) answers(p *process) func(context.Context) bool {
	if p.api == "" {
		var before string
		beats := `SELECT coalesce(max(node_id || ':' || beats), '') FROM postern.node WHERE name = $1 AND dead_at IS NULL
			AND node_id = (SELECT max(node_id) FROM postern.node WHERE name = $1)`
		return func(ctx context.Context) bool {
			now, err := w.query(ctx, beats, p.name)
			if err != nil || before == "" {
				before = now
				return false
			}
			return now != "" && now != before
		}
	}
	w.mu.Lock()
	w.probes++
	uid := fmt.Sprintf("probe-%d", w.probes)
	w.mu.Unlock()
	return func(ctx context.Context) bool {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		status, _ := w.client.send(ctx, p.api, uid, []byte(`{"queue": "probe", "type": "PAY", "data": {"N": -3}}`))
		return status/100 == 2 || status == 422
	}
}

// recoveries sums up what was measured. What did not recover within the time that is waited counts as that.
func recoveries(measured map[string][]time.Duration, late map[string]int) map[string]recovery {
	all := map[string]recovery{}
	kinds := slices.Concat(slices.Collect(maps.Keys(measured)), slices.Collect(maps.Keys(late)))
	for _, kind := range kinds {
		times := slices.Concat(measured[kind], slices.Repeat([]time.Duration{within}, late[kind]))
		slices.Sort(times)
		if len(times) == 0 {
			continue
		}
		at := func(q float64) float64 {
			return seconds(times[min(len(times)-1, int(math.Ceil(q*float64(len(times))))-1)])
		}
		all[kind] = recovery{N: len(times), P50: at(0.5), P99: at(0.99), Max: seconds(times[len(times)-1]),
			Late: late[kind]}
	}
	return all
}

func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1000) / 1000 }

// usage is what all processes use.
type usage struct {
	Goroutines  int `json:"goroutines"`
	MemoryMiB   int `json:"memory_mib"` // the largest process
	Connections int `json:"connections"`

	Unread []string `json:"unread,omitempty"` // processes that do not tell: they are down, or hang
}

func (w *world) usage(ctx context.Context) (u usage) {
	for _, p := range w.processes {
		memory, running := residentMiB(p.pid()), goroutines(p.metrics)
		if memory == 0 || running == 0 {
			u.Unread = append(u.Unread, p.name)
		}
		u.MemoryMiB, u.Goroutines = max(u.MemoryMiB, memory), u.Goroutines+running
	}
	n, err := w.query(ctx, `SELECT count(*)::text FROM pg_stat_activity WHERE usename = 'postern'`)
	if err != nil {
		u.Unread = append(u.Unread, err.Error())
	}
	u.Connections, _ = strconv.Atoi(n)
	return u
}

// residentMiB is 0 of a process that is not there.
func residentMiB(pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	pages, _ := strconv.Atoi(fields[1])
	return pages * os.Getpagesize() >> 20
}

// goroutines is 0 of a process that does not answer.
func goroutines(metrics string) int {
	c := http.Client{Timeout: 5 * time.Second}
	a, err := c.Get("http://" + metrics + "/metrics")
	if err != nil {
		return 0
	}
	defer a.Body.Close()
	for lines := bufio.NewScanner(a.Body); lines.Scan(); {
		if n, ok := strings.CutPrefix(lines.Text(), "go_goroutines "); ok {
			f, _ := strconv.ParseFloat(n, 64)
			return int(f)
		}
	}
	return 0
}
