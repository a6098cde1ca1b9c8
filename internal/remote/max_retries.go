package remote

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/strict"
)

const (
	maxRetriesKept  = 5 * time.Minute  // S2.9
	maxRetriesError = 10 * time.Second // a worker that does not answer is not asked for each transaction
	maxRetriesMost  = 1_000_000        // more than that is a slip
)

// maxRetries is what one worker said about one type. Its lock is held while the worker is asked, so that
// many who want to know ask once.
type maxRetries struct {
	sync.Mutex
	n     *int
	err   error
	until time.Time
}

// MaxRetries asks how often the worker wants a type retried; see Worker.
func (c *Client) MaxRetries(ctx context.Context, baseURL, typ string) (*int, error) {
	u := endpoint(baseURL, "max-retries", typ)
	c.mu.Lock()
	m := c.maxRetries[u]
	if m == nil {
		m = &maxRetries{}
		c.maxRetries[u] = m
	}
	c.mu.Unlock()

	m.Lock()
	defer m.Unlock()
	if c.now().Before(m.until) {
		return m.n, m.err
	}
	m.n, m.err = c.askMaxRetries(ctx, u)
	switch {
	case ctx.Err() != nil: // the caller has left: that says nothing about the worker
		m.until = time.Time{}
	case m.err != nil:
		m.until = c.now().Add(maxRetriesError)
	default:
		m.until = c.now().Add(maxRetriesKept)
	}
	return m.n, m.err
}

func (c *Client) askMaxRetries(ctx context.Context, u string) (*int, error) {
	return retriesIn(c.exchange(ctx, request{method: http.MethodGet, url: u, timeout: askTimeout}))
}

// retriesIn reads what a worker answers; nil: it has no say.
func retriesIn(p reply) (*int, error) {
	switch {
	case p.status == 0:
		return nil, fault.New(fault.Retry, "worker_unreachable",
			"the worker cannot be asked for max_retries: %s", p.message)
	case notFound(p.status):
		return nil, nil
	case !ok2xx(p.status):
		return nil, fault.New(fault.Retry, "worker_unreachable",
			"the worker answered HTTP %d to max-retries: want 200 with a number, or 404", p.status)
	}
	var obj struct {
		MaxRetries json.RawMessage `json:"max_retries"`
	}
	text := scalar(p.body)
	if strict.Read(p.body, &obj) == nil && len(obj.MaxRetries) > 0 {
		text = scalar(obj.MaxRetries)
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > maxRetriesMost {
		return nil, fault.New(fault.Retry, "worker_answer",
			"the worker answered max-retries with %s: want a number from 0 to %d, or {\"max_retries\": n}",
			quote(string(p.body)), maxRetriesMost)
	}
	return &n, nil
}
