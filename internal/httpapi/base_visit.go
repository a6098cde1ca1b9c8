package httpapi

import (
	"context"
	"net/http"

	"github.com/postern-dev/postern/internal/pg/actors"
)

// Visit is a request that another part of this process makes for a person, as the dashboard does. It is told in the
// context of the request, and no header says the same: nothing outside the process can claim it.
type Visit struct {
	Via string           // the door, as the audit names it
	Who *actors.SignedIn // whose it is; nil: development mode alone lets it in
	Ask bool             // 204 if it may be done, else the refusal; nothing is done
}

type visitKey struct{}

// Visiting marks the requests that are made with a context.
func Visiting(ctx context.Context, v Visit) context.Context {
	return context.WithValue(ctx, visitKey{}, &v)
}

// visitOf is how a request says that it is a visit; a plain one is the zero Visit.
func visitOf(ctx context.Context) *Visit {
	if v, ok := ctx.Value(visitKey{}).(*Visit); ok {
		return v
	}
	return &Visit{}
}

// readVisit finds who makes a visit, whom its maker has looked up, and looks up again for the next one: no visit waits.
func (a *API) readVisit(r *http.Request) (*principal, anew, error) {
	who := visitOf(r.Context()).Who
	if who == nil {
		return nil, nil, nil
	}
	return anew(func() (*principal, error) {
		if who.Key != nil {
			return a.holderOf(who.Key, who.Shown), nil
		}
		return a.memberOf(who.Actor, who.Roles, actors.Identity(who.Issuer, who.Subject)), nil
	}).first()
}

// memberOf is an actor with its roles by context; shown is as in actors.Store.Still.
func (a *API) memberOf(actor string, roles map[int32]string, shown []byte) *principal {
	still := a.Store.Actors.Still(actor, shown)
	p := &principal{actor: actor, roles: map[int32]level{}, member: true, still: still}
	for in, role := range roles {
		p.roles[in] = levels[role]
	}
	return p
}

// holderOf is who holds a key, and has shown a secret of that SHA-256.
func (a *API) holderOf(k *actors.UsedKey, shown []byte) *principal {
	return &principal{
		still: a.Store.Actors.Still(keyActor(k.Prefix), shown),
		actor: keyActor(k.Prefix),
		roles: map[int32]level{k.ContextID: levels[k.Role]},
		only:  k.Only,
		home:  k.ContextID,
	}
}
