package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/strict"
)

// Status asks after a token or a hash; see Worker.
func (c *Client) Status(ctx context.Context, baseURL, typ, byToken, byHash string) outbox.Status {
	st, _ := c.status(ctx, baseURL, typ, byToken, byHash)
	return st
}

// status also says whether there was an HTTP answer at all: without one, the next question to the same
// worker would fare no better.
func (c *Client) status(ctx context.Context, baseURL, typ, byToken, byHash string) (st outbox.Status, answered bool) {
	p, what := c.exchange(ctx, statusRequest(baseURL, typ, byToken, byHash)), asked{baseURL, byToken != ""}
	switch {
	case notFound(p.status) && c.hasStatus(what):
		return unreachable("HTTP %d came to a question that this worker has answered before: "+
			"is that the worker, or what stands before it?", p.status), true
	case p.absent():
		message := fmt.Sprintf("the worker answered HTTP %d to a question for the status", p.status)
		return outbox.Status{State: outbox.StatusUnsupported, Message: message}, true
	case notFound(p.status):
		return unreachable("/status answered %d %s, which may come from a proxy. "+
			"If your worker has no /status, give type %s %s", p.status, p.kind(), typ, outbox.NoStatus), true
	case p.status == 0:
		return p.unreachable(), false
	case p.status >= 300 && p.status < 400:
		return unreachable("%s", redirected("worker", p.status)), true
	case !ok2xx(p.status):
		return unreachable("the worker answered HTTP %d to a question for the status", p.status), true
	case p.unread != "":
		return unreachable("the worker's status could not be read (%s)", p.unread), true
	}
	if st = readStatus(p.body, byHash); st.State != outbox.StatusUnreachable {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.statusAt[what] = c.now()
	}
	return st, true
}

// routerText is how long a line is at most by which a router says that it has no such call.
const routerText = 200

// absent says whether a worker itself says that it does not have a call: by 404, 405 or 501 with an empty body, with
// one short line of text as routers answer, or with error.class rejected. A page, and JSON that is none of the
// contract, may be another's.
func (p reply) absent() bool {
	if !notFound(p.status) || p.unread != "" {
		return false
	}
	if r, _ := readResult(p.body); r.err.class != "" {
		return r.err.class == outbox.ClassRejected
	}
	text := bytes.TrimSpace(p.body)
	return len(text) <= routerText && !bytes.ContainsAny(text, "<{[\n")
}

// kind says in words what the body of an answer is that is not understood.
func (p reply) kind() string {
	switch {
	case strict.HTML(p.body):
		return "with an HTML page"
	case json.Valid(p.body):
		return "with JSON"
	}
	return "with a long text"
}

// asked is a kind of question to a worker: one without blocks is asked by token, and has no answer about hashes.
type asked struct {
	baseURL string
	byToken bool
}

// statusFor is how long a worker that had a /status is believed to have it still. A 404 to a question may come from a
// proxy before the worker; one from a worker that has no /status any more is believed after this time.
const statusFor = time.Hour

// hasStatus says whether such a question has had an answer of the contract lately.
func (c *Client) hasStatus(what asked) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, has := c.statusAt[what]
	return has && c.now().Sub(at) < statusFor
}

// statusRequest asks after a token, or, if that is "", after a hash.
func statusRequest(baseURL, typ, byToken, byHash string) request {
	b := make([]byte, 0, 128)
	if byToken != "" {
		b = appendString(append(b, `{"token":`...), byToken)
	} else {
		b = appendString(append(b, `{"hash":`...), byHash)
	}
	return request{
		method:  http.MethodPost,
		url:     endpoint(baseURL, "status", typ),
		below:   "status/" + typ,
		body:    append(b, '}'),
		timeout: askTimeout,
	}
}

