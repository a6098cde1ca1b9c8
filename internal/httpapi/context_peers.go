package httpapi

import (
	"context"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/peers"
	"github.com/postern-dev/postern/internal/remote"
)

// contextPeerRoutes are those of the installations that a context knows. Those that may send batches to one processor
// are named below it: see peerRoutes.
func (a *API) contextPeerRoutes() {
	const tag = "peers"
	list := a.contextPeers()
	get(a, tag, "/peers", "list-context-peers", "List the other installations that this context knows", list.list)
	get(a, tag, "/peers/{name}", "get-context-peer", "Read one of them", list.get)
	put(a, tag, "/peers/{name}", "put-context-peer",
		"Make another installation known, or replace its settings", list.put, 200, 201)
	patch(a, tag, "/peers/{name}", "patch-context-peer", "Change the settings of one", list.patch)
	remove(a, tag, "/peers/{name}", "delete-context-peer", "Send nothing to it and take nothing of it", list.delete)
	post(a, tag, "/peers/{name}/rotate-secret", "rotate-peer-secret",
		"Change its secret; two are good for a time", a.rotatePeerSecret, 200)
	post(a, tag, "/peers/{name}/check", "check-context-peer",
		"Call it, and say what comes of that", a.checkContextPeer, 200)
}

// contextPeerSettings is what people write of a peer.
type contextPeerSettings struct {
	Name     name        `json:"name,omitempty" doc:"If given, the name in the path."`
	URL      doorURL     `json:"url,omitempty"`
	Insecure bool        `json:"insecure,omitempty" doc:"url may be http over a network, where others can read it."`
	Secret   *peerSecret `json:"secret,omitempty"`
}

// doorURL is the URL of a peer.
type doorURL string

// Schema documents the URL.
func (doorURL) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Type: huma.TypeString, MaxLength: ptr(2000),
		Examples: []any{"https://far.example/contexts/shop/peers/near"},
		Description: "Its door for this context: its address, and what PUT /peers answers there as door. Without " +
			"one it calls, and is not called. Over a Mycelium network it is mycelium:KEY with that door behind it. " +
			"Messages go out as transactions of the type peer. and its name.",
	}
}

// peerSecret is what both ends sign with.
type peerSecret string

// Schema documents and validates the secret. No answer has it.
func (peerSecret) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Type: huma.TypeString, WriteOnly: true,
		Pattern: `^whsec_[A-Za-z0-9+/]{32,86}={0,2}$`, PatternDescription: "whsec_ and the base64 of 24 to 64 bytes",
		Description: "Both ends sign with it. Left out it stays what it is. Another one is good at once, and the one " +
			"before it no more: rotate-secret keeps both for a time.",
	}
}

// read returns the bytes of the secret.
func (s peerSecret) read() ([]byte, error) {
	secret, err := remote.ParseSecret(string(s))
	if err != nil {
		return nil, fault.At("/secret", "secret: %s", err)
	}
	return secret, nil
}

// contextPeerView is a peer as clients read it.
type contextPeerView struct {
	Warned
	Name         string           `json:"name"`
	URL          string           `json:"url"`
	Insecure     bool             `json:"insecure"`
	Door         string           `json:"door" doc:"behind the address of this installation: the url that it has there"`
	Installation *string          `json:"installation" doc:"which it is, since it was met"`
	MetAt        *time.Time       `json:"met_at" doc:"when it first signed an answer"`
	Refuses      *peerRefusalView `json:"refuses" doc:"null while it takes calls, or none was made"`
	SecretUntil  *time.Time       `json:"previous_secret_until" doc:"the secret before is good, too, until then"`
	Version      int64            `json:"version"`
	CreatedAt    time.Time        `json:"created_at"`
}

// peerRefusalView says why a peer takes no calls.
type peerRefusalView struct {
	Since   time.Time `json:"since"`
	Code    string    `json:"code"`
	Message string    `json:"message"`
}

// contextPeers says what is a peer's own among named things.
func (a *API) contextPeers() resource[contextPeerSettings, *peers.Peer, contextPeerView] {
	return resource[contextPeerSettings, *peers.Peer, contextPeerView]{
		a:        a,
		path:     "/peers",
		page:     pageInContext(a.Store.Installations.Peers),
		find:     inContext(a.Store.Installations.Peer),
		view:     viewContextPeer,
		head:     func(p *peers.Peer) (string, int64) { return p.Name, p.Version },
		address:  func(s contextPeerSettings) (string, string) { return "/url", string(s.URL) },
		warnings: func(v *contextPeerView) *[]string { return &v.Warnings },
		settings: func(p *peers.Peer) contextPeerSettings {
			return contextPeerSettings{URL: doorURL(p.URL), Insecure: p.Insecure}
		},
		secret: func(p *peers.Peer) []byte { return p.Secret },
		made:   madeContextPeer,
		store: func(ctx context.Context, by db.By, p *peers.Peer, version int64) (bool, error) {
			return a.Store.Installations.PutPeer(ctx, by, p.Settings, version)
		},
		remove: a.Store.Installations.RemovePeer,
	}
}

