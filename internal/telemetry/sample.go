package telemetry

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Sample is what is read of the database now and then. internal/pg takes it.
type Sample struct {
	Waiting        int64              // transactions behind those in flight; what a node settled in this quarter second is still in it
	OldestHeads    map[string]float64 // seconds that the head has stood which has stood longest, not paused and past its time, by state
	Queues         map[string]int64   // with work, by state
	Senders        []SenderCount
	HeldByType     map[string]int64 // transactions that wait for somebody to say what came of them, where there are any
	Held           map[string]int64 // senders that are paused, drained or blocked and serve no queue, by pool
	Deliveries     map[string]int64 // that have not ended, by state, to 100,000
	RiverLag       float64          // seconds that a job of ours has been due
	OldestSnapshot float64          // seconds that the oldest SQL transaction of the database has been open
	Trouble        Trouble
	Jobs           Jobs
	Messages       Messages
	Peers          Peers
	Domains        Domains
}

// Domains is what is read of domains: intents that have not ended and how long the oldest has been in its state, by
// state, and seats by the state of their coordinator.
type Domains struct {
	Intents      map[string]int64
	Oldest       map[string]float64
	Coordinators map[string]int64
}

// Peers is what is read of other installations: how many take calls or refuse them, and for how long the one has
// refused that has refused longest.
type Peers struct {
	States  map[string]int64
	Refused float64
}

// Messages is what is read of messages that have not ended, by what they wait for.
type Messages struct {
	Open   map[string]int64
	Oldest map[string]float64
}

// Jobs is what is read of jobs and runners; internal/pg/flows says what each is.
type Jobs struct {
	Offers           map[string]int64
	Oldest, Stranded map[string]float64
	Runners          map[string]int64
}

// Trouble is what alerts stand on; internal/pg says what each is, in these words.
type Trouble struct {
	Forgotten, Overdue      int64
	Stalled                 float64
	Nodes                   int64
	OldestDelivery, Staged  float64
	RiverRunning            float64
	HotUpdates, ColdUpdates int64
	DaysAhead               int64
	SourcesFailed           int64
	SourceLag               float64
	Gates                   int64
	Quarantined             int64
	SlotBytes               int64
}

// SenderCount is how many senders of a pool are in a state.
type SenderCount struct {
	Pool, State string
	Count       int64
}

// Waits are what the connection pool counts since the start: how often somebody had to wait, how long in all.
type Waits struct {
	Count uint64
	Total time.Duration
}

// Sources are where the numbers come from that are asked for with each scrape; nil ones are left out.
type Sources struct {
	Sample   func(context.Context) (Sample, error)
	Waits    func() Waits
	LeaseAge func() (age time.Duration, dispatches bool)
}

// A sample is shared by all scrapes of sampleEvery, or of sampleSpares times what it took, since it reads
// all queues with work, but not for longer than sampleOld; sampleWithin is what it may take.
const (
	sampleEvery  = 15 * time.Second
	sampleWithin = 5 * time.Second
	sampleSpares = 50
	sampleOld    = time.Minute
)

// maxPools is how many pools are shown by name.
const maxPools = 200

// Watch adds what is asked for with each scrape. It is called once, before the first.
func (m *Metrics) Watch(s Sources) {
	if m != nil {
		m.registry.MustRegister(&sampler{m: m, from: s})
	}
}

// sampler asks its sources when it is scraped.
type sampler struct {
	m    *Metrics
	from Sources

	mu   sync.Mutex // one sample at a time
	at   time.Time
	took time.Duration
	last Sample
	err  error
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("postern_"+name, help, labels, nil)
}

