package ui

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
)

// toldCookie carries what came of a lever over the redirect that answers its form, to whichever process shows the page
// then; toldMost is how long it may be with its name, as browsers count: they drop one that is longer, and say nothing.
// toldLife is for how many seconds it is kept.
const (
	toldCookie = "postern_ui_told"
	toldMost   = 4096
	toldLife   = 60
)

// told is what came of a lever, with the fields of its form, for the page at a URL.
type told struct {
	URL   string
	Said  *said
	Given map[string]string
}

// redirect answers a form whose lever was pulled: with a redirect to its page, which shows what came of it, so that a
// reload of the answer sends no form. false: the form is answered with the page, since it was refused or tried, or a
// cookie cannot hold what came of it.
func (v *visit) redirect(w http.ResponseWriter) bool {
	if !v.Said.OK || v.Said.Dry {
		return false
	}
	given, brief := maps.Clone(v.Given), *v.Said
	for _, own := range []string{"token", "key", "if_match", "if_none_match", "do", "lever", "ids", "next", "most"} {
		delete(given, own)
	}
	url := v.r.URL.RequestURI()
	text := v.sealed(&told{url, v.Said, given})
	if text == "" { // the audit has the reason, and the number of those that were refused is a fact
		brief.Refused = nil
		text = v.sealed(&told{url, &brief, map[string]string{"body": given["body"]}})
	}
	if text == "" {
		return false
	}
	v.setTold(w, text, toldLife)
	http.Redirect(w, v.r, url, http.StatusSeeOther)
	return true
}

// sealed is the value of the cookie; "": it would be too long.
func (v *visit) sealed(t *told) string {
	text, err := json.Marshal(t)
	text = append(v.seal(text), text...)
	if err != nil || base64.RawURLEncoding.EncodedLen(len(text))+len(toldCookie) > toldMost {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// seal is a MAC: a page of another port or of another name of this site may set the cookie, too. Its key is that of the
// session, which each process knows. Without sign-in it is that of this process, and no other one believes the cookie:
// there any page of this site may have drawn what names the browser.
func (v *visit) seal(text []byte) []byte {
	key := v.ui.key
	if v.who != nil {
		key = v.cookie
	}
	h := hmac.New(sha256.New, []byte(key))
	h.Write(text)
	return h.Sum(nil)
}

// hear takes up what came of a lever before the redirect to this page. It is shown once.
func (v *visit) hear(w http.ResponseWriter) {
	c, err := v.r.Cookie(toldCookie)
	if err != nil {
		return
	}
	var t told
	text, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil || len(text) < sha256.Size || !hmac.Equal(text[:sha256.Size], v.seal(text[sha256.Size:])) ||
		json.Unmarshal(text[sha256.Size:], &t) != nil || t.URL != v.r.URL.RequestURI() || t.Said == nil {
		return
	}
	v.Said, v.Given = t.Said, t.Given
	v.setTold(w, "", -1)
}

func (v *visit) setTold(w http.ResponseWriter, value string, life int) {
	http.SetCookie(w, &http.Cookie{
		Name:     toldCookie,
		Value:    value,
		Path:     "/ui",
		MaxAge:   life,
		HttpOnly: true,
		Secure:   !loopback(v.r.Host),
		SameSite: http.SameSiteStrictMode,
	})
}
