package remote_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/remotetest"
)

// Two questions that make a worker execute nothing say whether it may be called: it may, if it answers one of them, or
// has neither.
func TestAWorkerIsAliveIfItAnswersQuestions(t *testing.T) {
	t.Parallel()
	c := remotetest.Client(t)
	for _, tc := range []struct {
		status, health int
		alive          bool
	}{
		{200, 0, true},
		{401, 0, true}, // so would be a dispatch, which then is blocked
		{404, 200, true},
		{404, 404, true}, // it has neither, or an ingress stands there, which executes nothing
		{405, 501, true},
		{404, 403, true},
		{404, 500, false},
		{404, 503, false},
		{500, 200, true}, // it has /status, so it can be asked
		{500, 500, false},
		{502, 404, false},
		{503, 503, false},
	} {
		var asked []string
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.URL.Path)
			if strings.HasPrefix(r.URL.Path, "/status") {
				w.WriteHeader(tc.status)
				return
			}
			w.WriteHeader(tc.health)
		}))
		err := c.Alive(t.Context(), s.URL, "T", false)
		s.Close()
		if (err == nil) != tc.alive || strings.Contains(strings.Join(asked, " "), "dispatch") {
			t.Errorf("status %d, health %d: %v after %v, want alive %t", tc.status, tc.health, err, asked, tc.alive)
		}
	}
	mute := remotetest.NewFake(t)
	if err := c.Alive(t.Context(), mute.URL(), "T", true); err != nil {
		t.Error(err)
	}
	if n := len(mute.Calls(remotetest.Match{Op: remotetest.OpStatus})); n != 0 {
		t.Errorf("a worker that is never to be asked for the status was asked %d times", n)
	}
	gone := remotetest.NewFake(t)
	gone.Refuse()
	if err := c.Alive(t.Context(), gone.URL(), "T", false); err == nil {
		t.Error("nobody listens, and it is alive")
	}
}
