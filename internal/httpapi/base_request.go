package httpapi

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/safe"
)

// scope is who asks, in which context, under which id.
type scope struct {
	Context   *pg.Context // nil for what is about none
	Actor     string
	RequestID string

	who   *principal            // nil: no credential is needed
	anew  anew                  // looks who up again
	op    *huma.Operation       // that was asked for
	via   string                // the door, "" for http
	named string                // the context that was asked for
	match func(tag string) bool // of If-Match, nil without
	query url.Values            // of the request

	opened bool // registration is open, and lets it in: the thing that it is about is not there yet

	reason string // of the query
	timed  *timed // its answer
}

type scopeKey struct{}

func scopeOf(ctx context.Context) *scope {
	if s, ok := ctx.Value(scopeKey{}).(*scope); ok {
		return s
	}
	return &scope{}
}

// by says who pulls a lever, and why: by the body, or else the query.
func by(ctx context.Context, reason string) db.By {
	s := scopeOf(ctx)
	or(&reason, s.reason)
	via := s.via
	or(&via, "http")
	who := db.By{Actor: s.Actor, Via: via, Reason: reason, RequestID: s.RequestID, Match: s.match}
	if s.Context != nil {
		who.Context = s.Context.ID
	}
	if s.who != nil {
		who.Still = s.who.still
	}
	return who
}

func contextID(ctx context.Context) int32 { return scopeOf(ctx).Context.ID }

func itoa(n int) string { return strconv.Itoa(n) }

// identify gives the request an id, and its times.
func (a *API) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := &scope{query: r.URL.Query()}
		ctx, giveUp := context.WithCancel(context.WithValue(r.Context(), scopeKey{}, s))
		defer giveUp()
		r = r.WithContext(ctx)
		if id, err := uuid.NewV7(); err == nil {
			s.RequestID = id.String()
		}
		w.Header().Set("Postern-Request-Id", s.RequestID)
		s.timed = a.time(w, r, s, giveUp)
		defer s.timed.end()
		next.ServeHTTP(s.timed, r)
		s.timed.drop()
	})
}

// recover answers 500 where a handler panics; the log has the stack. Where the answer has begun, the client sees that
// it breaks off.
func (a *API) recover(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen, measured := w.(middleware.WrapResponseWriter)
		if !measured {
			seen = middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		}
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if v == http.ErrAbortHandler { //nolint:errorlint // thrown as it is
				panic(v)
			}
			if answer, ok := v.(unencodable); ok && seen.Status() == 0 {
				for _, of := range []string{"ETag", "Location", "Idempotent-Replay", "Preference-Applied"} {
					w.Header().Del(of)
				}
				a.refuse(w, r, answer.error)
				return
			}
			told := safe.Told("request", v)
			if seen.Status() != 0 {
				panic(http.ErrAbortHandler)
			}
			a.refuse(w, r, told)
		}()
		next.ServeHTTP(seen, r)
	})
}

// guard refuses what no handler should see: in development mode a foreign Host (DNS rebinding) or Origin
// (a web page), and always what is no UTF-8 text in path or query.
func (a *API) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.Auth == "none" {
			if !loopback(r.Host) {
				a.refuse(w, r, fault.New(fault.Forbidden, "forbidden",
					"host %q: development mode answers as localhost, 127.0.0.1 or [::1] only", fault.Clip(r.Host)))
				return
			}
			if o := r.Header.Get("Origin"); o != "" && !ownOrigin(o, r.Host) {
				a.refuse(w, r, fault.New(fault.Forbidden, "forbidden",
					"origin %q: development mode answers no foreign pages", fault.Clip(o)))
				return
			}
		}
		query, err := url.QueryUnescape(r.URL.RawQuery)
		if text := r.URL.Path + query; err != nil || !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			a.refuse(w, r, fault.New(fault.Invalid, "invalid",
				"path and query must be UTF-8 without NUL, rightly escaped"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func loopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	switch strings.ToLower(strings.Trim(host, "[]")) {
	case "localhost", "127.0.0.1", "::1":
		return true
	}
	return false
}

func ownOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}

// open says whether a path needs no credential: every client may read it, or a peer signs the request instead (below
// its own path).
func open(path string) bool {
	return slices.Contains([]string{"/livez", "/readyz", "/openapi.json", "/openapi.yaml"}, path) ||
		peerPath.MatchString(path) || doorPath.MatchString(path)
}

var peerPath = regexp.MustCompile(`^/contexts/[^/]+/processors/[^/]+/peers/[^/]+/`)
