package remote_test

import (
	"bytes"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/remote"
)

// What a peer has signed is read as PostgreSQL takes it: a text that it refuses would keep all words of that peer from
// being heard.
func TestASignedAnswerIsFitToBeStored(t *testing.T) {
	secrets := [][]byte{bytes.Repeat([]byte{7}, 32)}
	answer := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		maps.Copy(w.Header(), remote.SignAnswer(r.Header.Get("Webhook-Id"), []byte(answer), secrets, time.Now()))
		w.Write([]byte(answer))
	}))
	defer server.Close()
	client := remote.New(remote.Config{AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	defer client.Close()
	for said, want := range map[string]string{
		`{"words":[{"error":"a\u0000b"}]}`: "{\"words\":[{\"error\":\"a\uFFFDb\"}]}",
		`{"words":[{"error":"a <b>"}]}`:    `{"words":[{"error":"a <b>"}]}`,
		`{"words":`:                        `{"words":`,
	} {
		answer = said
		a := client.CallPeer(t.Context(), remote.PeerCall{URL: server.URL + "/contexts/c/peers/p", Installation: "i",
			Verb: remote.PeerFollow, Body: []byte(`{}`), Secrets: secrets, Timeout: 5 * time.Second})
		if a.Class != "" || string(a.Body) != want {
			t.Errorf("%s is read as %s (%s %s), want %s", said, a.Body, a.Class, a.Code, want)
		}
	}
}
