package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// noop is the dispatcher whose worker is built in.
func noop() outbox.Dispatcher {
	d := outbox.DefaultDispatcher()
	d.Type, d.WorkerURL, d.Slots = benchType, "noop:", 1000
	return d
}

// called lets f run with a dispatcher whose worker is at url, with so many senders of their own if it needs
// any; afterwards the worker is the built-in one again.
func (b *Bench) called(ctx context.Context, url string, senders int, f func() error) error {
	d := noop()
	d.WorkerURL = url
	if senders > 0 {
		d.Pool = fmt.Sprintf("bench-%d", senders)
		d.Inclusion.PollEvery = outbox.Duration(time.Second)
		for i := range senders {
			if _, err := b.store.PutSender(ctx, db.By{Context: b.ctxID, Actor: "bench"},
				pg.Sender{Account: fmt.Sprintf("%s-%d", d.Pool, i), Pool: d.Pool}, 0); err != nil {
				return err
			}
		}
	}
	if err := b.prepare(ctx, d); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	return b.prepare(ctx, noop())
}

// serveNothing serves a worker from this process.
func serveNothing(w *Nothing) (url string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	s := &http.Server{Handler: w.Handler(), ReadHeaderTimeout: 5 * time.Second}
	go s.Serve(l)
	return "http://" + l.Addr().String(), func() { s.Close() }, nil
}

// once compares what a worker has counted with what it should: each transaction once.
func (s Seen) once(n int) (wrong []string, bad int) {
	if s.Tokens != n || s.Calls != n {
		return []string{fmt.Sprintf("%d transactions, the worker was called %d times with %d tokens", n,
			s.Calls, s.Tokens)}, max(n-s.Tokens, s.Tokens-n) + s.Calls - s.Tokens
	}
	return nil, 0
}

// httpWorker measures the sequencer with a worker that is a process of its own, over HTTP.
func httpWorker(ctx context.Context, b *Bench) ([]*Result, error) {
	w, err := b.launch(ctx, RoleWorker)
	if err != nil {
		return nil, err
	}
	defer w.Stop()
	if err := w.Go(); err != nil {
		return nil, err
	}
	if err := ready(ctx, w.URL); err != nil {
		return nil, err
	}
	var trials []*trial
	err = b.called(ctx, w.URL, 0, func() error {
		for i := range b.Runs {
			t, err := b.drain(ctx, load{keys: b.Queues, depth: b.Depth})
			if err != nil {
				return err
			}
			seen, err := seenAt(ctx, w.URL)
			if err != nil {
				return err
			}
			wrong, bad := seen.once((i + 1) * b.Queues * b.Depth)
			t.wrong, t.bad = append(t.wrong, wrong...), t.bad+bad
			b.told("http-worker", i, t)
			trials = append(trials, t)
		}
		return nil
	})
	r := b.summary("http-worker", "postern", trials)
	r.Settings["queues"], r.Settings["depth"] = b.Queues, b.Depth
	return []*Result{r}, err
}

func seenAt(ctx context.Context, url string) (s Seen, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/seen", nil)
	if err != nil {
		return s, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return s, err
	}
	defer res.Body.Close()
	return s, json.NewDecoder(res.Body).Decode(&s)
}

// inclusion is how long the chain of the scenario senders takes to include what was submitted.
const inclusion = time.Second

// senders measures what a few senders carry for many queues: each holds one queue from its dispatch to its inclusion,
// so that eight of them and an inclusion of one second allow eight a second. A rate below that shows the time between
// an inclusion and the next dispatch of the same sender.
func senders(ctx context.Context, b *Bench) ([]*Result, error) {
	worker := &Nothing{Inclusion: inclusion}
	url, stop, err := serveNothing(worker)
	if err != nil {
		return nil, err
	}
	defer stop()
	const many = 8
	var trials []*trial
	err = b.called(ctx, url, many, func() error {
		for i := range b.Runs {
			if err := b.reset(ctx); err != nil {
				return err
			}
			l := load{keys: b.Waiting, depth: 1}
			s, err := b.fill(ctx, l)
			if err != nil {
				return err
			}
			if err := b.calm(ctx); err != nil {
				return err
			}
			t, err := b.work(ctx, s, l.total(), min(l.total(), int(many*b.Length/inclusion)), 1)
			if err != nil {
				return err
			}
			b.told("senders", i, t)
			trials = append(trials, t)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if seen := worker.Seen(); seen.Calls != seen.Tokens && len(trials) > 0 {
		t := trials[0]
		t.wrong, t.bad = append(t.wrong, fmt.Sprintf("%d calls, %d tokens", seen.Calls, seen.Tokens)),
			t.bad+seen.Calls-seen.Tokens
	}
	r := b.summary("senders", "postern", trials)
	r.Settings["queues"], r.Settings["senders"], r.Settings["inclusion"] = b.Waiting, many, inclusion.String()
	if r.Violations == 0 {
		limit := float64(many) / inclusion.Seconds()
		r.ratio("to_limit", each(trials, func(t *trial) float64 { return t.rate() / limit })...)
	}
	return []*Result{r}, nil
}
