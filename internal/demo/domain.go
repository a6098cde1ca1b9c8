package demo

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/devnet"
	"github.com/postern-dev/postern/internal/outbox"
)

// The installations of the demo of a domain. That of the notary is the one that the demo runs on.
const (
	aliceNode  = "alice"
	bobNode    = "bob"
	notaryNode = "notary"
	tokenType  = "TOKEN"
	tokenPool  = "token"
)

// intentSample is an intent of the demo, and how it must end.
type intentSample struct {
	uid, node, note string
	party           string
	order           tokenOrder
	needs           []string // uids
	fails           string   // what its receipt says of a failure; "": it succeeds
}

func mint(node, party string, n int, amount int64) intentSample {
	o := tokenOrder{Do: "mint"}
	for range n {
		o.Amounts = append(o.Amounts, amount)
	}
	return intentSample{uid: "mint-" + node, node: node, party: party, note: "tokens to begin with", order: o}
}

func pay(to string, amount int64) tokenOrder {
	return tokenOrder{Do: "pay", To: to, Amounts: []int64{amount}, Wait: true}
}

func faulty(fault string, o tokenOrder) tokenOrder {
	o.Fault = fault
	return o
}

const (
	ann   = "ann@" + aliceNode
	ben   = "ben@" + bobNode
	carol = "carol@" + notaryNode
	zoe   = "zoe@" + bobNode
)

var intentSamples = []intentSample{
	mint(aliceNode, ann, 8, 10),
	mint(bobNode, ben, 8, 10),
	mint(notaryNode, carol, 6, 5),
	{uid: "chain-1", node: aliceNode, party: ann, note: "pays with what is on its way", order: pay(ben, 13)},
	{uid: "chain-2", node: aliceNode, party: ann, note: "pays with the change of that", order: pay(carol, 64)},
	{uid: "more", node: aliceNode, party: ann, note: "more tokens, once that is done", needs: []string{"chain-2"},
		order: mint(aliceNode, ann, 5, 10).order},
	{uid: "over", node: bobNode, party: ben, note: "has less than that", needs: []string{"mint-" + bobNode},
		order: tokenOrder{Do: "pay", To: ann, Amounts: []int64{100000}}, fails: "less than 100000"},
	{uid: "away", node: bobNode, party: ben, note: "parked until its receiver has an address", order: pay(zoe, 2)},
	{uid: "refused", node: bobNode, party: ben, note: "the notary refuses it at first",
		order: faulty(refusedOnce, pay(ann, 1))},
	{uid: "again", node: bobNode, party: ben, note: "the ledger reverts it at first",
		order: faulty(revertsOnce, pay(ann, 1))},
	{uid: "never", node: notaryNode, party: carol, note: "the ledger reverts it each time",
		order: faulty(revertsEach, pay(ann, 1)), fails: revertReason},
	{uid: "behind", node: notaryNode, party: carol, note: "depends on that", needs: []string{"never"},
		order: pay(ann, 1), fails: "dependency failed"},
	{uid: "after", node: bobNode, party: ben, note: "depends on three", needs: []string{"away", "refused", "again"},
		order: pay(carol, 3)},
}

// intentRow is what the demo reads of an intent.
type intentRow struct {
	ID        string     `json:"id"`
	UID       string     `json:"uid"`
	State     string     `json:"state"`
	Parked    *string    `json:"parked"`
	CreatedAt time.Time  `json:"created_at"`
	EndedAt   *time.Time `json:"ended_at"`
	Receipt   *struct {
		Outcome string `json:"outcome"`
		Text    string `json:"text"`
	} `json:"receipt"`
}

// domainRow is what the demo reads of a domain.
type domainRow struct {
	Coordinator string         `json:"coordinator"`
	Height      string         `json:"height"`
	Works       map[string]int `json:"works"`
}

// demoNode is an installation of the domain.
type demoNode struct {
	name   string
	client *client
	kill   func() // nil: the demo runs on it, and it stays
	wallet *wallet
	down   bool
	active bool // it coordinated when it was looked at last
	seen   domainRow
}

// payment is an intent that was posted.
type payment struct {
	intentSample
	at  *demoNode
	row intentRow
}

type domainRun struct {
	run
	nodes    []*demoNode
	payments []*payment
	byUID    map[string]*payment

	coordinators []string // in turn, each with the height at which it was found
	killed       *demoNode
	killedAt     time.Time
	back         bool // the one that was killed is there again
	told         bool // the receiver that had no address has one
	streamed     time.Time
}

// How long the demo of a domain goes on: payments are posted until the coordinator was killed and is back, and what has
// not ended by the limit is told of.
const (
	streamEvery = 600 * time.Millisecond
	streamMost  = 60
	domainLimit = 4 * time.Minute
	backAfter   = 8 * time.Second // if none took over
)

