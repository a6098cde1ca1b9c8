package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// The load peers: two installations with a PostgreSQL, two processes and runners each. Flows are posted to the first,
// and half of their jobs are for the second. Actors write to those who work there, one message after the other.

const (
	writers   = 4                      // actors that write messages; the first of them posts the flows, too
	writeEach = 300 * time.Millisecond // one message of each
	// peerFaults are the kinds that break two installations unless others are named.
	peerFaults = flowFaults + ",line-cut,line-drop,line-one-way-in,line-one-way-out,line-slow,line-double,line-late"
)

// pair is what there is besides the first installation.
type pair struct {
	far      *world
	line     *line
	audience map[string]any
	actors   []*actor
	back     time.Duration // how old the backup is that restore-near and restore-far put in place

	mu       sync.Mutex
	gaps     gaps // of restores
	letters  []*letter
	received int
	replied  int
}

// peerSecret is what two installations sign with.
const peerSecret = "whsec_Y2hhb3MtY2hhb3MtY2hhb3MtY2hhb3MtY2hhb3Mh"

// beside is another installation, with a directory of its own.
func (w *world) beside(name string) *world {
	return &world{dir: filepath.Join(w.dir, name), bin: w.bin, clockBin: w.clockBin, idle: w.idle, drips: w.drips,
		ttl: w.ttl, life: w.life, worker: w.worker, ways: ways{worker: w.ways.worker},
		counts: map[string]int{}, skipped: map[string]string{}, times: map[string][]time.Duration{},
		late: map[string]int{}, largest: map[string]int{}, wrong: map[string][]string{}, said: map[string]bool{}}
}

// startAll starts the PostgreSQL and the processes of another installation.
func (w *world) startAll(ctx context.Context, o options) error {
	if err := os.Mkdir(w.dir, 0o755); err != nil {
		return err
	}
	if err := w.startPostgres(ctx, o); err != nil {
		return err
	}
	return w.startPostern(ctx, o.processes())
}

// letter is one message as it was posted.
type letter struct {
	writer, n int
	body      []byte
	id        string
	tries     int
	unknown   int
	bad       string
	from      time.Time // when it was posted for the first time
	at        time.Time // when it was acknowledged
}

// text is what a letter says. reply is what it is answered.
func (l *letter) text() string { return fmt.Sprintf("%d/%d", l.writer, l.n) }

func reply(text string) string { return "re: " + text }

// startPair starts the second installation, makes both known to each other, and actors to both.
func (w *world) startPair(ctx context.Context, o options) (err error) {
	w.client.apis = w.ways.direct // signatures cover the name by which a process is called
	far := w.beside("far")
	w.pair = &pair{far: far, back: o.back}
	if err := far.startAll(ctx, o); err != nil {
		return err
	}
	if err := w.startFlows(ctx, o); err != nil {
		return err
	}
	far.flows = w.flows
	if err := far.startRunners(ctx, o, o.runners); err != nil {
		return err
	}
	if w.pair.line, err = newLine(far.ways.direct); err != nil {
		return err
	}
	return w.meet(ctx)
}

// meet makes the installations and the actors known.
func (w *world) meet(ctx context.Context) error {
	p := w.pair
	for range writers {
		a := newActor()
		for i, at := range []*world{w, p.far} {
			answer, err := at.client.ask(ctx, "POST", "/actors", `{"public_keys":["`+a.public()+`"]}`)
			if err != nil {
				return err
			}
			var made struct{ ID string }
			json.Unmarshal(answer, &made)
			a.ids[i] = made.ID
			if _, err := at.client.ask(ctx, "PUT", "/contexts/default/members/"+made.ID,
				`{"roles":["admin"]}`); err != nil {
				return err
			}
		}
		p.actors = append(p.actors, a)
	}
	const secret = `"secret":"` + peerSecret + `"`
	if _, err := p.far.client.ask(ctx, "PUT", "/peers/near", `{`+secret+`}`); err != nil {
		return err
	}
	if _, err := w.client.ask(ctx, "PUT", "/peers/far", fmt.Sprintf(
		`{%s,"url":"http://127.0.0.1:%d/contexts/default/peers/near"}`, secret, p.line.front.port())); err != nil {
		return err
	}
	answer, err := w.client.ask(ctx, "POST", "/peers/far/check", "")
	if err != nil {
		return err
	}
	var met struct{ Installation string }
	if json.Unmarshal(answer, &met); met.Installation == "" {
		return fmt.Errorf("the second installation does not answer: %s", answer)
	}
	p.audience = map[string]any{"installation": met.Installation, "context": "default", "peer": "near"}
	w.flows.sendAway = func(job, env map[string]any) {
		job["target"], job["envelope"] = map[string]string{"peer": "far"}, p.actors[0].envelope(p.audience,
			map[string]any{"message_type": "job", "job": []any{map[string]any{"script": job["script"],
				"script_type": job["script_type"], "timeout": job["timeout"], "retries": job["retries"],
				"network": job["network"], "env_vars": env}}})
	}
	return nil
}

