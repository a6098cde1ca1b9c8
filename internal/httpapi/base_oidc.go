package httpapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/actors"
)

// OIDC are the identity providers whose tokens are taken, and for whom these must be meant. Empty: none.
type OIDC struct {
	Issuers   []string
	Audiences []string
	Client    *http.Client // fetches what an issuer says of itself, and its keys

	ClientID     string // under which the first issuer knows the dashboard; "": people do not sign in there
	ClientSecret string // "": the issuer wants none
}

// algorithms are those that a token may be signed with: none that needs a secret of ours.
var algorithms = []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256,
	oidc.PS384, oidc.PS512, oidc.EdDSA}

// issuers are the identity providers that were asked, each of them when its first token came: a provider that does not
// answer keeps no process from starting.
type issuers struct {
	mu    sync.Mutex
	known map[string]*issuer
}

type issuer struct {
	mu       sync.Mutex
	provider *oidc.Provider
	failed   time.Time
	err      error
}

// askAgain is how long an issuer that did not answer is not asked.
const askAgain = 5 * time.Second

// provider returns what an issuer says of itself: where its keys are.
func (i *issuers) provider(url string, client *http.Client) (*oidc.Provider, error) {
	i.mu.Lock()
	if i.known == nil {
		i.known = map[string]*issuer{}
	}
	s := i.known[url]
	if s == nil {
		s = &issuer{}
		i.known[url] = s
	}
	i.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.provider != nil || s.err != nil && time.Since(s.failed) < askAgain {
		return s.provider, s.err
	}
	// the keys are fetched later too, so that it is not the request's context
	if s.provider, s.err = oidc.NewProvider(oidc.ClientContext(context.Background(), client), url); s.err != nil {
		s.provider, s.failed = nil, time.Now()
	}
	return s.provider, s.err
}

// claimed is what a token says of itself, before anybody has verified it.
type claimed struct {
	Issuer   string   `json:"iss"`
	Audience audience `json:"aud"`
}

// audience is one text or several.
type audience []string

func (a *audience) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*a = audience{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(a))
}

// claimsOf reads what a token says of itself; false for what is no token.
func claimsOf(token string) (c claimed, ok bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return c, false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &c) != nil {
		return claimed{}, false
	}
	return c, true
}

// tokenRefused does not say what is wrong with a token.
func tokenRefused() error {
	return unauthenticated("this token does not hold: it is expired, not signed by an issuer that is accepted here, or meant for somebody else")
}

// verify checks a token: it returns whom it names, and until when. Fault: unauthenticated, or Retry if the issuer
// cannot be asked for its keys.
func (a *API) verify(ctx context.Context, token string) (*oidc.IDToken, error) {
	refused := tokenRefused()
	c, ok := claimsOf(token)
	if !ok || !slices.Contains(a.OIDC.Issuers, c.Issuer) {
		return nil, refused
	}
	meant := slices.IndexFunc(a.OIDC.Audiences, func(ours string) bool { return slices.Contains(c.Audience, ours) })
	if meant < 0 {
		return nil, refused
	}
	away := fault.New(fault.Retry, "overloaded", "issuer %s cannot be asked for its keys now", fault.Clip(c.Issuer))
	provider, err := a.issuers.provider(c.Issuer, a.OIDC.Client)
	if err != nil {
		a.Log.WarnContext(ctx, "an issuer of tokens does not answer", "issuer", c.Issuer, "error", err)
		return nil, away
	}
	verified, err := provider.Verifier(&oidc.Config{ClientID: a.OIDC.Audiences[meant],
		SupportedSigningAlgs: algorithms}).Verify(ctx, token)
	switch {
	case err != nil && fetching(err):
		a.Log.WarnContext(ctx, "an issuer of tokens does not answer", "issuer", c.Issuer, "error", err)
		return nil, away
	case err != nil || verified.Subject == "":
		return nil, refused
	}
	return verified, nil
}

// fetching says whether a token could not be judged since its issuer's keys could not be read.
func fetching(err error) bool { return strings.Contains(err.Error(), "fetching keys") }

// readToken checks a bearer token of an identity provider: (issuer, subject) is an actor, whose roles are those of a
// member. The token is verified again for each request, and its actor is looked up again after a second.
func (a *API) readToken(r *http.Request) (*principal, anew, error) {
	token, err := bearer(r)
	if err != nil || token == "" || strings.HasPrefix(token, apiKeyPrefix) || len(a.OIDC.Issuers) == 0 {
		return nil, nil, err
	}
	verified, err := a.verify(r.Context(), token)
	if err != nil {
		return nil, nil, err
	}
	return anew(func() (*principal, error) {
		if !time.Now().Before(verified.Expiry) {
			return nil, tokenRefused()
		}
		return a.subject(r.Context(), verified.Issuer, verified.Subject)
	}).first()
}

// subject is the actor whom a subject of an issuer names.
func (a *API) subject(ctx context.Context, from, subject string) (*principal, error) {
	who, err := a.actors.get(from+" "+subject, func() (*principal, error) {
		actor, err := a.Store.Actors.ActorOf(ctx, from, subject)
		if err != nil || actor == "" {
			return nil, err
		}
		return a.withRoles(ctx, actor, actors.Identity(from, subject))
	})
	if err == nil && who == nil {
		return nil, unauthenticated("the subject of this token is no actor here: POST /actors with its oidc makes one")
	}
	return who, err
}
