package ui_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc/oidctest"
)

// idp is a little identity provider: every browser that comes to /auth is of the subject that it is set to. It takes a
// code once, from the client that it was made for, with the verifier of its challenge.
type idp struct {
	url string
	key *ecdsa.PrivateKey

	mu      sync.Mutex
	subject string
	claims  map[string]any        // in place of those that are right
	refuse  string                // the error that /auth answers
	codes   map[string]url.Values // what /auth was asked, by code
	calls   int                   // of /token
}

const (
	clientID     = "postern-ui"
	clientSecret = "s3cret &+%" // has to be escaped
)

func newIDP(t *testing.T) *idp {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys := &oidctest.Server{
		PublicKeys: []oidctest.PublicKey{{PublicKey: key.Public(), KeyID: "k", Algorithm: "ES256"}},
		Algorithms: []string{"ES256"},
	}
	p := &idp{key: key, subject: "ann", codes: map[string]url.Values{}}
	mux := http.NewServeMux()
	mux.Handle("/", keys)
	mux.HandleFunc("GET /auth", p.auth)
	mux.HandleFunc("POST /token", p.token)
	at := httptest.NewServer(mux)
	t.Cleanup(at.Close)
	p.url = at.URL
	keys.SetIssuer(at.URL)
	return p
}

// auth is the page at which people say who they are; here they have said it.
func (p *idp) auth(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := r.URL.Query()
	back, _ := url.Parse(q.Get("redirect_uri"))
	answer := url.Values{"state": {q.Get("state")}}
	switch {
	case q.Get("response_type") != "code", q.Get("client_id") != clientID, q.Get("code_challenge_method") != "S256",
		q.Get("nonce") == "", !strings.Contains(q.Get("scope"), "openid"):
		http.Error(w, "what is asked is not right: "+r.URL.RawQuery, http.StatusBadRequest)
		return
	case p.refuse != "":
		answer.Set("error", p.refuse)
	default:
		code := rand.Text()
		p.codes[code] = q
		answer.Set("code", code)
	}
	back.RawQuery = answer.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
}

// token exchanges a code.
func (p *idp) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	_ = r.ParseForm()
	asked := p.codes[r.PostForm.Get("code")]
	delete(p.codes, r.PostForm.Get("code"))
	id, secret, _ := r.BasicAuth()
	id, _ = url.QueryUnescape(id)
	secret, _ = url.QueryUnescape(secret)
	sum := sha256.Sum256([]byte(r.PostForm.Get("code_verifier")))
	w.Header().Set("Content-Type", "application/json")
	if asked == nil || id != clientID || secret != clientSecret ||
		asked.Get("redirect_uri") != r.PostForm.Get("redirect_uri") ||
		asked.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error": "invalid_grant"}`)
		return
	}
	claims := map[string]any{
		"iss":   p.url,
		"aud":   clientID,
		"sub":   p.subject,
		"nonce": asked.Get("nonce"),
		"iat":   time.Now().Unix(),
		"exp":   time.Now().Add(time.Hour).Unix(),
	}
	maps.Copy(claims, p.claims)
	raw, _ := json.Marshal(claims)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"access_token": "of no use to us",
		"token_type":   "Bearer",
		"id_token":     oidctest.SignIDToken(p.key, "k", "ES256", string(raw)),
	})
}

// set changes what the provider says.
func (p *idp) set(subject string, claims map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.subject, p.claims = subject, claims
}

// away goes to the provider as a browser does that follows the link of the page, and returns the address that the
// provider sends it back to, as a path.
func (b *browser) away(next string) string {
	b.h.t.Helper()
	s := b.get("/ui/oidc/begin?" + url.Values{"next": {next}}.Encode())
	if s.status != http.StatusSeeOther {
		b.h.t.Fatalf("begin: %d %s", s.status, s.text)
	}
	r, _ := http.NewRequestWithContext(b.h.t.Context(), "GET", s.header.Get("Location"), nil)
	at := b.do(r)
	to := at.header.Get("Location")
	if at.status != http.StatusFound || !strings.HasPrefix(to, b.h.url+"/ui/oidc/callback?") {
		b.h.t.Fatalf("the provider: %d %s %s", at.status, to, at.text)
	}
	return strings.TrimPrefix(to, b.h.url)
}