// write posts the messages of an actor, one after the other, until ctx ends.
func (p *pair) write(ctx, life context.Context, near *client, writer int) {
	for n := 0; wait(ctx, writeEach); n++ {
		l := &letter{writer: writer, n: n, from: time.Now()}
		kind := map[bool]string{true: "chat", false: "mail"}[n%3 > 0]
		l.body, _ = json.Marshal(map[string]any{"ref": n, "to": map[string]string{"peer": "far"},
			"envelope": p.actors[writer].envelope(p.audience, map[string]any{"ref": n, "message_type": kind,
				"message": l.text()})})
		p.mu.Lock()
		p.letters = append(p.letters, l)
		p.mu.Unlock()
		p.post(life, near, l)
	}
}

// post repeats a post until it is acknowledged, or refused for good.
func (p *pair) post(ctx context.Context, near *client, l *letter) {
	for {
		status, answer := p.actors[l.writer].ask(ctx, near, near.apis[(l.n+l.tries)%len(near.apis)]+"/messages", l.body)
		var said struct{ ID, Code string }
		json.Unmarshal(answer, &said)
		p.mu.Lock()
		l.tries++
		switch {
		case status == 200 || status == 201:
			l.id, l.at = said.ID, time.Now()
		case status == 0 || said.Code == "commit_unknown":
			l.unknown++
		case !retryable(answer):
			l.bad = fmt.Sprintf("%d %.300s", status, answer)
		}
		over := l.id != "" || l.bad != ""
		p.mu.Unlock()
		if over || !wait(ctx, 200*time.Millisecond) {
			return
		}
	}
}

// ask makes a request that the actor signs.
func (a *actor) ask(ctx context.Context, c *client, url string, body []byte) (int, []byte) {
	r, err := http.NewRequestWithContext(ctx, "POST", url, bytes.NewReader(body))
	if err != nil {
		return 0, nil
	}
	r.Header.Set("Content-Type", "application/json")
	a.sign(r, body)
	return c.doAs(r)
}

// receive is one who works at the second installation: it answers what it is handed, until ctx ends.
func (p *pair) receive(ctx context.Context) {
	c := p.far.client
	for n := 0; ctx.Err() == nil; n++ {
		api := c.apis[n%len(c.apis)]
		status, answer := c.say(ctx, api+"/messages:receive?wait=5s", `{"max":10}`, "")
		var list struct {
			Items []struct {
				ID, Message string
				Fence       json.Number
			}
		}
		json.Unmarshal(answer, &list)
		if status != 200 && status != 204 {
			wait(ctx, 200*time.Millisecond)
		}
		for _, m := range list.Items {
			p.mu.Lock()
			p.received++
			p.mu.Unlock()
			body, _ := json.Marshal(map[string]string{"message": reply(m.Message)})
			for try := range 5 { // then its lease is over, and it is handed out again
				status, answer := c.say(ctx, c.apis[(n+try)%len(c.apis)]+"/messages/"+m.ID+"/reply", string(body),
					m.Fence.String())
				if status/100 == 2 {
					p.mu.Lock()
					p.replied++
					p.mu.Unlock()
				}
				if status/100 == 2 || status != 0 && !retryable(answer) || !wait(ctx, 200*time.Millisecond) {
					break
				}
			}
		}
	}
}

