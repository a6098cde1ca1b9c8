package devnetworker

import (
	"encoding/json"
	"net/http"
	"time"
)

// Handler speaks the worker contract (S2.7). There is no /max-retries (404): the dispatcher's setting
// rules.
func (w *Worker) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /dispatch/{type}", w.postDispatch)
	mux.HandleFunc("POST /status/{type}", w.postStatus)
	mux.HandleFunc("POST /status:batch", w.postStatuses)
	mux.HandleFunc("POST /on-success/{type}", func(out http.ResponseWriter, r *http.Request) {
		if read(out, r, &call{}) {
			say(out, http.StatusOK, map[string]any{"noted": true})
		}
	})
	mux.HandleFunc("POST /on-failure/{type}", w.postFailure)
	mux.HandleFunc("GET /health", w.getHealth)
	return mux
}

func (w *Worker) postDispatch(out http.ResponseWriter, r *http.Request) {
	var c call
	if !read(out, r, &c) {
		return
	}
	if c.TxData.Type == "" {
		c.TxData.Type = r.PathValue("type")
	}
	if d := simulateOf(c.TxData.Data).pause(); d > 0 {
		select {
		case <-time.After(d):
		case <-r.Context().Done():
			return
		}
	}
	c.line = r.Header.Get("Postern-Line")
	a := w.dispatch(r.Context(), c)
	w.log.Debug("dispatch", "queue", c.Sender.Queue, "tx", c.transaction(), "attempt",
		c.Postern.Attempt, "sender", c.Sender.AccountID,
		"fence", c.Postern.Fence, "status", a.status, "answer", a.body)
	if a.body == nil {
		panic(http.ErrAbortHandler) // net/http closes the connection without a word
	}
	say(out, a.status, a.body)
}

func (w *Worker) postStatus(out http.ResponseWriter, r *http.Request) {
	var q struct{ Token, Hash string }
	if !read(out, r, &q) {
		return
	}
	if st, err := w.asked(r.Context(), q.Token, q.Hash); err != nil {
		say(out, http.StatusServiceUnavailable, map[string]any{"message": err.Error()})
	} else {
		say(out, http.StatusOK, st)
	}
}

func (w *Worker) postStatuses(out http.ResponseWriter, r *http.Request) {
	var q struct{ Hashes []string }
	if !read(out, r, &q) {
		return
	}
	if all, err := w.askedAll(r.Context(), q.Hashes); err != nil {
		say(out, http.StatusServiceUnavailable, map[string]any{"message": err.Error()})
	} else {
		say(out, http.StatusOK, map[string]any{"statuses": all})
	}
}

// postFailure gives up what is still pending. Told again, it finds nothing to do.
func (w *Worker) postFailure(out http.ResponseWriter, r *http.Request) {
	var c call
	if !read(out, r, &c) {
		return
	}
	if err := w.giveUp(r.Context(), c); err != nil {
		say(out, http.StatusServiceUnavailable, map[string]any{"message": err.Error()})
		return
	}
	say(out, http.StatusOK, map[string]any{"noted": true})
}

func (w *Worker) getHealth(out http.ResponseWriter, r *http.Request) {
	tokens, queues := w.memory.size()
	health := map[string]any{"ok": true, "ledger": w.cfg.Ledger, "tokens": tokens, "queues": queues}
	if h, err := w.ledger.Health(r.Context()); err != nil {
		health["ok"], health["message"] = false, err.Error()
	} else {
		health["chain"], health["height"] = h.Chain, h.Height
	}
	say(out, http.StatusOK, health)
}

// read reads a body of at most 2 MiB, else answers 400.
func read(out http.ResponseWriter, r *http.Request, into any) bool {
	if err := json.NewDecoder(http.MaxBytesReader(out, r.Body, 2<<20)).Decode(into); err != nil {
		say(out, http.StatusBadRequest, map[string]any{"message": "the body is not understood: " + err.Error()})
		return false
	}
	return true
}

func say(out http.ResponseWriter, status int, v any) {
	out.Header().Set("Content-Type", "application/json")
	out.WriteHeader(status)
	_ = json.NewEncoder(out).Encode(v) // an error means that the caller has left: it needs no answer
}