// readStatus reads one status. hash is the hash that was asked after, "" if a token was. A status that we cannot
// understand is unreachable: it says nothing about the transaction (S2.11).
func readStatus(body []byte, hash string) outbox.Status {
	var raw struct {
		State         string          `json:"state"`
		Hash          json.RawMessage `json:"hash"`
		Done          json.RawMessage `json:"done"`
		Nonce         json.RawMessage `json:"nonce"`
		BlockHeight   json.RawMessage `json:"block_height"`
		Confirmations json.RawMessage `json:"confirmations"`
		FailureReason json.RawMessage `json:"failure_reason"`
		Class         json.RawMessage `json:"class"`
	}
	if err := strict.Read(body, &raw); err != nil {
		return unreachable("the worker's status is not understood: %s", err.Error())
	}
	st := outbox.Status{State: outbox.StatusState(raw.State), Nonce: digits(raw.Nonce), FailureReason: reason(raw.FailureReason)}
	if isSet(raw.Hash) && string(raw.Hash) != `""` {
		if json.Unmarshal(raw.Hash, &st.Hash) != nil || !plainHash(st.Hash) {
			return unreachable("the worker's status has the hash %s: want a string of 1 to 512 printable characters", clip(string(raw.Hash), maxCode))
		}
		if hash != "" && st.Hash != hash {
			return unreachable("the worker was asked after hash %s and answered for %s", clip(hash, maxCode), clip(st.Hash, maxCode))
		}
	}
	if height := scalar(raw.BlockHeight); height != "" {
		if st.BlockHeight = digits(json.RawMessage(height)); st.BlockHeight == "" {
			return unreachable("the worker's status has block_height %s: want digits", quote(height))
		}
	}
	switch st.State {
	case outbox.StatusPending, outbox.StatusUnknown:
		st.FailureReason = ""
	case outbox.StatusFailed:
		st.Final = scalar(raw.Class) == string(outbox.ClassRejected)
	case outbox.StatusIncluded:
		switch {
		case st.FailureReason != "": // another way to say failed
			st.State, st.Final = outbox.StatusFailed, scalar(raw.Class) == string(outbox.ClassRejected)
		case st.BlockHeight == "": // in no block that it could name: not yet (S2.5 row 11)
			st.State = outbox.StatusPending
		default:
			st.Confirmations = confirmations(raw.Confirmations)
		}
	case stateDone:
		if st.FailureReason != "" {
			return unreachable("the worker's status is done and has a failure_reason: want one of them")
		}
		return finished(st, raw.Done)
	default:
		return unreachable("the worker's status has state %s: want pending, included, done, failed or unknown",
			quote(raw.State))
	}
	return st
}

// stateDone is what a worker without blocks says instead of included: it happened, and nothing takes it back.
const stateDone = "done"

// finished is st as an inclusion that no block bounds. A result that cannot be stored is left out: it was done all the
// same, and to ask again would not make it readable.
func finished(st outbox.Status, result json.RawMessage) outbox.Status {
	st.State, st.BlockHeight, st.Confirmations = outbox.StatusIncluded, "", math.MaxInt32
	st.Done = json.RawMessage("true")
	if isSet(result) {
		if done, ok := storable(result); ok {
			st.Done = done
		}
	}
	return st
}

// confirmations reads how deep a block lies; 1 for a worker that does not count.
func confirmations(raw json.RawMessage) int {
	n, err := strconv.ParseFloat(scalar(raw), 64)
	if err != nil || math.IsNaN(n) {
		return 1
	}
	return int(min(max(n, 0), math.MaxInt32))
}

// reason reads failure_reason: a string, or whatever else a chain gives for one, as text.
func reason(raw json.RawMessage) string {
	if !isSet(raw) || string(raw) == "[]" || string(raw) == "false" {
		return ""
	}
	if s := scalar(raw); s != "" {
		return clipMessage(s)
	}
	if string(raw) == `""` {
		return ""
	}
	return clipMessage(string(raw))
}

// unreachable says that no answer came, and why.
func (p reply) unreachable() outbox.Status {
	st := unreachable("%s", p.message)
	st.Refused = p.refused
	return st
}

// unreachable says that we do not know, and why.
func unreachable(format string, args ...any) outbox.Status {
	return outbox.Status{State: outbox.StatusUnreachable, Message: clipMessage(strings.TrimSpace(fmt.Sprintf(format, args...)))}
}
