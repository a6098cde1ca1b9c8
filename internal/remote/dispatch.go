package remote

import (
	"context"
	"net/http"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
)

// Dispatch sends one call to the worker; see Worker.
func (c *Client) Dispatch(ctx context.Context, call Call) outbox.Answer {
	timeout := call.Timeout
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	start := c.now()
	token := call.Token()
	deadline := start.Add(timeout)
	p := c.exchange(ctx, request{
		method:  http.MethodPost,
		url:     endpoint(call.BaseURL, "dispatch", call.Type),
		below:   "dispatch/" + call.Type,
		body:    dispatchBody(call, token, deadline),
		header:  callHeader(call, token, deadline),
		timeout: timeout,
	})
	now := c.now()
	a := classify(p, now)
	a.StartedAt, a.Elapsed = start, now.Sub(start)
	return a
}

// notFound says whether a status means that the worker does not have the endpoint (S2.10).
func notFound(status int) bool {
	return status == http.StatusNotFound || status == http.StatusMethodNotAllowed || status == http.StatusNotImplemented
}

// maxWait caps what a worker may ask us to wait: a stray number must not park a queue for a century.
const maxWait = 24 * time.Hour

// maxForeignWait caps what an answer may ask for that is none of the worker's: a maintenance page that says hours must
// not hold a queue, whose worker may be back, for longer.
const maxForeignWait = 5 * time.Minute
