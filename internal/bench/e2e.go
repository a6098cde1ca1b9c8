package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/pg"
)

// E2E posts over HTTP while what was posted before is dispatched to a worker that does nothing, and
// counts until the last outcome is recorded.
type E2E struct {
	URL         string // of the API
	Store       *pg.Store
	Queues      int
	Depth       int // transactions per queue
	Connections int
	Runs        int
	Progress    func(string) // a line now and then; nil for none
}

// Result is the JSON line of a scenario. Rates are transactions a second, times are milliseconds.
type Result struct {
	Scenario     string  `json:"scenario"`
	System       string  `json:"system"`
	Queues       int     `json:"queues"`
	Depth        int     `json:"depth"`
	Connections  int     `json:"connections"`
	Transactions int     `json:"transactions"`
	Runs         int     `json:"runs"`
	Rate         float64 `json:"rate"` // median of the runs
	RateMin      float64 `json:"rate_min"`
	RateMax      float64 `json:"rate_max"`
	PostP50      float64 `json:"post_p50_ms"`
	PostP99      float64 `json:"post_p99_ms"`
	PostP999     float64 `json:"post_p999_ms"`
	Violations   int     `json:"violations"`
}

// benchType is the type of everything that a benchmark posts.
const benchType = "BENCH"

// Run measures. An error is a wrong run, with no result.
func (b *E2E) Run(ctx context.Context) (*Result, error) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: b.Connections, MaxConnsPerHost: b.Connections}}
	defer client.CloseIdleConnections()
	if err := put(ctx, client, b.URL+"/dispatchers/"+benchType, `{"worker_url": "noop:", "slots": 1000}`); err != nil {
		return nil, err
	}
	r := &Result{Scenario: "e2e", System: "postern", Queues: b.Queues, Depth: b.Depth, Connections: b.Connections,
		Transactions: b.Queues * b.Depth, Runs: b.Runs}
	var rates []float64
	var posts []time.Duration
	for run := range b.Runs {
		rate, times, err := b.once(ctx, client, run)
		if err != nil {
			return nil, fmt.Errorf("run %d of %d: %w", run+1, b.Runs, err)
		}
		rates, posts = append(rates, rate), append(posts, times...)
		b.say(fmt.Sprintf("e2e: run %d of %d: %.0f transactions a second", run+1, b.Runs, rate))
	}
	slices.Sort(rates)
	slices.Sort(posts)
	at := func(q float64) float64 { return float64(posts[int(q*float64(len(posts)-1))].Microseconds()) / 1000 }
	r.Rate, r.RateMin, r.RateMax = rates[len(rates)/2], rates[0], rates[len(rates)-1]
	r.PostP50, r.PostP99, r.PostP999 = at(0.5), at(0.99), at(0.999)
	return r, nil
}

func (b *E2E) say(line string) {
	if b.Progress != nil {
		b.Progress(line)
	}
}

// once is one run over fresh queues: depth rounds over all queues, so that neighbours in time belong to
// different queues, as many clients would post them. A queue is always posted to by the same connection,
// one after the other: its order is then known, and checked.
func (b *E2E) once(ctx context.Context, client *http.Client, run int) (float64, []time.Duration, error) {
	total := b.Queues * b.Depth
	prefix := fmt.Sprintf("bench-%d-%d", time.Now().UnixNano(), run)
	times := make([]time.Duration, total)
	var wg sync.WaitGroup
	failures := make(chan error, b.Connections)
	start := time.Now()
	for c := range b.Connections {
		wg.Go(func() {
			for i := range b.Depth {
				for q := c; q < b.Queues && ctx.Err() == nil; q += b.Connections {
					began := time.Now()
					if err := post(ctx, client, b.URL, fmt.Sprintf("%s-%d", prefix, q), i); err != nil {
						failures <- err
						return
					}
					times[i*b.Queues+q] = time.Since(began)
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-failures:
		return 0, nil, err
	default:
	}
	var ids []int64
	if err := b.Store.Pool().QueryRow(ctx, `SELECT array_agg(queue_id) FROM postern.queue_name WHERE name LIKE $1 || '-%'`, prefix).Scan(&ids); err != nil {
		return 0, nil, err
	}
	if err := b.await(ctx, ids, total); err != nil {
		return 0, nil, err
	}
	took := time.Since(start)
	return float64(total) / took.Seconds(), times, b.check(ctx, ids, total)
}

// await waits until every outcome is recorded.
func (b *E2E) await(ctx context.Context, queues []int64, total int) error {
	said := time.Now()
	for {
		var n int
		if err := b.Store.Pool().QueryRow(ctx, `SELECT count(*) FROM postern.outcome WHERE queue_id = ANY ($1) AND day >= $2`, queues, time.Now().UTC().AddDate(0, 0, -1)).Scan(&n); err != nil {
			return err
		}
		if n >= total {
			return nil
		}
		if time.Since(said) > 2*time.Second {
			said = time.Now()
			b.say(fmt.Sprintf("e2e: %d of %d ended", n, total))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d transactions ended: %w", n, total, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// check compares what is stored with what was acknowledged: complete, each once, DONE, in order.
func (b *E2E) check(ctx context.Context, ids []int64, total int) error {
	var stored, queues, ended, done, disorder int
	err := b.Store.Pool().QueryRow(ctx, `SELECT count(*), count(DISTINCT queue_id) FROM postern.task WHERE queue_id = ANY ($1)`, ids).Scan(&stored, &queues)
	if err == nil {
		err = b.Store.Pool().QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE state = 'DONE'), count(*) FILTER (WHERE done_at < before OR fence < fence_before OR n < n_before)
			FROM (SELECT o.state, o.done_at, o.fence, (t.data->>'n')::bigint AS n, lag(o.done_at) OVER w AS before, lag(o.fence) OVER w AS fence_before,
					lag((t.data->>'n')::bigint) OVER w AS n_before
				FROM postern.outcome o JOIN postern.task t USING (queue_id, seq, day) WHERE o.queue_id = ANY ($1)
				WINDOW w AS (PARTITION BY o.queue_id ORDER BY o.seq)) o`, ids).Scan(&ended, &done, &disorder)
	}
	switch {
	case err != nil:
		return err
	case stored != total || ended != total || done != total || queues != b.Queues || disorder > 0:
		return fmt.Errorf("wrong run, no rate: %d acknowledged, %d stored, %d DONE, %d of %d queues, %d out of order", total, stored, done, queues, b.Queues, disorder)
	}
	return nil
}

func post(ctx context.Context, client *http.Client, url, queue string, n int) error {
	body := fmt.Sprintf(`{"queue": %q, "type": %q, "data": {"n": %d, "to": "B62qre3erTHfzQckNuibViWQGyyKwZseztqrjPZBv6SQF384Rg6ESAy", "amount": "1000000"}}`, queue, benchType, n)
	return send(ctx, client, http.MethodPost, url+"/transactions", body, http.StatusCreated)
}

func put(ctx context.Context, client *http.Client, url, body string) error {
	return send(ctx, client, http.MethodPut, url, body, http.StatusCreated, http.StatusOK)
}

func send(ctx context.Context, client *http.Client, method, url, body string, want ...int) error {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	answer, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return err
	}
	if !slices.Contains(want, res.StatusCode) {
		return fmt.Errorf("%s %s answered %s: %.300s", method, url, res.Status, answer)
	}
	return nil
}
