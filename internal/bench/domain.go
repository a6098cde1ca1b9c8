package bench

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/api/domain"
)

// Intents of domains that three installations share, posted at all of them. Their services do nothing.
const (
	domainNodes = 3
	domainsMany = 50
)

// rangesOf are heights at which the first, the second and the third node coordinate, with ranges of 10 blocks.
var rangesOf = [domainNodes]int{0, 30, 70}

// intentStates are the states that an intent passes through, in their order.
var intentStates = []string{"Pending", "Delegated", "Assembling", "Signing", "EndorsementGathering", "Prepared",
	"Dispatched", "Submitted"}

// domainRuns measures how many intents a second are assembled, signed and endorsed, dispatched and confirmed: of one
// domain, and of many whose coordinators are spread over three installations.
func domainRuns(ctx context.Context, b *Bench) (all []*Result, err error) {
	nodes, drop, err := b.installations(ctx)
	if err != nil {
		return nil, err
	}
	defer drop()
	for _, domains := range []int{1, domainsMany} {
		var trials []*trial
		for i := range b.Runs {
			t, err := b.domainRun(ctx, nodes, domains)
			if err != nil {
				return all, err
			}
			b.told(fmt.Sprintf("domain, %d of them", domains), i, t)
			trials = append(trials, t)
		}
		r := b.summary("domain", "postern", trials)
		r.timed(trials, append([]string{"intent"}, intentStates...)...)
		r.Settings["domains"], r.Settings["intents"], r.Settings["installations"] = domains, b.Intents, domainNodes
		if c := r.Cost; c != nil && c.Postern+c.Postgres+c.Load > 0 {
			r.Settings["cpu_share_of_database"] = round(c.Postgres / (c.Postern + c.Postgres + c.Load))
		}
		all = append(all, r)
	}
	return all, nil
}

// installations makes the databases of the nodes; ours is the first. drop drops the others.
func (b *Bench) installations(ctx context.Context) (nodes []*Bench, drop func(), err error) {
	nodes = []*Bench{b}
	var drops []func()
	drop = func() {
		for _, f := range drops {
			f()
		}
	}
	for i := 1; i < domainNodes; i++ {
		other, f, err := b.fork(ctx, fmt.Sprint("node", i))
		if err != nil {
			drop()
			return nil, nil, err
		}
		nodes, drops = append(nodes, other), append(drops, f)
	}
	return nodes, drop, nil
}

