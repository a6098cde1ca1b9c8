package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/devnet"
	"github.com/postern-dev/postern/internal/outbox"
)

// batchType is the type whose worker executes messages on the devnet, those of an atomic batch in one transaction.
const batchType = "EXECUTE"

// batchProcessors is how many processors the demo has; each gets every sample.
const batchProcessors = 3

// batch is what the demo reads of a batch.
type batch struct {
	ID     int64        `json:"id"`
	State  outbox.State `json:"state"`
	Runs   int          `json:"runs"`
	Result *struct {
		Kind   string `json:"kind"`
		N      int    `json:"n"`
		Reason string `json:"reason"`
	} `json:"result"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"last_updated_at"`
}

// batchLife is one sample on its way.
type batchLife struct {
	sample         batchSample
	processor, app string
	batch
}

func (l *batchLife) path() string { return fmt.Sprintf("/processors/%s/batches/%d", l.processor, l.ID) }

type batchRun struct {
	run
	lives []*batchLife
}

// RunProcessors is Run for processors: it makes some, sends each a batch of every kind, confirms what asks for it,
// watches until all have ended, and sums up. The Summary counts batches; DONE are those that were executed.
func RunProcessors(ctx context.Context, c Config) (*Summary, error) {
	if c.Out == nil {
		c.Out = io.Discard
	}
	r := &batchRun{run: run{Config: c, client: &client{base: c.API, http: &http.Client{Timeout: 30 * time.Second}}, began: time.Now()}}
	r.ledger = devnet.NewClient(c.Ledger, 10*time.Second)
	defer r.client.http.CloseIdleConnections()
	defer r.ledger.Close()
	if err := r.setup(ctx); err != nil {
		return nil, err
	}
	for i := range batchProcessors {
		if err := r.send(ctx, fmt.Sprintf("vault-%d-%s", i+1, c.Name)); err != nil {
			return nil, err
		}
	}
	if err := r.watch(ctx); err != nil {
		return nil, err
	}
	return r.sum(ctx)
}

// setup puts the dispatcher and the senders.
func (r *batchRun) setup(ctx context.Context) error {
	d := dispatcher(batchType, r.Worker)
	d.Capabilities, d.Inclusion.Confirmations = []string{"atomic"}, 1
	d.Inclusion.Deadline = outbox.Duration(60 * BlockEvery) // most actions are tried once: none is to fail because the machine is slow
	d.Inclusion.UnknownGrace = outbox.Duration(20 * BlockEvery)
	if err := r.client.do(ctx, http.MethodPut, "/dispatchers/"+batchType, d, nil); err != nil {
		return fmt.Errorf("set up the dispatcher of %s: %w", batchType, err)
	}
	for _, account := range Accounts {
		if err := r.client.do(ctx, http.MethodPut, "/senders/"+account, map[string]any{"pool": Pool}, nil); err != nil {
			return fmt.Errorf("set up the sender %s: %w", account, err)
		}
	}
	return nil
}

// send makes a processor, and sends it the samples while it is paused, so that all stand in its lines when it begins.
func (r *batchRun) send(ctx context.Context, processor string) error {
	at := "/processors/" + processor
	if err := r.client.do(ctx, http.MethodPut, at, map[string]any{"tick_interval": "100ms"}, nil); err != nil {
		return err
	}
	if err := r.client.do(ctx, http.MethodPost, at+"/pause", nil, nil); err != nil {
		return err
	}
	for _, s := range batchSamples {
		l := &batchLife{sample: s, processor: processor, app: s.name + "-" + processor}
		r.lives = append(r.lives, l)
		path, body := at+"/batches", s.body(processor, l.app)
		if s.evict {
			path, body = at+"/insert", map[string]any{"position": 0, "batch": body}
		}
		if err := r.client.do(ctx, http.MethodPost, path, body, &l.batch); err != nil {
			return fmt.Errorf("send the sample %s: %w", s.name, err)
		}
		if s.evict {
			if err := r.client.do(ctx, http.MethodPost, at+"/evict", map[string]any{"id": l.ID}, nil); err != nil {
				return err
			}
		}
	}
	return r.client.do(ctx, http.MethodPost, at+"/resume", nil, nil)
}

