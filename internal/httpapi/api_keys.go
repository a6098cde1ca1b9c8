package httpapi

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/actors"
)

func (a *API) apiKeyRoutes() {
	const tag = "access"
	get(a, tag, "/api-keys", "list-api-keys", "List API keys", a.listAPIKeys)
	post(a, tag, "/api-keys", "post-api-key", "Make an API key and show its secret once", a.postAPIKey, 201, 200)
	get(a, tag, "/api-keys/{id}", "get-api-key", "Read one API key", a.getAPIKey)
	remove(a, tag, "/api-keys/{id}", "delete-api-key", "Revoke an API key", a.deleteAPIKey)
	post(a, tag, "/api-keys/{id}/rotate", "rotate-api-key", "Give an API key another secret", a.rotateAPIKey, 201)
}

// newAPIKey is the body of POST /api-keys.
type newAPIKey struct {
	Name      name       `json:"name" doc:"For people; several keys may have the same."`
	Role      string     `json:"role" enum:"reader,executor,admin"`
	Only      []string   `json:"only,omitempty" maxItems:"3" enum:"read,post,operate" doc:"Narrows the role: read is every GET, post is to post transactions and events, operate the rest."`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
}

// apiKeyView is an API key as clients read it.
type apiKeyView struct {
	ID            string     `json:"id"`
	Name          string     `json:"name"`
	Context       string     `json:"context"`
	Actor         string     `json:"actor" doc:"as whom it posts and pulls levers"`
	Role          string     `json:"role" enum:"reader,executor,admin"`
	Only          []string   `json:"only" doc:"empty: all that the role may"`
	Prefix        string     `json:"prefix"`
	Secret        string     `json:"secret,omitempty" doc:"the whole key, in the 201 only: it cannot be shown again"`
	ExpiresAt     *time.Time `json:"expires_at"`
	PreviousUntil *time.Time `json:"previous_until" doc:"until then a secret from before a rotation holds too"`
	LastUsedAt    *time.Time `json:"last_used_at" doc:"to the minute"`
	CreatedBy     string     `json:"created_by"`
	Version       int64      `json:"version"`
	CreatedAt     time.Time  `json:"created_at"`
}

func viewAPIKey(k *actors.Key, in string) apiKeyView {
	return apiKeyView{ID: k.ID.String(), Name: k.Name, Context: in, Actor: keyActor(k.Prefix), Role: k.Role, Only: k.Only, Prefix: k.Prefix,
		ExpiresAt: utc(k.ExpiresAt), PreviousUntil: utc(k.PreviousUntil), LastUsedAt: utc(k.LastUsedAt), CreatedBy: k.CreatedBy,
		Version: k.Version, CreatedAt: k.CreatedAt.UTC()}
}

type apiKeyOutput struct {
	Status   int
	ETag     string `header:"ETag"`
	Location string `header:"Location"`
	Replay   string `header:"Idempotent-Replay" doc:"true when the key was known already; the secret is not shown again"`
	Body     apiKeyView
}

func (a *API) listAPIKeys(ctx context.Context, in *namedPage) (*pageOf[apiKeyView], error) {
	var err error
	out := &pageOf[apiKeyView]{}
	out.Body, out.Link, err = listBy(ctx, a, in, []any{"api-keys", contextID(ctx)},
		func(after uuid.UUID, limit int) ([]*actors.Key, error) {
			return a.Store.Actors.Keys(ctx, contextID(ctx), after, limit)
		},
		func(v *actors.Key) uuid.UUID { return v.ID }, plainly(func(k *actors.Key) apiKeyView { return viewAPIKey(k, scopeOf(ctx).Context.Name) }))
	return out, err
}

type apiKeyInput struct {
	ID string `path:"id"`
}

func apiKeyID(s string) (uuid.UUID, error) {
	id, err := uuid.Parse(s)
	if err != nil {
		return id, fault.New(fault.NotFound, "not_found", "no API key %q", fault.Clip(s))
	}
	return id, nil
}

func (a *API) getAPIKey(ctx context.Context, in *apiKeyInput) (*apiKeyOutput, error) {
	id, err := apiKeyID(in.ID)
	if err != nil {
		return nil, err
	}
	k, err := a.Store.Actors.Key(ctx, contextID(ctx), id)
	if err != nil {
		return nil, err
	}
	return &apiKeyOutput{Status: http.StatusOK, ETag: etag(k.Version), Body: viewAPIKey(k, scopeOf(ctx).Context.Name)}, nil
}

type postAPIKeyInput struct {
	Why
	Key  string `header:"Idempotency-Key" doc:"The same key and body again: the same API key, without its secret."`
	Body newAPIKey
}

