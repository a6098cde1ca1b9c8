package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
)

// Hook tells the worker how a transaction ended; see Worker. Delivery is at least once: the worker
// dedupes on the token (S0.4).
func (c *Client) Hook(ctx context.Context, call Call, hook outbox.Hook, result,
	errObj json.RawMessage, token string) HookAnswer {
	timeout := call.Timeout
	if timeout <= 0 {
		timeout = hookTimeout
	}
	a := HookAnswer{StartedAt: c.now()}
	p := c.exchange(ctx, request{
		method:  http.MethodPost,
		url:     endpoint(call.BaseURL, string(hook), call.Type),
		below:   string(hook) + "/" + call.Type,
		body:    hookBody(call, token, result, errObj),
		header:  callHeader(call, token, time.Time{}),
		timeout: timeout,
	})
	now := c.now()
	a.Elapsed = now.Sub(a.StartedAt)
	a.Status, a.Refused = p.status, p.refused
	if p.status == 0 {
		a.Message = p.message
		return a
	}
	if json.Valid(p.body) {
		if body, ok := storable(p.body); ok {
			a.Body = body
		}
	}
	switch {
	case ok2xx(p.status): // also where the body broke off: it has been told
		a.OK = true
	case notFound(p.status):
		a.Missing = true
		a.Message = fmt.Sprintf("the worker has no %s (HTTP %d)", hook, p.status)
	default:
		a.Message = fmt.Sprintf("the worker answered HTTP %d to %s", p.status, hook)
		a.After = min(retryAfter(p.header, now), maxForeignWait)
	}
	return a
}
