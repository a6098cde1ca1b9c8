package remote

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
)

// Probe is one question to a worker that makes it execute nothing.
type Probe struct {
	Check string // health, status, status:batch, max-retries
	State string // ok; absent: it is optional, and not there; bad
	Found string // what it answered, or what its absence costs
}

// A token that belongs to no transaction, and a hash under which nothing was sent.
const nobody, nowhere = "00000000-0000-8000-8000-000000000000.1", "0xprobe"

// Probes asks a worker of a type for everything that it may offer beside dispatch, whether it is there and answers as
// the contract says (S2.7). The first that is not answered at all ends it.
func (c *Client) Probes(ctx context.Context, baseURL, typ string) []Probe {
	p := c.exchange(ctx, healthRequest(baseURL))
	switch {
	case p.status == 0:
		return []Probe{{"health", "bad", p.message}}
	case p.status >= 500:
		return []Probe{{"health", "bad", fmt.Sprintf("the worker answered HTTP %d", p.status)}}
	}
	list := []Probe{{"health", "ok", fmt.Sprintf("the worker answered HTTP %d", p.status)}}
	if notFound(p.status) {
		list[0] = Probe{"health", "absent", "it is not looked at before a call"}
	}
	status := Probe{"status", "ok", "of a token that it never saw it says so"}
	switch st := c.Status(ctx, baseURL, typ, nobody, ""); st.State {
	case outbox.StatusUnknown:
	case outbox.StatusUnsupported:
		status = Probe{"status", "absent", "each call that a stop or a crash cuts off is held for an operator, unless the dispatcher is idempotent; nothing can be submitted and included later"}
	case outbox.StatusUnreachable:
		status = Probe{"status", "bad", st.Message}
	default:
		status = Probe{"status", "bad",
			fmt.Sprintf("of a token that was never sent it says %q: want unknown", st.State)}
	}
	list = append(list, status)
	batch := Probe{"status:batch", "ok", "it answers for many hashes at once"}
	switch out, missing := c.batch(ctx, baseURL, []string{nowhere}); {
	case missing:
		batch = Probe{"status:batch", "absent", "it is asked for one hash at a time"}
	case out[0].State == outbox.StatusUnreachable:
		batch = Probe{"status:batch", "bad", out[0].Message}
	}
	retries := Probe{"max-retries", "absent", "the dispatcher's own counts, else 10; with a pool 5"}
	switch n, err := c.askMaxRetries(ctx, endpoint(baseURL, "max-retries", typ)); {
	case err != nil:
		retries = Probe{"max-retries", "bad", err.Error()}
	case n != nil:
		retries = Probe{"max-retries", "ok", fmt.Sprintf("it wants %d", *n)}
	}
	return append(list, batch, retries)
}

// Alive asks for the status of a token that no transaction has, and, where that is not answered as the contract says,
// for the health; see Worker. A worker without either answers 404 to both, and may be alive. An ingress in front of a
// worker that is away mostly answers both alike, with a status from 500 up.
func (c *Client) Alive(ctx context.Context, baseURL, typ string, mute bool) error {
	away := func(p reply, format string, args ...any) error {
		return fault.New(fault.Retry, cmp.Or(p.code, "http_"+strconv.Itoa(p.status)), format, args...)
	}
	status := reply{status: http.StatusNotFound}
	if !mute {
		status = c.exchange(ctx, statusRequest(baseURL, typ, nobody, ""))
	}
	switch {
	case status.status == 0:
		return away(status, "%s", status.message)
	case status.status < 500 && !notFound(status.status):
		return nil
	}
	health := c.exchange(ctx, healthRequest(baseURL))
	switch {
	case health.status == 0:
		return away(health, "%s", health.message)
	case ok2xx(health.status):
		return nil
	case health.status >= 500 && !notFound(health.status):
		return away(health, "the worker answered HTTP %d to a question for its health", health.status)
	case !notFound(status.status):
		return away(status, "the worker answered HTTP %d to a question for the status, and %d to one for its health",
			status.status, health.status)
	}
	return nil
}

func healthRequest(baseURL string) request {
	return request{method: http.MethodGet, url: endpoint(baseURL, "health", ""), timeout: healthTimeout}
}
