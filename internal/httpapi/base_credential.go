package httpapi

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/actors"
	"github.com/postern-dev/postern/internal/pg/db"
)

// level is what somebody may in a context; each may what those before it may.
type level int

const (
	nobody level = iota // no credential at all
	anyone              // any credential that holds
	readers
	executors
	admins
	systemAdmins // an admin of the context system is one everywhere
)

var levels = map[string]level{pg.Reader: readers, pg.Executor: executors, pg.Admin: admins}

func (l level) String() string {
	return [...]string{"nobody", "anyone", pg.Reader, pg.Executor, pg.Admin, "system admin"}[l]
}

// principal is who the credentials of a request name.
type principal struct {
	actor string
	roles map[int32]level // by id of the context
	only  []string        // read, post, operate; empty: all that the role may
	home  int32           // the context that is meant where none is named, 0 if that is open

	// still is db.By's; nil: no credential has let it in.
	still func(ctx context.Context, t *db.Txn, contextID int32) error

	member    bool           // it is an actor with a row of its own, no key and not the developer
	registers *actors.Signed // it is no actor yet, and registers itself by this signature
}

// itself says whether the principal is an actor, or becomes one by this request.
func (p *principal) itself() bool { return p.member || p.registers != nil }

// in returns what the principal may in a context.
func (p *principal) in(c *pg.Context, system int32) level {
	switch {
	case p.roles[system] == admins:
		return systemAdmins
	case c == nil:
		return anyone
	}
	return max(anyone, p.roles[c.ID])
}

// anew looks up again whom a credential names that was read before, through what is remembered for a moment: while a
// request waits, and a stream is open. A nonce is not used by it. A credential that holds no more is unauthenticated.
type anew func() (*principal, error)

// first returns whom a credential names, with how it is looked up again.
func (look anew) first() (*principal, anew, error) {
	who, err := look()
	return who, look, err
}

// credentialReaders look for one kind of credential each. A nil principal without an error: the request has none of
// this kind. A credential that does not hold is unauthenticated.
var credentialReaders = []func(*API, *http.Request) (*principal, anew, error){
	(*API).readAPIKey,
	(*API).readToken,
	(*API).readOtherBearer,
	(*API).readSignature,
	(*API).readVisit,
}

// credentials returns the caller, nil if no credential names one. Several credentials must all hold and name one
// actor, also when they are looked up again.
func (a *API) credentials(r *http.Request) (who *principal, again anew, err error) {
	var looks []anew
	for _, read := range credentialReaders {
		p, look, err := read(a, r)
		if err == nil && p != nil {
			looks = append(looks, look)
			who, err = sameActor(who, p)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return who, func() (now *principal, err error) {
		for _, look := range looks {
			p, err := look()
			if err == nil {
				now, err = sameActor(who, p)
			}
			if err != nil {
				return nil, err
			}
		}
		return now, nil
	}, nil
}

// sameActor returns the second of two principals, which must be the same actor. The first may be nil.
func sameActor(who, p *principal) (*principal, error) {
	if who != nil && p.actor != who.actor {
		return nil, unauthenticated("the credentials of this request name different actors")
	}
	return p, nil
}

func unauthenticated(detail string) error {
	return fault.New(fault.Forbidden, "unauthenticated", "%s", detail)
}

// bearer returns what Authorization bears, "" without that header.
func bearer(r *http.Request) (string, error) {
	list := r.Header.Values("Authorization")
	if len(list) == 0 {
		return "", nil
	}
	scheme, token, _ := strings.Cut(list[0], " ")
	if token = strings.TrimSpace(token); len(list) > 1 || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", unauthenticated("Authorization: want it once, as Bearer and a credential")
	}
	return token, nil
}

const apiKeyPrefix = "postern_"

// readAPIKey checks an API key. It does not say why a key is wrong: neither whether its prefix is known, nor whether
// it has expired.
func (a *API) readAPIKey(r *http.Request) (*principal, anew, error) {
	token, err := bearer(r)
	if err != nil || !strings.HasPrefix(token, apiKeyPrefix) {
		return nil, nil, err
	}
	return anew(func() (*principal, error) { return a.useAPIKey(r.Context(), token) }).first()
}

func (a *API) useAPIKey(ctx context.Context, token string) (*principal, error) {
	refused := unauthenticated("this API key does not hold: it is mistyped, revoked or expired")
	prefix, hash, ok := ParseKey(token)
	if !ok {
		return nil, refused
	}
	k, err := a.keys.get(prefix, func() (*actors.UsedKey, error) { return a.Store.Actors.UseKey(ctx, prefix) })
	if err != nil {
		return nil, err
	}
	if k == nil || !k.Holds(hash) {
		return nil, refused
	}
	if k.Stale && k.Noted.CompareAndSwap(false, true) {
		if err := a.Store.Actors.NoteUse(context.WithoutCancel(ctx), k); err != nil {
			// the caller is let in all the same
			a.Log.WarnContext(ctx, "note that an API key was used", "prefix", prefix, "error", err)
		}
	}
	return a.holderOf(k, hash), nil
}

// keyActor is the actor that a key acts as; a rotation keeps it.
func keyActor(prefix string) string { return "key:" + prefix }

// readOtherBearer refuses what no other reader takes.
func (a *API) readOtherBearer(r *http.Request) (*principal, anew, error) {
	token, err := bearer(r)
	if err != nil || token == "" || strings.HasPrefix(token, apiKeyPrefix) || len(a.OIDC.Issuers) > 0 {
		return nil, nil, err
	}
	return nil, nil, unauthenticated("this bearer credential is not known here: want an API key, " + KeyForm)
}

// authenticate finds out who asks. A credential that does not hold is refused even where none is needed.
func (a *API) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, again, err := a.credentials(r)
		if err != nil {
			a.refuse(w, r, err)
			return
		}
		s := scopeOf(r.Context())
		s.via = visitOf(r.Context()).Via
		switch {
		case who != nil && visitOf(r.Context()).Ask: // it is not done, and not counted
		case who != nil:
			if err := a.often(who); err != nil {
				a.refuse(w, r, err)
				return
			}
		case a.Auth == "none":
			who = a.developer()
			again = func() (*principal, error) { return a.developer(), nil }
		case !open(r.URL.Path):
			a.refuse(w, r, unauthenticated("this needs a credential: Authorization: Bearer and an API key, "+
				"or the signature of an actor"))
			return
		}
		if s.who = who; who != nil {
			s.Actor, s.anew = who.actor, again
		}
		next.ServeHTTP(w, r)
	})
}

// often refuses who asks more often than this process lets one: 429 rate_limited.
func (a *API) often(who *principal) error {
	if a.paces == nil {
		return nil
	}
	name := who.actor
	if who.registers != nil { // a key is drawn at no cost, so that these have one pace together
		name = "registration"
	}
	if wait := a.paces.take(name, time.Now()); wait > 0 {
		return fault.New(fault.Retry, "rate_limited", "%q asks more than %d times a second", fault.Clip(who.actor),
			a.Limits.Requests).After(wait)
	}
	return nil
}

// developer is everybody in development mode: an admin of system.
func (a *API) developer() *principal {
	return &principal{actor: "dev", roles: map[int32]level{a.system(): admins}}
}

// system is the id of the context that owns the objects without a context of their own.
func (a *API) system() int32 {
	if c := a.Store.Context(pg.System); c != nil {
		return c.ID
	}
	return 0
}

// remembered is how long a process trusts its look-up of a credential: a key that another process revokes is refused
// here within this time and that of a request.
const remembered = time.Second
