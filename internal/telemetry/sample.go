package telemetry

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Sample is what is read of the database now and then. internal/pg takes it.
type Sample struct {
	Waiting        int64            // transactions behind those in flight; what a node settled in this quarter second is still in it
	OldestHead     float64          // seconds that the head has stood which has stood longest, not paused and past its time
	Queues         map[string]int64 // with work, by state
	Senders        []SenderCount
	Deliveries     map[string]int64 // that have not ended, by state, to 100,000
	RiverLag       float64          // seconds that a job of ours has been due
	OldestSnapshot float64          // seconds that the oldest SQL transaction of the database has been open
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

// A sample is shared by all scrapes of sampleEvery; sampleWithin is what it may take.
const (
	sampleEvery  = 15 * time.Second
	sampleWithin = 5 * time.Second
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
	last Sample
	err  error
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("postern_"+name, help, labels, nil)
}

var (
	descWaiting        = describe("waiting", "Transactions that wait, as of a sample of at most 15 s ago.")
	descOldestHead     = describe("oldest_head_seconds", "How long the head has not moved that has stood longest; what is paused or not yet due does not count.")
	descQueues         = describe("queues", "Queues with work, by state.", "state")
	descSenders        = describe("senders", "Senders, by pool and state.", "pool", "state")
	descDeliveries     = describe("deliveries", "Deliveries: pending and queued now (to 100,000); delivered, failed and absent by this process since its start.", "state")
	descRiverLag       = describe("river_lag_seconds", "How long a job has been due that nobody has taken.")
	descOldestSnapshot = describe("oldest_snapshot_seconds", "Age of the oldest open SQL transaction that we may see; while it lives, dead rows stay.")
	descWaits          = describe("db_wait_seconds", "Waiting for a database connection: how often, and how long in all.")
	descLeaseAge       = describe("lease_age_seconds", "Since the last heartbeat that reached the database; at the TTL the leases are lost.")
)

// Describe lists what Collect may bring.
func (s *sampler) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descWaiting, descOldestHead, descQueues, descSenders, descDeliveries, descRiverLag, descOldestSnapshot, descWaits, descLeaseAge} {
		c <- d
	}
}

// Collect brings the numbers as they are. A database that does not answer leaves out what it was asked.
func (s *sampler) Collect(c chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
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
	gauge(descWaiting, float64(v.Waiting))
	gauge(descOldestHead, v.OldestHead)
	gauge(descRiverLag, v.RiverLag)
	gauge(descOldestSnapshot, v.OldestSnapshot)
	for state, n := range v.Queues {
		gauge(descQueues, float64(n), state)
	}
	for state, n := range v.Deliveries {
		gauge(descDeliveries, float64(n), state)
	}
	for _, n := range fewPools(v.Senders) {
		gauge(descSenders, float64(n.Count), n.Pool, n.State)
	}
}

// sample returns the last sample, or a new one where that is old. One that failed is not asked for again
// at once either.
func (s *sampler) sample() (Sample, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.at.IsZero() && time.Since(s.at) < sampleEvery {
		return s.last, s.err
	}
	ctx, cancel := context.WithTimeout(context.Background(), sampleWithin)
	defer cancel()
	s.last, s.err = s.from.Sample(ctx)
	s.at = time.Now()
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