// watch looks after the batches until all have ended, and confirms those that wait for a callback.
func (r *batchRun) watch(ctx context.Context) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for said := time.Now(); ; {
		open, err := r.look(ctx)
		if err != nil {
			return err
		}
		if open == 0 || time.Since(said) > time.Second {
			said = time.Now()
			fmt.Fprintf(r.Out, "%4.1f s  %d of %d batches have ended\n", time.Since(r.began).Seconds(), len(r.lives)-open, len(r.lives))
		}
		if open == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (r *batchRun) look(ctx context.Context) (open int, err error) {
	for i := range batchProcessors {
		processor := r.lives[i*len(batchSamples)].processor
		list, err := all[batch](ctx, r.client, "/processors/"+processor+"/batches", url.Values{})
		if err != nil {
			return 0, err
		}
		for _, b := range list {
			i := slices.IndexFunc(r.lives, func(l *batchLife) bool { return l.ID == b.ID })
			if i < 0 {
				continue
			}
			l := r.lives[i]
			if l.batch = b; b.Result == nil {
				open++
			}
			if b.State == "Waiting_Callback" {
				payload := map[string]any{"payload": map[string]any{"seen": l.app}}
				if err := r.client.do(ctx, http.MethodPost, fmt.Sprintf("/processors/%s/callbacks/%d", processor, b.ID), payload, nil); err != nil {
					return 0, err
				}
			}
		}
	}
	return open, nil
}

// sum compares every result with what its sample wants, and with what the ledger saw.
func (r *batchRun) sum(ctx context.Context) (*Summary, error) {
	s := &Summary{kind: ofBatches, Run: r.Name, Transactions: len(r.lives), Queues: 2 * batchProcessors, Senders: len(Accounts),
		States: []StateTime{}, Failures: []Failure{}, Differing: []Difference{}, Ledger: &Ledger{Balanced: true}}
	stays := map[outbox.State][]time.Duration{}
	var first, last time.Time
	most := -1
	for _, l := range r.lives {
		differ := func(how string) {
			s.Unexpected++
			s.Differing = append(s.Differing, Difference{l.app, how})
		}
		if l.Result.Kind == "executed" {
			s.Done++
		} else {
			s.Failed++
			s.Failures = append(s.Failures, Failure{UID: l.app, State: outbox.State(l.Result.Kind), Message: l.Result.Reason, Note: l.sample.note})
		}
		if l.Result.Kind != l.sample.want || l.Result.N != l.sample.n {
			differ(fmt.Sprintf("ended %s(%d), want %s(%d)", l.Result.Kind, l.Result.N, l.sample.want, l.sample.n))
		}
		calls, err := r.calls(ctx, l.app)
		if err != nil {
			return nil, fmt.Errorf("read back from the devnet: %w", err)
		}
		if calls != l.sample.calls {
			differ(fmt.Sprintf("its app was called %d times, want %d", calls, l.sample.calls))
			s.Ledger.Balanced = false
		}
		if s.Ledger.Calls += calls; calls > 0 {
			s.Ledger.Apps++
		}
		if l.Runs > most {
			most, s.Example = l.Runs, strings.TrimPrefix(l.path(), "/")
		}
		if first.IsZero() || l.CreatedAt.Before(first) {
			first = l.CreatedAt
		}
		if l.UpdatedAt.After(last) {
			last = l.UpdatedAt
		}
		retries, err := r.history(ctx, l, stays)
		if err != nil {
			return nil, err
		}
		s.Retries += retries
	}
	s.timed(first, last)
	s.stayed([]outbox.State{"Queued", "Executing", "Waiting_Callback"}, stays)
	h, err := r.ledger.Health(ctx)
	if err != nil {
		return nil, fmt.Errorf("read back from the devnet: %w", err)
	}
	s.Ledger.Height, s.Ledger.Reorgs, s.Ledger.Fees = h.Height, h.Reorgs, fmt.Sprint(h.Sink)
	return s, nil
}

// calls is how often an app of the ledger was called.
func (r *batchRun) calls(ctx context.Context, app string) (int, error) {
	a, err := r.ledger.App(ctx, app)
	var refused *devnet.Refusal
	if errors.As(err, &refused) {
		return 0, nil // it was never called
	}
	return int(a.Calls), err
}

// history adds how long a batch was in each state, and counts how often something in it was tried again.
func (r *batchRun) history(ctx context.Context, l *batchLife, stays map[outbox.State][]time.Duration) (retries int, err error) {
	var h page[struct {
		At       time.Time
		Event    string
		From, To outbox.State
	}]
	if err := r.client.do(ctx, http.MethodGet, l.path()+"/history", nil, &h); err != nil {
		return 0, err
	}
	var since time.Time
	for _, m := range h.Items {
		if m.From != "" {
			stays[m.From] = append(stays[m.From], m.At.Sub(since))
		}
		if m.Event == "Failed" && m.To == "Queued" {
			retries++
		}
		since = m.At
	}
	return retries, nil
}
