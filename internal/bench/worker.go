package bench

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Nothing is a worker that does nothing: it is done at once, or, with an Inclusion, answers with a hash and
// says that it is included so much later. It counts how often it was called with each token.
type Nothing struct {
	Inclusion time.Duration
	Called    func(n int, at time.Time) // told of each call, with the number in the transaction's data; may be nil

	mu     sync.Mutex
	calls  int
	tokens map[string]time.Time
}

// Seen is what a worker has counted.
type Seen struct {
	Calls  int `json:"calls"`
	Tokens int `json:"tokens"` // different ones
}

// Seen tells how often the worker was called.
func (w *Nothing) Seen() Seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Seen{w.calls, len(w.tokens)}
}

// Handler serves the worker contract (S2.7), and its counts at /seen.
func (w *Nothing) Handler() http.Handler {
	w.tokens = map[string]time.Time{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /seen", func(rw http.ResponseWriter, _ *http.Request) { json.NewEncoder(rw).Encode(w.Seen()) })
	mux.HandleFunc("POST /dispatch/{type}", w.dispatch)
	mux.HandleFunc("POST /status/{type}", func(rw http.ResponseWriter, r *http.Request) {
		var in struct{ Token, Hash string }
		if json.NewDecoder(r.Body).Decode(&in) != nil {
			rw.WriteHeader(http.StatusBadRequest)
			return
		}
		json.NewEncoder(rw).Encode(w.status(in.Token + in.Hash))
	})
	mux.HandleFunc("POST /status:batch", func(rw http.ResponseWriter, r *http.Request) {
		var in struct{ Hashes []string }
		if json.NewDecoder(r.Body).Decode(&in) != nil {
			rw.WriteHeader(http.StatusBadRequest)
			return
		}
		out := struct {
			Statuses []map[string]any `json:"statuses"`
		}{[]map[string]any{}}
		for _, h := range in.Hashes {
			out.Statuses = append(out.Statuses, w.status(h))
		}
		json.NewEncoder(rw).Encode(out)
	})
	return mux
}

func (w *Nothing) dispatch(rw http.ResponseWriter, r *http.Request) {
	at := time.Now()
	var in struct {
		TxData  struct{ Data struct{ N int } }
		Postern struct{ Token string }
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	if w.Called != nil {
		w.Called(in.TxData.Data.N, at)
	}
	w.mu.Lock()
	w.calls++
	if _, again := w.tokens[in.Postern.Token]; !again {
		w.tokens[in.Postern.Token] = at
	}
	w.mu.Unlock()
	rw.Header().Set("Content-Type", "application/json")
	if w.Inclusion > 0 {
		fmt.Fprintf(rw, `{"hash": %s, "done": null, "error": null}`, strconv.Quote(in.Postern.Token))
		return
	}
	rw.Write([]byte(`{"done": {"noop": true}}`))
}

// status answers for a token, which is also the hash.
func (w *Nothing) status(token string) map[string]any {
	w.mu.Lock()
	at, ok := w.tokens[token]
	w.mu.Unlock()
	switch {
	case !ok:
		return map[string]any{"state": "unknown"}
	case time.Since(at) < w.Inclusion:
		return map[string]any{"state": "pending", "hash": token}
	}
	return map[string]any{"state": "included", "hash": token, "block_height": "1", "confirmations": 1}
}
