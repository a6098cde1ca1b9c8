package httpapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
)

// What a token says of itself is the text iss and the text or the list of texts aud of the object in its middle, or it
// is no token. Nothing is taken from one that is none.
func FuzzClaims(f *testing.F) {
	for _, s := range []string{`{"iss":"https://a","aud":"b"}`, `{"iss":"https://a","aud":["b","c"]}`, `{"iss":7}`,
		`{"iss":"a","aud":7}`, `{"iss":"a","aud":[7]}`, `{"iss":"a","aud":{}}`, `{"iss":null,"aud":null}`, `[]`, `null`,
		`{"ISS":"a"}`, `{"iss":"a","iss":"b"}`, `{"iss":"a"} x`, ``} {
		f.Add("e30." + base64.RawURLEncoding.EncodeToString([]byte(s)) + ".AAAA")
	}
	f.Add("e30.e30")
	f.Add("..")
	f.Add("a.b=.c")
	f.Fuzz(func(t *testing.T, token string) {
		c, ok := claimsOf(token)
		if !ok {
			if c.Issuer != "" || c.Audience != nil {
				t.Errorf("%q is no token, and says %+v", token, c)
			}
			return
		}
		parts := strings.Split(token, ".")
		payload, err := base64.RawURLEncoding.DecodeString(parts[1])
		var said map[string]any
		if err != nil || len(parts) != 3 || json.Unmarshal(payload, &said) != nil {
			t.Fatalf("%q is a token", token)
		}
		for name, value := range said {
			list, isList := value.([]any)
			_, isText := value.(string)
			texts := func(v any) bool { _, is := v.(string); return v == nil || is }
			switch {
			case value == nil:
			case strings.EqualFold(name, "iss") && !isText,
				strings.EqualFold(name, "aud") && !isText && !isList,
				strings.EqualFold(name, "aud") && slices.ContainsFunc(list, func(v any) bool { return !texts(v) }):
				t.Errorf("%s is taken, with %s %v", payload, name, value)
			case name == "iss" && len(said) == 1 && c.Issuer != value:
				t.Errorf("%s is by %q", payload, c.Issuer)
			}
		}
	})
}

// The URL that somebody has signed is that of this server: it begins with the public URL, or its host is the address
// that the connection leads to.
func FuzzTarget(f *testing.F) {
	for _, c := range [][3]string{{"/a?b", "127.0.0.1:7411", "127.0.0.1:7411"}, {"/", "LOCALHOST:7411", "[::1]:7411"},
		{"/", "[::1]:7411", "[::1]:7411"}, {"/", "10.0.0.1", "10.0.0.1:80"}, {"//evil/", "10.0.0.1:1", "10.0.0.1:1"},
		{"http://evil/", "127.0.0.1:1", "127.0.0.1:1"}, {"/", "evil:1", "127.0.0.1:1"}, {"/", "127.0.0.1:1@evil",
			"127.0.0.1:1"},
		{"/", "[::ffff:10.0.0.1]:1", "10.0.0.1:1"}, {"/", "127.0.0.1:01", "127.0.0.1:1"}, {"*", "", ""}} {
		f.Add(c[0], c[1], c[2], "")
		f.Add(c[0], c[1], c[2], "https://postern.example/")
	}
	f.Fuzz(func(t *testing.T, uri, host, local, public string) {
		at, err := netip.ParseAddrPort(local)
		ctx := context.Background()
		if err == nil {
			ctx = context.WithValue(ctx, http.LocalAddrContextKey, net.Addr(net.TCPAddrFromAddrPort(at)))
		}
		r := (&http.Request{RequestURI: uri, Host: host}).WithContext(ctx)
		a := &API{Config: Config{PublicURL: public}}
		target, refused := a.target(r)
		if refused != nil {
			if fault.CodeOf(refused) != "unauthenticated" || target != "" {
				t.Errorf("%q at %q: %q, %v", uri, host, target, refused)
			}
			return
		}
		if uri[0] != '/' || !strings.HasSuffix(target, uri) {
			t.Errorf("%q at %q is %q", uri, host, target)
		}
		if public != "" {
			if target != strings.TrimSuffix(public, "/")+uri {
				t.Errorf("%q below %q is %q", uri, public, target)
			}
			return
		}
		u, broken := url.Parse(strings.TrimSuffix(target, uri))
		if broken != nil { // no URL leads anywhere
			return
		}
		ip, _ := netip.ParseAddr(u.Hostname())
		same := ip == at.Addr().Unmap() || at.Addr().Unmap().IsLoopback() && loopback(u.Hostname())
		if port := u.Port(); err != nil || !same || u.User != nil || port != itoa(int(at.Port())) && (port != "" ||
			at.Port() != 80) {
			t.Errorf("%q at %q is %q, of %s", uri, host, target, local)
		}
	})
}