var (
	descWaiting    = describe("waiting", "Transactions that wait, as of a sample of at most 15 s ago.")
	descOldestHead = describe("oldest_head_seconds", "How long the head has not moved that has stood longest; what is paused or not yet due does not count, nor "+
		"a job that a runner has, or that waits for one.")
	descHeadByState = describe("oldest_head_by_state_seconds", "The same, by state of the queue.", "state")
	descQueues      = describe("queues", "Queues with work, by state.", "state")
	descSenders     = describe("senders", "Senders, by pool and state.", "pool", "state")
	descHeld        = describe("senders_held", "Senders that are paused, drained or blocked and serve no queue, by pool.", "pool")
	descHeldByType  = describe("held_transactions", "Sent, and an operator has to say what came of them.", "type")
	descForgotten   = describe("forgotten_queues",
		"Queues with work that no process will look at: 0, or a fault of ours.")
	descOverdue        = describe("overdue_queues", "Queues that are in a state for longer than it may last, although a process works: 0, or a fault of ours.")
	descStalled        = describe("stalled_seconds", "How long a queue has stood ready although its worker can be reached and a sender is free.")
	descNodes          = describe("nodes", "Processes that dispatch and were heard of within their lease TTL.")
	descOldestDelivery = describe("oldest_delivery_seconds", "Since the oldest event happened that its endpoint has not taken.")
	descStaged         = describe("staged_seconds", "How long the oldest transaction that SQL submitted has not been drained into its queue.")
	descRiverRunning   = describe("river_running_seconds", "How long a job other than dispatch has been running.")
	descUpdates        = describe("queue_updates_total", "Updates of queue rows: hot ones stay on their page.", "hot")
	descDaysAhead      = describe("partition_days_ahead", "Days after today that have their partitions.")
	descGates          = describe("gates_closed", "Types and senders whose worker is left alone but for probes.")
	descQuarantine     = describe("quarantine", "Scopes that are in quarantine: of 1 or more nothing leaves.")
	descSlotBytes      = describe("slot_wal_bytes", "WAL that the laggard of the replication slots keeps.")
	descSourcesFailed  = describe("sources_failed", "Sources of events that have stopped until somebody resumes them.")
	descSourceLag      = describe("source_lag_seconds", "How long the running source of events has not been read to its end that is furthest behind.")
	descDeliveries     = describe("deliveries", "Deliveries: pending and queued now (to 100,000); delivered, failed and absent by this process since its start.", "state")
	descRiverLag       = describe("river_lag_seconds", "How long a job has been due that no process has taken.")
	descOldestSnapshot = describe("oldest_snapshot_seconds", "Age of the oldest open SQL transaction that we may see; while it lives, dead rows stay.")
	descOffers         = describe("job_offers", "Jobs that runners may take now, to 100,000 in all.", "script_type")
	descOldestOffer    = describe("oldest_offer_seconds", "How long the oldest job has been offered to runners.",
		"script_type")
	descStrandedOffer = describe("stranded_offer_seconds",
		"How long the oldest job has been offered that no runner takes which is alive and not paused.", "script_type")
	descRunners  = describe("runners", "Runners: live, paused, or silent for longer than their ttl.", "state")
	descMessages = describe("messages_open",
		"Messages that wait for their delivery, acknowledgement or result, to 100,000 in all.", "waits_for")
	descOldestMessage = describe("oldest_message_seconds",
		"How long the oldest message has waited for that.", "waits_for")

	descPeers = describe("peers",
		"Other installations that are called: those that take calls, and those that refuse them.", "state")
	descPeerRefused = describe("peer_refused_seconds",
		"How long the other installation has refused calls that has refused them longest.")

	descIntents      = describe("intents_open", "Intents of domains that have not ended, to 100,000 in all.", "state")
	descOldestIntent = describe("oldest_intent_seconds",
		"How long the oldest intent has been in a state, of those that have not ended.", "state")
	descCoordinators = describe("coordinators", "Domains, by the state of this node as their coordinator.", "state")

	descWaits    = describe("db_wait_seconds", "Waiting for a database connection: how often, and how long in all.")
	descLeaseAge = describe("lease_age_seconds", "Since the last heartbeat that reached the database; at the TTL the leases are lost.")
)