// say makes a request of the root key, under a fence if there is one.
func (c *client) say(ctx context.Context, url, body, fence string) (int, []byte) {
	r, err := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(body))
	if err != nil {
		return 0, nil
	}
	r.Header.Set("Content-Type", "application/json")
	if fence != "" {
		r.Header.Set("Postern-Fence", fence)
	}
	return c.do(r)
}

// run writes and receives; the writers end with ctx, and what they have posted is repeated until posts ends. The receiver
// ends with life.
func (p *pair) run(ctx, posts, life context.Context, near *client) (written <-chan struct{}) {
	over := make(chan struct{})
	var all sync.WaitGroup
	for i := range p.actors {
		all.Go(func() { p.write(ctx, posts, near, i) })
	}
	go func() { all.Wait(); close(over) }()
	for range 2 {
		go p.receive(life)
	}
	return over
}

// restoreOf puts a backup in the place of the database of an installation, which has done much since. An operator has
// the workers asked and releases it. Clients that posted to it meanwhile post again.
func restoreOf(far bool) func(context.Context, *world, *rand.Rand) {
	return func(_ context.Context, w *world, _ *rand.Rand) {
		if w.pair == nil {
			w.missed("there are not two installations")
			return
		}
		at, ctx := w, w.life
		if far {
			at = w.pair.far
		}
		began := time.Now()
		went := at.goBack(ctx, w.pair.back, w.flows.ledger)
		if w.missedAt(at); !went {
			w.missed("no backup was taken")
			return
		}
		w.pair.mu.Lock()
		w.pair.gaps = append(w.pair.gaps, gap{far, span{began, time.Now()}})
		w.pair.mu.Unlock()
		if far {
			return
		}
		w.repeatLetters(ctx, began)
		w.repeatFlows(ctx, began)
	}
}

// goBack restores a backup that is as old as said, and releases the quarantine that follows. Until then no job of it
// begins.
func (w *world) goBack(ctx context.Context, old time.Duration, executed *ledger) bool {
	backup := w.backup(ctx)
	if backup == nil {
		return false
	}
	wait(ctx, old)
	q, noticed := w.putBack(ctx, backup)
	if !noticed {
		return true
	}
	key := w.reconcile(ctx, q, w.processes)
	began := executed.begunSince(q.from)
	own, err := w.query(ctx, `SELECT coalesce(string_agg(job_id::text, ', '), '')
		FROM postern.job WHERE job_id = ANY ($1)`, began)
	if w.note(err); own != "" {
		w.violate("nothing leaves a store that lost something", "since %s these jobs have begun: %s", clock(q.from), own)
	}
	if w.pair != nil { // the line is the way of this one to the other
		if n := w.pair.line.broughtSince(q.restored, q.from); n > 0 {
			w.violate("nothing leaves a store that lost something",
				"since %s %d calls have brought messages to the peer", clock(q.from), n)
		}
	}
	w.isReleased(q)
	_, err = w.postern(key, "quarantine", "release", "--url", w.ways.direct[0], "--anyway", "--reason", "asked")
	w.note(err)
	return true
}

// repeatLetters posts again what was acknowledged since a time.
func (w *world) repeatLetters(ctx context.Context, since time.Time) {
	p := w.pair
	var again []*letter
	p.mu.Lock()
	for _, l := range p.letters {
		if l.id != "" && l.at.After(since) {
			l.id = ""
			again = append(again, l)
		}
	}
	p.mu.Unlock()
	for _, l := range again {
		p.post(ctx, w.client, l)
	}
}

// repeatFlows posts flows again that were acknowledged since a time.
func (w *world) repeatFlows(ctx context.Context, since time.Time) {
	f := w.flows
	f.mu.Lock()
	var again []*flowPost
	for _, p := range f.posts {
		if p.id != "" && p.at.After(since) {
			p.id = ""
			again = append(again, p)
		}
	}
	f.mu.Unlock()
	for _, p := range again {
		w.sendFlow(ctx, p)
	}
}
