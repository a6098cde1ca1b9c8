package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/pg/db"
	pgflows "github.com/postern-dev/postern/internal/pg/flows"
)

// offeredFlows are flows of so many jobs that no runner takes.
const (
	offeredFlows = 100
	offeredEach  = 1000
)

// flowClaim measures claims of a runner with one slot, of jobs that are offered already: in an installation with
// nothing else, and in one with very many offered jobs of a type that no runner has, in turns.
func flowClaim(ctx context.Context, b *Bench) ([]*Result, error) {
	full, drop, err := b.fork(ctx, "full")
	if err != nil {
		return nil, err
	}
	defer drop()
	both := []*Bench{b, full}
	var at []*Process
	for _, of := range both {
		if err := of.reset(ctx); err != nil {
			return nil, err
		}
		p, err := of.serving(ctx, RoleBoth)
		if err != nil {
			return nil, err
		}
		defer p.Stop()
		at = append(at, p)
	}
	if err := full.offer(ctx); err != nil {
		return nil, err
	}
	var trials [2][]*trial
	for i := range max(b.Runs, flowPairs) {
		for k, of := range both {
			t, err := of.claimRun(ctx, at[k].URL)
			if err != nil {
				return nil, err
			}
			b.told("flow-claim, "+[]string{"alone", "in front of many"}[k], i, t)
			trials[k] = append(trials[k], t)
		}
	}
	var all []*Result
	for k, offered := range []int{0, offeredFlows * offeredEach} {
		r := b.summary("flow-claim", "postern", trials[k])
		r.timed(trials[k], "claim", "finish")
		r.Settings["jobs"], r.Settings["offered"] = flowJobs, offered
		all = append(all, r)
	}
	all[1].compare("claim_to_alone", trials[1], trials[0], func(t *trial) float64 {
		return t.times["claim"].quantile(0.5).Seconds()
	})
	return all, nil
}

// offer posts jobs that no runner takes, and waits until all are offered.
func (b *Bench) offer(ctx context.Context) error {
	b.Progress("offering " + count(offeredFlows*offeredEach) + " jobs")
	for range offeredFlows {
		if err := b.postJobs(ctx, "sal", offeredEach); err != nil {
			return err
		}
	}
	if err := b.offered(ctx, offeredFlows*offeredEach); err != nil {
		return err
	}
	_, err := b.pool.Exec(ctx, `VACUUM (ANALYZE)`)
	return err
}

// postJobs posts a flow of jobs that need nothing.
func (b *Bench) postJobs(ctx context.Context, scriptType string, n int64) error {
	var jobs []flow.Spec
	for ref := int64(1); ref <= n; ref++ {
		jobs = append(jobs, flow.Spec{Ref: &ref, Script: "exit 0", ScriptType: scriptType, Timeout: time.Minute})
	}
	by := db.By{Context: b.ctxID, Actor: "bench", Via: "bench"}
	_, err := b.store.Flows.PostFlow(ctx, by, pgflows.FlowSpec{Jobs: jobs, Start: true})
	return err
}

// offered waits until so many jobs wait for a runner.
func (b *Bench) offered(ctx context.Context, n int) error {
	for began, most := time.Now(), 0; ; time.Sleep(20 * time.Millisecond) {
		var offered int
		err := b.pool.QueryRow(ctx, `SELECT count(*) FROM postern.job_try WHERE state = 'Offered'`).Scan(&offered)
		switch {
		case err != nil || offered == n:
			return err
		case offered > most:
			began, most = time.Now(), offered
		case time.Since(began) > stuck:
			return fmt.Errorf("%d of %d jobs are offered, and none more for %s", offered, n, stuck)
		}
	}
}

// claimRun claims and finishes a few jobs, one at a time, once all are offered.
func (b *Bench) claimRun(ctx context.Context, url string) (*trial, error) {
	var before int
	if err := b.pool.QueryRow(ctx, `SELECT count(*) FROM postern.job_try WHERE state = 'Offered'`).
		Scan(&before); err != nil {
		return nil, err
	}
	if err := b.postJobs(ctx, "python", flowJobs); err != nil {
		return nil, err
	}
	if err := b.offered(ctx, before+flowJobs); err != nil {
		return nil, err
	}
	h := newHand(url, 1)
	began := time.Now()
	if err := h.work(ctx, flowJobs); err != nil {
		return nil, err
	}
	return &trial{n: flowJobs, took: time.Since(began), times: h.times}, nil
}
