package bench

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
)

// crowd is how many intents of a domain stand at one node when their coordinator is killed. probes is how many of
// another domain are measured before and after, one at a time.
const (
	crowd  = 10000
	probes = 150
)

// The domains of domainCrowd, by number: the first node coordinates the one that is measured, the second the one with
// the crowd, which stands at the third.
const (
	probed = iota
	crowded
)

// domainCrowd measures how long an intent of one domain takes: alone, beside a domain with very many intents that wait,
// and once all processes of their coordinator were killed.
func domainCrowd(ctx context.Context, b *Bench) ([]*Result, error) {
	nodes, drop, err := b.installations(ctx)
	if err != nil {
		return nil, err
	}
	defer drop()
	var trials []*trial
	var ratios []float64
	given := 0.0
	for i := range b.Runs {
		t, each, err := b.crowdRun(ctx, nodes)
		if err != nil {
			return nil, err
		}
		b.told("domain-crowd", i, t)
		trials, given = append(trials, t), max(given, each)
		ratios = append(ratios, t.times["killed"].quantile(0.99).Seconds()/t.times["pending"].quantile(0.99).Seconds())
	}
	r := b.summary("domain-crowd", "postern", trials)
	r.timed(trials, "killed", "pending", "alone")
	r.ratio("p99_killed_to_pending", ratios...)
	r.Settings["pending"], r.Settings["most_delegations_an_intent"] = crowd, round(given)
	return []*Result{r}, nil
}

// crowdRun is one run, and how often an intent of the crowd was delegated on average.
func (b *Bench) crowdRun(ctx context.Context, nodes []*Bench) (_ *trial, given float64, err error) {
	service, err := nothingToDo()
	if err != nil {
		return nil, 0, err
	}
	defer service.Close()
	at, parts, stop, err := startAll(ctx, nodes, "http://"+service.Addr().String(), 2)
	if err != nil {
		return nil, 0, err
	}
	defer stop()
	lasting := maps.Clone(parts)
	delete(lasting, nodeName(1))
	m, err := b.meter(ctx, lasting)
	if err != nil {
		return nil, 0, err
	}
	t := &trial{n: 3 * probes, times: map[string]*histogram{}}
	began := time.Now()
	for _, phase := range []struct {
		name   string
		before func() error
	}{
		{"alone", func() error { return nil }},
		{"pending", func() error { return postCrowd(ctx, at[2]) }},
		{"killed", func() error {
			p, err := os.FindProcess(parts[nodeName(1)].PID)
			if err != nil {
				return err
			}
			return p.Kill()
		}},
	} {
		if err := phase.before(); err != nil {
			return nil, 0, err
		}
		t.times[phase.name] = &histogram{}
		if err := nodes[0].probe(ctx, at[0], phase.name, t.times[phase.name]); err != nil {
			return nil, 0, err
		}
	}
	t.took = time.Since(began)
	if t.cost, err = m.stop(ctx); err != nil {
		return nil, 0, err
	}
	err = nodes[2].pool.QueryRow(ctx, `SELECT count(*)::float8 / greatest(count(DISTINCT s.object), 1)
		FROM postern.coord_step s
		JOIN postern.coord_intent i ON i.domain_id = s.domain_id AND i.intent_id::text = s.object
		WHERE s.machine = 'originator_transaction' AND s.state = 'Delegated' AND s.was IS DISTINCT FROM s.state
			AND i.uid LIKE 'crowd-%'`).Scan(&given)
	return t, given, err
}

// postCrowd posts the crowd at a node.
func postCrowd(ctx context.Context, at string) error {
	for from := 0; from < crowd; from += 500 {
		var list []map[string]any
		for i := range 500 {
			list = append(list, map[string]any{"uid": fmt.Sprint("crowd-", from+i), "data": i,
				"party": "party@" + nodeName(2)})
		}
		if err := call(ctx, nil, http.MethodPost, at+"/domains/"+domainName(crowded)+"/intents:batch",
			map[string]any{"intents": list}, nil); err != nil {
			return err
		}
	}
	return nil
}

// probe posts one intent after the other, and notes how long each takes until it has ended.
func (b *Bench) probe(ctx context.Context, at, uid string, h *histogram) error {
	for i := range probes {
		began := time.Now()
		name := fmt.Sprint(uid, "-", i)
		if err := call(ctx, nil, http.MethodPost, at+"/domains/"+domainName(probed)+"/intents", map[string]any{
			"uid": name, "data": i, "party": "party@" + nodeName(0)}, nil); err != nil {
			return err
		}
		for receipt := ""; receipt == ""; time.Sleep(5 * time.Millisecond) {
			err := b.pool.QueryRow(ctx, `SELECT coalesce(max(receipt), '') FROM postern.coord_intent WHERE uid = $1`,
				name).Scan(&receipt)
			switch {
			case err != nil && err != pgx.ErrNoRows:
				return err
			case receipt == "failure":
				return fmt.Errorf("intent %s has failed", name)
			case time.Since(began) > stuck:
				return fmt.Errorf("intent %s has not ended for %s", name, stuck)
			}
		}
		h.add(time.Since(began))
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}
