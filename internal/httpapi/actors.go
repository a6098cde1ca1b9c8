package httpapi

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/actors"
	"github.com/postern-dev/postern/internal/pg/db"
)

func (a *API) actorRoutes() {
	const tag = "access"
	get(a, tag, "/actors", "list-actors", "List actors", a.listActors)
	post(a, tag, "/actors", "post-actor", "Make an actor", a.postActor, 201, 200)
	get(a, tag, "/actors/{id}", "get-actor", "Read one actor", a.getActor)
	patch(a, tag, "/actors/{id}", "patch-actor", "Change an actor", a.patchActor)
	remove(a, tag, "/actors/{id}", "delete-actor", "Forget an actor that is no member", a.deleteActor)
}

// ActorSettings is what people write of an actor.
type ActorSettings struct {
	PublicKeys []string      `json:"public_keys,omitempty" maxItems:"2" doc:"Ed25519, base64 of 32 bytes; two for a rotation."`
	Address    []string      `json:"address,omitempty" maxItems:"10" doc:"URLs under which its node can be reached."`
	OIDC       *oidcIdentity `json:"oidc,omitempty"`
}

// oidcIdentity is what an identity provider calls somebody.
type oidcIdentity struct {
	Issuer  string `json:"issuer" minLength:"1" maxLength:"500" example:"https://accounts.example.com"`
	Subject string `json:"subject" minLength:"1" maxLength:"255"`
}

// newActor is the body of POST /actors.
type newActor struct {
	ActorSettings
	OwnContext name `json:"own_context,omitempty" doc:"Makes a context of this name whose admin it is."`
}

// actorView is an actor as clients read it.
type actorView struct {
	ID         string            `json:"id"`
	PublicKeys []string          `json:"public_keys"`
	Address    []string          `json:"address"`
	OIDC       *oidcIdentity     `json:"oidc"`
	Roles      map[string]string `json:"roles,omitempty" doc:"by context; of one actor, not in lists"`
	Version    int64             `json:"version"`
	CreatedAt  time.Time         `json:"created_at"`
}

func viewActor(a *actors.Actor) actorView {
	v := actorView{ID: a.ID, PublicKeys: a.PublicKeys, Address: a.Address, Version: a.Version, CreatedAt: a.CreatedAt.UTC()}
	if a.Issuer != "" {
		v.OIDC = &oidcIdentity{a.Issuer, a.Subject}
	}
	return v
}

type actorOutput struct {
	Status   int
	ETag     string `header:"ETag"`
	Location string `header:"Location"`
	Replay   string `header:"Idempotent-Replay" doc:"true when the key was known already"`
	Body     actorView
}

func (a *API) listActors(ctx context.Context, in *namedPage) (*pageOf[actorView], error) {
	var err error
	out := &pageOf[actorView]{}
	out.Body, out.Link, err = listBy(ctx, a, in, []any{"actors"},
		func(after string, limit int) ([]*actors.Actor, error) {
			return a.Store.Actors.Actors(ctx, after, limit)
		},
		func(v *actors.Actor) string { return v.ID }, plainly(viewActor))
	return out, err
}

type actorInput struct {
	ID string `path:"id" maxLength:"200"`
}

