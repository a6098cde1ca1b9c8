package bench

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// sampler looks ten times a second at what the server's backends are at: on a processor, or waiting for a
// lock, for the WAL, for their client. So a line says what limits it.
type sampler struct {
	cancel context.CancelFunc
	ended  chan struct{}
	looks  int
	seen   map[string]int
}

// sample begins to look, after it has ended the sampler that looked before.
func (b *Bench) sample(ctx context.Context) *sampler {
	b.sampler.stop()
	ctx, cancel := context.WithCancel(ctx)
	s := &sampler{cancel: cancel, ended: make(chan struct{}), seen: map[string]int{}}
	b.sampler = s
	go func() {
		defer close(s.ended)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if s.look(ctx, b) != nil {
				return
			}
		}
	}()
	return s
}

// look counts them once.
func (s *sampler) look(ctx context.Context, b *Bench) error {
	rows, err := b.pool.Query(ctx, `SELECT coalesce(wait_event_type || ':' || wait_event, 'running'), count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND state = 'active' AND backend_type = 'client backend' AND application_name <> 'postern-bench' GROUP BY 1`)
	if err != nil {
		return err
	}
	var at string
	var n int
	if _, err = pgx.ForEachRow(rows, []any{&at, &n}, func() error { s.seen[at] += n; return nil }); err == nil {
		s.looks++
	}
	return err
}

// stop ends it and returns how many backends were at what, on average; nil if it never looked.
func (s *sampler) stop() map[string]float64 {
	if s == nil {
		return nil
	}
	s.cancel()
	<-s.ended
	if s.looks == 0 {
		return nil
	}
	list := map[string]float64{}
	for at, n := range s.seen {
		list[at] = float64(n) / float64(s.looks)
	}
	return list
}

// averages puts the samples of several runs together, without states that were hardly seen.
func averages(trials []*trial) map[string]float64 {
	sum := map[string]float64{}
	n := 0.0
	for _, t := range trials {
		if t.cost.waits != nil {
			n++
		}
		for at, v := range t.cost.waits {
			sum[at] += v
		}
	}
	for at, v := range sum {
		if sum[at] = round(v / n); v/n < 0.01 {
			delete(sum, at)
		}
	}
	return sum
}