// startAll starts a process of each installation, has them share domains, and has each domain carry out one intent at
// each. at are their URLs, and parts the processes by the names of their nodes.
func startAll(ctx context.Context, nodes []*Bench, service string, domains int) (at []string, parts map[string]*Process,
	stop func(), err error) {
	parts = map[string]*Process{}
	stop = func() {
		for _, p := range parts {
			_ = p.Stop() // its figures have been read
		}
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	for i, n := range nodes {
		if err := n.reset(ctx); err != nil {
			return nil, nil, nil, err
		}
		p, err := n.serving(ctx, RoleBoth)
		if err != nil {
			return nil, nil, nil, err
		}
		at, parts[nodeName(i)] = append(at, p.URL), p
	}
	if err := shareDomains(ctx, at, service, domains); err != nil {
		return nil, nil, nil, err
	}
	if err := postIntents(ctx, at, domains, domains*domainNodes, "warm"); err != nil {
		return nil, nil, nil, err
	}
	_, err = intentsEnded(ctx, nodes, domains*domainNodes)
	return at, parts, stop, err
}

// domainRun starts the installations, has each domain carry out one intent at each, and measures from the first post of
// those that count until the last end.
func (b *Bench) domainRun(ctx context.Context, nodes []*Bench, domains int) (_ *trial, err error) {
	service, err := nothingToDo()
	if err != nil {
		return nil, err
	}
	defer service.Close()
	at, parts, stop, err := startAll(ctx, nodes, "http://"+service.Addr().String(), domains)
	if err != nil {
		return nil, err
	}
	defer stop()
	warm := domains * domainNodes
	m, err := b.meter(ctx, parts)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := postIntents(ctx, at, domains, b.Intents, "counts"); err != nil {
		return nil, err
	}
	succeeded, err := intentsEnded(ctx, nodes, warm+b.Intents)
	if err != nil {
		return nil, err
	}
	t := &trial{n: b.Intents, took: time.Since(start), times: map[string]*histogram{}}
	if t.cost, err = m.stop(ctx); err != nil {
		return nil, err
	}
	t.judge(amiss{warm + b.Intents - succeeded, "%d intents have not succeeded"})
	for _, n := range nodes {
		if err := n.timeIntents(ctx, t); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func nodeName(i int) string { return fmt.Sprint("node-", i) }

// nothingToDo serves domains whose intents are signed by their parties, and endorsed at the first node.
func nothingToDo() (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	yes := func(context.Context, domain.Ticket) (any, error) { return "yes", nil }
	service := domain.Service[int]{
		Assemble: func(_ context.Context, a domain.Assembly[int]) (domain.Assembled, error) {
			return domain.Assembled{Assembled: a.Data, Plan: []domain.Attestation{
				{Name: "owner", Type: domain.Sign, Parties: []string{a.Party}},
				{Name: "notary", Type: domain.Endorse, Parties: []string{"notary@" + nodeName(0)}},
			}}, nil
		},
		Sign:    yes,
		Endorse: yes,
		Prepare: func(_ context.Context, p domain.Preparation) (domain.Public, error) {
			return domain.Public{Type: benchType, Data: p.Assembled}, nil
		},
	}
	server := &http.Server{Handler: service.Handler(), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(l) }() // until the listener is closed
	return l, nil
}

// shareDomains makes the installations known to one another, and puts the domains at each.
func shareDomains(ctx context.Context, at []string, service string, domains int) error {
	const secret = "whsec_YmVuY2gtYmVuY2gtYmVuY2gtYmVuY2gtYmVuY2gh"
	var names []string
	for i := range at {
		names = append(names, nodeName(i))
	}
	for i, me := range at {
		for j, other := range at {
			if i == j {
				continue
			}
			if err := call(ctx, nil, http.MethodPut, me+"/peers/"+nodeName(j), map[string]any{"secret": secret,
				"url": other + "/contexts/default/peers/" + nodeName(i)}, nil); err != nil {
				return err
			}
		}
		for d := range domains {
			path := me + "/domains/" + domainName(d)
			if err := call(ctx, nil, http.MethodPut, path, map[string]any{"types": []string{benchType},
				"service_url": service, "self": nodeName(i), "nodes": names, "mode": "ENDORSER", "block_range": 10,
				"heartbeat_interval": "1s"}, nil); err != nil {
				return err
			}
			if err := call(ctx, nil, http.MethodPut, path+"/height",
				map[string]any{"height": fmt.Sprint(rangesOf[d%domainNodes])}, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

func domainName(d int) string { return fmt.Sprint("bench-", d) }

// postIntents posts so many intents over all domains and nodes, in batches.
func postIntents(ctx context.Context, at []string, domains, n int, uid string) error {
	lists := make([][]map[string]any, domains*len(at))
	for i := range n {
		k := i % len(lists)
		lists[k] = append(lists[k], map[string]any{"uid": fmt.Sprint(uid, "-", i), "data": i,
			"party": "party@" + nodeName(k%len(at))})
	}
	for k, list := range lists {
		for len(list) > 0 {
			part := list[:min(500, len(list))]
			if err := call(ctx, nil, http.MethodPost, at[k%len(at)]+"/domains/"+domainName(k/len(at))+"/intents:batch",
				map[string]any{"intents": part}, nil); err != nil {
				return err
			}
			list = list[len(part):]
		}
	}
	return nil
}

// intentsEnded waits until so many intents have ended, and counts those that succeeded.
func intentsEnded(ctx context.Context, nodes []*Bench, n int) (succeeded int, err error) {
	for most, changed := 0, time.Now(); ; {
		ended, succeeded := 0, 0
		for _, at := range nodes {
			var e, s int
			if err := at.pool.QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE receipt = 'success')
				FROM postern.coord_intent WHERE ended_at IS NOT NULL`).Scan(&e, &s); err != nil {
				return 0, err
			}
			ended, succeeded = ended+e, succeeded+s
		}
		if ended >= n {
			return succeeded, nil
		}
		if ended > most {
			most, changed = ended, time.Now()
		}
		if time.Since(changed) > stuck {
			return 0, fmt.Errorf("%d of %d intents have ended, and none for %s", ended, n, stuck)
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// timeIntents adds how long the intents that count were in each state, and until they had ended.
func (b *Bench) timeIntents(ctx context.Context, t *trial) error {
	rows, err := b.pool.Query(ctx, `SELECT s.state, extract(epoch FROM s.until - s.at)::float8
		FROM (SELECT s.domain_id, s.object, s.state, s.at, lead(s.at) OVER (PARTITION BY s.domain_id, s.object
				ORDER BY s.n) AS until
			FROM postern.coord_step s
			WHERE s.machine = 'originator_transaction' AND s.was <> s.state) s
		JOIN postern.coord_intent i ON i.domain_id = s.domain_id AND i.intent_id::text = s.object
		WHERE i.uid LIKE 'counts-%' AND s.until IS NOT NULL
		UNION ALL
		SELECT 'intent', extract(epoch FROM i.ended_at - i.created_at)::float8
		FROM postern.coord_intent i
		WHERE i.uid LIKE 'counts-%' AND i.ended_at IS NOT NULL`)
	if err != nil {
		return err
	}
	var state string
	var seconds float64
	_, err = pgx.ForEachRow(rows, []any{&state, &seconds}, func() error {
		if t.times[state] == nil {
			t.times[state] = &histogram{}
		}
		t.times[state].add(time.Duration(seconds * float64(time.Second)))
		return nil
	})
	return err
}