// actor makes an actor of a subject, with a role in a context where one is named.
func (h *house) actor(p *idp, subject, in, role string) string {
	h.t.Helper()
	a := h.api("POST", "/actors", fmt.Sprintf(`{"oidc": {"issuer": %q, "subject": %q}}`, p.url, subject))
	id := fmt.Sprint(a["id"])
	if in != "" {
		h.api("PUT", "/contexts/"+in+"/members/"+id, fmt.Sprintf(`{"roles": [%q]}`, role))
	}
	return id
}

func TestPeopleSignInAtAnIdentityProvider(t *testing.T) {
	p := newIDP(t)
	h := newHouse(t, "required", p)
	h.api("PUT", "/contexts/shop", `{}`)
	h.scenario("shop")
	ann := h.actor(p, "ann", "shop", "admin")
	b := h.browser()
	page := b.get("/ui/sign-in?next=/ui/c/shop/queues").text
	if !strings.Contains(page, `href="/ui/oidc/begin?next=%2Fui%2Fc%2Fshop%2Fqueues"`) {
		t.Errorf("the page for signing in has no link: %s", page)
	}
	s := b.get(b.away("/ui/c/shop/queues"))
	if s.status != 200 || !strings.Contains(s.text, `content="0; url=/ui/c/shop/queues"`) {
		t.Fatalf("%d %s", s.status, s.text)
	}
	cookies := strings.Join(s.header.Values("Set-Cookie"), "\n")
	if !strings.Contains(cookies, "postern_ui_oidc=; Path=/ui/oidc; Max-Age=0") ||
		!strings.Contains(cookies, "Path=/ui; Max-Age=28800; HttpOnly; SameSite=Strict") {
		t.Errorf("cookies: %s", cookies)
	}
	if s := b.get("/ui/c/shop/queues"); s.status != 200 || !strings.Contains(s.text, "<span>ann</span>") {
		t.Errorf("signed in: %d %s", s.status, s.text)
	}
	const line, lever = "/ui/c/shop/queues/line", "POST /queues/line/resume"
	form := b.get(line).form(lever)
	if form == nil {
		t.Fatal("an admin has no lever")
	}
	form.Set("do", "do")
	if s := b.post(line, form); s.status != 200 {
		t.Errorf("a lever: %d %s", s.status, s.text)
	}
	for action, in := range map[string]string{"resume": "shop", "sign_in": "system"} {
		rows := h.api("GET", "/audit?action="+action, "", "Postern-Context: "+in)["items"].([]any)
		if len(rows) != 1 {
			t.Fatalf("%s: %v", action, rows)
		}
		if row := rows[0].(map[string]any); row["actor"] != ann || row["via"] != "ui" {
			t.Errorf("%s: %v", action, row)
		}
	}
	for _, next := range []string{"https://evil.example/ui/", "//evil.example/ui/", `/ui/\evil.example`,
		"/ui/oidc/begin"} {
		if s := b.get(b.away(next)); !strings.Contains(s.text, `content="0; url=/ui/"`) {
			t.Errorf("a sign-in leads to %q: %s", next, s.text)
		}
	}
}

