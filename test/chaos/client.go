package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// post is one transaction of the client.
type post struct {
	UID      string    `json:"uid"`
	Queue    string    `json:"queue,omitempty"` // "" of an unordered one
	N        int       `json:"n"`
	Type     string    `json:"type"`
	Fails    bool      `json:"fails,omitempty"`   // each of its calls fails, and it may be retried once
	Doubled  bool      `json:"doubled,omitempty"` // sent twice at the same time
	Told     bool      `json:"told,omitempty"`    // it wants a callback
	On       string    `json:"on,omitempty"`      // it depends on another
	Staged   bool      `json:"staged,omitempty"`  // it is posted by SQL, in a transaction of an application
	At       time.Time `json:"at"`
	Acked    bool      `json:"acked"`
	AckedAt  time.Time `json:"acked_at,omitzero"`
	ID       string    `json:"id,omitempty"`
	Tries    int       `json:"tries"`
	Unknown  int       `json:"unknown"`            // tries whose end is unknown
	Left     bool      `json:"left,omitempty"`     // it ended without an acknowledgement: it may be there or not
	Refused  string    `json:"refused,omitempty"`  // the last answer that said that nothing was stored
	Bad      string    `json:"bad,omitempty"`      // an answer that is neither success nor retryable
	No       string    `json:"no,omitempty"`       // it was refused, and known at the next try
	Repeated bool      `json:"repeated,omitempty"` // posted again after a restore
	Changed  bool      `json:"changed,omitempty"`  // once acknowledged, it is posted with another body, too
	Clash    *clash    `json:"clash,omitempty"`    // what was answered to that in the end
}

// clash is the answer to another body under a key that is known.
type clash struct {
	Status   int
	Code, ID string // what it names as the transaction that the key has
}

// entry is one line of the client's log: a request (invoke), or its answer.
type entry struct {
	At   time.Time `json:"at"`
	UID  string    `json:"uid"`
	Try  int       `json:"try"`
	What string    `json:"what"` // invoke, ok, fail, unknown; changed and clash: the same of another body
	Code string    `json:"code,omitempty"`
}

// client posts at a steady rate, whatever is answered; what was not acknowledged is repeated under its key.
type client struct {
	key  string
	apis []string
	told string // where callbacks go

	database func() string // the URL that applications connect to
	http     http.Client
	mu       sync.Mutex
	posts    []*post
	counts   map[int]int // answers by status, 0 for none
	faults   []string    // answers that may not be
	file     *os.File
	lines    *json.Encoder
	acks     []time.Time
	doubly   bool // one in ten is sent twice at a time
	changes  bool // one in seven is sent with another body, too
}

func newClient(key string, apis []string, path string) (*client, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	return &client{key: key, apis: apis, http: http.Client{Timeout: 40 * time.Second, Transport: transport}, counts: map[int]int{}, file: f,
		lines: json.NewEncoder(f), doubly: true}, nil
}

func (c *client) fault(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
}

// run posts rate a second to n queues until ctx ends, and waits for the last answers until life ends.
func (c *client) run(ctx, life context.Context, rate, queues int) {
	var all sync.WaitGroup
	next := map[string]int{}
	atRate(ctx, rate, func(i int) {
		p := c.draw(i, queues)
		p.N, next[p.Queue] = next[p.Queue], next[p.Queue]+1
		c.mu.Lock()
		c.posts = append(c.posts, p)
		c.mu.Unlock()
		all.Go(func() { c.submit(life, p, i) })
		if p.Doubled {
			all.Go(func() { c.try(life, p, i+1, true) })
		}
	})
	all.Wait()
}

// atRate does something rate times a second, until ctx ends. n counts from 0.
func atRate(ctx context.Context, rate int, do func(n int)) {
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do(n)
		}
	}
}

