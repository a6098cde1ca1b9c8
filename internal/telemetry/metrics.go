package telemetry

import (
	"cmp"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/machine"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/processor"
)

// maxTypes is how many types have series of their own; the rest share those of otherType. A type has at most 20, so
// that none of them is a histogram: how calls are spread is told by class, for all types together.
const (
	maxTypes  = 200
	otherType = "(other)"
)

// okClass is the class of a call that nothing was wrong with.
const okClass = "ok"

// Buckets, in seconds: of what the database does, of calls, and of states, which may last for hours.
var (
	fast   = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10}
	calls  = []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 600}
	states = []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600, 24 * 3600}
)

// Metrics are the numbers of one process. Its methods are safe for concurrent use, and for a nil receiver.
type Metrics struct {
	registry *prometheus.Registry

	transactions *prometheus.CounterVec
	retries      *prometheus.CounterVec
	worker       *prometheus.HistogramVec
	workerCalls  *prometheus.CounterVec
	workerTime   *prometheus.SummaryVec
	requests     *prometheus.HistogramVec
	claim        prometheus.Histogram
	settle       prometheus.Histogram
	refused      prometheus.Counter
	handedBack   prometheus.Counter
	rejections   *prometheus.CounterVec
	events       *prometheus.CounterVec
	stale        prometheus.Counter
	untold       prometheus.Counter
	lapsed       prometheus.Counter
	deadlines    *prometheus.CounterVec
	intents      *prometheus.CounterVec
	coordination *prometheus.CounterVec
	panics       *prometheus.CounterVec

	left  map[outbox.State]prometheus.Observer
	freed map[outbox.QueueState]prometheus.Observer
	batch map[processor.State]prometheus.Observer
	calls map[outbox.Class]prometheus.Observer // of workers, by class; "" is ok
	event map[string]prometheus.Observer
	// Of domains: states of both machines of transactions, behind the name of the machine.
	intent map[string]prometheus.Observer

	mu        sync.Mutex
	types     atomic.Pointer[map[string]*typeMetrics] // replaced when a type is new
	delivered map[string]*atomic.Int64                // since the start, by the state in which a delivery ended
}

// typeMetrics are the numbers of one type, found once, so that counting allocates nothing.
type typeMetrics struct {
	entered map[outbox.State]prometheus.Counter
	retried map[outbox.Class]prometheus.Counter
	called  map[outbox.Class]prometheus.Counter
	took    prometheus.Observer
	row     prometheus.Counter // rejections in a row
}

// endStates are the states in which a delivery ends.
var endStates = []string{"delivered", "failed", "absent"}

// New makes the numbers of a process, all zero.
func New() *Metrics {
	m := &Metrics{
		registry:  prometheus.NewRegistry(),
		delivered: map[string]*atomic.Int64{},
		left:      map[outbox.State]prometheus.Observer{},
		freed:     map[outbox.QueueState]prometheus.Observer{},
		batch:     map[processor.State]prometheus.Observer{},
		event:     map[string]prometheus.Observer{},
		intent:    map[string]prometheus.Observer{},
		calls:     map[outbox.Class]prometheus.Observer{},
	}
	m.types.Store(&map[string]*typeMetrics{})
	for _, s := range endStates {
		m.delivered[s] = new(atomic.Int64)
	}
	m.makeCallsAndRequests()
	m.makeCounters()
	m.makeStates()
	m.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// makeCallsAndRequests makes the numbers of transactions, calls of workers and requests.
func (m *Metrics) makeCallsAndRequests() {
	m.transactions = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "postern_transactions_total",
		Help: "Transactions that entered a state, by this process's doing. WAITING: accepted, or back because the worker was away."}, []string{"type", "state"})
	m.retries = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "postern_retries_total",
		Help: "Retries that were consumed, by class of what went wrong."}, []string{"type", "class"})
	m.worker = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "postern_worker_seconds", Buckets: calls,
		Help: "How long a dispatch took at its worker, by class of what went wrong, or ok."}, []string{"class"})
	m.workerCalls = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "postern_worker_calls_total",
		Help: "Dispatches that came back from their worker, by class of what went wrong, or ok.",
	}, []string{"type", "class"})
	m.workerTime = prometheus.NewSummaryVec(prometheus.SummaryOpts{
		Name: "postern_worker_call_seconds",
		Help: "How long dispatches of a type took at their worker: how many, and how long in all.",
	}, []string{"type"})
	m.requests = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "postern_http_seconds", Buckets: calls,
		Help: "How long requests to the API took, the waiting included that they asked for."}, []string{"route", "status"})
	m.claim = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "postern_claim_seconds", Buckets: fast,
		Help: "How long a claim of ready queues took, also one that found none."})
	m.settle = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "postern_settle_seconds", Buckets: fast,
		Help: "How long it took to record an answer, with the wait for others in its commit."})
	for _, c := range []outbox.Class{
		"", outbox.ClassBlocked, outbox.ClassAmbiguous, outbox.ClassRejected, outbox.ClassRetry,
	} {
		m.calls[c] = m.worker.WithLabelValues(cmp.Or(string(c), okClass))
	}
	m.registry.MustRegister(m.transactions, m.retries, m.worker, m.workerCalls, m.workerTime, m.requests, m.claim, m.settle)
}