// RunDomain is Run for a domain of three installations. Intents are posted at each of them. One is given what it waits
// for, and once another installation has taken its turn as the coordinator, the one that coordinates is killed, and
// started again when another has taken over. The Summary counts intents; done are those that succeeded.
func RunDomain(ctx context.Context, c Config) (*Summary, error) {
	if c.Out == nil {
		c.Out = io.Discard
	}
	r := &domainRun{run: run{Config: c, client: &client{base: c.API, http: &http.Client{Timeout: 30 * time.Second}},
		began: time.Now()}, byUID: map[string]*payment{}}
	r.ledger = devnet.NewClient(c.Ledger, 10*time.Second)
	defer r.client.http.CloseIdleConnections()
	defer r.ledger.Close()
	defer func() {
		for _, n := range r.nodes {
			if n.wallet != nil && n.wallet.stop != nil {
				n.wallet.stop()
			}
		}
	}()
	if err := r.setup(ctx); err != nil {
		return nil, err
	}
	r.posted = time.Now()
	for _, s := range intentSamples {
		if err := r.submit(ctx, s); err != nil {
			return nil, err
		}
	}
	if err := r.watch(ctx); err != nil {
		return nil, err
	}
	// The other installations end with the demo, and so the domain has nothing more to do.
	if err := r.client.do(ctx, http.MethodPost, r.path("/pause"), nil, nil); err != nil {
		return nil, err
	}
	return r.sum(ctx)
}

// prefix begins all names of the run on the ledger.
func (r *domainRun) prefix() string { return "tok." + r.Name + "." }

func (r *domainRun) path(more string) string { return "/domains/tok-" + r.Name + more }

// setup starts the other installations, makes all known to one another, and puts the domain at each.
func (r *domainRun) setup(ctx context.Context) error {
	wallets := map[string]*wallet{}
	for _, name := range []string{aliceNode, bobNode, notaryNode} {
		n := &demoNode{name: name, client: r.client}
		r.nodes = append(r.nodes, n)
		var err error
		if n.wallet, err = newWallet(name, r.prefix(), notaryNode, r.ledger, wallets); err != nil {
			return err
		}
		if name == notaryNode {
			continue
		}
		n.client = &client{http: r.client.http}
		if n.client.base, n.kill, err = r.StartNode(ctx, name); err != nil {
			return fmt.Errorf("start the installation %s: %w", name, err)
		}
		fmt.Fprintf(r.Out, "installation %s at %s\n", name, n.client.base)
	}
	wallets[bobNode].unknown[zoe] = true
	for _, n := range r.nodes {
		if err := n.wallet.serve(); err != nil {
			return err
		}
	}
	if err := r.meet(ctx); err != nil {
		return fmt.Errorf("make the installations known to each other: %w", err)
	}
	for _, n := range r.nodes {
		if err := r.put(ctx, n); err != nil {
			return fmt.Errorf("set up the installation %s: %w", n.name, err)
		}
	}
	return nil
}