// A session of an actor ends with the actor's rights: its roles, the actor, or the subject that it is.
func TestASessionEndsWithTheRightsOfItsActor(t *testing.T) {
	p := newIDP(t)
	h := newHouse(t, "required", p)
	h.api("PUT", "/contexts/shop", `{}`)
	in := map[string]string{}
	for name, end := range map[string]func(){
		"role":    func() { h.api("DELETE", "/contexts/shop/members/"+in["role"], "") },
		"subject": func() { h.api("PATCH", "/actors/"+in["subject"], `{"oidc": null}`) },
		"actor": func() {
			h.api("DELETE", "/contexts/shop/members/"+in["actor"], "")
			h.api("DELETE", "/actors/"+in["actor"], "")
		},
	} {
		in[name] = h.actor(p, name, "shop", "reader")
		p.set(name, nil)
		b := h.browser()
		b.get(b.away("/ui/"))
		if s := b.get("/ui/c/shop/now"); s.status != 200 {
			t.Fatalf("%s: %d %s", name, s.status, s.text)
		}
		end()
		until(t, func() bool { return b.get("/ui/c/shop/now").status == http.StatusSeeOther })
	}

	h.actor(p, "eve", "shop", "admin")
	p.set("eve", nil)
	b := h.browser()
	b.get(b.away("/ui/"))
	if s := b.post("/ui/sign-out", b.get("/ui/c/shop/now").form("")); s.status != http.StatusSeeOther {
		t.Errorf("sign out: %d", s.status)
	}
	if s := b.get("/ui/c/shop/now"); s.status != http.StatusSeeOther {
		t.Errorf("signed out: %d", s.status)
	}
}

func TestNoOneSignsInByAnotherAnswer(t *testing.T) {
	p := newIDP(t)
	h := newHouse(t, "required", p)
	h.api("PUT", "/contexts/shop", `{}`)
	h.actor(p, "ann", "shop", "reader")
	refused := func(name string, b *browser, s seen, status int, says string) {
		t.Helper()
		if s.status != status || !strings.Contains(s.text, says) {
			t.Errorf("%s: %d, want %d and %q: %s", name, s.status, status, says, s.text)
		}
		if s := b.get("/ui/c/shop/now"); s.status != http.StatusSeeOther {
			t.Errorf("%s is signed in: %d", name, s.status)
		}
	}
	const notBegun = "not the answer to a sign-in that this browser has begun"
	b := h.browser()
	to := b.away("/ui/")
	refused("the answer to another browser", h.browser(), h.browser().get(to), 403, notBegun)
	refused("another state", b, b.get(strings.Replace(to, "state=", "state=x", 1)), 403, notBegun)
	if p.calls != 0 {
		t.Errorf("a code was exchanged %d times without its state", p.calls)
	}

	one := h.browser() // whose cookies are kept, as a thief would
	to = one.away("/ui/")
	kept := one.client.Jar.(*jar).cookies["postern_ui_oidc"]
	if s := one.get(to); s.status != 200 {
		t.Fatalf("%d %s", s.status, s.text)
	}
	thief := h.browser()
	thief.client.Jar.(*jar).cookies["postern_ui_oidc"] = kept
	refused("a code that was used", thief, thief.get(to), 401, "it was used before")
	if s := one.get(to); s.status != 403 {
		t.Errorf("the same answer again: %d", s.status)
	}

	const noHold = "does not hold"
	for name, claims := range map[string]map[string]any{
		"another nonce":          {"nonce": "x"},
		"no nonce":               {"nonce": nil},
		"another audience":       {"aud": "kitchen"},
		"made for another":       {"aud": []string{clientID, "kitchen"}, "azp": "kitchen"},
		"of another issuer":      {"iss": "https://id.example"},
		"expired":                {"exp": time.Now().Add(-time.Hour).Unix()},
		"without a subject":      {"sub": ""},
		"for callers of the API": {"aud": "postern"},
	} {
		p.set("ann", claims)
		b := h.browser()
		refused(name, b, b.get(b.away("/ui/")), 401, noHold)
	}

	p.set(`joe's "<b>`, nil)
	b = h.browser()
	refused("no actor", b, b.get(b.away("/ui/")), 403, "is no actor here")
	s := b.get(b.away("/ui/"))
	if !strings.Contains(s.text, "postern api POST /actors -d") || strings.Contains(s.text, "<b>") {
		t.Errorf("what to do is not said: %s", s.text)
	}
	bob := h.actor(p, "bob", "", "")
	p.set("bob", nil)
	b = h.browser()
	refused("an actor without a role", b, b.get(b.away("/ui/")), 403, "postern context member CONTEXT "+bob+" reader")

	p.refuse = "access_denied"
	b = h.browser()
	refused("one whom the provider refuses", b, b.get(b.away("/ui/")), 403, "has refused: access_denied")
}
