package httpapi

import (
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
)

// measure takes how long each request took, under the pattern of its route: what matches none is one route.
func (a *API) measure(next http.Handler) http.Handler {
	if a.Metrics == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began, seen := time.Now(), middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		next.ServeHTTP(seen, r)
		route := "none"
		if c := chi.RouteContext(r.Context()); c != nil && c.RoutePattern() != "" && seen.Status() != http.StatusMethodNotAllowed {
			route = r.Method + " " + c.RoutePattern()
		}
		status := seen.Status()
		if status == 0 { // nothing was written: the handler panicked, or the client had left
			status = 499
		}
		a.Metrics.Served(route, status, time.Since(began))
	})
}
