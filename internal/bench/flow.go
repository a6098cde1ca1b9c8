package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/pg/db"
	pgflows "github.com/postern-dev/postern/internal/pg/flows"
)

// Flows are those of the scenarios flow and flow-latency: chains and diamonds of jobs that do nothing, for one runner.
const (
	flowJobs  = 20
	flowSlots = 8
	flowPairs = 9 // runs of flow-latency at least
)

// chained is what jobs of a chain need: each the one before it.
func chained(ref int64) []int64 {
	if ref == 1 {
		return nil
	}
	return []int64{ref - 1}
}

// forked is what jobs of diamonds need: of each four, one that three need, which the next one needs.
func forked(ref int64) []int64 {
	switch {
	case ref == 1:
		return nil
	case ref%4 == 1:
		return []int64{ref - 3, ref - 2, ref - 1}
	}
	return []int64{(ref-1)/4*4 + 1}
}

// flowRuns measures how many jobs a second are offered, claimed over HTTP, finished and brought to their ends, with
// flows that lie there, from the first to the last end.
func flowRuns(ctx context.Context, b *Bench) ([]*Result, error) {
	var trials []*trial
	for i := range b.Runs {
		t, err := b.flowRun(ctx, b.Flows, flowSlots)
		if err != nil {
			return nil, err
		}
		b.told("flow", i, t)
		trials = append(trials, t)
	}
	r := b.summary("flow", "postern", trials)
	r.timed(trials, "claim", "finish")
	r.Settings["flows"], r.Settings["jobs_of_each"], r.Settings["slots"] = b.Flows, flowJobs, flowSlots
	if c := r.Cost; c != nil && c.Postern+c.Postgres+c.Load > 0 {
		r.Settings["cpu_share_of_database"] = round(c.Postgres / (c.Postern + c.Postgres + c.Load))
	}
	return []*Result{r}, nil
}

// flowLatency measures from one job's finish to the claim of the next by a runner that waits, in a chain of jobs.
func flowLatency(ctx context.Context, b *Bench) ([]*Result, error) {
	var trials []*trial
	for i := range max(b.Runs, flowPairs) {
		t, err := b.flowRun(ctx, 1, 1)
		if err != nil {
			return nil, err
		}
		b.told("flow-latency", i, t)
		trials = append(trials, t)
	}
	r := b.summary("flow-latency", "postern", trials)
	r.timed(trials, "finish_to_next_claim", "claim", "finish")
	r.Settings["jobs"] = flowJobs
	return []*Result{r}, nil
}

