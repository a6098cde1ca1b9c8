package httpapi

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/actors"
	"github.com/postern-dev/postern/internal/remote/signature"
)

// nonceMost bounds the text of a nonce, which is a part of a key.
const nonceMost = 200

// signer is who has signed a request: an actor, or one who registers itself with the key.
type signer struct {
	key   *actors.PublicKey // its Actor is "" where the key names no actor
	label string
	used  actors.Signed
}

// readSignature checks the signatures of a request (RFC 9421): all that name a key of an actor must hold, and name one
// actor. The body is read before, and nothing has decoded it. The nonce is used last, so that only what holds takes a
// row; the clock is that of the database, which all processes share.
func (a *API) readSignature(r *http.Request) (*principal, anew, error) {
	list, err := signature.Parse(r.Header)
	if err != nil {
		return nil, nil, fault.New(fault.Invalid, "bad_signature_input", "%s", err)
	}
	if len(list) == 0 {
		return nil, nil, nil
	}
	keys := map[string]ed25519.PublicKey{} // by label
	var named [][]byte
	for _, s := range list {
		if key, err := signature.ParseKey(s.KeyID); err == nil {
			keys[s.Label], named = key, append(named, key)
		}
	}
	believing, err := a.Store.Actors.Believing(r.Context(), named...)
	if err != nil {
		return nil, nil, err
	}
	known := map[string]*actors.PublicKey{}
	for _, k := range believing.Owners {
		known[string(k.Key)] = k
	}
	registers := len(known) == 0 && len(keys) == 1 && a.registration(r)
	var by []signer
	for _, s := range list {
		key := keys[s.Label]
		of := known[string(key)]
		if registers && key != nil {
			of = &actors.PublicKey{Key: key}
		}
		if of == nil {
			continue
		}
		if of.RetiredAt != nil {
			return nil, nil, unauthenticated("signature " + s.Label + ": " + keyRetired)
		}
		used := actors.Signed{Key: of.Key, Nonce: s.Nonce, Expires: s.Expires}
		by = append(by, signer{of, s.Label, used})
	}
	if len(by) == 0 {
		return nil, nil, unauthenticated("no signature of this request names a key of an actor here: keyid is the " +
			"public key, in base64, and POST /actors registers it")
	}
	if err := a.holds(r, list, by, believing); err != nil {
		return nil, nil, err
	}
	if registers {
		who := &principal{actor: "key:" + by[0].key.ID(), registers: &by[0].used}
		return who, func() (*principal, error) { return who, nil }, nil
	}
	for _, s := range by {
		if err := a.Store.Actors.Use(r.Context(), s.used); err != nil {
			return nil, nil, err
		}
	}
	who, err := a.member(r.Context(), by[0].key)
	return who, func() (*principal, error) { return a.stillSigns(r.Context(), by) }, err
}

const keyRetired = "this key was retired: sign with one that is live"

// stillSigns is the actor of a request that was signed, while all keys that signed it are live. Their signatures may
// have expired since, and their nonces are used.
func (a *API) stillSigns(ctx context.Context, by []signer) (who *principal, err error) {
	for _, s := range by {
		p, err := a.actors.get("key "+s.key.ID(), func() (*principal, error) {
			now, err := a.Store.Actors.Believing(ctx, s.key.Key)
			if err != nil || len(now.Owners) == 0 || !now.Owners[0].Live() {
				return nil, err
			}
			return a.withRoles(ctx, now.Owners[0].Actor, s.key.Key)
		})
		if err == nil && p == nil {
			err = unauthenticated("signature " + s.label + ": " + keyRetired)
		}
		if err == nil {
			who, err = sameActor(who, p)
		}
		if err != nil {
			return nil, err
		}
	}
	return who, nil
}

// registration says whether a request is one by which somebody may register itself.
func (a *API) registration(r *http.Request) bool {
	return a.Registration == "open" && r.Method == http.MethodPost && r.URL.Path == "/actors"
}

