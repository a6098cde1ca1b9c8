package ui

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/actors"
	"github.com/postern-dev/postern/internal/pg/db"
)

// cookieName is the cookie that names a session, cookieLife how long it lasts. It goes to paths below /ui alone, and
// the API does not read it.
//
// formCookie is that of the page for signing in, whose form it is bound to. It is another one, since that page is also
// shown where the first does not go along: a link of another site must not end a session.
const (
	cookieName = "postern_ui"
	formCookie = "postern_ui_form"
	cookieLife = 8 * time.Hour
	remembered = time.Second // how long a process trusts its look-up of a session, as the API does of a key
)

// ofUI is the door by which people sign in and out, as the audit names it.
var ofUI = db.By{Via: "ui"}

// memory is what a process remembers of sessions.
type memory struct {
	mu sync.Mutex
	m  map[string]remembrance
}

type remembrance struct {
	who   *actors.SignedIn
	until time.Time
}

// visit finds out who asks; nil: the browser was answered, and shown where to sign in.
func (u *UI) visit(w http.ResponseWriter, r *http.Request) *visit {
	if ledHere(r) {
		u.goOn(w, "Go on to Postern", r.URL.RequestURI())
		return nil
	}
	v, err := u.visitor(r)
	switch {
	case err != nil:
		u.refuse(w, r, err)
		return nil
	case v == nil && r.URL.Query().Has("live"): // it waits longer each time, and shows nothing of this
		http.Error(w, "the session has ended", http.StatusUnauthorized)
		return nil
	case v == nil && r.Method == http.MethodGet:
		http.Redirect(w, r, "/ui/sign-in?next="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
		return nil
	case v == nil: // the form was not read: its page is shown again
		http.Redirect(w, r, "/ui/sign-in?next="+url.QueryEscape(r.URL.Path), http.StatusSeeOther)
		return nil
	}
	if v.cookie == "" {
		v.cookie = u.setCookie(w, r, cookieName)
	}
	return v
}

// ledHere says whether a page of another site has led to this one: the cookie of a session, of SameSite=Strict, does
// not go along then, and whether there is one is known only once a page of ours goes on by itself.
func ledHere(r *http.Request) bool {
	_, err := r.Cookie(cookieName)
	return err != nil && r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Site") == "cross-site"
}

// goOn answers with a page that goes on to another one of ours by itself.
func (u *UI) goOn(w http.ResponseWriter, title, to string) {
	u.render(w, http.StatusOK, "onward.html", &screen{Title: title, Bare: true, Onward: to, Data: to})
}

// visitor is who a request is by; nil: no session.
func (u *UI) visitor(r *http.Request) (*visit, error) {
	v := &visit{ui: u, r: r, seen: map[string]*answer{}, may: map[string]bool{}}
	if c, err := r.Cookie(cookieName); err == nil {
		v.cookie = c.Value
	}
	if u.Auth == "none" {
		return v, nil
	}
	var err error
	if v.who, err = u.signedIn(r, v.cookie); err != nil || v.who == nil {
		return nil, err
	}
	return v, nil
}

// signedIn is who a session belongs to; nil if there is none.
func (u *UI) signedIn(r *http.Request, cookie string) (*actors.SignedIn, error) {
	if cookie == "" {
		return nil, nil
	}
	s, now := &u.sessions, time.Now()
	s.mu.Lock()
	have, ok := s.m[cookie]
	s.mu.Unlock()
	if ok && now.Before(have.until) {
		return have.who, nil
	}
	who, err := u.Sessions.Session(r.Context(), hashOf(cookie))
	if err != nil {
		return nil, err
	}
	if who != nil && who.Key == nil && (u.Provider == nil || who.Issuer != u.Provider.Issuer()) {
		who = nil // people do not sign in there any more
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if who == nil {
		delete(s.m, cookie)
		return nil, nil
	}
	if s.m == nil || len(s.m) >= 10000 {
		s.m = map[string]remembrance{}
	}
	s.m[cookie] = remembrance{who, now.Add(remembered)}
	return who, nil
}

func (s *memory) forget(cookie string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.m, cookie)
}

func hashOf(cookie string) []byte {
	sum := sha256.Sum256([]byte(cookie))
	return sum[:]
}

// setCookie draws a cookie. It names a session only once that is stored.
func (u *UI) setCookie(w http.ResponseWriter, r *http.Request, name string) string {
	cookie := rand.Text()
	http.SetCookie(w, &http.Cookie{
		Name:     name,
		Value:    cookie,
		Path:     "/ui",
		MaxAge:   int(cookieLife.Seconds()),
		HttpOnly: true,
		Secure:   !loopback(r.Host),
		SameSite: http.SameSiteStrictMode,
	})
	return cookie
}

func loopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// tokenOf is what a form carries, so that only pages that this browser was shown can post: it follows from the cookie,
// which no page can read.
func tokenOf(cookie string) string {
	sum := sha256.Sum256([]byte("form of " + cookie))
	return hex.EncodeToString(sum[:])
}

// Token is that of the forms of a page.
func (v *visit) Token() string { return tokenOf(v.cookie) }

// checkForm reads a form, and refuses one that no page of ours has sent.
func checkForm(r *http.Request, cookie string) error {
	if err := r.ParseForm(); err != nil {
		return fault.New(fault.Invalid, "too_large", "this form cannot be read, or has more than %d bytes", most)
	}
	token := r.PostForm.Get("token")
	if cookie == "" || subtle.ConstantTimeCompare([]byte(token), []byte(tokenOf(cookie))) == 0 {
		return fault.New(fault.Forbidden, "forbidden", "this form has not come from a page that you were shown, or "+
			"you have signed in anew since: open the page again")
	}
	return nil
}

// next is where a sign-in leads: a page of ours.
func next(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.Host != "" || u.Scheme != "" || strings.Contains(to, `\`) || len(to) > 2000 ||
		!strings.HasPrefix(to, "/ui/") || strings.Contains(u.Path, "/.") || strings.HasPrefix(u.Path, "/ui/sign-") ||
		strings.HasPrefix(u.Path, "/ui/oidc/") {
		return "/ui/"
	}
	return to
}

// signInPage is what the page for signing in shows.
type signInPage struct {
	Next, Token, Refused string
	Todo                 []string // what an admin does, so that it works
	Provider             string   // where one may sign in, too; "" for none
	Begin                string
}

func (u *UI) showSignIn(w http.ResponseWriter, r *http.Request) {
	if u.Auth == "none" {
		http.Redirect(w, r, "/ui/", http.StatusSeeOther)
		return
	}
	u.offerSignIn(w, r, http.StatusOK, r.FormValue("next"), "")
}

// offerSignIn shows the page for signing in, with what was refused, and what an admin does so that it works.
func (u *UI) offerSignIn(w http.ResponseWriter, r *http.Request, status int, to, refused string, todo ...string) {
	cookie := ""
	if c, err := r.Cookie(formCookie); err == nil {
		cookie = c.Value
	}
	if cookie == "" {
		cookie = u.setCookie(w, r, formCookie)
	}
	p := signInPage{Next: next(to), Token: tokenOf(cookie), Refused: refused, Todo: todo}
	if u.Provider != nil {
		p.Provider = u.Provider.Issuer()
		p.Begin = with("/ui/oidc/begin", url.Values{"next": {p.Next}})
	}
	u.render(w, status, "signin.html", &screen{Title: "Sign in", Bare: true, Data: p})
}

// signIn exchanges a key for a session: the API says whether the key holds.
func (u *UI) signIn(w http.ResponseWriter, r *http.Request) {
	shownWith, err := r.Cookie(formCookie)
	if err != nil {
		shownWith = &http.Cookie{}
	}
	if err := checkForm(r, shownWith.Value); err != nil {
		u.offerSignIn(w, r, http.StatusForbidden, r.PostForm.Get("next"), err.Error())
		return
	}
	shown := strings.TrimSpace(r.PostForm.Get("key"))
	_, err = u.ask(r.Context(), r, http.MethodGet, "/contexts", nil, "Authorization: Bearer "+shown)
	prefix, hash, ok := u.ParseKey(shown)
	if err == nil && !ok {
		err = fault.New(fault.Forbidden, "unauthenticated", "this is no API key: it begins with postern_")
	}
	if err != nil {
		u.offerSignIn(w, r, http.StatusUnauthorized, r.PostForm.Get("next"), err.Error())
		return
	}
	k, err := u.Sessions.UseKey(r.Context(), prefix)
	if err == nil && (k == nil || !k.Holds(hash)) {
		err = fault.New(fault.Forbidden, "unauthenticated", "this API key does not hold any more")
	}
	if err != nil {
		u.refuse(w, r, err)
		return
	}
	cookie := u.setCookie(w, r, cookieName)
	if err := u.Sessions.OpenSession(r.Context(), ofUI, k, hash, hashOf(cookie), cookieLife); err != nil {
		u.refuse(w, r, err)
		return
	}
	http.Redirect(w, r, next(r.PostForm.Get("next")), http.StatusSeeOther)
}

func (u *UI) signOut(w http.ResponseWriter, r *http.Request) {
	c, err := r.Cookie(cookieName)
	if err != nil {
		c = &http.Cookie{}
	}
	if err := checkForm(r, c.Value); err != nil {
		u.refuse(w, r, err)
		return
	}
	if u.Sessions != nil {
		if err := u.Sessions.EndSession(r.Context(), ofUI, hashOf(c.Value)); err != nil {
			u.refuse(w, r, err)
			return
		}
	}
	u.sessions.forget(c.Value)
	http.SetCookie(w, &http.Cookie{
		Name:     cookieName,
		Path:     "/ui",
		MaxAge:   -1,
		HttpOnly: true,
		Secure:   !loopback(r.Host),
		SameSite: http.SameSiteStrictMode,
	})
	http.Redirect(w, r, "/ui/", http.StatusSeeOther)
}
