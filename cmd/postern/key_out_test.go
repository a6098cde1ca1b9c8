package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// A key that cannot be kept is not asked for: after such a rotation no operator would have the new secret.
func TestNoKeyIsAskedForThatCannotBeKept(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	var refuses atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method != http.MethodPost:
			fmt.Fprint(w, `{"id": "k1", "name": "till", "items": [{"id": "k1", "name": "till"}], "next": null}`)
		case refuses.Load():
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusConflict)
			fmt.Fprint(w, `{"status": 409, "code": "wrong_state", "detail": "not now", "title": "Conflict"}`)
		default:
			asked.Add(1)
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, `{"id": "k1", "name": "till", "secret": "postern_secret"}`)
		}
	}))
	t.Cleanup(server.Close)
	at := []string{"POSTERN_URL=" + server.URL, "POSTERN_API_KEY=postern_0", "POSTERN_OUTPUT=table"}
	file := filepath.Join(t.TempDir(), "absent", "key")
	for _, args := range []string{"key create till --role reader", "key rotate till", "peer rotate far"} {
		asked.Store(0)
		command := append(strings.Fields(args), "--out", file)
		postern(t, at, command...).want(t, 1, "the key cannot be kept", "no such file or directory")
		if n := asked.Load(); n != 0 {
			t.Errorf("%s: %d keys were asked for, which are lost", args, n)
		}
		kept := filepath.Join(t.TempDir(), "key")
		command[len(command)-1] = kept
		refuses.Store(true)
		postern(t, at, command...).want(t, 1, "not now")
		if _, err := os.Stat(kept); !os.IsNotExist(err) {
			t.Errorf("%s: what was refused leaves a file: %v", args, err)
		}
		refuses.Store(false)
		postern(t, at, command...).want(t, 0, "k1")
		if b, err := os.ReadFile(kept); err != nil || string(b) != "postern_secret\n" {
			t.Errorf("%s: kept %q, %v", args, b, err)
		}
	}
}