// mayHand refuses to show somebody who is narrowed a secret that is narrowed less.
func mayHand(ctx context.Context, only []string) error {
	have := scopeOf(ctx).who.only
	if len(have) == 0 || len(only) > 0 && !slices.ContainsFunc(only, func(w string) bool { return !slices.Contains(have, w) }) {
		return nil
	}
	return fault.New(fault.Forbidden, "forbidden", "this API key may only %s: the secret that it is shown needs an only of these", strings.Join(have, " and "))
}

// postAPIKey makes a key for the context of the request and shows its secret, this once: 201. A narrowed key cannot
// make a key that may do more than it may itself.
func (a *API) postAPIKey(ctx context.Context, in *postAPIKeyInput) (*apiKeyOutput, error) {
	now, err := a.now(ctx)
	if err != nil {
		return nil, err
	}
	if e := in.Body.ExpiresAt; e != nil {
		if err := checkTime("/expires_at", *e, now); err != nil {
			return nil, err
		}
		if !e.After(now) {
			return nil, fault.At("/expires_at", "expires_at %q is over already", e.Format(time.RFC3339))
		}
	}
	slices.Sort(in.Body.Only)
	only := slices.Compact(in.Body.Only)
	if err := mayHand(ctx, only); err != nil {
		return nil, err
	}
	once, err := onceOf(in.Key, in.Body)
	if err != nil {
		return nil, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	secret, prefix, hash := newKey("")
	k := actors.Key{ID: id, Prefix: prefix, Name: string(in.Body.Name), Role: in.Body.Role, Only: append([]string{}, only...), ExpiresAt: in.Body.ExpiresAt}
	first, replay, err := a.Store.Actors.CreateKey(ctx, by(ctx, ""), k, hash, once)
	if err != nil {
		return nil, err
	}
	out, err := a.getAPIKey(ctx, &apiKeyInput{first.String()})
	switch {
	case err != nil:
		return nil, err
	case replay:
		out.Replay = "true"
	default:
		out.Status, out.Body.Secret = http.StatusCreated, secret
	}
	out.Location = "/api-keys/" + first.String()
	return out, nil
}

type deleteAPIKeyInput struct {
	ID string `path:"id"`
	Conditions
}

// deleteAPIKey revokes a key: here at once, in other processes within 2 s.
func (a *API) deleteAPIKey(ctx context.Context, in *deleteAPIKeyInput) (*struct{}, error) {
	id, err := apiKeyID(in.ID)
	if err != nil {
		return nil, err
	}
	defer a.forget()
	return nil, a.Store.Actors.RemoveKey(ctx, by(ctx, ""), id)
}

type rotateInput struct {
	ID string `path:"id"`
	Trial
	Body *struct {
		Overlap string `json:"overlap,omitempty" example:"1h" doc:"How long the secret before still holds, at most 720h; 0s, unless said, ends all before."`
		Reason  string `json:"reason,omitempty" maxLength:"1000"`
	}
}

// rotateAPIKey gives a key another secret and shows it, this once: 201.
func (a *API) rotateAPIKey(ctx context.Context, in *rotateInput) (*apiKeyOutput, error) {
	id, err := apiKeyID(in.ID)
	if err != nil {
		return nil, err
	}
	var overlap time.Duration
	reason := ""
	if in.Body != nil {
		reason = in.Body.Reason
		if in.Body.Overlap != "" {
			if overlap, err = time.ParseDuration(in.Body.Overlap); err != nil || overlap < 0 || overlap > 720*time.Hour {
				return nil, fault.At("/overlap", "overlap %q: want a duration such as \"1h\", 0s to 720h", fault.Clip(in.Body.Overlap))
			}
		}
	}
	k, err := a.Store.Actors.Key(ctx, contextID(ctx), id)
	if err != nil {
		return nil, err
	}
	if err := mayHand(ctx, k.Only); err != nil {
		return nil, err
	}
	secret, _, hash := newKey(k.Prefix)
	if err := a.Store.Actors.RotateKey(ctx, by(ctx, reason), id, hash, overlap); err != nil {
		return nil, err
	}
	a.forget()
	out, err := a.getAPIKey(ctx, &apiKeyInput{in.ID})
	if err == nil {
		if out.Status, out.Location = http.StatusCreated, "/api-keys/"+in.ID; !in.DryRun {
			out.Body.Secret = secret
		}
	}
	return out, err
}

// forget drops what this process remembers of credentials.
func (a *API) forget() {
	a.keys.forget()
	a.actors.forget()
}