// Describe lists what Collect may bring.
func (s *sampler) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descHeldByType, descOffers, descOldestOffer, descStrandedOffer, descRunners,
		descMessages, descOldestMessage, descPeers, descPeerRefused, descIntents, descOldestIntent, descCoordinators,
		descHeadByState, descHeld, descForgotten, descOverdue, descStalled, descNodes, descOldestDelivery, descStaged, descRiverRunning, descUpdates, descDaysAhead, descGates, descQuarantine, descSlotBytes, descSourcesFailed, descSourceLag, descWaiting, descOldestHead, descQueues, descSenders, descDeliveries, descRiverLag, descOldestSnapshot, descWaits, descLeaseAge} {
		c <- d
	}
}

// Collect brings the numbers as they are. A database that does not answer leaves out what it was asked.
func (s *sampler) Collect(c chan<- prometheus.Metric) {
	gauge := gauges(c)
	for state, n := range s.m.delivered {
		gauge(descDeliveries, float64(n.Load()), state)
	}
	if s.from.Waits != nil {
		w := s.from.Waits()
		c <- prometheus.MustNewConstSummary(descWaits, w.Count, w.Total.Seconds(), nil)
	}
	if s.from.LeaseAge != nil {
		if age, dispatches := s.from.LeaseAge(); dispatches {
			gauge(descLeaseAge, age.Seconds())
		}
	}
	if s.from.Sample == nil {
		return
	}
	v, err := s.sample()
	if err != nil {
		c <- prometheus.NewInvalidMetric(descWaiting, err)
		return
	}
	collectWork(c, v)
	collectTrouble(c, v.Trouble)
	collectJobs(c, v.Jobs)
	collectMessages(c, v.Messages)
	collectPeers(c, v.Peers)
	collectDomains(c, v.Domains)
}

// collectDomains brings the numbers of domains and their intents.
func collectDomains(c chan<- prometheus.Metric, d Domains) {
	gauge := gauges(c)
	for state, n := range d.Intents {
		gauge(descIntents, float64(n), state)
		gauge(descOldestIntent, d.Oldest[state], state)
	}
	for state, n := range d.Coordinators {
		gauge(descCoordinators, float64(n), state)
	}
}

// collectPeers brings the numbers of other installations.
func collectPeers(c chan<- prometheus.Metric, p Peers) {
	gauge := gauges(c)
	for state, n := range p.States {
		gauge(descPeers, float64(n), state)
	}
	if len(p.States) > 0 {
		gauge(descPeerRefused, p.Refused)
	}
}

// collectMessages brings the numbers of messages.
func collectMessages(c chan<- prometheus.Metric, m Messages) {
	gauge := gauges(c)
	for waits, n := range m.Open {
		gauge(descMessages, float64(n), waits)
		gauge(descOldestMessage, m.Oldest[waits], waits)
	}
}

// collectJobs brings the numbers of jobs and runners.
func collectJobs(c chan<- prometheus.Metric, j Jobs) {
	gauge := gauges(c)
	for typ, n := range few(j.Offers, maxTypes) {
		gauge(descOffers, float64(n), typ)
	}
	for typ, age := range oldestFew(j.Oldest, maxTypes) {
		gauge(descOldestOffer, age, typ)
	}
	for typ, age := range oldestFew(j.Stranded, maxTypes) {
		gauge(descStrandedOffer, age, typ)
	}
	for state, n := range j.Runners {
		gauge(descRunners, float64(n), state)
	}
}

