package coordtest

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/coord"
)

// epoch is when each schedule begins.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// World is one schedule under way.
type World struct {
	Seed   uint64
	Plan   Plan
	Trace  func(format string, args ...any) // nil: nothing is told
	rng    *rand.Rand
	now    time.Time
	items  items
	serial int
	nodes  []*Node
	ledger *Ledger
	orders []*order
	fault  coord.Fault
	whole  bool // wires and nodes are whole again
	broken []string
	cuts   map[[2]string]time.Time
	moving time.Time // when a height has changed
	yields []yield
	watch  func(*coord.Message) // sees what is sent; may be nil

	Steps, Sent, Levers int
	Visited             map[string]bool // machine, state and the one before
}

// item is something that happens at a time.
type item struct {
	at     time.Time
	serial int
	f      func()
}

type items []item

func (l items) Len() int { return len(l) }
func (l items) Less(i, j int) bool {
	return l[i].at.Before(l[j].at) || l[i].at.Equal(l[j].at) && l[i].serial < l[j].serial
}
func (l items) Swap(i, j int) { l[i], l[j] = l[j], l[i] }
func (l *items) Push(x any)   { *l = append(*l, x.(item)) }
func (l *items) Pop() any {
	last := (*l)[len(*l)-1]
	*l = (*l)[:len(*l)-1]
	return last
}

// after has something happen.
func (w *World) after(d time.Duration, f func()) {
	w.serial++
	heap.Push(&w.items, item{w.now.Add(d), w.serial, f})
}

// run lets the world go on until a time, or until done says so.
func (w *World) run(until time.Time, done func() bool) {
	for len(w.items) > 0 && !w.items[0].at.After(until) && len(w.broken) == 0 {
		it := heap.Pop(&w.items).(item)
		w.now = it.at
		it.f()
		if done != nil && done() {
			return
		}
	}
	w.now = until
}

func (w *World) tell(format string, args ...any) {
	if w.Trace != nil {
		w.Trace("%8.3f %s", w.now.Sub(epoch).Seconds(), fmt.Sprintf(format, args...))
	}
}

func (w *World) breaks(format string, args ...any) {
	w.broken = append(w.broken, fmt.Sprintf(format, args...))
	w.tell("BROKEN %s", fmt.Sprintf(format, args...))
}

// chance is true with a probability.
func (w *World) chance(p float64) bool { return w.rng.Float64() < p }

// between draws a duration.
func (w *World) between(a, b time.Duration) time.Duration {
	return a + time.Duration(w.rng.Int64N(int64(b-a)+1))
}

// Plan is what a schedule is drawn to be.
type Plan struct {
	Nodes    int
	Settings coord.Settings
	Restores string // none, known or cold
	Restarts int    // of cold: how often the node starts and ends before it is greeted
	Serves   bool   // of cold: a process that only answers requests takes steps while the node is down
	Timeouts bool   // the core gives up on public transactions that may still land
	Forger   bool   // a node says yes for others
	Quiet    bool   // the ledger makes blocks only for what there is to do
	Reorgs   bool
	Chaos    time.Duration
	Perfect  bool // nothing goes wrong
	Boundary bool // all begin at once, where one block is the first of a range
	Loss     float64
	Late     float64
}

