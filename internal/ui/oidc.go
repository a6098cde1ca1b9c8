package ui

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/fault"
)

// Provider is an identity provider at which people sign in: a browser goes to the address Leave, and comes back to the
// address back with a code, for which Return says who has signed in.
type Provider interface {
	Issuer() string
	Leave(ctx context.Context, back, state, nonce, verifier string) (string, error)
	Return(ctx context.Context, back, code, nonce, verifier string) (subject string, err error)
}

// callback is the path to which the provider sends browsers back.
const callback = "/ui/oidc/callback"

// awayCookie binds a sign-in at the provider to the browser that began it, awayLife is how long that may take. It goes
// along when the provider sends the browser back, which cookies of SameSite=Strict do not.
const (
	awayCookie = "postern_ui_oidc"
	awayLife   = 10 * time.Minute
)

// journey is a sign-in at the provider: a secret that the browser alone has, and the page that it leads to. State,
// nonce and verifier follow from the secret, so that nothing is kept here, and any process takes the answer.
type journey struct{ secret, next string }

// of derives a text from the secret, as long as a verifier must be.
func (j journey) of(what string) string {
	sum := sha256.Sum256([]byte(what + " of " + j.secret))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// leave sends a browser to the provider.
func (u *UI) leave(w http.ResponseWriter, r *http.Request) {
	j := journey{rand.Text(), next(r.FormValue("next"))}
	to, err := u.Provider.Leave(r.Context(), backTo(r), j.of("state"), j.of("nonce"), j.of("verifier"))
	if err != nil {
		u.refuse(w, r, err)
		return
	}
	value := j.secret + "." + base64.RawURLEncoding.EncodeToString([]byte(j.next))
	u.setAway(w, r, value, int(awayLife.Seconds()))
	http.Redirect(w, r, to, http.StatusSeeOther)
}

func (u *UI) setAway(w http.ResponseWriter, r *http.Request, value string, age int) {
	http.SetCookie(w, &http.Cookie{
		Name:     awayCookie,
		Value:    value,
		Path:     "/ui/oidc",
		MaxAge:   age,
		HttpOnly: true,
		Secure:   !loopback(r.Host),
		SameSite: http.SameSiteLaxMode,
	})
}

// backTo is the address of callback, as the browser names this server.
func backTo(r *http.Request) string {
	scheme := "https"
	if loopback(r.Host) && r.TLS == nil {
		scheme = "http"
	}
	return scheme + "://" + r.Host + callback
}

// begun is the sign-in that this browser has begun; nil: none, or the answer is one to another.
func begun(r *http.Request) *journey {
	c, err := r.Cookie(awayCookie)
	if err != nil {
		return nil
	}
	secret, to, _ := strings.Cut(c.Value, ".")
	path, err := base64.RawURLEncoding.DecodeString(to)
	j := &journey{secret, next(string(path))}
	state := r.URL.Query().Get("state")
	if err != nil || secret == "" || subtle.ConstantTimeCompare([]byte(state), []byte(j.of("state"))) == 0 {
		return nil
	}
	return j
}

// comeBack opens a session for whom the provider names. A sign-in is answered once: its cookie goes.
func (u *UI) comeBack(w http.ResponseWriter, r *http.Request) {
	j := begun(r)
	if j == nil {
		u.offerSignIn(w, r, http.StatusForbidden, "", "this is not the answer to a sign-in that this browser has "+
			"begun within the last ten minutes: sign in again")
		return
	}
	u.setAway(w, r, "", -1)
	q := r.URL.Query()
	if code := q.Get("error"); code != "" {
		u.offerSignIn(w, r, http.StatusForbidden, j.next, "the identity provider has refused: "+fault.Clip(code))
		return
	}
	subject, err := u.Provider.Return(r.Context(), backTo(r), q.Get("code"), j.of("nonce"), j.of("verifier"))
	switch f := fault.As(err); {
	case err != nil && f.Kind == fault.Forbidden:
		u.offerSignIn(w, r, http.StatusUnauthorized, j.next, f.Detail)
	case err != nil:
		u.refuse(w, r, err)
	default:
		u.admit(w, r, subject, j.next)
	}
}

// admit opens a session for a subject that is an actor with a role; to others it says what an admin does about it. The
// session is named by a cookie that no request has which another site leads to, as the provider does: so the answer is
// a page of ours, which goes on by itself.
func (u *UI) admit(w http.ResponseWriter, r *http.Request, subject, to string) {
	issuer := u.Provider.Issuer()
	actor, err := u.Sessions.ActorOf(r.Context(), issuer, subject)
	if err != nil {
		u.refuse(w, r, err)
		return
	}
	if actor == "" {
		who, _ := json.Marshal(map[string]any{"oidc": map[string]string{"issuer": issuer, "subject": subject}})
		u.offerSignIn(w, r, http.StatusForbidden, to,
			fmt.Sprintf("you are subject %q of %s, which is no actor here. An admin of system makes it one, and then "+
				"a member of a context:", fault.Clip(subject), issuer),
			"postern api POST /actors -d '"+strings.ReplaceAll(string(who), "'", `'\''`)+"'",
			"postern context member CONTEXT ACTOR reader")
		return
	}
	roles, err := u.Sessions.RolesOf(r.Context(), actor)
	if err != nil {
		u.refuse(w, r, err)
		return
	}
	if len(roles) == 0 {
		u.offerSignIn(w, r, http.StatusForbidden, to,
			fmt.Sprintf("you are actor %s, which has a role in no context. An admin of one gives it one:", actor),
			"postern context member CONTEXT "+actor+" reader")
		return
	}
	cookie := u.setCookie(w, r, cookieName)
	err = u.Sessions.OpenActorSession(r.Context(), ofUI, actor, issuer, subject, hashOf(cookie), cookieLife)
	if err != nil {
		u.refuse(w, r, err)
		return
	}
	u.goOn(w, "You are signed in", to)
}
