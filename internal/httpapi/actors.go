package httpapi

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/actors"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/remote/signature"
)

func (a *API) actorRoutes() {
	const tag = "access"
	get(a, tag, "/actors", "list-actors", "List actors", a.listActors)
	post(a, tag, "/actors", "post-actor", "Make an actor", a.postActor, 201, 200)
	get(a, tag, "/actors/{id}", "get-actor", "Read one actor", a.getActor)
	patch(a, tag, "/actors/{id}", "patch-actor", "Change an actor", a.patchActor)
	remove(a, tag, "/actors/{id}", "delete-actor", "Forget an actor that is no member", a.deleteActor)
	a.actorKeyRoutes()
}

// ActorSettings is what people write of an actor.
type ActorSettings struct {
	Address []string      `json:"address,omitempty" maxItems:"10" doc:"URLs under which its node can be reached."`
	OIDC    *oidcIdentity `json:"oidc,omitempty" doc:"Set by system admins alone."`
}

// oidcIdentity is what an identity provider calls somebody.
type oidcIdentity struct {
	Issuer  string `json:"issuer" minLength:"1" maxLength:"500" example:"https://accounts.example.com"`
	Subject string `json:"subject" minLength:"1" maxLength:"255"`
}

// newActor is the body of POST /actors.
type newActor struct {
	ActorSettings
	PublicKeys []string `json:"public_keys,omitempty" maxItems:"2" doc:"Ed25519, base64 of 32 bytes."`
	OwnContext name     `json:"own_context,omitempty" doc:"Makes a context of this name whose admin it is."`
}

// actorView is an actor as clients read it.
type actorView struct {
	ID         string            `json:"id"`
	PublicKeys []string          `json:"public_keys" doc:"those that are live"`
	Keys       []actorKeyView    `json:"keys,omitempty" doc:"live ones first; of one actor, not in lists"`
	Address    []string          `json:"address"`
	OIDC       *oidcIdentity     `json:"oidc"`
	Roles      map[string]string `json:"roles,omitempty" doc:"by context; of one actor, not in lists"`
	Version    int64             `json:"version"`
	CreatedAt  time.Time         `json:"created_at"`
}

