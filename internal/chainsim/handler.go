package chainsim

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
)

// call is the body of a dispatch or hook, as far as the chain reads it (S2.7).
type call struct {
	TxData struct {
		UID, Type string
		Data      json.RawMessage
	} `json:"txData"`
	Sender struct {
		AccountID string `json:"accountId"`
		Queue     string
	}
	Postern struct {
		Token          string
		Fence          int64
		Fee            string
		PreviousHashes []string `json:"previous_hashes"`
	}
}

// transaction is the id that the token begins with; reference callers have none, theirs is the uid.
func (c call) transaction() string {
	id, _, _ := strings.Cut(c.Postern.Token, ".")
	if id == "" {
		return c.TxData.UID
	}
	return id
}

// queue names what fences are compared within: the queue that our id names, since two contexts may each
// have a queue of the same name.
func (c call) queue() string {
	if id, err := outbox.ParseID(c.transaction()); err == nil {
		return "#" + strconv.Itoa(id.Epoch) + "/" + strconv.FormatInt(id.Queue, 10)
	}
	return c.Sender.Queue
}

// Handler speaks the worker contract. There is no /max-retries (404): the dispatcher's setting rules.
func (s *Sim) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /dispatch/{type}", s.dispatch)
	mux.HandleFunc("POST /status/{type}", s.status)
	mux.HandleFunc("POST /status:batch", s.statusBatch)
	mux.HandleFunc("POST /on-success/{type}", s.hook)
	mux.HandleFunc("POST /on-failure/{type}", s.hook)
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) {
		say(w, http.StatusOK, map[string]any{"ok": true, "height": s.Stats().Height})
	})
	return mux
}

// dispatch executes a call, unless its token was executed before, its fence is old, or its data wants
// otherwise.
func (s *Sim) dispatch(w http.ResponseWriter, r *http.Request) {
	var c call
	if !read(w, r, &c) {
		return
	}
	sim := simulateOf(c.TxData.Data)
	if slow, err := time.ParseDuration(sim.Slow); err == nil && slow > 0 {
		select {
		case <-time.After(slow):
		case <-r.Context().Done():
			return
		}
	}
	status, answer := s.execute(c, sim)
	s.log.Debug("dispatch", "queue", c.Sender.Queue, "tx", c.TxData.UID, "sender", c.Sender.AccountID, "fence", c.Postern.Fence, "status", status)
	if answer == nil && status == http.StatusOK {
		panic(http.ErrAbortHandler) // the answer is lost: net/http closes the connection without a word
	}
	say(w, status, answer)
}

// execute decides on a dispatch. An answer of nil with status 200 is one that gets lost.
func (s *Sim) execute(c call, sim Simulate) (status int, answer map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Postern.Fence < s.fences[c.queue()] {
		return http.StatusConflict, map[string]any{"hash": "", "done": nil, "error": nil}
	}
	s.fences[c.queue()] = c.Postern.Fence
	if known := s.byToken[c.Postern.Token]; known != nil && c.Postern.Token != "" {
		return http.StatusOK, known.answer
	}
	n := s.counts(c.transaction())
	switch {
	case sim.Unavailable.due(n.unavailable):
		n.unavailable++
		return http.StatusServiceUnavailable, map[string]any{"error": nil}
	case sim.Reject != nil:
		return s.refuse(c, sim.Reject, 500, "ACCOUNT_NOT_FOUND")
	case sim.FailDispatch.due(n.failedDispatch):
		n.failedDispatch++
		return s.refuse(c, sim.FailDispatch, 20203, "the node did not take the transaction")
	}
	t, refused := s.submit(c, sim)
	if refused != "" {
		return s.refuse(c, &Fault{}, 20203, refused)
	}
	answer = map[string]any{"hash": t.hash, "done": map[string]any{}, "error": nil, "nonce": strconv.FormatInt(t.nonce, 10), "fee": t.fee.String()}
	s.byToken[c.Postern.Token] = &said{answer: answer, tx: t}
	if sim.LoseAnswer.due(n.lost) {
		n.lost++
		return http.StatusOK, nil
	}
	return http.StatusOK, answer
}

// refuse answers with an error and remembers that it did. The lock is held.
func (s *Sim) refuse(c call, f *Fault, code int, message string) (int, map[string]any) {
	if f.Code != 0 {
		code = f.Code
	}
	if f.Message != "" {
		message = f.Message
	}
	answer := map[string]any{"hash": "", "done": nil, "error": map[string]any{"code": code, "message": message}}
	s.byToken[c.Postern.Token] = &said{answer: answer, reason: message}
	return http.StatusOK, answer
}

// hook takes note of an end. The same token twice is noted, and is no harm.
func (s *Sim) hook(w http.ResponseWriter, r *http.Request) {
	var c call
	if !read(w, r, &c) {
		return
	}
	s.mu.Lock()
	s.hooks[c.Postern.Token]++
	s.mu.Unlock()
	say(w, http.StatusOK, map[string]any{"noted": true})
}

// read reads a body of at most 1 MiB, else answers 400.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(into); err != nil {
		say(w, http.StatusBadRequest, map[string]any{"message": "the body is not understood: " + err.Error()})
		return false
	}
	return true
}

func say(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // whoever left does not want to know
}