// makeCounters makes the counters of what should be rare, and of events.
func (m *Metrics) makeCounters() {
	m.refused = prometheus.NewCounter(prometheus.CounterOpts{Name: "postern_stale_writes_refused_total",
		Help: "Late answers that changed nothing, since another owner had the queue."})
	m.handedBack = prometheus.NewCounter(prometheus.CounterOpts{Name: "postern_queues_handed_back_total",
		Help: "Queues that were this process's by their rows and that it did not work on, as after a commit without an answer."})
	m.rejections = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "postern_rejections_in_a_row_total",
		Help: "How often several queues in a row were rejected by one code: perhaps it is their worker.",
	}, []string{"type"})
	m.events = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "postern_events_total",
		Help: "Events of sources that ended, by how."}, []string{"status"})
	m.stale = prometheus.NewCounter(prometheus.CounterOpts{Name: "postern_events_stale_total",
		Help: "Events whose call of a tool did not end in time. It should not happen: alert on any."})
	m.untold = prometheus.NewCounter(prometheus.CounterOpts{Name: "postern_events_untold_total",
		Help: "Events whose workflow could not be told what came of them: alert on any."})
	m.lapsed = prometheus.NewCounter(prometheus.CounterOpts{Name: "postern_runner_lapses_total",
		Help: "Tries of jobs that were taken back from runners which were silent for longer than their ttl."})
	m.panics = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "postern_panics_total",
		Help: "Panics that were recovered, by what they ended: one request, flight, delivery or round of a loop. Alert on any."}, []string{"place"})
	for _, place := range []string{"request", "flight", "delivery", "transaction", "ingest", "settle"} { // others come with their first
		m.panics.WithLabelValues(place)
	}
	for _, status := range []string{"Successful", "Dead"} {
		m.events.WithLabelValues(status)
	}
	m.deadlines = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "postern_message_deadlines_total",
		Help: "Messages that ended in error since a deadline was over."}, []string{"deadline"})
	for _, name := range []string{"timeout", "timeout_ack", "timeout_result"} {
		m.deadlines.WithLabelValues(name)
	}
	m.intents = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "postern_intents_total",
		Help: "Intents of domains that ended here, by how."}, []string{"outcome"})
	for _, outcome := range []string{coord.Success, coord.Failure} {
		m.intents.WithLabelValues(outcome)
	}
	m.coordination = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "postern_coord_messages_total",
		Help: "Messages between nodes of domains: delivered to another node, or refused by it and dropped; taken " +
			"from another node, those of them that changed nothing, and those dropped since their domain is paused " +
			"or full."}, []string{"kind", "outcome"})
	m.registry.MustRegister(m.refused, m.handedBack, m.rejections, m.events, m.stale, m.untold, m.lapsed, m.panics,
		m.deadlines, m.intents, m.coordination)
}

