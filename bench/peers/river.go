package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const workerCommand = "river-worker"

// row is the payload that postern bench posts, with its place.
type row struct {
	Key    int    `json:"key"`
	Seq    int    `json:"seq"`
	To     string `json:"to"`
	Amount string `json:"amount"`
}

func (row) Kind() string { return "bench" }

func newRow(key, seq int) row {
	return row{key, seq, "B62qre3erTHfzQckNuibViWQGyyKwZseztqrjPZBv6SQF384Rg6ESAy", "1000000"}
}

// handler is River's worker for rows.
type handler struct {
	river.WorkerDefaults[row]
	hold    time.Duration
	record  record
	total   int
	began   chan time.Time // of idle-latency; nil otherwise
	handled func()
}

func (h *handler) Work(ctx context.Context, job *river.Job[row]) error {
	if h.began != nil {
		h.began <- time.Now()
	}
	h.record.begin(job.Args.Key, job.Args.Seq)
	if h.hold > 0 {
		time.Sleep(h.hold)
	}
	if h.record.end(job.Args.Key, job.Args.Seq) == h.total {
		h.handled()
	}
	return nil
}

// riverWorker is the whole life of a worker process; it returns the exit code.
func riverWorker(args []string) int {
	if err := workRiver(args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func workRiver(args []string) error {
	var o order
	if len(args) != 1 {
		return fmt.Errorf("want one argument, an order, and got %d", len(args))
	}
	if err := json.Unmarshal([]byte(args[0]), &o); err != nil {
		return err
	}
	ctx := context.Background()
	cfg, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	cfg.MaxConns = 20
	if o.Kind == e2e {
		cfg.MaxConns = clients + 20 // those of the clients, so that inserting waits for no connection
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	m, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return err
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	told := newSpeaker()
	h := &handler{hold: time.Duration(o.HoldMs) * time.Millisecond, total: o.Keys * o.Depth}
	h.handled = func() { told.say(said{Event: "handled"}) }
	if o.Kind == idle {
		h.began, h.handled = make(chan time.Time, 1), func() {}
	}
	client, err := riverClient(pool, h, o)
	if err != nil {
		return err
	}
	begin := func() error { return client.Start(ctx) }
	switch o.Kind {
	case fifo:
		if err := loadRiver(ctx, client, o); err != nil {
			return err
		}
	case e2e, idle:
		if err := client.Start(ctx); err != nil {
			return err
		}
		begin = func() error { return insertAll(ctx, client, o) }
		if o.Kind == idle {
			begin = func() error { return insertSlowly(ctx, client, h, o, told) }
		}
	}
	told.say(said{Event: "loaded"})
	listen(os.Stdin, func() {
		go func() {
			if err := begin(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}()
	})
	if err := h.record.write(o.Record); err != nil {
		return err
	}
	told.say(said{Event: "stopped"})
	return nil
}

// riverClient is River, tuned: https://riverqueue.com/docs/benchmarks has 2,000 workers, and of FetchCooldown
// its documentation says that it limits the throughput (https://pkg.go.dev/github.com/riverqueue/river#Config).
func riverClient(pool *pgxpool.Pool, h *handler, o order) (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, h)
	queues := map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2000}}
	if o.PerKey {
		queues = map[string]river.QueueConfig{}
		for key := range o.Keys {
			queues[queueOf(key)] = river.QueueConfig{MaxWorkers: 1}
		}
	}
	return river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues: queues, Workers: workers, Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 50 * time.Millisecond,
	})
}

func queueOf(key int) string { return fmt.Sprintf("key-%d", key) }

// loadRiver writes the rows in the fastest way there is (https://riverqueue.com/docs/batch-job-insertion).
func loadRiver(ctx context.Context, client *river.Client[pgx.Tx], o order) error {
	const most = 10000
	var chunk []river.InsertManyParams
	flush := func() error {
		_, err := client.InsertManyFast(ctx, chunk)
		chunk = chunk[:0]
		return err
	}
	for seq := range o.Depth {
		for key := range o.Keys {
			p := river.InsertManyParams{Args: newRow(key, seq)}
			if o.PerKey {
				p.InsertOpts = &river.InsertOpts{Queue: queueOf(key)}
			}
			if chunk = append(chunk, p); len(chunk) == most {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	if len(chunk) == 0 {
		return nil
	}
	return flush()
}

// clients insert at once in e2e, as many as postern bench has connections.
const clients = 64

// insertAll inserts one at a time and each in its own transaction, as a POST does, or so many at a time.
func insertAll(ctx context.Context, client *river.Client[pgx.Tx], o order) error {
	var wg sync.WaitGroup
	failures := make(chan error, clients)
	for c := range clients {
		wg.Go(func() {
			var batch []river.InsertManyParams
			insert := func(last bool) (err error) {
				switch {
				case o.InsertMany == 0 && len(batch) > 0:
					_, err = client.Insert(ctx, batch[0].Args, nil)
				case len(batch) < o.InsertMany && !last || len(batch) == 0:
					return nil
				default:
					_, err = client.InsertManyFast(ctx, batch)
				}
				batch = batch[:0]
				return err
			}
			for seq := range o.Depth {
				for key := c; key < o.Keys; key += clients {
					batch = append(batch, river.InsertManyParams{Args: newRow(key, seq)})
					if err := insert(false); err != nil {
						failures <- err
						return
					}
				}
			}
			if err := insert(true); err != nil {
				failures <- err
			}
		})
	}
	wg.Wait()
	close(failures)
	return <-failures
}

// insertSlowly inserts once a second, by the clock and not by the answer, and tells how long each took from the
// begin of the insert to the begin of its call.
func insertSlowly(ctx context.Context, client *river.Client[pgx.Tx], h *handler, o order, told speaker) error {
	var took []float64
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for seq := range o.Depth {
		<-tick.C
		began := time.Now()
		if _, err := client.Insert(ctx, newRow(0, seq), nil); err != nil {
			return err
		}
		took = append(took, (<-h.began).Sub(began).Seconds()*1000)
	}
	told.say(said{Event: "handled", Latencies: took})
	return nil
}