// holds refuses a request whose signatures do not all hold, or are of several actors.
func (a *API) holds(r *http.Request, list []*signature.Signature, by []signer, believing actors.Believing) error {
	target, err := a.target(r)
	if err != nil {
		return err
	}
	body, err := a.rawBody(r)
	if err != nil {
		return err
	}
	must := []string{"@method", "@target-uri"}
	if len(body) > 0 {
		must = append(must, "content-digest")
	}
	for _, name := range signature.Says {
		if len(r.Header.Values(name)) > 0 {
			must = append(must, name)
		}
	}
	if len(body) > 0 || r.Header.Get("Content-Digest") != "" {
		if err := signature.CheckDigest(r.Header, body); err != nil {
			return unauthenticated(err.Error())
		}
	}
	request := signature.Of(r, target, body)
	for _, s := range list {
		i := slices.IndexFunc(by, func(b signer) bool { return b.label == s.Label })
		if i < 0 {
			continue
		}
		about := "signature " + s.Label + ": "
		switch missing := s.Covers(must...); {
		case missing != "":
			return unauthenticated(about + "it does not cover " + missing + ", as a signature of this request must")
		case s.Nonce == "" || len(s.Nonce) > nonceMost || strings.ContainsRune(s.Nonce, 0):
			return unauthenticated(about + "want the parameter nonce, of 1 to " + itoa(nonceMost) + " characters")
		case by[i].key.Actor != by[0].key.Actor:
			return unauthenticated("the signatures of this request are of different actors")
		}
		if err := s.Verify(request, by[i].key.Key); err != nil {
			return unauthenticated(about + err.Error() + ", for " + r.Method + " " + fault.Clip(target) +
				" with this body: is it by this key, and was nothing changed on the way?")
		}
		if err := s.Fresh(believing.Now); err != nil {
			return unauthenticated(about + err.Error())
		}
		if s.Created.Before(believing.After) {
			return unauthenticated(about + "this database was restored since it was made, and may have lost that " +
				"it was used: sign the request anew")
		}
	}
	return nil
}

// member is an actor that has signed, with the roles that it has, looked up again after a moment.
func (a *API) member(ctx context.Context, by *actors.PublicKey) (*principal, error) {
	return a.actors.get("signed "+by.ID(), func() (*principal, error) { return a.withRoles(ctx, by.Actor, by.Key) })
}

// withRoles is an actor with the roles that it has now, whom shown has let in.
func (a *API) withRoles(ctx context.Context, actor string, shown []byte) (*principal, error) {
	roles, err := a.Store.RolesOf(ctx, actor)
	if err != nil {
		return nil, err
	}
	return a.memberOf(actor, roles, shown), nil
}

// rawBody reads the whole body, as it came and within its limits, and leaves it to those who read it later.
func (a *API) rawBody(r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	body, err := a.readAll(r)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	return body, nil
}

// target is the URL of a request as the one who signs it sees it. Without a public URL the header Host must be the
// address that the connection leads to, or on a loopback address any name of that: by another name somebody would bring
// in what was signed for another server.
func (a *API) target(r *http.Request) (string, error) {
	if !strings.HasPrefix(r.RequestURI, "/") {
		return "", unauthenticated("a request that is signed names a path, and no whole URL, in its first line")
	}
	if a.PublicURL != "" {
		return strings.TrimSuffix(a.PublicURL, "/") + r.RequestURI, nil
	}
	if at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		local, err := netip.ParseAddrPort(at.String())
		host, port, split := strings.Cut(strings.TrimPrefix(r.Host, "["), "]:")
		if !split {
			host, port, _ = strings.Cut(r.Host, ":")
		}
		ip, _ := netip.ParseAddr(host)
		or(&port, "80")
		here := local.Addr().Unmap()
		ours := here.IsLoopback() && loopback(host) || ip.IsValid() && ip == here
		if err == nil && ours && port == itoa(int(local.Port())) {
			return "http://" + r.Host + r.RequestURI, nil
		}
	}
	return "", unauthenticated("this server was called as " + fault.Clip(r.Host) + ", and does not know whether that " +
		"is its own name: signed requests need POSTERN_PUBLIC_URL")
}
