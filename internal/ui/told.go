package ui

import (
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
	text := (&told{url, v.Said, given}).text()
	if text == "" { // the audit has the reason, and the number of those that were refused is a fact
		brief.Refused = nil
		text = (&told{url, &brief, map[string]string{"body": given["body"]}}).text()
	}
	if text == "" {
		return false
	}
	v.setTold(w, text, toldLife)
	http.Redirect(w, v.r, url, http.StatusSeeOther)
	return true
}

// text is the value of the cookie; "": it would be too long.
func (t *told) text() string {
	text, err := json.Marshal(t)
	if err != nil || base64.RawURLEncoding.EncodedLen(len(text))+len(toldCookie) > toldMost {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// hear takes up what came of a lever before the redirect to this page. It is shown once.
func (v *visit) hear(w http.ResponseWriter) {
	c, err := v.r.Cookie(toldCookie)
	if err != nil {
		return
	}
	var t told
	text, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil || json.Unmarshal(text, &t) != nil || t.URL != v.r.URL.RequestURI() || t.Said == nil {
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
