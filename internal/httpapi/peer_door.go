package httpapi

import (
	"context"
	"crypto/rand"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/postern-dev/postern/api/worker"
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/peers"
	"github.com/postern-dev/postern/internal/remote"
)

// doorPath is the path of a door, with what is below it.
var doorPath = regexp.MustCompile(`^/contexts/[^/]+/peers/[^/]+/`)

// peerDoorRoutes are what another installation calls, which a context knows as a peer. It signs each call with the
// secret of the peer instead of showing a key, and believes an answer that is signed in the same way.
func (a *API) peerDoorRoutes() {
	const tag, at = "peers", "/contexts/{context}/peers/{peer}"
	op := operation(tag, http.MethodGet, at+"/health", "get-door-health", "As a peer: which installation this is", nil)
	register(a, op, a.doorHealth)
	doorCalled(a, "hello", "greet-peer", "As a peer: ask whether calls are believed", nil, a.hello)
	doorCalled(a, "coord", "coordinate-domains", "As a peer: bring messages of domains", []int{202}, a.coordinate)
}

// doorCalls are the calls of a door.
var doorCalls = regexp.MustCompile(`^/contexts/[^/]+/peers/[^/]+/(health|hello|coord|messages|follow)$`)

// Door serves the door of peers alone, and answers 404 to all else. It is for requests that come over a network to
// which nothing else is shown.
func (a *API) Door() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !doorCalls.MatchString(r.URL.EscapedPath()) || !doorCalls.MatchString(r.URL.Path) {
			a.refuse(w, r, notFound(r))
			return
		}
		a.router.ServeHTTP(w, r)
	})
}

type doorHealthInput struct {
	Context name `path:"context"`
	Peer    name `path:"peer"`
}

type doorHealthOutput struct {
	Body struct {
		OK           bool   `json:"ok"`
		Installation string `json:"installation" doc:"names this database for good"`
	}
}

// doorHealth says which installation this is. Of contexts and peers it says nothing, since the question is not signed.
func (a *API) doorHealth(ctx context.Context, in *doorHealthInput) (*doorHealthOutput, error) {
	if _, err := a.peerHealth(ctx, nil); err != nil {
		return nil, err
	}
	out := &doorHealthOutput{}
	out.Body.OK, out.Body.Installation = true, a.Store.Installation()
	return out, nil
}

// doorCall is a call of a peer.
type doorCall struct {
	Context   name   `path:"context"`
	Peer      name   `path:"peer"`
	ID        string `header:"webhook-id" doc:"installation/context/peer/ the last word of the path / something drawn"`
	Timestamp string `header:"webhook-timestamp"`
	Signature string `header:"webhook-signature" doc:"By the secret of the peer, as Standard Webhooks has it (v1)."`
	RawBody   []byte
	Body      workerBody
}

// doorAnswer is an answer to a peer. Its bytes are what is signed.
type doorAnswer struct {
	Status      int
	ID          string `header:"webhook-id" doc:"answer/ and that of the call"`
	Timestamp   string `header:"webhook-timestamp"`
	Signature   string `header:"webhook-signature"`
	ContentType string `header:"Content-Type"`
	Body        []byte
}

// caller is a peer whose call was believed.
type knownCaller struct {
	context int32
	peer    *peers.Peer
	call    *doorCall
}

