package app

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// probes adds GET /livez and GET /readyz to the port of the metrics, since a process that only dispatches has
// no other. They answer as those of the API do: livez as long as the process can, readyz 503 where a check
// fails, and while the process starts or stops.
func (a *App) probes(mux *http.ServeMux, version string) {
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "live", "version": version})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
		defer cancel()
		checks := a.checks(ctx)
		ready, status := true, http.StatusOK
		for _, c := range checks {
			if !c.OK {
				ready, status = false, http.StatusServiceUnavailable
			}
		}
		writeJSON(w, status, map[string]any{"ready": ready, "checks": checks})
	})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // an error means that the caller has gone
}
