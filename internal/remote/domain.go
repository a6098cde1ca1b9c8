package remote

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// DomainCall is one request to the service of a domain.
type DomainCall struct {
	URL     string // of the service
	Kind    string // assemble, sign, endorse, prepare, look, settled or height: the path below the URL
	Key     string // the same key gets the same answer
	Body    json.RawMessage
	Timeout time.Duration
	Sign    bool // with the installation's key (RFC 9421)
}

// DomainReply is what came of it: an answer that can be stored, or why there is none.
type DomainReply struct {
	Body json.RawMessage // nil: there is none
	// Away says that nothing answered in time, or something that says try again: the same call may be made once more.
	Away  bool
	Why   string
	After time.Duration // the service says when to try again; 0: it does not
}

// Domain asks the service of a domain once. An answer has the status 200 and a body of JSON. Redirects are not
// followed.
func (c *Client) Domain(ctx context.Context, call DomainCall) DomainReply {
	start := c.now()
	header := http.Header{
		"Idempotency-Key":  {call.Key},
		"Postern-Deadline": {start.Add(call.Timeout).UTC().Format(time.RFC3339)},
	}
	at, method := endpoint(call.URL, call.Kind, ""), http.MethodPost
	if call.Body == nil {
		method = http.MethodGet
	}
	if call.Sign {
		if c.key == nil {
			return DomainReply{Away: true,
				Why: "calls are to be signed, and this process has no key: POSTERN_SIGNING_KEY_FILE names one"}
		}
		if err := sign(header, method, at, call.Body, c.key, start); err != nil {
			return DomainReply{Why: err.Error()}
		}
	}
	p := c.exchange(ctx, request{method: method, url: at, body: call.Body, header: header, timeout: call.Timeout})
	r := DomainReply{After: retryAfter(p.header, c.now())}
	switch {
	case p.status == 0, p.status == http.StatusTooManyRequests, p.status >= 502 && p.status <= 504:
		r.Away, r.Why = true, p.trouble("service", maxAnswer)
	case p.status != http.StatusOK || p.body == nil:
		r.Why = p.trouble("service", maxAnswer)
	case !json.Valid(p.body):
		r.Why = "the answer is no JSON"
	default:
		var shallow bool
		if r.Body, shallow = storable(p.body); !shallow {
			r.Body, r.Why = nil, "the answer is nested too deeply"
		}
	}
	return r
}