// draw makes the i-th post.
func (c *client) draw(i, queues int) *post {
	p := &post{UID: fmt.Sprintf("u%06d", i), Queue: fmt.Sprintf("q%d", roll(fmt.Sprint("q", i), uint32(queues))), Type: "PAY", At: time.Now()}
	switch {
	case i%4 == 0:
		p.Type, p.Queue = "SIGN", "s-"+p.Queue
	case i%8 == 5:
		p.Queue = ""
	case i%20 == 7 && i > 100:
		p.On = fmt.Sprintf("u%06d", i-40) // may be there or not: then it is refused for good, and posted without
	}
	p.Fails = i%50 == 11
	p.Staged = i%12 == 3 && p.On == ""
	p.Told = i%5 == 1 && !p.Staged
	p.Doubled = c.doubly && i%10 == 5 && !p.Staged
	p.Changed = c.changes && i%7 == 4 && !p.Staged
	return p
}

// body is what is posted.
func (c *client) body(p *post) []byte {
	data := map[string]any{"N": p.N}
	body := map[string]any{"type": p.Type, "data": data}
	if p.Queue != "" {
		body["queue"] = p.Queue
	}
	if p.Fails {
		data["Fail"] = true
		body["max_retries"] = 1
	}
	if p.Told {
		body["callback"] = map[string]any{"url": c.told}
	}
	if p.On != "" {
		body["depends_on"] = []string{p.On}
	}
	b, _ := json.Marshal(body)
	return b
}

// submit repeats a post until it is acknowledged, or refused for good.
func (c *client) submit(ctx context.Context, p *post, i int) {
	for try := 0; ctx.Err() == nil; try++ {
		if c.try(ctx, p, i+try, false) {
			break
		}
		time.Sleep(min(time.Duration(50<<min(try, 5))*time.Millisecond, time.Second))
	}
	c.mu.Lock()
	changes := p.Changed && p.Acked
	c.mu.Unlock()
	if changes {
		wait(ctx, time.Duration(roll(p.UID+"changed", 3000))*time.Millisecond)
		c.change(ctx, p, i+1)
	}
}

// change posts another body under the key of what was acknowledged, until the answer says something.
func (c *client) change(ctx context.Context, p *post, n int) {
	c.mu.Lock()
	other := *p
	c.mu.Unlock()
	other.N += 1_000_000
	body := c.body(&other)
	for ; ctx.Err() == nil; n++ {
		c.log(entry{At: time.Now(), UID: p.UID, What: "changed"})
		status, answer := c.send(ctx, c.apis[n%len(c.apis)], p.UID, body)
		var said struct {
			ID, Code string
			Existing struct{ ID string }
		}
		json.Unmarshal(answer, &said)
		c.log(entry{At: time.Now(), UID: p.UID, What: "clash", Code: fmt.Sprint(status, " ", said.Code)})
		if status != 0 && !retryable(answer) {
			c.mu.Lock()
			p.Clash = &clash{status, said.Code, cmp.Or(said.Existing.ID, said.ID)}
			c.mu.Unlock()
			return
		}
		wait(ctx, 200*time.Millisecond)
	}
}

// log writes a line.
func (c *client) log(e entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines.Encode(e)
}

