package demo

import (
	_ "embed"
	"encoding/json"
	"io"
	"net/http"
	"sync"
)

// Script is tool.py, a tool as a plain script.
//
//go:embed tool.py
var Script string

// ToolHandler serves two tools: /add adds two numbers; /flaky does too, but fails at the first call with an input.
func ToolHandler() http.Handler {
	var mu sync.Mutex
	seen := map[string]bool{}
	mux := http.NewServeMux()
	for _, name := range []string{"add", "flaky"} {
		mux.HandleFunc("GET /"+name+"/health", func(http.ResponseWriter, *http.Request) {})
		mux.HandleFunc("GET /"+name+"/meta", func(w http.ResponseWriter, r *http.Request) {
			_ = json.NewEncoder(w).Encode(map[string]any{"fqn": "dev.postern." + name + "@1", "type": "offchain", "url": "http://" + r.Host + "/" + name,
				"description": "adds two integers",
				"input_schema": map[string]any{"type": "object", "required": []string{"a", "b"},
					"properties": map[string]any{"a": map[string]string{"type": "integer"}, "b": map[string]string{"type": "integer"}}},
				"output_schema": map[string]any{"oneOf": []any{map[string]any{"type": "object", "required": []string{"ok"},
					"properties": map[string]any{"ok": map[string]any{"type": "object", "required": []string{"sum"}, "properties": map[string]any{"sum": map[string]string{"type": "integer"}}}}}}}})
		})
		mux.HandleFunc("POST /"+name+"/invoke", func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
			mu.Lock()
			first := !seen[string(body)]
			seen[string(body)] = true
			mu.Unlock()
			var in struct{ A, B int64 }
			switch {
			case name == "flaky" && first:
				w.WriteHeader(http.StatusServiceUnavailable)
			case json.Unmarshal(body, &in) != nil:
				w.WriteHeader(http.StatusUnprocessableEntity)
				_, _ = io.WriteString(w, `{"error": "input_deserialization_error"}`)
			default:
				_ = json.NewEncoder(w).Encode(map[string]any{"ok": map[string]int64{"sum": in.A + in.B}})
			}
		})
	}
	return mux
}
