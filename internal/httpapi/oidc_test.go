package httpapi_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc/oidctest"

	"github.com/postern-dev/postern/internal/httpapi"
	"github.com/postern-dev/postern/internal/remote"
)

// provider is an identity provider with one key.
type provider struct {
	url  string
	key  *ecdsa.PrivateKey
	stop func()
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s := &oidctest.Server{PublicKeys: []oidctest.PublicKey{{PublicKey: key.Public(), KeyID: "k", Algorithm: "ES256"}}, Algorithms: []string{"ES256"}}
	at := httptest.NewServer(s)
	s.SetIssuer(at.URL)
	t.Cleanup(at.Close)
	return &provider{at.URL, key, at.Close}
}

// token is a header with a token that says this, signed with key.
func token(key crypto.PrivateKey, alg, issuer, audience, subject string, expires time.Duration) string {
	claims := fmt.Sprintf(`{"iss": %q, "aud": %s, "sub": %q, "exp": %d, "iat": %d}`, issuer, audience, subject, time.Now().Add(expires).Unix(), time.Now().Unix())
	return "Authorization: Bearer " + oidctest.SignIDToken(key, "k", alg, claims)
}

func TestATokenOfAnIdentityProviderIsAnActor(t *testing.T) {
	p, other := newProvider(t), newProvider(t)
	d, root := closedDoor(t, func(c *httpapi.Config) {
		c.OIDC = httpapi.OIDC{Issuers: []string{p.url}, Audiences: []string{"postern", "postern-eu"}, Client: remote.Guarded([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, time.Second)}
	})
	mine := func(subject string) string {
		return token(p.key, "ES256", p.url, `["x", "postern-eu"]`, subject, time.Hour)
	}
	d.refused(401, "unauthenticated", "GET", "/queues", "", mine("ann")) // a valid token whose subject is no actor here
	ann := d.want(201, "POST", "/actors", fmt.Sprintf(`{"oidc": {"issuer": %q, "subject": "ann"}}`, p.url), root).str("id")
	for _, name := range []string{"shop", "other"} {
		d.want(201, "PUT", "/contexts/"+name, `{}`, root)
	}
	d.refused(404, "not_found", "GET", "/queues", "", mine("ann"), "Postern-Context: shop") // an actor without a role
	d.want(200, "PUT", "/contexts/shop/members/"+ann, `{"roles": ["executor"]}`, root)
	d.want(200, "GET", "/queues", "", mine("ann")) // its only context
	d.want(200, "GET", "/actors/"+ann, "", mine("ann"))
	d.refused(404, "not_found", "GET", "/queues", "", mine("ann"), "Postern-Context: other")
	d.refused(403, "forbidden", "PUT", "/queues/q", `{}`, mine("ann"))
	d.want(201, "PUT", "/dispatchers/pay", `{"worker_url": "noop:"}`, root, "Postern-Context: shop")
	if a := d.want(201, "POST", "/transactions", `{"type": "pay"}`, mine("ann")); a.str("actor") != ann {
		t.Error(a.raw)
	}

	for name, header := range map[string]string{
		"expired":              token(p.key, "ES256", p.url, `"postern"`, "ann", -time.Minute),
		"for somebody else":    token(p.key, "ES256", p.url, `"kitchen"`, "ann", time.Hour),
		"of another issuer":    token(other.key, "ES256", other.url, `"postern"`, "ann", time.Hour),
		"another's key":        token(other.key, "ES256", p.url, `"postern"`, "ann", time.Hour),
		"unsigned":             "Authorization: Bearer eyJhbGciOiJub25lIn0.eyJpc3MiOiJ4In0.",
		"signed symmetrically": token([]byte("0123456789012345678901234567890123456789012345678901234567890123"), "HS256", p.url, `"postern"`, "ann", time.Hour),
		"none":                 "Authorization: Bearer x",
	} {
		if status, code := d.status("GET", "/queues", "", header); status != 401 || code != "unauthenticated" {
			t.Errorf("%s: %d %s", name, status, code)
		}
	}
	d.want(204, "DELETE", "/contexts/shop/members/"+ann, "", root)
	d.refused(404, "not_found", "GET", "/queues", "", mine("ann"), "Postern-Context: shop") // at once, where it was done
	// what it makes is its own
	d.want(200, "PUT", "/contexts/other/members/"+ann, `{"roles": ["admin"]}`, root)
	if v := d.want(201, "PUT", "/processors/main", `{}`, mine("ann")); v.str("owner") != ann {
		t.Errorf("it belongs to another than the actor: %s", v.raw)
	}
}

func TestAnIssuerThatIsAwayIsNoReasonToRefuseForGood(t *testing.T) {
	p := newProvider(t)
	d, _ := closedDoor(t, func(c *httpapi.Config) {
		c.OIDC = httpapi.OIDC{Issuers: []string{p.url}, Audiences: []string{"postern"}, Client: remote.Guarded([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, time.Second)}
	})
	p.stop()
	d.refused(503, "overloaded", "GET", "/queues", "", token(p.key, "ES256", p.url, `"postern"`, "ann", time.Hour))
}