// makeStates makes the times in the states of the machine tables.
func (m *Metrics) makeStates() {
	inState := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "postern_state_seconds", Buckets: states,
		Help: "How long a state lasted that was left, of the machine tables. A queue's FREE is not measured, nor are rotations of a batch."}, []string{"machine", "state"})
	for _, s := range outbox.States {
		if !s.Terminal() {
			m.left[s] = inState.WithLabelValues("transaction", string(s))
		}
	}
	for _, s := range outbox.QueueStates {
		if s != outbox.FREE {
			m.freed[s] = inState.WithLabelValues("queue", string(s))
		}
	}
	for _, s := range processor.Machine.States() {
		if !slices.Contains(processor.Machine.Terminal, s) {
			m.batch[processor.State(s)] = inState.WithLabelValues("batch", s)
		}
	}
	for _, s := range leader.Event.States() {
		if !slices.Contains(leader.Event.Terminal, s) {
			m.event[s] = inState.WithLabelValues("event", s)
		}
	}
	for _, table := range []machine.Table{coord.OriginatorTransaction, coord.CoordinatorTransaction} {
		for _, s := range table.States() {
			if !slices.Contains(table.Terminal, s) {
				m.intent[table.Name+"/"+s] = inState.WithLabelValues(table.Name, s)
			}
		}
	}
	m.registry.MustRegister(inState)
}

// Handler serves GET /metrics. A number that cannot be collected now is left out and logged.
func (m *Metrics) Handler(log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn), MaxRequestsInFlight: 4, Timeout: 10 * time.Second}))
	return mux
}