// getActor reads one's own actor; a system admin reads any.
func (a *API) getActor(ctx context.Context, in *actorInput) (*actorOutput, error) {
	s := scopeOf(ctx)
	if in.ID != s.Actor && s.who.in(nil, a.system()) < systemAdmins {
		return nil, fault.New(fault.NotFound, "not_found", "no actor %q", fault.Clip(in.ID))
	}
	v, err := a.Store.Actors.Actor(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	roles, err := a.Store.RolesOf(ctx, v.ID)
	if err != nil {
		return nil, err
	}
	out := &actorOutput{Status: http.StatusOK, ETag: etag(v.Version), Body: viewActor(v)}
	out.Body.Roles = map[string]string{}
	for id, role := range roles {
		if c := a.Store.ContextByID(id); c != nil {
			out.Body.Roles[c.Name] = role
		}
	}
	return out, nil
}

type postActorInput struct {
	Why
	Key  string `header:"Idempotency-Key" doc:"The same key and body again: the same actor."`
	Body newActor
}

// postActor makes an actor, and its own context if it is to have one: 201; 200 when the key was known.
func (a *API) postActor(ctx context.Context, in *postActorInput) (*actorOutput, error) {
	v, err := in.Body.actor()
	if err != nil {
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
	v.ID = id.String()
	first, replay, err := a.Store.Actors.CreateActor(ctx, by(ctx, ""), v, string(in.Body.OwnContext), once)
	if err != nil {
		return nil, err
	}
	a.forget()
	out, err := a.getActor(ctx, &actorInput{first})
	if err == nil {
		out.Status, out.Location = http.StatusCreated, "/actors/"+first
		if replay {
			out.Status, out.Replay = http.StatusOK, "true"
		}
	}
	return out, err
}

// onceOf makes a POST repeatable by its Idempotency-Key.
func onceOf(header string, body any) (db.Once, error) {
	key, err := keyOf(header)
	if err != nil {
		return db.Once{}, err
	}
	b, err := json.Marshal(body)
	sum := sha256.Sum256(b)
	return db.Once{Key: key, Hash: sum[:]}, err
}

// actor checks what a schema cannot say.
func (s *ActorSettings) actor() (actors.Actor, error) {
	v := actors.Actor{PublicKeys: []string{}, Address: []string{}}
	for _, k := range s.PublicKeys {
		raw, err := base64.StdEncoding.DecodeString(k)
		if err != nil {
			raw, err = base64.RawURLEncoding.DecodeString(k)
		}
		if err != nil || len(raw) != ed25519.PublicKeySize {
			return v, fault.At("/public_keys", "public_keys: %q is no Ed25519 key: want base64 of 32 bytes", fault.Clip(k))
		}
		if k = base64.StdEncoding.EncodeToString(raw); !slices.Contains(v.PublicKeys, k) {
			v.PublicKeys = append(v.PublicKeys, k)
		}
	}
	for _, at := range s.Address {
		u, err := url.Parse(at)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || len(at) > 2000 {
			return v, fault.At("/address", "address %q: want an http or https URL", fault.Clip(at))
		}
		v.Address = append(v.Address, at)
	}
	if s.OIDC != nil {
		if u, err := url.Parse(s.OIDC.Issuer); err != nil || u.Host == "" || !strings.HasPrefix(u.Scheme, "http") {
			return v, fault.At("/oidc/issuer", "issuer %q: want the URL that its tokens name in iss", fault.Clip(s.OIDC.Issuer))
		}
		v.Issuer, v.Subject = s.OIDC.Issuer, s.OIDC.Subject
	}
	return v, nil
}

type patchActorInput struct {
	ID string `path:"id" maxLength:"200"`
	Conditions
	RawBody []byte
	Body    patchBody
}

func (a *API) patchActor(ctx context.Context, in *patchActorInput) (*actorOutput, error) {
	v, err := a.Store.Actors.Actor(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if err := in.check(v.Version); err != nil {
		return nil, err
	}
	have := ActorSettings{PublicKeys: v.PublicKeys, Address: v.Address}
	if v.Issuer != "" {
		have.OIDC = &oidcIdentity{v.Issuer, v.Subject}
	}
	raw, err := merged(have, in.RawBody)
	if err != nil {
		return nil, err
	}
	var next ActorSettings
	if err := a.decode(raw, &next, "ActorSettings"); err != nil {
		return nil, err
	}
	changed, err := next.actor()
	if err != nil {
		return nil, err
	}
	changed.ID = v.ID
	if err := a.Store.Actors.PutActor(ctx, by(ctx, ""), changed, v.Version); err != nil {
		return nil, err
	}
	a.forget()
	return a.getActor(ctx, &actorInput{v.ID})
}

type deleteActorInput struct {
	ID string `path:"id" maxLength:"200"`
	Conditions
}

// deleteActor forgets an actor that is no member anywhere; else 409 in_use.
func (a *API) deleteActor(ctx context.Context, in *deleteActorInput) (*struct{}, error) {
	defer a.forget()
	return nil, a.Store.Actors.RemoveActor(ctx, by(ctx, ""), in.ID)
}