// doorCalled adds a route to the door. do returns a status and what is answered, and need not look at the signature. A
// refusal by do is signed, too: a peer ends nothing by an answer that anybody between the two may have written.
func doorCalled(
	a *API, verb, id, summary string, statuses []int, do func(context.Context, *knownCaller) (int, any, error),
) {
	op := operation("peers", http.MethodPost, "/contexts/{context}/peers/{peer}/"+verb, id, summary,
		append([]int{200}, statuses...))
	op.Errors = append(op.Errors, 408, 409, 413, 415)
	for _, s := range append([]int{200}, statuses...) {
		if op.Responses == nil {
			op.Responses = map[string]*huma.Response{}
		}
		op.Responses[itoa(s)] = &huma.Response{Description: http.StatusText(s),
			Content: map[string]*huma.MediaType{"application/json": {Schema: &huma.Schema{Type: huma.TypeObject}}}}
	}
	register(a, op, func(ctx context.Context, in *doorCall) (*doorAnswer, error) {
		who, err := a.known(ctx, in, verb)
		if err != nil {
			return nil, toWorkerCaller(err)
		}
		var status int
		var said any
		if in.meant() != a.Store.Installation() {
			err = fault.New(fault.Conflict, "wrong_installation", "the call is for installation %q, and this is %q: "+
				"where the url of the peer was meant to lead here, put its url or its secret anew",
				fault.Clip(in.meant()), a.Store.Installation())
		} else {
			status, said, err = do(ctx, who)
		}
		return a.answerPeer(ctx, who, status, said, err)
	})
}

// meant is the installation that a call names.
func (in *doorCall) meant() string {
	meant, _, _ := strings.Cut(in.ID, "/")
	return meant
}

// known returns the peer that has signed a call. 401: there is no such context or peer, or it is not signed by it; a
// stranger is not told which. Which installation is meant is read from the signed id, and left to the caller.
func (a *API) known(ctx context.Context, in *doorCall, verb string) (*knownCaller, error) {
	who := &knownCaller{call: in}
	var secrets [][]byte
	if c := a.Store.Context(string(in.Context)); c != nil {
		p, err := a.Store.Installations.Peer(ctx, c.ID, string(in.Peer))
		switch {
		case err == nil:
			who.context, who.peer, secrets = c.ID, p, p.Secrets()
		case fault.KindOf(err) != fault.NotFound:
			return nil, err
		}
	}
	h := http.Header{"Webhook-Id": {in.ID}, "Webhook-Timestamp": {in.Timestamp}, "Webhook-Signature": {in.Signature}}
	path := remote.PeerPath(in.meant(), string(in.Context), string(in.Peer), verb)
	if err := signedBy(secrets, h, path, in.RawBody); err != nil {
		return nil, err
	}
	return who, nil
}

// signedBy refuses a call that none of the secrets of a peer has signed. Where there is no such peer, and so no secret,
// it looks at the call by one that it draws, and says the same.
func signedBy(secrets [][]byte, h http.Header, path string, body []byte) (err error) {
	known := len(secrets) > 0
	if !known {
		secrets = [][]byte{[]byte(rand.Text())}
	}
	for _, secret := range secrets {
		if err = worker.Believe(secret, h, path, body); err == nil && known {
			return nil
		}
	}
	return unauthenticated("the call is not believed: there is no such context here, or it has " +
		"no such peer, or the call is not signed as that peer does (" +
		strings.ReplaceAll(err.Error(), "this worker", "this peer") + ")")
}

// answerPeer signs an answer, or a refusal.
func (a *API) answerPeer(
	ctx context.Context, who *knownCaller, status int, said any, err error,
) (*doorAnswer, error) {
	out := &doorAnswer{Status: status, ContentType: "application/json"}
	if err != nil {
		p := a.problem(ctx, toWorkerCaller(err))
		out.Status, out.ContentType, said = p.Status, p.ContentType(""), p
	}
	if out.Body, err = remote.Plain(said); err != nil {
		return nil, err
	}
	h := remote.SignAnswer(who.call.ID, out.Body, who.peer.Secrets(), time.Now())
	out.ID, out.Timestamp = h.Get("webhook-id"), h.Get("webhook-timestamp")
	out.Signature = h.Get("webhook-signature")
	return out, nil
}

// hello changes nothing: that it is answered says that the call was believed.
func (a *API) hello(context.Context, *knownCaller) (int, any, error) {
	return http.StatusOK, map[string]any{"ok": true, "installation": a.Store.Installation()}, nil
}
