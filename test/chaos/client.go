package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// post is one line of the client's log.
type post struct {
	UID   string    `json:"uid"`
	Queue string    `json:"queue"`
	N     int       `json:"n"`
	Type  string    `json:"type"`
	At    time.Time `json:"at"`
	Acked bool      `json:"acked"`
	ID    string    `json:"id,omitempty"`
	Tries int       `json:"tries"`
	Bad   string    `json:"bad,omitempty"` // an answer that is neither success nor retryable
}

// client posts at a steady rate, whatever is answered; what was not acknowledged is repeated under its key.
type client struct {
	key    string
	apis   []string
	http   http.Client
	mu     sync.Mutex
	posts  []*post
	counts map[int]int // answers by status, 0 for none
}

func newClient(key string, apis []string) *client {
	return &client{key: key, apis: apis, http: http.Client{Timeout: 40 * time.Second}, counts: map[int]int{}}
}

// run posts rate a second to n queues until ctx ends, and waits for the last answers for at most settle.
func (c *client) run(ctx context.Context, rate, queues int, settle time.Duration) {
	life, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Hour)
	defer cancel()
	var all sync.WaitGroup
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	next := map[string]int{}
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			go func() { time.Sleep(settle); cancel() }()
			all.Wait()
			return
		case <-tick.C:
		}
		p := &post{UID: fmt.Sprintf("u%06d", i), Queue: fmt.Sprintf("q%d", roll(fmt.Sprint("q", i), uint32(queues))), Type: "PAY", At: time.Now()}
		if i%4 == 0 {
			p.Type, p.Queue = "SIGN", "s-"+p.Queue
		}
		p.N, next[p.Queue] = next[p.Queue], next[p.Queue]+1
		c.mu.Lock()
		c.posts = append(c.posts, p)
		c.mu.Unlock()
		all.Go(func() { c.submit(life, p, i) })
	}
}

// submit repeats a post until it is acknowledged, or refused for good.
func (c *client) submit(ctx context.Context, p *post, i int) {
	body, _ := json.Marshal(map[string]any{"queue": p.Queue, "type": p.Type, "data": map[string]int{"N": p.N}})
	for try := 0; ctx.Err() == nil; try++ {
		status, answer := c.send(ctx, c.apis[(i+try)%len(c.apis)], p.UID, body)
		c.mu.Lock()
		p.Tries++
		c.counts[status]++
		var said struct {
			ID        string
			Retryable bool
			Code      string
		}
		json.Unmarshal(answer, &said)
		switch {
		case status == 200 || status == 201 || status == 202:
			p.Acked, p.ID = true, said.ID
		case status != 0 && !said.Retryable:
			p.Bad = fmt.Sprintf("%d %s", status, answer)
		}
		over := p.Acked || p.Bad != ""
		c.mu.Unlock()
		if over {
			return
		}
		time.Sleep(min(time.Duration(50<<min(try, 5))*time.Millisecond, time.Second))
	}
}

func (c *client) send(ctx context.Context, api, uid string, body []byte) (int, []byte) {
	r, err := http.NewRequestWithContext(ctx, "POST", api+"/transactions", bytes.NewReader(body))
	if err != nil {
		return 0, nil
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", uid)
	r.Header.Set("Authorization", "Bearer "+c.key)
	a, err := c.http.Do(r)
	if err != nil {
		return 0, nil
	}
	defer a.Body.Close()
	b, _ := io.ReadAll(a.Body)
	return a.StatusCode, b
}

// put sends a PUT until it succeeds.
func (c *client) put(ctx context.Context, path, body string) error {
	var last string
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		r, _ := http.NewRequestWithContext(ctx, "PUT", c.apis[0]+path, bytes.NewReader([]byte(body)))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+c.key)
		a, err := c.http.Do(r)
		if err != nil {
			last = err.Error()
			continue
		}
		b, _ := io.ReadAll(a.Body)
		a.Body.Close()
		if a.StatusCode < 300 {
			return nil
		}
		last = fmt.Sprintf("%d %s", a.StatusCode, b)
	}
	return fmt.Errorf("PUT %s: %s", path, last)
}

func (c *client) write(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	e := json.NewEncoder(f)
	for _, p := range c.posts {
		if err := e.Encode(p); err != nil {
			return err
		}
	}
	return f.Sync()
}