// of returns the numbers of a type.
func (m *Metrics) of(typ string) *typeMetrics {
	if t := (*m.types.Load())[typ]; t != nil {
		return t
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	known := *m.types.Load()
	if known[typ] == nil && len(known) >= maxTypes {
		typ = otherType
	}
	if t := known[typ]; t != nil {
		return t
	}
	t := &typeMetrics{
		entered: map[outbox.State]prometheus.Counter{},
		retried: map[outbox.Class]prometheus.Counter{},
		called:  map[outbox.Class]prometheus.Counter{},
		took:    m.workerTime.WithLabelValues(typ),
		row:     m.rejections.WithLabelValues(typ),
	}
	for _, s := range outbox.States {
		t.entered[s] = m.transactions.WithLabelValues(typ, string(s))
	}
	for _, c := range []outbox.Class{outbox.ClassAmbiguous, outbox.ClassRetry} { // others consume no retry
		t.retried[c] = m.retries.WithLabelValues(typ, string(c))
	}
	for c := range m.calls {
		t.called[c] = m.workerCalls.WithLabelValues(typ, cmp.Or(string(c), okClass))
	}
	more := maps.Clone(known)
	more[typ] = t
	m.types.Store(&more)
	return t
}

// Entered counts that a transaction of a type entered a state.
func (m *Metrics) Entered(typ string, s outbox.State) {
	if m == nil {
		return
	}
	if c := m.of(typ).entered[s]; c != nil {
		c.Inc()
	}
}

// Left takes how long a transaction had been in a state that it left.
func (m *Metrics) Left(s outbox.State, d time.Duration) {
	if m == nil {
		return
	}
	if o := m.left[s]; o != nil {
		o.Observe(max(0, d.Seconds()))
	}
}

// BatchLeft takes how long a batch of a processor had been in a state that it left. Rotations are no leaving.
func (m *Metrics) BatchLeft(s processor.State, d time.Duration) {
	if m == nil {
		return
	}
	if o := m.batch[s]; o != nil {
		o.Observe(max(0, d.Seconds()))
	}
}

// IntentLeft takes how long an intent, or a work of a coordinator, had been in a state that it left.
func (m *Metrics) IntentLeft(machine string, s coord.State, d time.Duration) {
	if m == nil {
		return
	}
	if o := m.intent[machine+"/"+string(s)]; o != nil {
		o.Observe(max(0, d.Seconds()))
	}
}

// IntentEnded counts an intent that has its receipt.
func (m *Metrics) IntentEnded(outcome string) {
	if m != nil {
		m.intents.WithLabelValues(outcome).Inc()
	}
}

// CoordMessage counts a message between nodes of a domain: delivered, refused, dropped, taken or ignored.
func (m *Metrics) CoordMessage(kind coord.Kind, outcome string) {
	if m != nil && kind.Known() {
		m.coordination.WithLabelValues(string(kind), outcome).Inc()
	}
}

// QueueLeft takes how long a queue had been in a state that it left.
func (m *Metrics) QueueLeft(s outbox.QueueState, d time.Duration) {
	if m == nil {
		return
	}
	if o := m.freed[s]; o != nil {
		o.Observe(max(0, d.Seconds()))
	}
}

// Retried counts a retry that was consumed.
func (m *Metrics) Retried(typ string, c outbox.Class) {
	if m == nil {
		return
	}
	if n := m.of(typ).retried[c]; n != nil {
		n.Inc()
	}
}

// Called takes how long a dispatch took at its worker, and what was wrong with it.
func (m *Metrics) Called(typ string, c outbox.Class, d time.Duration) {
	if m == nil {
		return
	}
	t := m.of(typ)
	if n := t.called[c]; n != nil {
		n.Inc()
		t.took.Observe(d.Seconds())
		m.calls[c].Observe(d.Seconds())
	}
}

// Claimed takes how long a claim took.
func (m *Metrics) Claimed(d time.Duration) {
	if m != nil {
		m.claim.Observe(d.Seconds())
	}
}

// Settled takes how long it took to record an answer.
func (m *Metrics) Settled(d time.Duration) {
	if m != nil {
		m.settle.Observe(d.Seconds())
	}
}

// Panicked counts a panic that was recovered; place is a constant of the program.
func (m *Metrics) Panicked(place string) {
	if m != nil {
		m.panics.WithLabelValues(place).Inc()
	}
}

// Refused counts a late answer that changed nothing.
func (m *Metrics) Refused() {
	if m != nil {
		m.refused.Inc()
	}
}

// HandedBack counts queues that were a process's by their rows, and that it did not work on.
func (m *Metrics) HandedBack(queues int) {
	if m != nil {
		m.handedBack.Add(float64(queues))
	}
}

// RejectedInARow counts that several queues in a row were rejected by one code.
func (m *Metrics) RejectedInARow(typ string) {
	if m != nil {
		m.of(typ).row.Inc()
	}
}

// Delivered counts a delivery that ended in a state; others are not counted.
func (m *Metrics) Delivered(state string) {
	if m == nil {
		return
	}
	if n := m.delivered[state]; n != nil {
		n.Add(1)
	}
}

// EventsEnded counts events of sources that ended.
func (m *Metrics) EventsEnded(status string, n int) {
	if m != nil {
		m.events.WithLabelValues(status).Add(float64(n))
	}
}

// EventLeft takes how long an event had been in a status that it left.
func (m *Metrics) EventLeft(status string, d time.Duration) {
	if m == nil {
		return
	}
	if o := m.event[status]; o != nil {
		o.Observe(max(0, d.Seconds()))
	}
}

// EventsStale counts events whose call of a tool did not end in time.
func (m *Metrics) EventsStale(n int) {
	if m != nil {
		m.stale.Add(float64(n))
	}
}

// RunnerLapsed counts tries that were taken back from a runner that was silent.
func (m *Metrics) RunnerLapsed(n int) {
	if m != nil {
		m.lapsed.Add(float64(n))
	}
}

// EventsUntold counts events whose workflow could not be told what came of them.
func (m *Metrics) EventsUntold(n int) {
	if m != nil {
		m.untold.Add(float64(n))
	}
}

// MessageDeadline counts a message that ended since a deadline was over.
func (m *Metrics) MessageDeadline(name string) {
	if m != nil {
		m.deadlines.WithLabelValues(name).Inc()
	}
}

// Served takes a request to the API: the pattern that it matched, its status, how long it took.
func (m *Metrics) Served(route string, status int, d time.Duration) {
	if m != nil {
		m.requests.WithLabelValues(route, strconv.Itoa(status)).Observe(d.Seconds())
	}
}