// Draw draws the plan of a schedule.
func Draw(seed uint64) Plan {
	r := rand.New(rand.NewPCG(seed, 1))
	p := Plan{
		Nodes:    2 + r.IntN(4),
		Restores: []string{"none", "none", "none", "known", "cold"}[r.IntN(5)],
		Timeouts: r.IntN(6) == 0,
		Forger:   r.IntN(4) == 0,
		Quiet:    r.IntN(5) == 0,
		Reorgs:   r.IntN(2) == 0,
		Loss:     0.12,
		Late:     0.06,
		Chaos:    time.Duration(15+r.IntN(20)) * time.Second,
	}
	var names []string
	for i := range p.Nodes {
		names = append(names, fmt.Sprintf("n%d", i+1))
	}
	s := coord.Defaults(names...)
	s.HeartbeatInterval, s.RequestTimeout, s.StateTimeout = time.Second, time.Second, 3*time.Second
	s.DelegateTimeout, s.FlushGrace, s.BlockRange = time.Second, 5*time.Second, 10
	s.Once = []coord.Once{coord.Hold, coord.Ledger}[r.IntN(2)]
	s.Look = r.IntN(3) > 0
	s.KeepsActive = r.IntN(3) == 0
	s.MaxDispatchAhead = 1 + r.IntN(4)
	if r.IntN(5) == 0 {
		s.MaxInflight = 1 + r.IntN(10)
	}
	if r.IntN(3) == 0 {
		s.FirstRoom = 1 + r.IntN(2)
	}
	switch r.IntN(10) {
	case 0:
		s.Mode, s.Static = coord.Static, names[0]
	case 1:
		s.Mode = coord.Sender
	}
	p.Settings = s
	p.Restarts, p.Serves = []int{0, 0, 1, 2}[r.IntN(4)], r.IntN(3) == 0
	return p
}

// New begins the schedule of a number.
func New(seed uint64, plan Plan, fault coord.Fault) *World {
	w := &World{Seed: seed, Plan: plan, rng: rand.New(rand.NewPCG(seed, 2)), now: epoch, fault: fault,
		cuts: map[[2]string]time.Time{}, Visited: map[string]bool{}}
	w.ledger = &Ledger{w: w, height: 3 + w.rng.IntN(12), txs: map[string]*ledgerTx{}, spent: map[string]bool{}}
	for i, name := range plan.Settings.Nodes {
		n := &Node{name: name, w: w}
		if !plan.Perfect {
			n.offset = w.between(-5*time.Second, 5*time.Second)
			n.lag = int64(w.rng.IntN(3))
		}
		if plan.Boundary {
			w.ledger.height, n.lag = boundaryOf(plan.Settings), int64(i%2)
		}
		d := coord.New("tok", name, plan.Settings, 1)
		coord.Plant(d, fault)
		n.store = store{image: d}
		w.nodes = append(w.nodes, n)
	}
	return w
}

// boundaryOf is the first block of a range in which the second node outranks the first, which outranked it before.
func boundaryOf(s coord.Settings) int {
	second := func(at int64) bool {
		list := coord.Priority(s.Nodes, at)
		return slices.Index(list, s.Nodes[1]) < slices.Index(list, s.Nodes[0])
	}
	at := s.BlockRange
	for second(at-s.BlockRange) || !second(at) {
		at += s.BlockRange
	}
	return int(at)
}

// Run plays a schedule to its end, and returns what it broke.
func (w *World) Run() []string {
	for _, n := range w.nodes {
		w.after(w.between(0, 500*time.Millisecond), n.start)
	}
	w.after(blockTime, w.ledger.tick)
	w.after(time.Second, w.moments)
	w.submit()
	if !w.Plan.Perfect {
		w.trouble()
	}
	w.run(epoch.Add(w.Plan.Chaos), nil)
	w.heal()
	w.run(w.now.Add(4*time.Minute), w.settled)
	w.run(w.now.Add(5*time.Second), nil) // late messages may still come
	if len(w.broken) == 0 {
		w.check()
	}
	return w.broken
}

// Command repeats a schedule.
func Command(seed uint64, fault coord.Fault) string {
	c := fmt.Sprintf(`make sim ARGS="-seed %d"`, seed)
	if fault != "" {
		c += " with the planted fault: " + string(fault)
	}
	return c
}

func (w *World) node(name string) *Node {
	for _, n := range w.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}

// hash draws a number from words: the same words, the same number.
func hash(words ...string) uint64 {
	h := uint64(14695981039346656037)
	for _, b := range []byte(strings.Join(words, " ")) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	h ^= h >> 29
	h *= 0xbf58476d1ce4e5b9
	return h ^ h>>32
}
