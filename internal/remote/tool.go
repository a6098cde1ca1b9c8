package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
)

const (
	healthTimeout = 5 * time.Second
	maxMeta       = 256 << 10 // bytes: two schemas of 64 KiB, and what else a tool likes to say
)

// Meta asks a tool at a URL what it is (S1.10). Invalid about /url, with what is wrong.
func (c *Client) Meta(ctx context.Context, url string) ([]byte, error) {
	p := c.exchange(ctx, request{method: http.MethodGet, url: endpoint(url, "meta", ""), header: http.Header{}, timeout: askTimeout, most: maxMeta})
	f := fault.At("/url", "GET %s/meta: %s", fault.Clip(strings.TrimRight(url, "/")), p.trouble("tool", maxMeta))
	switch {
	case p.refused:
		f.Code = "address_refused"
		return nil, f
	case p.status != http.StatusOK || p.body == nil:
		return nil, f
	}
	return p.body, nil
}

// Discover asks a tool that is known for its definition as it is now. How long a call may take, and how long an answer
// may be, stays as it was registered, and so does that calls are signed.
func Discover(ctx context.Context, c interface {
	Meta(ctx context.Context, url string) ([]byte, error)
}, now *leader.Definition) (*leader.Definition, error) {
	raw, err := c.Meta(ctx, now.URL)
	if err != nil {
		return nil, err
	}
	return leader.Discover(raw, leader.Meta{FQN: now.FQN.String(), URL: now.URL, Timeout: now.Timeout.String(), MaxAnswer: now.MaxAnswer, Sign: now.Sign})
}

// Healthy asks a tool whether it is ready: "" if it answers 200, else why it is not.
func (c *Client) Healthy(ctx context.Context, url string) (why string) {
	p := c.exchange(ctx, request{method: http.MethodGet, url: endpoint(url, "health", ""), header: http.Header{}, timeout: healthTimeout})
	if p.status == http.StatusOK {
		return ""
	}
	return p.trouble("tool", maxAnswer)
}

// Invoke calls a tool once with an input, within the time of the call. call.BaseURL is the tool's; its id, attempt and
// the like go as headers, as to a worker (S2.7), and are left out where there is no id. With call.Sign the call is
// signed, or not made by a client without a key. most is how many bytes of an answer are read. leader.Definition.Judge
// judges the reply. Its body can be stored.
func (c *Client) Invoke(ctx context.Context, call Call, token string, input json.RawMessage, most int) leader.Reply {
	timeout := call.Timeout
	if timeout <= 0 {
		timeout = leader.DefaultTimeout
	}
	start := c.now()
	deadline := start.Add(timeout)
	header := callHeader(call, token, deadline)
	if call.ID.IsZero() {
		for _, name := range []string{"Postern-Transaction", "Postern-Attempt", "Postern-Fence"} {
			delete(header, name)
		}
	}
	at := endpoint(call.BaseURL, "invoke", "")
	if call.Sign {
		if c.key == nil {
			return leader.Reply{Code: "no_signing_key", Message: "POSTERN_SIGNING_KEY_FILE names one"}
		}
		if err := sign(header, http.MethodPost, at, input, c.key, start); err != nil {
			return leader.Reply{Code: "bad_worker_url", Message: err.Error()}
		}
	}
	p := c.exchange(ctx, request{method: http.MethodPost, url: at, body: input, header: header, timeout: timeout, most: most})
	now := c.now()
	r := leader.Reply{Status: p.status, Body: p.body, Code: p.code, After: retryAfter(p.header, now), Elapsed: now.Sub(start)}
	if p.unread != "" {
		r.Code = p.unread
	}
	if p.status == 0 || p.body == nil {
		r.Message = p.trouble("tool", most)
	}
	if json.Valid(p.body) {
		var shallow bool
		if r.Body, shallow = storable(p.body); !shallow {
			r.Body, r.Code, r.Message = nil, "answer_nested", ""
		}
	}
	return r
}

// trouble says in words why a reply has no body to be read. whom names the service that was called.
func (p reply) trouble(whom string, most int) string {
	switch {
	case p.status == 0:
		return strings.ReplaceAll(p.message, "the worker", "the "+whom)
	case p.status >= 300 && p.status < 400:
		return redirected(whom, p.status)
	case !ok2xx(p.status) || p.unread == "":
		return fmt.Sprintf("the %s answered HTTP %d: want 200", whom, p.status)
	case p.unread == "answer_too_large":
		return fmt.Sprintf("the answer is larger than %d bytes", most)
	}
	return "the answer broke off (" + p.unread + ")"
}
