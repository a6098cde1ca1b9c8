package ui_test

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/httpapi"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/actors"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/ui"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// house is the real API with the dashboard beside it, over a real database, behind a real listener.
type house struct {
	t     *testing.T
	store *stores.Store
	url   string
	root  string // a key of an admin of system, where keys are wanted
	stop  chan struct{}
	said  *logged

	mu    sync.Mutex
	calls map[string]int // requests to the API, by method and path
	// plant stands between browsers and pages, where a test plants a fault; nil: nothing does
	plant func(w http.ResponseWriter, r *http.Request, next http.Handler)
}

func newHouse(t *testing.T, auth string, providers ...*idp) *house {
	t.Helper()
	t.Parallel()
	return houseOn(t, pgtest.New(t), auth, 50*time.Millisecond, providers...)
}

// houseOn is a house on a database, whose pages that are looked at are read again every so often.
func houseOn(t *testing.T, db *pgtest.DB, auth string, every time.Duration, providers ...*idp) *house {
	t.Helper()
	s := db.Store(t, 8)
	h := &house{t: t, store: s, calls: map[string]int{}, stop: make(chan struct{}), said: &logged{}}
	log := slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), h.said),
		&slog.HandlerOptions{Level: slog.LevelDebug}))
	local := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	c := httpapi.Config{
		Store:    s,
		Ingester: pg.NewIngester(s.Store),
		Log:      log,
		Auth:     auth,
		Version:  "test",
		Tools:    remote.New(remote.Config{AllowCIDR: local}),
	}
	for _, p := range providers {
		c.OIDC = httpapi.OIDC{
			Issuers:      []string{p.url},
			Audiences:    []string{"postern"},
			Client:       remote.Guarded(local, 10*time.Second),
			ClientID:     clientID,
			ClientSecret: clientSecret,
		}
	}
	api := httpapi.New(c)
	counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		h.calls[r.Method+" "+r.URL.Path]++
		h.mu.Unlock()
		api.Handler().ServeHTTP(w, r)
	})
	pages := ui.Config{
		API:      counted,
		Sessions: s.Actors,
		ParseKey: httpapi.ParseKey,
		Visiting: func(ctx context.Context, who *actors.SignedIn, ask bool) context.Context {
			return httpapi.Visiting(ctx, httpapi.Visit{Via: "ui", Who: who, Ask: ask})
		},
		Auth:  auth,
		Home:  true,
		Dev:   true,
		Log:   log,
		Every: every,
		Stop:  h.stop,
	}
	if flow := api.CodeFlow(); flow != nil {
		pages.Provider = flow
	}
	u := ui.New(pages)
	server := httptest.NewUnstartedServer(nil)
	server.Config = api.Server()
	pagesAndAPI := u.Beside(server.Config.Handler)
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		plant := h.plant
		h.mu.Unlock()
		if plant != nil {
			plant(w, r, pagesAndAPI)
			return
		}
		pagesAndAPI.ServeHTTP(w, r)
	})
	server.Start()
	t.Cleanup(server.Close)
	h.url = server.URL
	if auth != "none" {
		h.root = httpapi.DrawKey()
		prefix, hash, _ := httpapi.ParseKey(h.root)
		if _, err := s.Actors.BootstrapKey(t.Context(), prefix, hash); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// logged is what a log has said.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// called is how often the API was asked something.
func (h *house) called(what string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls[what]
}

// api asks the API from outside, and fails unless it answers well.
func (h *house) api(method, path, body string, headers ...string) map[string]any {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), method, h.url+path, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if h.root != "" {
		r.Header.Set("Authorization", "Bearer "+h.root)
	}
	for _, x := range headers {
		name, value, _ := strings.Cut(x, ": ")
		r.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	if res.StatusCode >= 400 {
		h.t.Fatalf("%s %s: %d %s", method, path, res.StatusCode, text)
	}
	var out map[string]any
	_ = json.Unmarshal(text, &out)
	return out
}

// key makes an API key of a role in a context.
func (h *house) key(context, role string) string {
	h.t.Helper()
	body := fmt.Sprintf(`{"name": "%s-of-%s", "role": %q}`, role, context, role)
	k := h.api("POST", "/api-keys", body, "Postern-Context: "+context)
	return fmt.Sprint(k["secret"])
}

// browser is one who looks at pages. It keeps cookies, and follows no redirect.
type browser struct {
	h      *house
	client *http.Client
}

func (h *house) browser() *browser {
	return &browser{h, &http.Client{
		Jar:           &jar{cookies: map[string]*http.Cookie{}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// jar keeps cookies as a browser does, by their paths, none that is longer than 4096 bytes, and also those that are for
// secure connections.
type jar struct {
	mu      sync.Mutex
	cookies map[string]*http.Cookie
}

func (j *jar) SetCookies(_ *url.URL, list []*http.Cookie) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range list {
		if len(c.Name)+len(c.Value) > 4096 {
			continue
		}
		if j.cookies[c.Name] = c; c.MaxAge < 0 {
			delete(j.cookies, c.Name)
		}
	}
}

func (j *jar) Cookies(u *url.URL) (list []*http.Cookie) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range j.cookies {
		if u.Path == c.Path || strings.HasPrefix(u.Path, strings.TrimSuffix(c.Path, "/")+"/") {
			list = append(list, c)
		}
	}
	return list
}

// seen is a page as it was answered.
type seen struct {
	status int
	header http.Header
	text   string
}

func (b *browser) do(r *http.Request) seen {
	b.h.t.Helper()
	res, err := b.client.Do(r)
	if err != nil {
		b.h.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		b.h.t.Fatal(err)
	}
	return seen{res.StatusCode, res.Header, string(text)}
}

func (b *browser) get(path string) seen {
	b.h.t.Helper()
	r, err := http.NewRequestWithContext(b.h.t.Context(), "GET", b.h.url+path, nil)
	if err != nil {
		b.h.t.Fatal(err)
	}
	return b.do(r)
}

// post sends a form, and goes where the answer leads if that is the page of the form. headers come as "Name: value".
func (b *browser) post(path string, form url.Values, headers ...string) seen {
	b.h.t.Helper()
	s := b.send(path, form, headers...)
	if s.status == http.StatusSeeOther && s.header.Get("Location") == path {
		return b.get(path)
	}
	return s
}

// send sends a form.
func (b *browser) send(path string, form url.Values, headers ...string) seen {
	b.h.t.Helper()
	r, err := http.NewRequestWithContext(b.h.t.Context(), "POST", b.h.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.h.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for _, x := range headers {
		name, value, _ := strings.Cut(x, ": ")
		r.Header.Set(name, value)
	}
	return b.do(r)
}

// signIn exchanges a key for a session.
func (b *browser) signIn(key string) *browser {
	b.h.t.Helper()
	p := b.get("/ui/sign-in")
	s := b.post("/ui/sign-in", url.Values{"token": {p.input("token")}, "key": {key}})
	if s.status != http.StatusSeeOther {
		b.h.t.Fatalf("sign in: %d %s", s.status, s.text)
	}
	return b
}

var inputs = regexp.MustCompile(`<input[^>]*>`)

// input is the value of the first hidden field of a name.
func (s seen) input(name string) string {
	for _, tag := range inputs.FindAllString(s.text, -1) {
		if strings.Contains(tag, `name="`+name+`"`) {
			_, rest, _ := strings.Cut(tag, `value="`)
			value, _, _ := strings.Cut(rest, `"`)
			return unescaped(value)
		}
	}
	return ""
}

func unescaped(s string) string {
	return html.UnescapeString(s)
}

var forms = regexp.MustCompile(`(?s)<form method="post".*?</form>`)

// form is the one of a lever, as a browser would send it; nil: the page has none.
func (s seen) form(lever string) url.Values {
	for _, text := range forms.FindAllString(s.text, -1) {
		f := seen{text: text}
		if f.input("lever") != lever {
			continue
		}
		v := url.Values{}
		for _, tag := range inputs.FindAllString(text, -1) {
			_, rest, _ := strings.Cut(tag, `name="`)
			name, _, _ := strings.Cut(rest, `"`)
			v.Set(name, f.input(name))
		}
		return v
	}
	return nil
}

// levers are those that a page has forms for.
func (s seen) levers() (list []string) {
	for _, text := range forms.FindAllString(s.text, -1) {
		if l := (seen{text: text}).input("lever"); l != "" {
			list = append(list, l)
		}
	}
	return list
}
