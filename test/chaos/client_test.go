package main

import (
	"fmt"
	"io"
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

// Another body is posted until the answer says something, and what that names is kept.
func TestTheAnswerToAnotherBodyIsKept(t *testing.T) {
	const conflict = `{"code":"idempotency_conflict","retryable":false,"existing":{"id":"7"}}`
	for _, one := range []struct {
		status int
		answer string
		want   clash
	}{
		{409, conflict, clash{409, "idempotency_conflict", "7"}},
		{200, `{"id":"7"}`, clash{Status: 200, ID: "7"}},
	} {
		var bodies []string
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if bodies = append(bodies, r.Header.Get("Idempotency-Key")+string(body)); len(bodies) == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
				fmt.Fprint(w, `{"code":"overloaded","retryable":true}`)
				return
			}
			w.WriteHeader(one.status)
			fmt.Fprint(w, one.answer)
		}))
		c, err := newClient("", []string{s.URL}, filepath.Join(t.TempDir(), "client.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		p := &post{UID: "u", ID: "7", N: 1}
		c.change(t.Context(), p, 0)
		s.Close()
		if p.Clash == nil || *p.Clash != one.want || p.N != 1 {
			t.Errorf("%s: kept is %+v", one.answer, p.Clash)
		}
		if len(bodies) != 2 || bodies[1] != bodies[0] || bodies[0] == "u"+string(c.body(p)) {
			t.Errorf("posted were %v", bodies)
		}
	}
}
