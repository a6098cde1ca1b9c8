package ui

import (
	"context"
	"crypto/rand"
	"embed"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/actors"
	"github.com/postern-dev/postern/internal/safe"
)

// Config is what a dashboard needs.
type Config struct {
	API http.Handler // of this process
	// Visiting marks the requests of a context as made for who is signed in; nil: for development mode. ask: the API
	// says whether the request may be made, and does nothing.
	Visiting func(ctx context.Context, who *actors.SignedIn, ask bool) context.Context
	// ParseKey takes an API key apart: its prefix, and the hash that is kept of it.
	ParseKey func(string) (prefix string, hash []byte, ok bool)
	Sessions *actors.Store    // nil with Auth "none"
	Provider Provider         // nil: people sign in with keys alone
	Auth     string           // "none": no session is needed
	Home     bool             // GET / leads to the dashboard
	Dev      bool             // offers forms that post, and that move the clock where the API lets one
	Log      *slog.Logger     // nil for none
	Now      func() time.Time // the time by which the API decides, which a debug clock moves; nil: that of this process
	Every    time.Duration    // how often pages that are looked at are read again, all of them together; 0: a second
	Stop     <-chan struct{}  // closed when the process begins to stop: streams end
}

// UI serves the dashboard.
type UI struct {
	Config
	mux      *http.ServeMux
	contract contract
	sessions memory
	live     live
	key      string // of this process

	templates func() map[string]*template.Template
}

//go:embed assets
var assets embed.FS

// New builds the dashboard. It does no I/O.
func New(c Config) *UI {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Every == 0 {
		c.Every = time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	u := &UI{Config: c, mux: http.NewServeMux(), key: rand.Text()}
	u.live.ui = u
	u.templates = sync.OnceValue(u.parse)
	files, err := fs.Sub(assets, "assets")
	if err != nil {
		panic(err) // they are a part of the program
	}
	u.mux.Handle("GET /ui/assets/", http.StripPrefix("/ui/assets/", cached(http.FileServerFS(files))))
	u.mux.HandleFunc("GET /ui/sign-in", u.showSignIn)
	u.mux.HandleFunc("POST /ui/sign-in", u.signIn)
	u.mux.HandleFunc("POST /ui/sign-out", u.signOut)
	if u.Provider != nil && u.Auth != "none" {
		u.mux.HandleFunc("GET /ui/oidc/begin", u.leave)
		u.mux.HandleFunc("GET "+callback, u.comeBack)
	}
	u.mux.HandleFunc("GET /ui/{$}", u.home)
	u.mux.Handle("GET /ui", http.RedirectHandler("/ui/", http.StatusSeeOther))
	u.mux.HandleFunc("/ui/c/{context}/{noun}", u.page)
	u.mux.HandleFunc("/ui/c/{context}/{noun}/{name}", u.page)
	u.mux.HandleFunc("/ui/c/{context}/{noun}/{name}/{sub}", u.page)
	u.mux.HandleFunc("/ui/c/{context}/{noun}/{name}/{sub}/{id}", u.page)
	u.mux.HandleFunc("/ui/c/{context}/{$}", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/ui/c/"+r.PathValue("context")+"/now", http.StatusSeeOther)
	})
	u.mux.HandleFunc("/ui/", func(w http.ResponseWriter, r *http.Request) {
		u.refuse(w, r, fault.New(fault.NotFound, "not_found", "there is no page %s", fault.Clip(r.URL.Path)))
	})
	return u
}

// Beside serves the dashboard, and leaves all other paths to next.
func (u *UI) Beside(next http.Handler) http.Handler {
	own := http.NewCrossOriginProtection().Handler(u.mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case u.Home && path == "/" && (r.Method == http.MethodGet || r.Method == http.MethodHead):
			http.Redirect(w, r, "/ui/", http.StatusSeeOther)
		case path == "/ui" || strings.HasPrefix(path, "/ui/"):
			u.serve(own, w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// policy is what a browser may load and do for a page: what this process serves.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// most and slow bound what a form may send, and how long a browser may take to send it and to read an answer, which
// takes as long as the API's at most.
const (
	most = 1 << 20
	slow = 60 * time.Second
)

// serve answers a request for a page within its bounds. A panic ends the request alone.
func (u *UI) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	h, conn := w.Header(), http.NewResponseController(w)
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	r.Body = http.MaxBytesReader(w, r.Body, most)
	_ = conn.SetReadDeadline(time.Now().Add(slow))
	_ = conn.SetWriteDeadline(time.Now().Add(slow))
	defer func() {
		v := recover()
		switch {
		case v == nil:
		case v == http.ErrAbortHandler: //nolint:errorlint // thrown as it is
			panic(v)
		default:
			u.Log.Error("a page failed", "path", r.URL.Path, "error", safe.Told("page", v))
			http.Error(w, "something went wrong on our side; the log says what", http.StatusInternalServerError)
		}
	}()
	next.ServeHTTP(w, r)
}

// cached lets browsers keep the files of the program for an hour.
func cached(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=3600")
		next.ServeHTTP(w, r)
	})
}

// home leads to the first page of the context that is meant where none is named.
func (u *UI) home(w http.ResponseWriter, r *http.Request) {
	v := u.visit(w, r)
	if v == nil {
		return
	}
	if err := v.whereabouts(); err != nil {
		u.refuse(w, r, err)
		return
	}
	http.Redirect(w, r, "/ui/c/"+v.Home+"/now", http.StatusSeeOther)
}

// stopped says whether the process is about to end.
func (u *UI) stopped(ctx context.Context) bool {
	select {
	case <-u.Stop:
		return true
	case <-ctx.Done():
		return true
	default:
		return false
	}
}