// gauges returns a function that brings one value.
func gauges(c chan<- prometheus.Metric) func(d *prometheus.Desc, v float64, labels ...string) {
	return func(d *prometheus.Desc, v float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
}

// collectWork brings the numbers of queues, senders and deliveries.
func collectWork(c chan<- prometheus.Metric, v Sample) {
	gauge := gauges(c)
	gauge(descWaiting, float64(v.Waiting))
	oldest := 0.0
	for state, age := range v.OldestHeads {
		oldest = max(oldest, age)
		gauge(descHeadByState, age, state)
	}
	gauge(descOldestHead, oldest)
	gauge(descRiverLag, v.RiverLag)
	gauge(descOldestSnapshot, v.OldestSnapshot)
	for state, n := range v.Queues {
		gauge(descQueues, float64(n), state)
	}
	for state, n := range v.Deliveries {
		gauge(descDeliveries, float64(n), state)
	}
	for pool, n := range few(v.Held, maxPools) {
		gauge(descHeld, float64(n), pool)
	}
	for typ, n := range few(v.HeldByType, maxTypes) {
		gauge(descHeldByType, float64(n), typ)
	}
	for _, n := range fewPools(v.Senders) {
		gauge(descSenders, float64(n.Count), n.Pool, n.State)
	}
}

// collectTrouble brings the numbers that tell of trouble.
func collectTrouble(c chan<- prometheus.Metric, t Trouble) {
	gauge := gauges(c)
	gauge(descForgotten, float64(t.Forgotten))
	gauge(descOverdue, float64(t.Overdue))
	gauge(descStalled, t.Stalled)
	gauge(descNodes, float64(t.Nodes))
	gauge(descOldestDelivery, t.OldestDelivery)
	gauge(descStaged, t.Staged)
	gauge(descRiverRunning, t.RiverRunning)
	gauge(descDaysAhead, float64(t.DaysAhead))
	gauge(descSlotBytes, float64(t.SlotBytes))
	gauge(descGates, float64(t.Gates))
	gauge(descQuarantine, float64(t.Quarantined))
	gauge(descSourcesFailed, float64(t.SourcesFailed))
	gauge(descSourceLag, t.SourceLag)
	for hot, n := range map[string]int64{"true": t.HotUpdates, "false": t.ColdUpdates} {
		c <- prometheus.MustNewConstMetric(descUpdates, prometheus.CounterValue, float64(n), hot)
	}
}

// sample returns the last sample, or a new one where that is old. One that failed is asked for again
// after sampleEvery, however long it took to fail.
func (s *sampler) sample() (Sample, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.at.IsZero() && time.Since(s.at) < max(sampleEvery, min(sampleSpares*s.took, sampleOld)) {
		return s.last, s.err
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), sampleWithin)
	defer cancel()
	s.last, s.err = s.from.Sample(ctx)
	if s.at, s.took = time.Now(), time.Since(began); s.err != nil {
		s.took = 0
	}
	return s.last, s.err
}

// fewPools counts the pools past maxPools together. The same pool and state occur once.
func fewPools(list []SenderCount) []SenderCount {
	pools := map[string]bool{}
	total := map[SenderCount]int64{}
	for _, n := range list {
		if !pools[n.Pool] && len(pools) >= maxPools {
			n.Pool = otherType
		}
		pools[n.Pool] = true
		total[SenderCount{Pool: n.Pool, State: n.State}] += n.Count
	}
	var few []SenderCount
	for k, n := range total {
		few = append(few, SenderCount{k.Pool, k.State, n})
	}
	return few
}

// few counts the names past the first most together.
func few(counts map[string]int64, most int) map[string]int64 {
	if len(counts) <= most {
		return counts
	}
	short := map[string]int64{}
	for i, name := range slices.Sorted(maps.Keys(counts)) {
		if i >= most {
			short[otherType] += counts[name]
		} else {
			short[name] = counts[name]
		}
	}
	return short
}

// oldestFew is few for ages: of the names past the first most the oldest one counts.
func oldestFew(ages map[string]float64, most int) map[string]float64 {
	short := map[string]float64{}
	for i, name := range slices.Sorted(maps.Keys(ages)) {
		age := ages[name]
		if i >= most {
			name = otherType
		}
		short[name] = max(short[name], age)
	}
	return short
}
