package httpapi

import (
	"context"
	"crypto/subtle"
	"errors"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/postern-dev/postern/internal/fault"
)

// CodeFlow lets people sign in at the first issuer: their browser goes there with a challenge, and comes back with a
// code, which this process exchanges for a token that names them. The code alone is worth nothing: the exchange needs
// the verifier of the challenge (PKCE), and the token must have the nonce that was sent.
type CodeFlow struct{ a *API }

// CodeFlow is that of the first issuer; nil: people do not sign in there.
func (a *API) CodeFlow() *CodeFlow {
	if a.OIDC.ClientID == "" || len(a.OIDC.Issuers) == 0 {
		return nil
	}
	return &CodeFlow{a}
}

// Issuer is the identity provider.
func (f *CodeFlow) Issuer() string { return f.a.OIDC.Issuers[0] }

// Leave is the address at the provider to which a browser goes; it comes back to the address back. Fault: Retry if the
// provider cannot be asked where that is.
func (f *CodeFlow) Leave(ctx context.Context, back, state, nonce, verifier string) (string, error) {
	_, at, err := f.provider(ctx, back)
	if err != nil {
		return "", err
	}
	return at.AuthCodeURL(state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier)), nil
}

// Return exchanges the code that a browser came back with for the subject that the provider names. Faults:
// unauthenticated, or Retry if the provider does not answer.
func (f *CodeFlow) Return(ctx context.Context, back, code, nonce, verifier string) (subject string, err error) {
	provider, at, err := f.provider(ctx, back)
	if err != nil {
		return "", err
	}
	ctx = oidc.ClientContext(ctx, f.a.OIDC.Client)
	got, err := at.Exchange(ctx, code, oauth2.VerifierOption(verifier))
	var refused *oauth2.RetrieveError
	switch {
	case errors.As(err, &refused) && refused.Response.StatusCode < 500:
		f.a.Log.WarnContext(ctx, "an issuer does not take a code", "issuer", f.Issuer(), "error", refused.ErrorCode,
			"status", refused.Response.StatusCode)
		return "", unauthenticated("the identity provider does not take this code: it was used before, or is too old")
	case err != nil:
		return "", f.away(ctx, err)
	}
	raw, _ := got.Extra("id_token").(string)
	config := &oidc.Config{ClientID: f.a.OIDC.ClientID, SupportedSigningAlgs: algorithms}
	token, err := provider.Verifier(config).Verify(ctx, raw)
	switch {
	case raw != "" && err != nil && fetching(err):
		return "", f.away(ctx, err)
	case err != nil || token.Subject == "" || !f.ours(token) ||
		subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(nonce)) == 0:
		f.a.Log.WarnContext(ctx, "an issuer sent a token that does not hold", "issuer", f.Issuer(), "error", err)
		return "", unauthenticated("what the identity provider sent does not hold: it is expired, meant for another " +
			"client, or the answer to another sign-in")
	}
	return token.Subject, nil
}

// ours says whether a token was made for this client, where it names the one that it was made for.
func (f *CodeFlow) ours(token *oidc.IDToken) bool {
	var c struct {
		For string `json:"azp"`
	}
	return token.Claims(&c) == nil && (c.For == "" || c.For == f.a.OIDC.ClientID)
}

// provider is what the issuer says of itself, and how it is asked.
func (f *CodeFlow) provider(ctx context.Context, back string) (*oidc.Provider, *oauth2.Config, error) {
	p, err := f.a.issuers.provider(f.Issuer(), f.a.OIDC.Client)
	if err != nil {
		return nil, nil, f.away(ctx, err)
	}
	return p, &oauth2.Config{
		ClientID:     f.a.OIDC.ClientID,
		ClientSecret: f.a.OIDC.ClientSecret,
		Endpoint:     p.Endpoint(),
		RedirectURL:  back,
		Scopes:       []string{oidc.ScopeOpenID},
	}, nil
}

func (f *CodeFlow) away(ctx context.Context, err error) error {
	f.a.Log.WarnContext(ctx, "an issuer does not answer", "issuer", f.Issuer(), "error", err)
	return fault.New(fault.Retry, "overloaded", "identity provider %s does not answer now", fault.Clip(f.Issuer()))
}
