package demo

import (
	"crypto/ed25519"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/remote"
)

// Script is tool.py, a tool as a plain script.
//
//go:embed tool.py
var Script string

// adders are two tools that add: flaky fails at the first call with an input.
type adders struct {
	key ed25519.PublicKey // of who may call; nil: anybody

	mu       sync.Mutex
	seen     map[string]bool
	answered map[string]exchanged // by token
}

// exchanged is a call that was answered.
type exchanged struct{ input, answer string }

// ToolHandler serves two tools: /add adds two numbers; /flaky does too, but fails at the first call with an input. With
// a key it answers only calls that this has signed (S1.10): an exact repeat as the first time, and the same token with
// another input not at all.
func ToolHandler(key ed25519.PublicKey) http.Handler {
	t := &adders{key: key, seen: map[string]bool{}, answered: map[string]exchanged{}}
	mux := http.NewServeMux()
	for _, name := range []string{"add", "flaky"} {
		mux.HandleFunc("GET /"+name+"/health", func(http.ResponseWriter, *http.Request) {})
		mux.HandleFunc("GET /"+name+"/meta", func(w http.ResponseWriter, r *http.Request) { t.meta(w, r, name) })
		mux.HandleFunc("POST /"+name+"/invoke", func(w http.ResponseWriter, r *http.Request) { t.invoke(w, r, name) })
	}
	return mux
}

func (t *adders) meta(w http.ResponseWriter, r *http.Request, name string) {
	m := map[string]any{"fqn": "dev.postern." + name + "@1", "type": "offchain", "url": "http://" + r.Host + "/" + name,
		"description": "adds two integers",
		"input_schema": map[string]any{"type": "object", "required": []string{"a", "b"},
			"properties": map[string]any{"a": map[string]string{"type": "integer"},
				"b": map[string]string{"type": "integer"}}},
		"output_schema": map[string]any{"oneOf": []any{map[string]any{"type": "object", "required": []string{"ok"},
			"properties": map[string]any{"ok": map[string]any{"type": "object", "required": []string{"sum"},
				"properties": map[string]any{"sum": map[string]string{"type": "integer"}}}}}}}}
	if t.key != nil {
		m["sign"] = "ed25519"
	}
	_ = json.NewEncoder(w).Encode(m)
}

func (t *adders) invoke(w http.ResponseWriter, r *http.Request, name string) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	refuse := func(status int, code, why string) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": code, "details": why})
	}
	if t.key != nil {
		if err := remote.Verify(r, body, "http://"+r.Host+r.URL.Path, t.key, time.Now()); err != nil {
			refuse(http.StatusUnauthorized, "bad_signature", err.Error())
			return
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	token := name + " " + r.Header.Get("Idempotency-Key")
	before, again := t.answered[token]
	first := name == "flaky" && !t.seen[string(body)]
	t.seen[string(body)] = true
	var in struct{ A, B int64 }
	switch {
	case again && before.input != string(body):
		refuse(http.StatusConflict, "key_reused", "this call came before with another input")
	case again:
		_, _ = io.WriteString(w, before.answer)
	case first:
		refuse(http.StatusServiceUnavailable, "warming_up", "try again")
	case json.Unmarshal(body, &in) != nil:
		refuse(http.StatusUnprocessableEntity, "input_deserialization_error", "want integers a and b")
	default:
		answer := fmt.Sprintf("{\"ok\":{\"sum\":%d}}", in.A+in.B)
		if t.key != nil { // else a token is anybody's
			t.answered[token] = exchanged{string(body), answer}
		}
		_, _ = io.WriteString(w, answer)
	}
}
