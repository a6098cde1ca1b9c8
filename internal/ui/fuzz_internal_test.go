package ui

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
)

// A sign-in leads to a page below /ui of this server, and to no page for signing in or out, as a browser reads it.
func FuzzNext(f *testing.F) {
	for _, s := range []string{"", "/ui/", "/ui/queues/a?b#c", "//evil/ui/", "https://evil/ui/", `/\evil/ui/`,
		"/ui/../livez",
		"/ui/%2e%2e/livez", "/ui/a..b", "%2fui/", "/%75i/", "/ui/sign-out", "/ui/./sign-out", "/ui/oidc/callback",
		"///evil/ui/",
		"/ui/\t//evil", "javascript:/ui/", "/ui", "ui/", "/ui/?to=//evil", "/ui/" + strings.Repeat("a", 2000),
		"/ui//evil"} {
		f.Add(s)
	}
	base, _ := url.Parse("https://postern.example/ui/sign-in")
	f.Fuzz(func(t *testing.T, to string) {
		got := next(to)
		if got != to && got != "/ui/" {
			t.Errorf("%q leads to %q", to, got)
		}
		u, err := base.Parse(got)
		if err != nil || u.Host != base.Host || u.Scheme != base.Scheme || !strings.HasPrefix(u.Path, "/ui/") ||
			strings.HasPrefix(u.Path, "/ui/sign-") || strings.HasPrefix(u.Path, "/ui/oidc/") ||
			strings.ContainsAny(got, "\\\n\r\t") {
			t.Errorf("%q leads to %v: %v", to, u, err)
		}
		if again := next(got); again != got {
			t.Errorf("%q leads to %q, and that to %q", to, got, again)
		}
	})
}

// An end of a lever is shown only if this process has sealed it for this page, and then as it was.
func FuzzTold(f *testing.F) {
	u := &UI{key: "a key of this process"}
	page := func(cookie string) *visit {
		r := httptest.NewRequest(http.MethodGet, "/ui/queues/a", nil)
		r.Header.Set("Cookie", toldCookie+"="+cookie)
		return &visit{ui: u, r: r}
	}
	right := page("").sealed(&told{"/ui/queues/a", &said{OK: true, Text: "t"}, map[string]string{"a": "b"}})
	for _, s := range []string{"", right, right[:len(right)-1], right + "A", "A" + right[1:],
		page("").sealed(&told{"/ui/queues/b", &said{OK: true}, nil}), page("").sealed(&told{"/ui/queues/a", nil, nil}),
		base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat("x",
			32) + `{"URL":"/ui/queues/a","Said":{"OK":true}}`))} {
		f.Add(s, "text")
	}
	f.Fuzz(func(t *testing.T, cookie, text string) {
		v := page(cookie)
		v.hear(httptest.NewRecorder())
		sent, _ := v.r.Cookie(toldCookie)
		if v.Said != nil && (sent == nil || sent.Value != right) {
			t.Errorf("%q shows %+v", cookie, v.Said)
		}
		sealed := page("").sealed(&told{"/ui/queues/a", &said{Text: text}, nil})
		if sealed == "" {
			return
		}
		v = page(sealed)
		v.hear(httptest.NewRecorder())
		if v.Said == nil || v.Said.Text != strings.ToValidUTF8(text, "\uFFFD") && strings.ToValidUTF8(text,
			"") == text {
			t.Errorf("%q is shown as %+v", text, v.Said)
		}
	})
}

// A sign-in that is answered is the one that the browser began, with the state of its secret, and leads to our pages.
func FuzzBegun(f *testing.F) {
	j := journey{secret: "s", next: "/ui/a"}
	path := base64.RawURLEncoding.EncodeToString([]byte("/ui/a"))
	f.Add("s."+path, j.of("state"))
	f.Add("s."+path, journey{secret: "t"}.of("state"))
	f.Add("."+path, journey{}.of("state"))
	f.Add("s", j.of("state"))
	f.Add("s."+base64.RawURLEncoding.EncodeToString([]byte("//evil")), j.of("state"))
	f.Add("", "")
	f.Add("s.=", j.of("nonce"))
	f.Fuzz(func(t *testing.T, cookie, state string) {
		r := httptest.NewRequest(http.MethodGet, callback+"?"+url.Values{"state": {state}}.Encode(), nil)
		r.Header.Set("Cookie", awayCookie+"="+cookie)
		j := begun(r)
		if j == nil {
			return
		}
		sent, err := r.Cookie(awayCookie)
		if err != nil || j.secret == "" || !strings.HasPrefix(sent.Value, j.secret) || state != j.of("state") ||
			next(j.next) != j.next {
			t.Errorf("%q with the state %q is %+v", cookie, state, j)
		}
	})
}

// The body of a form is JSON with what the form brought along and with its fields, or it is refused as malformed.
func FuzzLeverBody(f *testing.F) {
	for _, c := range [][3]string{{`{"a":1}`, "7", `{"x":[1]}`}, {"", "", ""}, {"null", "x", "null"}, {"[]", "1", "1"},
		{"", `"x"`, ""},
		{`{"a":1} {}`, "1e3", `"`}, {`{"n":{}}`, "01", `{"a":1} {}`}, {`{"a":12345678901234567890}`, "-", "\xff"}} {
		f.Add(c[0], c[1], c[2])
	}
	o := &operation{fields: []field{{Name: "n", Integer: true}, {Name: "j", JSON: true}, {Name: "z", Null: true}}}
	f.Fuzz(func(t *testing.T, body, number, text string) {
		form := url.Values{"body": {body}, "n": {number}, "j": {text}, "z": {text}, "token": {"secret"}}
		read, err := bodyOf(o, form)
		if err != nil {
			if fault.CodeOf(err) != "malformed_json" {
				t.Errorf("%q: %v", form, err)
			}
			return
		}
		raw, err := json.Marshal(read)
		var said map[string]json.RawMessage
		if err == nil {
			err = json.Unmarshal(raw, &said)
		}
		switch {
		case err != nil:
			t.Errorf("%q cannot be sent: %v", form, err)
		case number == "7" && string(said["n"]) != number, text == "null" && string(said["z"]) != "null",
			text != "" && said["j"] == nil:
			t.Errorf("%q is sent as %s", form, raw)
		}
	})
}