// meet makes each installation a peer of each other one.
func (r *domainRun) meet(ctx context.Context) error {
	for i, a := range r.nodes {
		for _, b := range r.nodes[i+1:] {
			random := make([]byte, 32)
			_, _ = rand.Read(random) // it does not fail
			secret := "whsec_" + base64.StdEncoding.EncodeToString(random)
			for _, end := range [][2]*demoNode{{a, b}, {b, a}} {
				if err := end[0].client.do(ctx, http.MethodPut, "/peers/"+end[1].name,
					map[string]any{"secret": secret, "url": end[1].door(end[0])}, nil); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// door is where a node takes the messages of another one.
func (n *demoNode) door(from *demoNode) string {
	return n.client.base + "/contexts/" + demoContext + "/peers/" + from.name
}

// put puts what the domain needs at a node, and the domain.
func (r *domainRun) put(ctx context.Context, n *demoNode) error {
	d := dispatcher(tokenType, r.Worker)
	d.Pool, d.PostedBy, d.Retry.OnFailed = tokenPool, outbox.ByAdmin, false
	d.Inclusion.Confirmations = devnet.FinalDepth
	if err := n.client.do(ctx, http.MethodPut, "/dispatchers/"+tokenType, d, nil); err != nil {
		return err
	}
	for i := range 5 {
		if err := n.client.do(ctx, http.MethodPut, fmt.Sprintf("/senders/%s-%d", n.name, i),
			map[string]any{"pool": tokenPool}, nil); err != nil {
			return err
		}
	}
	names := []string{}
	for _, one := range r.nodes {
		names = append(names, one.name)
	}
	return n.client.do(ctx, http.MethodPut, r.path(""), map[string]any{
		"types": []string{tokenType}, "service_url": n.wallet.url, "service_calls": []string{"look", "height"},
		"self": n.name, "nodes": names, "mode": "ENDORSER", "once": "ledger", "block_range": 10,
		"finality": devnet.FinalDepth, "heartbeat_interval": "1s", "request_timeout": "1s", "state_timeout": "5s",
		"delegate_timeout": "1s", "flush_grace": "5s", "min_tenure": 2, "endorse_reject_threshold": 1,
		"base_ledger_revert_threshold": 2,
	}, nil)
}

// submit posts an intent at its node.
func (r *domainRun) submit(ctx context.Context, s intentSample) error {
	p := &payment{intentSample: s}
	for _, n := range r.nodes {
		if n.name == s.node {
			p.at = n
		}
	}
	if err := p.at.client.do(ctx, http.MethodPost, r.path("/intents"), map[string]any{"uid": s.uid, "party": s.party,
		"data": s.order, "depends_on": append([]string{}, s.needs...)}, &p.row); err != nil {
		return fmt.Errorf("post the intent %s: %w", s.uid, err)
	}
	r.payments, r.byUID[s.uid] = append(r.payments, p), p
	return nil
}

// watch looks after the intents until all have ended, or the limit is over.
func (r *domainRun) watch(ctx context.Context) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for said := (time.Time{}); ; {
		open, err := r.look(ctx)
		n := len(r.payments)
		if err == nil {
			err = r.act(ctx)
		}
		if err != nil {
			return err
		}
		over := open == 0 && r.back || time.Since(r.posted) > domainLimit
		if over || time.Since(said) > time.Second {
			said = time.Now()
			fmt.Fprintf(r.Out, "%5.1f s  %d of %d intents have ended, coordinators %s\n",
				time.Since(r.posted).Seconds(), n-open, n, strings.Join(r.coordinators, ", "))
		}
		if over {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// look reads the domain at each node that is up, with its intents, and counts those that have not ended.
func (r *domainRun) look(ctx context.Context) (open int, err error) {
	for _, n := range r.nodes {
		if n.down {
			continue
		}
		n.seen = domainRow{}
		if err := n.client.do(ctx, http.MethodGet, r.path(""), nil, &n.seen); err != nil {
			return 0, err
		}
		active := n.seen.Coordinator == "Active"
		if active && !n.active {
			r.coordinators = append(r.coordinators, fmt.Sprintf("%s at %s", n.name, n.seen.Height))
		}
		n.active = active
		rows, err := all[intentRow](ctx, n.client, r.path("/intents"), url.Values{})
		if err != nil {
			return 0, err
		}
		for _, row := range rows {
			if p := r.byUID[row.UID]; p != nil {
				p.row = row
			}
		}
	}
	for _, p := range r.payments {
		if p.row.Receipt == nil {
			open++
		}
	}
	return open, nil
}

// act does what the demo does to the domain: it gives a receiver an address, kills the coordinator, and starts it
// again.
func (r *domainRun) act(ctx context.Context) error {
	if p := r.byUID["away"]; !r.told && p.row.State == "Parked" && !p.at.down {
		r.told = true
		p.at.wallet.meet(zoe)
		if err := p.at.client.do(ctx, http.MethodPost, r.path("/intents/"+p.row.ID+"/resume"),
			map[string]any{"reason": "its receiver has an address"}, nil); err != nil {
			return err
		}
	}
	if r.killed == nil {
		for _, n := range r.nodes {
			out := n.seen.Works["Dispatched"] + n.seen.Works["Submitted"]
			if n.kill != nil && n.seen.Coordinator == "Active" && out > 0 && len(r.coordinators) > 1 {
				fmt.Fprintf(r.Out, "         %s, which coordinates, is killed with %d public transactions on their "+
					"way\n", n.name, out)
				n.kill()
				n.down, r.killed, r.killedAt = true, n, time.Now()
				break
			}
		}
	}
	if r.killed != nil && !r.back {
		other := false
		for _, n := range r.nodes {
			other = other || !n.down && n.seen.Coordinator == "Active"
		}
		if other || time.Since(r.killedAt) > backAfter {
			if err := r.restart(ctx, r.killed); err != nil {
				return err
			}
		}
	}
	if !r.back && time.Since(r.streamed) > streamEvery && len(r.payments) < streamMost {
		r.streamed = time.Now()
		return r.stream(ctx)
	}
	return nil
}

// restart starts an installation again. It listens elsewhere than before, which the others are told.
func (r *domainRun) restart(ctx context.Context, n *demoNode) (err error) {
	if n.client.base, n.kill, err = r.StartNode(ctx, n.name); err != nil {
		return fmt.Errorf("start the installation %s again: %w", n.name, err)
	}
	n.down, r.back = false, true
	fmt.Fprintf(r.Out, "         %s is started again\n", n.name)
	for _, other := range r.nodes {
		if other == n {
			continue
		}
		if err := other.client.do(ctx, http.MethodPatch, "/peers/"+n.name, map[string]any{"url": n.door(other)},
			nil); err != nil {
			return err
		}
	}
	return nil
}

// stream posts one more payment, at the next node that is up.
func (r *domainRun) stream(ctx context.Context) error {
	n := len(r.payments)
	for i := range r.nodes {
		at := (n + i) % len(r.nodes)
		if r.nodes[at].down {
			continue
		}
		parties := []string{ann, ben, carol}
		return r.submit(ctx, intentSample{uid: fmt.Sprint("stream-", n), node: r.nodes[at].name, party: parties[at],
			note: "one of many", order: pay(parties[(at+1)%len(parties)], 1)})
	}
	return errors.New("no installation is up")
}
