package remote

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/postern-dev/postern/api/worker"
	"github.com/postern-dev/postern/internal/outbox"
)

// Verbs of the door of another installation.
const (
	PeerHello    = "hello"    // a question that changes nothing
	PeerMessages = "messages" // brings messages
	PeerFollow   = "follow"   // asks what became of messages
	PeerCoord    = "coord"    // brings messages of domains
)

// PeerCall is a call at the door of another installation.
type PeerCall struct {
	URL          string // of the door
	Installation string // that is meant: another one refuses the call. "": the one that answers there, once it says so
	Verb         string
	Key          string // names the call; the same again is the same call. "": one is drawn
	Body         []byte
	Secrets      [][]byte // each of them signs the call, and any of them the answer
	Timeout      time.Duration
	Most         int // bytes of an answer that are read; 0: as of a worker
}

// PeerAnswer is what came of such a call. Class is "" where the peer has taken it.
type PeerAnswer struct {
	outbox.Answer
	Status       int
	Body         []byte
	Installation string // that signed the answer; "": none has
}

// PeerPath begins the webhook-id of a call: a call to one installation, context, peer or verb is no call to another.
func PeerPath(installation, context, peer, verb string) string {
	return installation + "/" + context + "/" + peer + "/" + verb
}

// answerPath begins the webhook-id of an answer, so that it is no call of the other end.
const answerPath = "answer"

// SignAnswer returns the headers by which a caller believes an answer to the call of this webhook-id.
func SignAnswer(call string, body []byte, secrets [][]byte, at time.Time) http.Header {
	return Message{ID: answerPath + "/" + call, Body: body, Secrets: secrets}.Header(at)
}

// CallPeer calls a peer once. Only an answer that the peer has signed ends anything: one of a gateway, or of somebody
// else at the address, blocks at most.
func (c *Client) CallPeer(ctx context.Context, call PeerCall) (a PeerAnswer) {
	began := c.now()
	defer func() { a.StartedAt, a.Elapsed = began, c.now().Sub(began) }()
	door, ok := outbox.DoorOf(call.URL)
	if !ok {
		a.Answer = peerBlocked("bad_peer_url", "the URL of the peer does not end with /contexts/NAME/peers/NAME")
		return a
	}
	if call.Installation == "" {
		if call.Installation, a.Answer = c.peerInstallation(ctx, call.URL); a.Class != "" {
			return a
		}
	}
	if call.Key == "" {
		call.Key = rand.Text()
	}
	id := PeerPath(call.Installation, door.Context, door.Peer, call.Verb) + "/" + call.Key
	p := c.exchange(ctx, request{
		method:  http.MethodPost,
		url:     call.URL + "/" + call.Verb,
		body:    call.Body,
		header:  Message{ID: id, Body: call.Body, Secrets: call.Secrets}.Header(began),
		timeout: call.Timeout,
		most:    call.Most,
	})
	a.Status, a.Body = p.status, p.body
	signed := signedAnswer(p, id, call.Secrets)
	if signed {
		a.Installation = call.Installation
	}
	switch {
	case p.status == 0:
		a.Answer = unanswered(p)
	case signed && ok2xx(p.status): // its texts become rows, also where it is no Postern
		if json.Valid(p.body) {
			if body, ok := storable(p.body); ok {
				a.Body = body
			}
		}
	case signed:
		a.Answer = classify(p, c.now())
	case ok2xx(p.status) && p.unread == "answer_too_large":
		a.Answer = peerBlocked("unsigned_answer", "what answers at the URL sends more than a peer does: is it the "+
			"right address?")
	case ok2xx(p.status) && p.body == nil:
		a.Answer = outbox.Answer{Class: outbox.ClassAmbiguous, Code: p.unread, Message: "the answer cannot be read"}
	case p.status == http.StatusUnauthorized:
		a.Answer = peerBlocked("peer_unauthenticated", "the peer does not believe this call: "+peerSaid(p))
	case ok2xx(p.status):
		a.Answer = peerBlocked("unsigned_answer", "what answers at the URL does not sign with the secret of this "+
			"peer: is it the right address, and do both ends have the same secret?")
	default:
		a.Answer = peerBlocked("peer_http_"+strconv.Itoa(p.status), "the peer takes nothing: "+peerSaid(p))
		wait(&a.Answer, min(retryAfter(p.header, c.now()), maxForeignWait), time.Time{}, c.now())
	}
	return a
}

// Plain is JSON that escapes no < > and &, so that a peer measures a text as it was measured here.
func Plain(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// peerSaid is what an answer without a signature says of itself.
func peerSaid(p reply) string {
	var said struct {
		Detail string `json:"detail"`
	}
	if json.Unmarshal(p.body, &said) == nil && said.Detail != "" {
		return clip(said.Detail, maxKept)
	}
	return "HTTP " + strconv.Itoa(p.status) + " " + http.StatusText(p.status)
}

func signedAnswer(p reply, id string, secrets [][]byte) bool {
	if p.body == nil || p.header.Get("Webhook-Id") != answerPath+"/"+id {
		return false
	}
	for _, secret := range secrets {
		if worker.Believe(secret, p.header, answerPath, p.body) == nil {
			return true
		}
	}
	return false
}

func peerBlocked(code, message string) outbox.Answer {
	return outbox.Answer{Class: outbox.ClassBlocked, Scope: outbox.ScopeWorker, Code: code, Message: message,
		Told: true}
}

// peerInstallation asks at the door of a peer who answers there. The answer is not signed: that to the call which
// follows it shows whether it was true.
func (c *Client) peerInstallation(ctx context.Context, url string) (string, outbox.Answer) {
	p := c.exchange(ctx, request{method: http.MethodGet, url: url + "/health", timeout: askTimeout})
	said := installationIn(p.body)
	switch {
	case p.status == 0:
		return "", unanswered(p)
	case !ok2xx(p.status):
		return "", peerBlocked("peer_http_"+strconv.Itoa(p.status), "the peer is not well: "+peerSaid(p))
	case said == "":
		return "", peerBlocked("no_peer", "what answers at the URL does not say which installation it is: is this the "+
			"address of the door of a Postern?")
	}
	return said, outbox.Answer{}
}

// installationIn is the installation that an answer names; "": none, or one that no header can carry.
func installationIn(body []byte) string {
	var said struct {
		Installation string `json:"installation"`
	}
	if json.Unmarshal(body, &said) != nil || clip(said.Installation, 100) != said.Installation {
		return ""
	}
	return said.Installation
}
