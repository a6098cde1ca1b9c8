package httpapi

import (
	"log/slog"
	"net/http"
	"time"
)

// Server is an HTTP server of the API, with the limits of what net/http reads by itself.
func (a *API) Server() *http.Server {
	return &http.Server{
		Handler:                      a.router,
		ReadHeaderTimeout:            seconds(a.Limits.HeadersRead),
		MaxHeaderBytes:               a.Limits.Headers,
		IdleTimeout:                  time.Minute,
		DisableGeneralOptionsHandler: true, // it reads a body for as long as one comes
		ErrorLog:                     slog.NewLogLogger(a.Log.Handler(), slog.LevelDebug),
	}
}

// Leave is the beginning of the end, for those who are to find another process: /readyz fails, who waits gets the
// present state at once, streams end and say when to come back, and each answer closes its connection. Everything else
// still works, posts included.
func (a *API) Leave() {
	if !a.leaving.Swap(true) {
		a.waits.close()
		a.news.close()
	}
}

// Drain is Leave, and new posts are answered 503 draining from now on.
func (a *API) Drain() {
	a.Leave()
	a.drained.Store(true)
}