func viewActor(a *actors.Actor) actorView {
	v := actorView{
		ID:         a.ID,
		PublicKeys: a.PublicKeys,
		Address:    a.Address,
		Version:    a.Version,
		CreatedAt:  a.CreatedAt.UTC(),
	}
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
	v, err := a.Store.Actors.Actor(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	keys, err := a.Store.Actors.PublicKeysOf(ctx, v.ID)
	if err != nil {
		return nil, err
	}
	roles, err := a.Store.RolesOf(ctx, v.ID)
	if err != nil {
		return nil, err
	}
	out := &actorOutput{Status: http.StatusOK, ETag: etag(v.Version), Body: viewActor(v)}
	for _, k := range keys {
		out.Body.Keys = append(out.Body.Keys, viewActorKey(k))
	}
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

// postActor makes an actor, and its own context if it is to have one: 201; 200 when the key was known. With open
// registration one makes itself an actor, by a request that its key has signed.
func (a *API) postActor(ctx context.Context, in *postActorInput) (*actorOutput, error) {
	s := scopeOf(ctx)
	if s.opened && s.who.registers == nil {
		return a.registered(ctx, string(in.Body.OwnContext))
	}
	v, err := in.Body.made(s.who)
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
	if v.Registers != nil {
		s.Actor = v.ID // the audit names it
		if once.Key != "" {
			once.Key = s.who.actor + " " + once.Key // of the same name is another's with another key
		}
	}
	first, replay, err := a.Store.Actors.CreateActor(ctx, by(ctx, ""), v, once)
	if v.Registers != nil && (replay || fault.CodeOf(err) == "in_use") {
		if out, late := a.overtaken(ctx, *v.Registers, v.Own); out != nil || late != nil {
			return out, late
		}
	}
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

// overtaken answers a registration whose key became that of an actor while it waited, as where it is signed again at
// another process before the first one has committed: by its signature it is that actor, and has used its nonce. nil,
// nil: the key signs for no actor.
func (a *API) overtaken(ctx context.Context, used actors.Signed, own string) (*actorOutput, error) {
	now, err := a.Store.Actors.Believing(ctx, used.Key)
	if err != nil || len(now.Owners) == 0 || !now.Owners[0].Live() {
		return nil, err
	}
	if err := a.Store.Actors.Use(ctx, used); err != nil {
		return nil, err
	}
	s := scopeOf(ctx)
	if s.who, err = a.member(ctx, now.Owners[0]); err != nil {
		return nil, err
	}
	s.Actor = s.who.actor
	return a.registered(ctx, own)
}

// registered answers an actor that registers itself once more, as after a lost answer: 200.
func (a *API) registered(ctx context.Context, own string) (*actorOutput, error) {
	out, err := a.getActor(ctx, &actorInput{scopeOf(ctx).Actor})
	switch {
	case err != nil:
		return nil, err
	case own != "" && out.Body.Roles[own] != pg.Admin:
		return nil, fault.New(fault.Conflict, "in_use",
			"you are the actor %s already: PUT /contexts/%s makes a context", out.Body.ID, own)
	}
	out.Location, out.Replay = "/actors/"+out.Body.ID, "true"
	return out, nil
}

// givenOIDC refuses an actor that names itself as a subject of a provider.
func givenOIDC() error {
	return fault.New(fault.Forbidden, "forbidden", "oidc: a system admin says as whom a provider knows an actor")
}

// made is the actor that a body makes; who registers itself brings one key, that of its signature.
func (n *newActor) made(who *principal) (actors.NewActor, error) {
	settings, err := n.actor()
	v := actors.NewActor{Actor: settings, Own: string(n.OwnContext), Registers: who.registers}
	if err != nil {
		return v, err
	}
	for i, text := range n.PublicKeys {
		pointer := "/public_keys/" + itoa(i)
		key, err := readKey(pointer, text)
		switch {
		case err != nil:
			return v, err
		case who.registers != nil && !key.Equal(who.registers.Key):
			return v, fault.At(pointer, "public key %q is not the one that signs this request: who registers "+
				"brings that alone, and adds another afterwards", fault.Clip(text))
		case slices.ContainsFunc(v.Keys, func(have ed25519.PublicKey) bool { return have.Equal(key) }):
			return v, fault.At(pointer, "public key %q is there twice", fault.Clip(text))
		}
		v.Keys = append(v.Keys, key)
	}
	if who.registers == nil {
		return v, nil
	}
	if n.OIDC != nil {
		return v, givenOIDC()
	}
	v.Keys = []ed25519.PublicKey{who.registers.Key}
	if err := signature.CheckKey(who.registers.Key); err != nil {
		return v, fault.At("/public_keys", "this public key cannot be taken: %s", err)
	}
	return v, nil
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
	v := actors.Actor{Address: []string{}}
	for _, at := range s.Address {
		u, err := url.Parse(at)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || len(at) > 2000 {
			return v, fault.At("/address", "address %q: want an http or https URL", fault.Clip(at))
		}
		v.Address = append(v.Address, at)
	}
	if s.OIDC != nil {
		if u, err := url.Parse(s.OIDC.Issuer); err != nil || u.Host == "" || !strings.HasPrefix(u.Scheme, "http") {
			return v, fault.At("/oidc/issuer",
				"issuer %q: want the URL that its tokens name in iss", fault.Clip(s.OIDC.Issuer))
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
	have := ActorSettings{Address: v.Address}
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
	same := changed.Issuer == v.Issuer && changed.Subject == v.Subject
	if !same && scopeOf(ctx).who.in(nil, a.system()) < systemAdmins {
		return nil, givenOIDC()
	}
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