func viewContextPeer(ctx context.Context, p *peers.Peer) (contextPeerView, error) {
	v := contextPeerView{
		Name:         p.Name,
		URL:          p.URL,
		Insecure:     p.Insecure,
		Door:         "/contexts/" + scopeOf(ctx).Context.Name + "/peers/" + p.Name,
		Installation: ptr(p.Installation),
		MetAt:        utc(p.MetAt),
		SecretUntil:  utc(p.SecretUntil),
		Version:      p.Version,
		CreatedAt:    p.CreatedAt.UTC(),
	}
	if p.RefusedAt != nil {
		v.Refuses = &peerRefusalView{p.RefusedAt.UTC(), p.RefusedCode, p.Refused}
	}
	return v, nil
}

func madeContextPeer(_ context.Context, called string, s contextPeerSettings) (*peers.Peer, error) {
	if err := ofPath("name", string(s.Name), called); err != nil {
		return nil, err
	}
	if len(called) > outbox.PeerNameMost {
		return nil, fault.At("/name", "name %q: want at most %d characters", fault.Clip(called), outbox.PeerNameMost)
	}
	p := &peers.Peer{Settings: peers.Settings{
		Name: called, URL: strings.TrimSuffix(string(s.URL), "/"), Insecure: s.Insecure,
	}}
	if p.URL != "" {
		if err := outbox.CheckPeerURL("/url", p.URL, p.Insecure); err != nil {
			return nil, err
		}
	}
	if s.Secret == nil {
		return p, nil
	}
	var err error
	p.Secret, err = s.Secret.read()
	return p, err
}

// overlapMost is how long the secret before may stay good.
const overlapMost = 30 * 24 * time.Hour

// secretOverlap is for how long secrets of a peer are good beside its new one.
type secretOverlap string

// Schema documents the length.
func (secretOverlap) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Examples: []any{"24h"},
		Description: "0s to 720h, 24h unless said: for so long the secret before is good, too; 0s ends all that are. " +
			"The same secret again keeps those before it, and longer. Another one, given or drawn, keeps the one " +
			"before it, and until its time one that is older: a repeated call takes nothing from the other end."}
}

type rotatePeerSecretInput struct {
	Named
	Trial
	Body *struct {
		Secret  *peerSecret   `json:"secret,omitempty"`
		Overlap secretOverlap `json:"overlap,omitempty"`
		Reason  string        `json:"reason,omitempty" maxLength:"1000"`
	}
}

// rotatePeerSecret changes a secret at this end, while the other end may have either. One that is not given is drawn,
// and answered this once.
func (a *API) rotatePeerSecret(ctx context.Context, in *rotatePeerSecretInput) (*secretOutput, error) {
	secret, overlap, drawn, reason := newSecret(), 24*time.Hour, true, ""
	if b := in.Body; b != nil {
		reason = b.Reason
		if b.Overlap != "" {
			d, err := time.ParseDuration(string(b.Overlap))
			if err != nil || d < 0 || d > overlapMost {
				return nil, fault.At("/overlap", "overlap %q: want a duration from 0s to %s",
					fault.Clip(string(b.Overlap)), outbox.Duration(overlapMost))
			}
			overlap = d
		}
		if b.Secret != nil {
			var err error
			if secret, err = b.Secret.read(); err != nil {
				return nil, err
			}
			drawn = false
		}
	}
	if err := a.Store.Installations.RotateSecret(ctx, by(ctx, reason), string(in.Name), secret, overlap); err != nil {
		return nil, err
	}
	p, err := a.Store.Installations.Peer(ctx, contextID(ctx), string(in.Name))
	if err != nil {
		return nil, err
	}
	out := &secretOutput{}
	out.Body.Until = utc(p.SecretUntil)
	if drawn && !in.DryRun {
		out.Body.Secret = showSecret(secret)
	}
	return out, nil
}

type checkContextPeerOutput struct {
	Body struct {
		OK           bool   `json:"ok" doc:"it takes calls of this context, and signs its answers"`
		Installation string `json:"installation,omitempty" doc:"which answers at the url"`
		Code         string `json:"code,omitempty" doc:"why not"`
		Message      string `json:"message,omitempty"`
	}
}

// checkContextPeer calls a peer, with a question that changes nothing there. Its answer is noted as that of any call.
func (a *API) checkContextPeer(ctx context.Context, in *Named) (*checkContextPeerOutput, error) {
	p, err := a.Store.Installations.Peer(ctx, contextID(ctx), string(in.Name))
	switch {
	case err != nil:
		return nil, err
	case p.URL == "":
		return nil, fault.New(fault.Conflict, "wrong_state", "peer %q has no url: it calls, and is not called", p.Name)
	case a.Store.Quarantined(contextID(ctx), p.Type()):
		return nil, fault.New(fault.Conflict, "quarantined",
			"peer %q is not called, since this is in quarantine: postern quarantine status says why", p.Name)
	}
	got := a.Tools.CallPeer(ctx, remote.PeerCall{
		URL: p.URL, Installation: p.Installation, Verb: remote.PeerHello,
		Body: []byte(`{}`), Secrets: p.Secrets(), Timeout: 10 * time.Second,
	})
	out := &checkContextPeerOutput{}
	out.Body.OK, out.Body.Installation = got.Class == "", got.Installation
	out.Body.Code, out.Body.Message = got.Code, got.Message
	return out, a.Store.Installations.Met(ctx, p, got.Installation, got.Code, got.Message)
}
