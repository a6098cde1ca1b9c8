package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
)

// The client sends a post once: one whose connection breaks before an answer is unknown, and not what a second one
// under the same key is told.
func TestTheClientSendsAPostOnce(t *testing.T) {
	var came atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch came.Add(1) {
		case 2: // on a connection that was used before
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
			}
			c.Close()
		case 3:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer s.Close()
	c, err := newClient("", []string{s.URL}, filepath.Join(t.TempDir(), "client.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{http.StatusOK, 0} {
		if got, _ := c.send(t.Context(), s.URL, "u", []byte("{}")); got != want {
			t.Errorf("post %d: got %d, want %d", i+1, got, want)
		}
	}
	if n := came.Load(); n != 2 {
		t.Errorf("%d posts came, want 2", n)
	}
}