// try sends a post once, and says whether that was its last try.
func (c *client) try(ctx context.Context, p *post, n int, extra bool) (over bool) {
	c.mu.Lock()
	body := c.body(p)
	p.Tries++
	try := p.Tries
	c.lines.Encode(entry{At: time.Now(), UID: p.UID, Try: try, What: "invoke"})
	c.mu.Unlock()
	if p.Staged {
		return c.tryStaged(ctx, p, try)
	}
	status, answer := c.send(ctx, c.apis[n%len(c.apis)], p.UID, body)
	var said struct {
		ID        string
		Retryable bool
		Code      string
	}
	json.Unmarshal(answer, &said)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[status]++
	e := entry{At: time.Now(), UID: p.UID, Try: try, What: "ok", Code: said.Code}
	defer func() { c.lines.Encode(e) }()
	switch {
	case status == 200 || status == 201 || status == 202:
		if status == 200 && p.Refused != "" && p.Unknown == 0 && !p.Doubled && !p.Acked {
			p.No = fmt.Sprintf("it was refused (%s), and was stored all the same", p.Refused)
		}
		if p.Acked && p.ID != said.ID {
			c.faults = append(c.faults, fmt.Sprintf("%s was acknowledged as %s and as %s", p.UID, p.ID, said.ID))
		}
		p.Acked, p.ID, p.AckedAt = true, said.ID, time.Now()
		c.acks = append(c.acks, p.AckedAt)
	case status == 0 || said.Code == "commit_unknown":
		e.What = "unknown"
		p.Unknown++
	case said.Retryable:
		e.What = "fail"
		p.Refused = said.Code
	case p.On != "" && status < 500 && p.Unknown > 0: // a try before may still be stored as it was: no other body now
		e.What = "unknown"
		p.Left = true
	case p.On != "" && status < 500: // what it depends on is not there, or it stands before it
		p.On = ""
	case !extra:
		e.What = "fail"
		p.Bad = fmt.Sprintf("%d %s", status, answer)
	}
	return p.Acked || p.Bad != "" || p.Left
}

func retryable(answer []byte) bool {
	var said struct{ Retryable bool }
	return json.Unmarshal(answer, &said) == nil && said.Retryable
}

func (c *client) send(ctx context.Context, api, uid string, body []byte) (int, []byte) {
	r, err := http.NewRequestWithContext(ctx, "POST", api+"/transactions", bytes.NewReader(body))
	if err != nil {
		return 0, nil
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", uid)
	return c.do(r)
}

// do sends a request in the context that it names, or in default: the key is one of system.
func (c *client) do(r *http.Request) (int, []byte) {
	r.Header.Set("Authorization", "Bearer "+c.key)
	if r.Header.Get("Postern-Context") == "" {
		r.Header.Set("Postern-Context", "default")
	}
	return c.doAs(r)
}

// doAs makes a request with the credential that it has, once: without GetBody, net/http does not send one with an
// Idempotency-Key again by itself when a connection breaks. Of two that were sent the second may be refused while the
// first was done, and the log would tell one refusal.
func (c *client) doAs(r *http.Request) (int, []byte) {
	r.GetBody = nil
	a, err := c.http.Do(r)
	if err != nil {
		return 0, nil
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil { // the answer broke off
		return 0, nil
	}
	return a.StatusCode, b
}

// ask sends a request until it succeeds, for half a minute.
func (c *client) ask(ctx context.Context, method, path, body string) ([]byte, error) {
	return c.askIn(ctx, "default", method, path, body)
}

// askIn is ask in a context.
func (c *client) askIn(ctx context.Context, in, method, path, body string) ([]byte, error) {
	var last string
	for n, end := 0, time.Now().Add(30*time.Second); time.Now().Before(end) && ctx.Err() == nil; n++ {
		r, err := http.NewRequestWithContext(ctx, method, c.apis[n%len(c.apis)]+path, bytes.NewReader([]byte(body)))
		if err != nil {
			return nil, err
		}
		r.Header.Set("Postern-Context", in)
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Idempotency-Key", fmt.Sprintf("%x", roll(method+path+body, 1<<31)))
		}
		status, answer := c.do(r)
		if status >= 200 && status < 300 {
			return answer, nil
		}
		if last = fmt.Sprintf("%d %s", status, answer); status == 404 {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	return nil, fmt.Errorf("%s %s: %s", method, path, last)
}

// repeat posts again what was acknowledged since a moment, under its key, as a client does after a restore.
func (c *client) repeat(ctx context.Context, since time.Time) (n int) {
	var all sync.WaitGroup
	c.mu.Lock()
	for i, p := range c.posts {
		if p.Acked && p.AckedAt.After(since) {
			p.Acked, p.Repeated, p.Unknown = false, true, p.Unknown+1
			n++
			all.Go(func() { c.submit(ctx, p, i) })
		}
	}
	c.mu.Unlock()
	all.Wait()
	return n
}
