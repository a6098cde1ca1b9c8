package worker

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// counters count what the worker did. They are shown as text that Prometheus reads too.
type counters struct {
	mu      sync.Mutex
	values  map[string]float64 // by name and labels, as they are printed
	running int
}

func (c *counters) add(name string, labels string, n float64) {
	if c.values == nil {
		c.values = map[string]float64{}
	}
	c.values["postern_worker_"+name+labels] += n
}

// count counts one event of a type, "" for one that belongs to no type.
func (c *counters) count(name, typ string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	labels := ""
	if typ != "" {
		labels = fmt.Sprintf("{type=%q}", typ)
	}
	c.add(name+"_total", labels, 1)
}

// begin counts a dispatch; the returned function says how it ended.
func (c *counters) begin(typ string) func(outcome string) {
	started := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running++
	return func(outcome string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.running--
		c.add("dispatches_total", fmt.Sprintf("{type=%q,outcome=%q}", typ, outcome), 1)
		c.add("dispatch_seconds_total", fmt.Sprintf("{type=%q}", typ), time.Since(started).Seconds())
	}
}

func (w *Worker) getMetrics(out http.ResponseWriter, _ *http.Request) {
	c := &w.counters
	c.mu.Lock()
	lines := []string{fmt.Sprintf("postern_worker_running %d", c.running)}
	for name, v := range c.values {
		lines = append(lines, fmt.Sprintf("%s %g", name, v))
	}
	c.mu.Unlock()
	slices.Sort(lines)
	out.Header().Set("Content-Type", "text/plain; version=0.0.4")
	_, _ = out.Write([]byte(strings.Join(lines, "\n") + "\n"))
}
