package worker

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
)

// most is how large the body of a call may be: Postern's own stay below 1 MiB.
const most = 2 << 20

// Handler speaks the worker contract, for a program that has a server of its own.
func (w *Worker) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /dispatch/{type}", w.postDispatch)
	mux.HandleFunc("POST /on-success/{type}", func(out http.ResponseWriter, r *http.Request) { w.postHook(out, r, "on-success") })
	mux.HandleFunc("POST /on-failure/{type}", func(out http.ResponseWriter, r *http.Request) { w.postHook(out, r, "on-failure") })
	mux.HandleFunc("POST /status/{type}", w.postStatus)
	mux.HandleFunc("POST /status:batch", w.postBatch)
	mux.HandleFunc("GET /max-retries/{type}", w.getMaxRetries)
	mux.HandleFunc("GET /health", w.getHealth)
	mux.HandleFunc("GET /metrics", w.getMetrics)
	return mux
}

func (w *Worker) postDispatch(out http.ResponseWriter, r *http.Request) {
	typ := r.PathValue("type")
	h, ok := w.handlers[typ]
	if !ok {
		// The one that is rolled out next may have it: nothing ends of it.
		say(out, http.StatusNotFound, fail(ClassBlocked, "unknown_type", "this worker has no handler for "+strconv.Quote(typ)))
		return
	}
	c, in, ok := w.read(out, r, "dispatch", typ)
	if !ok {
		return
	}
	end := w.counters.begin(typ)
	a, stale, repeat, err := w.execute(r.Context(), in, true, func(ctx context.Context, in Info) (Answer, error) { return h(ctx, in, c.TxData.Data, c.Result) })
	switch {
	case err != nil:
		end("left")
		panic(http.ErrAbortHandler) // net/http closes the connection without a word
	case stale:
		end("stale")
		w.log.Warn("a call with an old fence was refused", "type", typ, "queue", in.Queue, "line", in.Line, "token", in.Token,
			"fence", in.Fence)
		say(out, http.StatusConflict, fail(ClassAmbiguous, "stale_fence", "a higher fence came on this line: nothing was done"))
		return
	case repeat:
		end("repeated")
	case a.Error != nil:
		end(a.Error.Class)
		w.log.Info("dispatch", "type", typ, "token", in.Token, "queue", in.Queue, "class", a.Error.Class, "code", a.Error.Code, "error", a.Error.Message)
	case a.Hash != "":
		end("sent")
	default:
		end("done")
	}
	say(out, statusOf(a), a)
}

// statusOf is the HTTP status of an answer: the class is in the body, and callers who do not read it there
// find it here.
func statusOf(a Answer) int {
	if a.Error != nil {
		switch a.Error.Class {
		case ClassBlocked:
			return http.StatusServiceUnavailable
		case ClassAmbiguous:
			return http.StatusGatewayTimeout
		}
	}
	return http.StatusOK
}

func (w *Worker) postHook(out http.ResponseWriter, r *http.Request, verb string) {
	typ := r.PathValue("type")
	h, ok := w.hooks[verb+"/"+typ]
	if !ok {
		say(out, http.StatusNotFound, fail(ClassRejected, "no_hook", "this worker has no "+verb+" for "+strconv.Quote(typ)))
		return
	}
	c, in, ok := w.read(out, r, verb, typ)
	if !ok {
		return
	}
	a, err := w.remind(r.Context(), in, func(ctx context.Context, in Info) error { return h(ctx, in, c.TxData.Data, c.Result) })
	switch {
	case err != nil:
		panic(http.ErrAbortHandler)
	case a.Error != nil:
		w.counters.count("hooks_failed", typ)
		w.log.Warn("hook", "hook", verb, "type", typ, "token", in.Token, "error", a.Error)
		say(out, http.StatusServiceUnavailable, a)
	default:
		w.counters.count("hooks_done", typ)
		say(out, http.StatusOK, map[string]bool{"noted": true})
	}
}

func (w *Worker) postStatus(out http.ResponseWriter, r *http.Request) {
	var q struct{ Token, Hash string }
	if !w.readJSON(out, r, "status/"+r.PathValue("type"), &q) {
		return
	}
	var s Status
	var err error
	switch typ := r.PathValue("type"); {
	case q.Token != "":
		s, err = w.byToken(r.Context(), typ, q.Token)
	case q.Hash == "":
		say(out, http.StatusBadRequest, fail(ClassRejected, "bad_request", `neither token nor hash: want {"token": ...} or {"hash": ...}`))
		return
	case w.options.Status == nil:
		say(out, http.StatusNotImplemented, fail(ClassRejected, "no_status", "this worker cannot be asked after hashes"))
		return
	default:
		s, err = w.byHash(r.Context(), typ, q.Hash)
	}
	w.tell(out, err, func() any { return s.body() })
}

