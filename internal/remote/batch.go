package remote

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/safe"
	"github.com/postern-dev/postern/internal/strict"
)

const (
	batchSize    = 500             // hashes a call: their statuses fit into 1 MiB
	batchAside   = 8               // questions side by side where there is no batch
	batchMissing = 5 * time.Minute // how long a worker is believed to have no /status:batch
)

// StatusBatch asks after many hashes; see Worker.
func (c *Client) StatusBatch(ctx context.Context, baseURL, typ string, hashes []string) []outbox.Status {
	out := make([]outbox.Status, 0, len(hashes))
	for len(out) < len(hashes) {
		part := hashes[len(out):min(len(out)+batchSize, len(hashes))]
		if c.lacksBatch(baseURL) {
			out = append(out, c.oneByOne(ctx, baseURL, typ, part)...)
			continue
		}
		statuses, missing := c.batch(ctx, baseURL, part)
		if missing {
			c.mu.Lock()
			c.noBatch[baseURL] = c.now().Add(batchMissing)
			c.mu.Unlock()
			continue
		}
		out = append(out, statuses...)
	}
	return out
}

// lacksBatch says whether baseURL was seen without /status:batch a short time ago.
func (c *Client) lacksBatch(baseURL string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	until, ok := c.noBatch[baseURL]
	if ok && !c.now().Before(until) {
		delete(c.noBatch, baseURL)
		return false
	}
	return ok
}

// batch asks in one call. missing: the worker has no such call.
func (c *Client) batch(ctx context.Context, baseURL string, hashes []string) (out []outbox.Status, missing bool) {
	b := make([]byte, 0, 16+72*len(hashes))
	b = append(b, `{"hashes":[`...)
	for i, h := range hashes {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, h)
	}
	p := c.exchange(ctx, request{method: http.MethodPost, url: endpoint(baseURL, "status:batch", ""),
		below: "status:batch", body: append(b, "]}"...), timeout: askTimeout})
	var raw struct {
		Statuses []json.RawMessage `json:"statuses"`
	}
	switch {
	case notFound(p.status):
		return nil, true
	case p.status == 0:
		return all(hashes, p.unreachable()), false
	case !ok2xx(p.status):
		return all(hashes, unreachable("the worker answered HTTP %d to a question for many statuses", p.status)), false
	case p.unread != "":
		return all(hashes, unreachable("the worker's statuses could not be read (%s)", p.unread)), false
	}
	if err := strict.Read(p.body, &raw); err != nil {
		return all(hashes, unreachable("the worker's statuses are not understood: %s", err.Error())), false
	}
	if len(raw.Statuses) != len(hashes) { // which status belongs to which hash is unknown
		return all(hashes, unreachable("the worker was asked after %d hashes and gave %d statuses",
			len(hashes), len(raw.Statuses))), false
	}
	out = make([]outbox.Status, len(hashes))
	for i, h := range hashes {
		out[i] = readStatus(raw.Statuses[i], h)
	}
	return out, false
}

// oneByOne asks for each hash. The first goes alone: if it gets no answer, or there is no /status, the others need not
// ask.
func (c *Client) oneByOne(ctx context.Context, baseURL, typ string, hashes []string) []outbox.Status {
	out := all(hashes, unreachable("the program failed while it asked: its log says how")) // until there is an answer
	first, answered := c.status(ctx, baseURL, typ, "", hashes[0])
	if !answered || first.State == outbox.StatusUnsupported {
		return all(hashes, first)
	}
	out[0] = first
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(batchAside, len(hashes)-1) {
		wg.Go(safe.Func("statuses", func() {
			for i := range next {
				safe.Run("status", func() { out[i] = c.Status(ctx, baseURL, typ, "", hashes[i]) })
			}
		}))
	}
	for i := 1; i < len(hashes); i++ {
		next <- i
	}
	close(next)
	wg.Wait()
	return out
}

// all gives the same answer for every hash.
func all(hashes []string, st outbox.Status) []outbox.Status {
	out := make([]outbox.Status, len(hashes))
	for i := range out {
		out[i] = st
	}
	return out
}
