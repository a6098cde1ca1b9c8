package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The load domains: three installations, each with a PostgreSQL, two processes and a worker that signs, and one ledger.
// They share a domain of tokens. Intents are posted at each of them, and each may coordinate.

// domainNodes are the nodes of the domain, and the installations of that name.
var domainNodes = []string{"alice", "bob", "carol"}

const (
	owners      = 4   // of tokens, at each node
	mintedCoins = 12  // tokens that each owner begins with
	tokenWorth  = 250 // each of these
	// domainFaults are the kinds that break three installations unless others are named.
	domainFaults = "kill-work,kill-node,freeze,crash,restart,terminate,cut,one-way-in,commit-lost,commit-cut," +
		"endorser-slow,reorg,line-cut,line-drop,line-one-way-in,line-one-way-out,line-slow,line-double,line-late"
)

// domain is what there is besides the first installation.
type domain struct {
	sides   []*world   // the installations, in the order of domainNodes; the first is the world of the run
	lines   []*line    // each is the way of the messages from one installation to another
	servers []*process // the ledger, and a worker for each installation
	ledger  string
	tokens  *tokens

	mu    sync.Mutex
	posts []*intentPost
}

// intentPost is one intent as it was posted.
type intentPost struct {
	uid     string
	side    int // where it was posted
	body    []byte
	needs   string // the uid of one that it depends on
	id      string
	tries   int
	unknown int
	bad     string
}

// startDomain starts the ledger, the other installations, their workers and the service, and puts the domain at each.
func (w *world) startDomain(ctx context.Context, o options) (err error) {
	d := &domain{sides: []*world{w}, ledger: fmt.Sprintf("http://127.0.0.1:%d", freePort())}
	w.domain = d
	for _, name := range domainNodes[1:] {
		side := w.beside(name)
		d.sides = append(d.sides, side)
		if err := side.startAll(ctx, o); err != nil {
			return err
		}
	}
	for i, side := range d.sides {
		side.others = slices.Delete(slices.Clone(d.sides), i, i+1)
	}
	listen := strings.TrimPrefix(d.ledger, "http://")
	if err := d.serve(ctx, w, "ledger", "devnet", "--listen", listen, "--data", filepath.Join(w.dir, "chain"),
		"--block-every", "250ms", "--reorg-every", "20", "--reorg-lose", "0.2", "--seed",
		fmt.Sprint(o.seed)); err != nil {
		return err
	}
	if d.tokens, err = newTokens(d.ledger); err != nil {
		return err
	}
	for i := range d.sides {
		if err := d.put(ctx, w, i); err != nil {
			return err
		}
	}
	return d.mint(ctx)
}

// serve starts a server that is started again when it ends, and waits until it answers at the address of its --listen.
func (d *domain) serve(ctx context.Context, w *world, name string, args ...string) error {
	p := &process{name: name, bin: w.bin, dir: w.dir, args: args, env: os.Environ()}
	d.servers = append(d.servers, p)
	p.start()
	var at string
	for i, arg := range args {
		if arg == "--listen" {
			at = args[i+1]
		}
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end) && wait(ctx, 50*time.Millisecond); {
		if a, err := http.Get("http://" + at + "/health"); err == nil {
			a.Body.Close()
			return nil
		}
	}
	return fmt.Errorf("%s does not answer at %s: see %s/%s.log", name, at, w.dir, name)
}