// flowRun posts flows, and lets a process and a runner do them.
func (b *Bench) flowRun(ctx context.Context, flows, slots int) (_ *trial, err error) {
	if err := b.reset(ctx); err != nil {
		return nil, err
	}
	if err := b.postFlows(ctx, flows); err != nil {
		return nil, err
	}
	if _, err := b.pool.Exec(ctx, `VACUUM (ANALYZE) postern.job, postern.flow, postern.job_edge, postern.flow_step,
		postern.dependency`); err != nil {
		return nil, err
	}
	if err := b.calm(ctx); err != nil {
		return nil, err
	}
	p, err := b.launch(ctx, RoleBoth)
	if err != nil {
		return nil, err
	}
	defer p.Stop()
	m, err := b.meter(ctx, map[string]*Process{RoleBoth: p})
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := p.Go(); err != nil {
		return nil, err
	}
	if err := ready(ctx, p.URL); err != nil {
		return nil, err
	}
	h := newHand(p.URL, slots)
	if err := h.work(ctx, flows*flowJobs); err != nil {
		return nil, err
	}
	if err := b.flowsEnded(ctx, flows); err != nil {
		return nil, err
	}
	t := &trial{n: flows * flowJobs, took: time.Since(start), times: h.times}
	if t.cost, err = m.stop(ctx); err != nil {
		return nil, err
	}
	var finished, tries, early int
	err = b.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM postern.job WHERE status = 'finished' AND NOT tx_open),
		(SELECT count(*) FROM postern.job_try),
		(SELECT count(*)
			FROM postern.job_edge e
			JOIN postern.job j USING (job_id)
			JOIN postern.job n ON n.job_id = e.needs
			WHERE j.started_at < n.ended_at)`).Scan(&finished, &tries, &early)
	t.judge(amiss{t.n - finished, "%d jobs have not finished"}, amiss{tries - t.n, "%d tries more than jobs"},
		amiss{early, "%d jobs began before what they need had finished"})
	return t, err
}

// postFlows posts flows, chains and diamonds in turns. Nothing takes them yet.
func (b *Bench) postFlows(ctx context.Context, flows int) error {
	if flows >= 100 {
		b.Progress("posting " + count(flows) + " flows of " + count(flowJobs) + " jobs")
	}
	began := time.Now()
	by := db.By{Context: b.ctxID, Actor: "bench", Via: "bench"}
	for i := range flows {
		needs := chained
		if i%2 == 1 {
			needs = forked
		}
		var jobs []flow.Spec
		for ref := int64(1); ref <= flowJobs; ref++ {
			jobs = append(jobs, flow.Spec{Ref: &ref, Script: "exit 0", ScriptType: "python", Timeout: time.Minute,
				Dependends: needs(ref)})
		}
		if _, err := b.store.Flows.PostFlow(ctx, by, pgflows.FlowSpec{Jobs: jobs, Start: true}); err != nil {
			return err
		}
	}
	if flows >= 100 {
		b.Progress(fmt.Sprintf("%.0f flows a second were posted", float64(flows)/time.Since(began).Seconds()))
	}
	return nil
}

// flowsEnded waits for the ends of all flows.
func (b *Bench) flowsEnded(ctx context.Context, flows int) error {
	for began := time.Now(); ; {
		var ended int
		err := b.pool.QueryRow(ctx, `SELECT count(*) FROM postern.flow WHERE ended_at IS NOT NULL`).Scan(&ended)
		switch {
		case err != nil || ended == flows:
			return err
		case time.Since(began) > stuck:
			return fmt.Errorf("%d of %d flows have ended, %s after the last job", ended, flows, stuck)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// hand is a runner that does nothing: it claims and finishes over HTTP, and renews.
type hand struct {
	url   string
	slots int
	epoch int64
	http  http.Client
	free  chan bool

	mu    sync.Mutex
	held  map[string]int64
	done  int
	ended time.Time // when the last finish was answered
	times map[string]*histogram
}

func newHand(url string, slots int) *hand {
	return &hand{
		url:   url,
		slots: slots,
		http:  http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: slots + 2}},
		free:  make(chan bool, 1),
		held:  map[string]int64{},
		times: map[string]*histogram{"claim": {}, "finish": {}, "finish_to_next_claim": {}},
	}
}

// work executes n jobs.
func (h *hand) work(ctx context.Context, n int) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var registered struct{ Epoch int64 }
	body := map[string]any{"instance": "bench", "script_types": []string{"python"}, "slots": h.slots}
	if _, err := h.post(ctx, "/runners/bench/register", 0, body, &registered); err != nil {
		return err
	}
	h.epoch = registered.Epoch
	go func() { // as postern runner does; ended tells nothing
		for ctx.Err() == nil {
			h.post(ctx, "/runners/bench/renew", 0, map[string]any{"epoch": h.epoch, "holds": h.holds()}, nil)
			time.Sleep(5 * time.Second)
		}
	}()
	for ctx.Err() == nil {
		h.mu.Lock()
		free, done := h.slots-len(h.held), h.done
		h.mu.Unlock()
		switch {
		case done == n:
			return nil
		case free > 0:
			if err := h.claim(ctx, stop, free); err != nil {
				return err
			}
			continue
		}
		select {
		case <-ctx.Done():
		case <-h.free:
		}
	}
	return context.Cause(ctx)
}

func (h *hand) holds() [][2]any {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := [][2]any{}
	for try, fence := range h.held {
		list = append(list, [2]any{try, fence})
	}
	return list
}

// claim waits for jobs, and finishes each at once.
func (h *hand) claim(ctx context.Context, stop context.CancelCauseFunc, free int) error {
	var got struct {
		Jobs []struct {
			Try   string
			Fence int64
		}
	}
	began := time.Now()
	body := map[string]any{"epoch": h.epoch, "max": free, "holds": h.holds()}
	if _, err := h.post(ctx, "/runners/bench/claim?wait=1s", 0, body, &got); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(got.Jobs) > 0 {
		h.times["claim"].add(time.Since(began))
		if !h.ended.IsZero() && h.slots == 1 {
			h.times["finish_to_next_claim"].add(time.Since(h.ended))
		}
	}
	for _, j := range got.Jobs {
		h.held[j.Try] = j.Fence
		go func() {
			if err := h.finish(ctx, j.Try, j.Fence); err != nil {
				stop(err)
			}
		}()
	}
	return nil
}

// finish ends a job. Its end counts from when the call was sent.
func (h *hand) finish(ctx context.Context, try string, fence int64) error {
	began := time.Now()
	usage := map[string]int{"wall_ms": 0, "cpu_ms": 0, "max_rss_kib": 0, "output_bytes": 0}
	body := map[string]any{"result": map[string]string{"ok": "1"}, "isolation": "off", "usage": usage}
	_, err := h.post(ctx, "/tries/"+try+"/finish", fence, body, nil)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.times["finish"].add(time.Since(began))
	delete(h.held, try)
	h.done++
	h.ended = began
	select {
	case h.free <- true:
	default:
	}
	return err
}

// post makes one call.
func (h *hand) post(ctx context.Context, path string, fence int64, body, out any) (status int, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url+path, bytes.NewReader(text))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	if fence != 0 {
		req.Header.Set("Postern-Fence", strconv.FormatInt(fence, 10))
	}
	res, err := h.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		var problem struct{ Detail string }
		json.NewDecoder(res.Body).Decode(&problem)
		return res.StatusCode, fmt.Errorf("%s answers %s: %s", path, res.Status, problem.Detail)
	}
	if out == nil || res.StatusCode == http.StatusNoContent {
		return res.StatusCode, nil
	}
	return res.StatusCode, json.NewDecoder(res.Body).Decode(out)
}
