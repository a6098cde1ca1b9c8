package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/postern-dev/postern/internal/telemetry"
)

// measure takes how long each request took, under the pattern of its route (what matches none is one route),
// and makes its span.
func (a *API) measure(next http.Handler) http.Handler {
	if a.Metrics == nil && a.Traces == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if visitOf(r.Context()).Ask { // it is only asked whether it may be done
			next.ServeHTTP(w, r)
			return
		}
		began, seen := time.Now(), middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		r, span := a.Traces.Request(r)
		next.ServeHTTP(seen, r)
		route := "none"
		if c := chi.RouteContext(r.Context()); c != nil && c.RoutePattern() != "" &&
			seen.Status() != http.StatusMethodNotAllowed {
			route = r.Method + " " + c.RoutePattern()
		}
		status := seen.Status()
		if status == 0 { // nothing was written: the handler panicked, or the client had left
			status = 499
		}
		a.Metrics.Served(route, status, time.Since(began))
		span.Answered(route, status)
	})
}

// traced is the traceparent that a transaction keeps: that of the request's own span, or the client's where
// no spans are made.
func traced(ctx context.Context, client string) string {
	return cmp.Or(telemetry.Traceparent(ctx), client)
}