// put starts the worker of an installation, and puts there what the domain needs, the other nodes, and the domain.
func (d *domain) put(ctx context.Context, w *world, i int) error {
	name, at := domainNodes[i], d.sides[i].client
	listen := fmt.Sprintf("127.0.0.1:%d", freePort())
	if err := d.serve(ctx, w, "worker-"+name, "worker", "devnet", "--listen", listen, "--ledger", d.ledger, "--keys",
		filepath.Join(w.dir, "keys-"+name), "--data", filepath.Join(w.dir, "worker-"+name), "--auto",
		"100000000000"); err != nil {
		return err
	}
	puts := [][2]string{{"/pools/signers", `{}`}, {"/dispatchers/TOKEN", fmt.Sprintf(`{"worker_url":"http://%s",
		"pool":"signers","posted_by":"admin","retry":{"on_failed":false,"initial":"200ms"},
		"inclusion":{"poll_every":"200ms","deadline":"4s","unknown_grace":"1s","confirmations":3}}`, listen)}}
	for n := range 24 { // each is held for a second, until its transaction is final
		puts = append(puts, [2]string{fmt.Sprintf("/senders/%s-%d", name, n), `{"pool":"signers"}`})
	}
	for j, other := range domainNodes {
		if i == j {
			continue
		}
		way, err := newLine(d.sides[j].ways.direct)
		if err != nil {
			return err
		}
		d.lines = append(d.lines, way)
		puts = append(puts, [2]string{"/peers/" + other, fmt.Sprintf(`{"secret":%q,
			"url":"http://127.0.0.1:%d/contexts/default/peers/%s"}`, peerSecret, way.front.port(), name)})
	}
	nodes, _ := json.Marshal(domainNodes)
	puts = append(puts, [2]string{"/domains/tok", fmt.Sprintf(`{"types":["TOKEN"],"service_url":%q,
		"service_calls":["look","height"],"self":%q,"nodes":%s,"mode":"ENDORSER","once":"hold",
		"block_range":10,"finality":3,"heartbeat_interval":"1s","inactive_grace":2,"request_timeout":"1s",
		"state_timeout":"5s",
		"delegate_timeout":"1s","flush_grace":"5s","base_ledger_revert_threshold":20}`, d.tokens.url+"/"+name, name, nodes)})
	for _, one := range puts {
		if _, err := at.ask(ctx, "PUT", one[0], one[1]); err != nil {
			return err
		}
	}
	return nil
}

// mint posts the intents that make the first tokens of each owner, and waits for them.
func (d *domain) mint(ctx context.Context) error {
	for i, node := range domainNodes {
		for n := range owners {
			p := &intentPost{uid: fmt.Sprintf("mint-%s-%d", node, n), side: i}
			p.body = intentBody(p, fmt.Sprintf("o%d@%s", n, node), order{Mint: mintedCoins})
			d.posts = append(d.posts, p)
			d.post(ctx, p)
		}
	}
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end) && wait(ctx, 200*time.Millisecond); {
		if what, err := d.firstOpen(ctx); err == nil && what == "" {
			return nil
		}
	}
	return fmt.Errorf("the first tokens are not there after two minutes")
}

func intentBody(p *intentPost, party string, o order) []byte {
	body := map[string]any{"uid": p.uid, "party": party, "data": o}
	if p.needs != "" {
		body["depends_on"] = []string{p.needs}
	}
	b, _ := json.Marshal(body)
	return b
}

// run posts rate intents a second, at each node in turn, until ctx ends. It waits for the last answers until life ends.
func (d *domain) run(ctx, life context.Context, rate int) {
	var all sync.WaitGroup
	atRate(ctx, rate, func(n int) {
		side := n % len(domainNodes)
		p := &intentPost{uid: fmt.Sprintf("i%05d", n), side: side}
		if n%10 == 9 && n > 60 {
			p.needs = fmt.Sprintf("i%05d", n-30) // which is posted at the same node
		}
		from := fmt.Sprintf("o%d@%s", roll(fmt.Sprint("from", n), owners), domainNodes[side])
		payee := domainNodes[roll(fmt.Sprint("node", n), 3)]
		to := fmt.Sprintf("o%d@%s", roll(fmt.Sprint("to", n), owners), payee)
		p.body = intentBody(p, from, order{To: to, Amount: 1 + roll(fmt.Sprint("amount", n), 40)})
		d.mu.Lock()
		d.posts = append(d.posts, p)
		d.mu.Unlock()
		all.Go(func() { d.post(life, p) })
	})
	all.Wait()
}