// An origin is that of a host if its own is that host; no page that hides its origin has one.
func FuzzOwnOrigin(f *testing.F) {
	for _, c := range [][2]string{{"http://localhost:1", "localhost:1"}, {"null", "null"}, {"", ""}, {"localhost:1",
		"localhost:1"},
		{"http://LOCALHOST:1", "localhost:1"}, {"http://localhost:1.evil", "localhost:1"}, {"http://localhost:1@evil",
			"localhost:1"},
		{"file://", ""}, {"//localhost", "localhost"}, {"http://[::1]:1", "[::1]:1"}} {
		f.Add(c[0], c[1])
	}
	f.Fuzz(func(t *testing.T, origin, host string) {
		if !ownOrigin(origin, host) {
			return
		}
		_, rest, slashes := strings.Cut(origin, "//")
		rest = rest[:len(rest)-len(strings.TrimLeft(rest, "/"))] + strings.TrimLeft(rest, "/")
		authority := rest
		if i := strings.IndexAny(rest, "/?#"); i >= 0 {
			authority = rest[:i]
		}
		if i := strings.LastIndexByte(authority, '@'); i >= 0 {
			authority = authority[i+1:]
		}
		if plain, err := url.PathUnescape(authority); err == nil {
			authority = plain
		}
		if origin == "null" || host == "" || !slashes || !strings.EqualFold(authority, host) {
			t.Errorf("%q is an own origin of %q", origin, host)
		}
	})
}

// A body is read as JSON, or at one path as JSON by lines, and never as what a page may send unasked; the refusal shows
// what was said.
func FuzzMedia(f *testing.F) {
	for _, s := range []string{"", "application/json", "APPLICATION/JSON; charset=utf-8",
		"application/merge-patch+json",
		"text/plain", "text/plain;x=+json", "multipart/form-data; boundary=+json", "application/x-ndjson",
		"application/json;",
		"application/json; a", "application/json, text/plain", "+json", "application/x-www-form-urlencoded"} {
		f.Add(s, batchPath)
		f.Add(s, "/queues")
	}
	unasked := []string{"text/plain", "multipart/form-data", "application/x-www-form-urlencoded"}
	f.Fuzz(func(t *testing.T, said, path string) {
		r := &http.Request{Header: http.Header{"Content-Type": {said}}, URL: &url.URL{Path: path}}
		media, err := mediaOf(r)
		if err != nil {
			if fault.CodeOf(err) != "unsupported_media_type" || media != "" {
				t.Errorf("%q: %q, %v", said, media, err)
			}
			return
		}
		if media != "application/json" && (media != ndjson || path != batchPath) {
			t.Errorf("%q at %s is %q", said, path, media)
		}
		name, _, _ := strings.Cut(strings.ToLower(said), ";")
		if name = strings.TrimSpace(name); slices.Contains(unasked, name) {
			t.Errorf("%q, which a page may send, is read as %q", said, media)
		}
		if parsed, _, err := mime.ParseMediaType(said); said != "" && (err != nil || media == ndjson &&
			parsed != ndjson) {
			t.Errorf("%q is %q", said, media)
		}
		r.Header.Set("Content-Type", media)
		if again, err := mediaOf(r); err != nil || again != media {
			t.Errorf("%q is %q, which is %q: %v", said, media, again, err)
		}
	})
}