func (w *Worker) postBatch(out http.ResponseWriter, r *http.Request) {
	var q struct{ Hashes []string }
	if !w.readJSON(out, r, "status:batch", &q) {
		return
	}
	if w.options.Status == nil {
		say(out, http.StatusNotImplemented, fail(ClassRejected, "no_status", "this worker cannot be asked after hashes"))
		return
	}
	all, err := w.byHashes(r.Context(), q.Hashes)
	w.tell(out, err, func() any {
		bodies := make([]map[string]any, len(all))
		for i, s := range all {
			bodies[i] = s.body()
		}
		return map[string]any{"statuses": bodies}
	})
}

// tell answers a question; 503 where it could not be asked, which says nothing about the transaction.
func (w *Worker) tell(out http.ResponseWriter, err error, body func() any) {
	if err != nil {
		w.counters.count("questions_failed", "")
		say(out, http.StatusServiceUnavailable, map[string]string{"message": err.Error()})
		return
	}
	w.counters.count("questions", "")
	say(out, http.StatusOK, body())
}

func (w *Worker) getMaxRetries(out http.ResponseWriter, r *http.Request) {
	n, ok := w.maxRetries[r.PathValue("type")]
	if !ok {
		say(out, http.StatusNotFound, map[string]string{"message": "this worker leaves the number of retries to the dispatcher"})
		return
	}
	say(out, http.StatusOK, map[string]int{"max_retries": n})
}

func (w *Worker) getHealth(out http.ResponseWriter, r *http.Request) {
	_, err := w.store.Find(r.Context(), "health", "")
	if err == nil && w.options.Health != nil {
		err = w.options.Health(r.Context())
	}
	if err != nil {
		say(out, http.StatusServiceUnavailable, map[string]any{"ok": false, "message": err.Error()})
		return
	}
	say(out, http.StatusOK, map[string]any{"ok": true})
}

// read reads the body of a dispatch or hook; false: it was answered 4xx.
func (w *Worker) read(out http.ResponseWriter, r *http.Request, verb, typ string) (c wire, in Info, ok bool) {
	if !w.readJSON(out, r, verb+"/"+typ, &c) {
		return c, in, false
	}
	in = c.info(typ, r.Header)
	switch {
	case in.Token == "":
		say(out, http.StatusBadRequest, fail(ClassRejected, "bad_request", "the call has neither postern.token nor txData.uid: nothing names it"))
		return c, in, false
	case len(c.TxData.Data) == 0:
		c.TxData.Data = json.RawMessage("null")
	}
	return c, in, true
}

// readJSON reads a body, and believes it if it is signed as this worker wants it. It returns false when it has answered
// the call already. A call that it does not believe is blocked: nothing was done, and the call succeeds when it comes
// again after both ends have one secret.
func (w *Worker) readJSON(out http.ResponseWriter, r *http.Request, below string, into any) bool {
	body, err := io.ReadAll(http.MaxBytesReader(out, r.Body, most))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		say(out, http.StatusRequestEntityTooLarge, fail(ClassRejected, "too_large", "the body is longer than 2 MiB"))
		return false
	case err != nil:
		panic(http.ErrAbortHandler) // the caller broke off
	}
	if err := w.signed(r.Header, below, body); err != nil {
		w.counters.count("unsigned", "")
		w.log.Warn("a call was not believed", "call", below, "why", err)
		say(out, http.StatusUnauthorized, fail(ClassBlocked, "bad_signature", err.Error()))
		return false
	}
	if err := json.Unmarshal(body, into); err != nil {
		say(out, http.StatusBadRequest, fail(ClassRejected, "bad_request", "the body is not understood: "+err.Error()))
		return false
	}
	return true
}

func fail(class, code, message string) Answer {
	return Answer{Error: &Error{Class: class, Code: code, Message: message}}
}

func say(out http.ResponseWriter, status int, v any) {
	out.Header().Set("Content-Type", "application/json")
	out.WriteHeader(status)
	_ = json.NewEncoder(out).Encode(v) // an error means that the caller has left: it needs no answer
}