// post repeats a post until it is acknowledged, or refused for good.
func (d *domain) post(ctx context.Context, p *intentPost) {
	c := d.sides[p.side].client
	for try := 0; ctx.Err() == nil; try++ {
		status, answer := c.say(ctx, c.apis[try%len(c.apis)]+"/domains/tok/intents", string(p.body), "")
		var said struct{ ID, Code string }
		json.Unmarshal(answer, &said)
		d.mu.Lock()
		p.tries++
		switch {
		case status == 200 || status == 201:
			p.id = said.ID
		case status == 0 || said.Code == "commit_unknown":
			p.unknown++
		case status == 422 && p.needs != "" && strings.Contains(string(answer), p.needs): // that one is not there yet
		case !retryable(answer):
			p.bad = fmt.Sprintf("%d %.300s", status, answer)
		}
		over := p.id != "" || p.bad != ""
		d.mu.Unlock()
		if over || !wait(ctx, min(time.Duration(50<<min(try, 5))*time.Millisecond, time.Second)) {
			return
		}
	}
}

// openIntentsSQL lists what is open of intents.
const openIntentsSQL = `SELECT format('intent %s (%s) is %s', coalesce(uid, ''), intent_id, state) AS what
	FROM postern.coord_intent WHERE ended_at IS NULL`

// heal undoes what a fault may have left at the other installations, and between all of them.
func (d *domain) heal(ctx context.Context) {
	for _, side := range d.sides[1:] {
		side.heal(ctx)
	}
	for _, way := range d.lines {
		way.heal()
	}
	d.tokens.slow(0)
}

func (d *domain) end(within time.Duration) (hung []string) {
	for _, side := range d.sides[1:] {
		hung = append(hung, side.end(within)...)
	}
	return append(hung, endAll(d.servers, within)...)
}

// killNode has all processes of an installation die again and again for some seconds. If it coordinates, another one
// takes over, and it is measured when.
func killNode(ctx context.Context, w *world, r *rand.Rand) {
	coordinates := func(ctx context.Context, at *world) bool {
		state, err := at.query(ctx, `SELECT coalesce(max(coordinator), '') FROM postern.coord_state`)
		return err == nil && state == "Active"
	}
	if coordinates(ctx, w) {
		w.measure(ctx, "takeover", time.Now(), func(ctx context.Context) bool {
			return slices.ContainsFunc(w.others, func(o *world) bool { return coordinates(ctx, o) })
		})
	}
	met := map[*process]bool{}
	for end := time.Now().Add(time.Duration(3+r.IntN(6)) * time.Second); time.Now().Before(end); {
		for _, p := range w.processes {
			met[p] = p.signal(syscall.SIGKILL) || met[p]
		}
		if !wait(ctx, 100*time.Millisecond) {
			break
		}
	}
	for p, hit := range met {
		if !hit {
			w.missed(p.name + " did not run")
		}
	}
}

// endorserSlow has the service take a second or two for each endorsement.
func endorserSlow(ctx context.Context, w *world, r *rand.Rand) {
	if w.domain == nil {
		w.missed("there is no domain")
		return
	}
	before := w.domain.tokens.delayedSoFar()
	w.domain.tokens.slow(time.Second + time.Duration(r.Int64N(int64(time.Second))))
	wait(ctx, 5*time.Second)
	w.domain.tokens.slow(0)
	if w.domain.tokens.delayedSoFar() == before {
		w.missed("nothing was to be endorsed")
	}
}

// reorg takes the last two blocks out of the ledger.
func reorg(_ context.Context, w *world, _ *rand.Rand) {
	if w.domain == nil {
		w.missed("there is no domain")
		return
	}
	a, err := http.Post(w.domain.ledger+"/reorg", "application/json", strings.NewReader(`{"depth": 2}`))
	if err == nil {
		if a.Body.Close(); a.StatusCode != http.StatusOK {
			err = fmt.Errorf("the ledger answers a reorg with %d", a.StatusCode)
		}
	}
	w.must(err)
}
