package app_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/remotetest"
)

// overMycelium is two installations that know each other, each by a node of a Mycelium network: neither has an address
// at which the other could call it.
func overMycelium(t *testing.T) (s *strait, near, far *remotetest.MyceliumNode) {
	t.Helper()
	t.Parallel()
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	network := remotetest.NewMycelium(t)
	near, far = network.Node(), network.Node()
	s = &strait{t: t, key: key,
		near: newShoreWith(t, public, map[string]string{"POSTERN_MYCELIUM": near.URL()}),
		far:  newShoreWith(t, public, map[string]string{"POSTERN_MYCELIUM": far.URL() + "/"})}
	want(t, 201, "PUT", s.far.url+"/peers/near", fmt.Sprintf(`{"secret": %q, "url": %q}`, wireSecret,
		near.Worker()+"/contexts/default/peers/far"))
	want(t, 201, "PUT", s.near.url+"/peers/far", fmt.Sprintf(`{"secret": %q, "url": %q}`, wireSecret,
		far.Worker()+"/contexts/default/peers/near"))
	s.far.id = fmt.Sprint(want(t, 200, "GET", s.far.url+"/contexts/default/peers/near/health", "")["installation"])
	return s, near, far
}

// A chat goes over a Mycelium network and is answered, though its first call is lost behind the queue of the node of
// far, and the answer to its second one on the way back: far has it once.
func TestAChatGoesOverMyceliumAndIsAnswered(t *testing.T) {
	s, near, far := overMycelium(t)
	if got := want(t, 200, "POST", s.near.url+"/peers/far/check", ""); got["ok"] != true {
		t.Fatal(got)
	}
	want(t, 200, "PATCH", s.near.url+"/dispatchers/peer.far", `{"timeouts": {"dispatch": "2s"}}`)
	far.Lose(1)
	near.LoseReplies(1)
	at := s.chats("are you there?")
	s.delivered(at)
	list := s.receives(10)
	if len(list) != 1 || list[0]["message"] != "are you there?" || list[0]["peer"] != "near" {
		t.Fatal(list)
	}
	s.says(list[0], "ack", "")
	s.becomes(at, "acknowledged")
	s.says(list[0], "reply", `{"message": "yes", "message_format_type": "text"}`)
	m := s.becomes(at, "processed")
	if reply, _ := m["reply"].(map[string]any); reply["message"] != "yes" {
		t.Error(m)
	}
	if n := len(want(t, 200, "GET", s.far.url+"/messages?box=in", "")["items"].([]any)); n != 1 {
		t.Errorf("far has %d messages", n)
	}
	lost, _, _ := far.Counts()
	if _, _, pushed := near.Counts(); lost != 1 || pushed < 4 {
		t.Errorf("%d messages were lost, and %d pushed", lost, pushed)
	}
}

// Nothing but the door of peers is to be had over a Mycelium network, whatever the request shows.
func TestOnlyTheDoorIsOpenOverMycelium(t *testing.T) {
	_, near, far := overMycelium(t)
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/contexts/default/peers/near/health", 200},
		{"POST", "/contexts/default/peers/near/hello", 401}, // it is not signed
		{"GET", "/transactions", 404},
		{"POST", "/transactions", 404},
		{"GET", "/peers/near", 404},
		{"GET", "/contexts", 404},
		{"GET", "/ui", 404},
		{"GET", "/readyz", 404},
		{"GET", "/contexts/default/peers/near/", 404},
		{"GET", "/contexts/default/peers/near/../../../../transactions", 404},
		{"GET", "/contexts/default/peers/near/%2e%2e/health", 404},
		{"GET", "/contexts%2Fdefault%2Fpeers%2Fnear%2Fhealth", 404},
		{"GET", "//transactions", 404},
		{"GET", "http://x/contexts/default/peers/near/health", 400},
		{"G T", "/contexts/default/peers/near/health", 400},
	} {
		status, body := overTheNet(t, near, far.Key, map[string]any{"method": c.method, "path": c.path,
			"headers": map[string]any{"Content-Type": []string{"application/json"}, "Authorization": []string{"x"}},
			"body":    []byte(`{}`)})
		if status != c.status {
			t.Errorf("%s %s: %d, want %d: %s", c.method, c.path, status, c.status, body)
		}
	}
	if status, body := overTheNet(t, near, far.Key, "nonsense"); status != 400 {
		t.Errorf("nonsense: %d %s", status, body)
	}
}

// overTheNet pushes a payload by the API of a node, and returns the answer in the reply.
func overTheNet(t *testing.T, from *remotetest.MyceliumNode, key string, call any) (status int, body string) {
	t.Helper()
	payload, _ := json.Marshal(call)
	push, _ := json.Marshal(map[string]any{"dst": map[string]any{"pk": key}, "payload": payload,
		"topic": base64.StdEncoding.EncodeToString([]byte("postern"))})
	res, err := http.Post(from.URL()+"/api/v1/messages?reply_timeout=30", "application/json", bytes.NewReader(push))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	var m struct{ Payload []byte }
	var a struct {
		Status int
		Body   []byte
	}
	if res.StatusCode != 200 || json.Unmarshal(text, &m) != nil || json.Unmarshal(m.Payload, &a) != nil {
		t.Fatalf("no reply: %d %s", res.StatusCode, text)
	}
	return a.Status, string(a.Body)
}

// A process without the setting asks no node, and says which setting a peer wants.
func TestWithoutANodeAPeerIsBlockedAndSaysWhy(t *testing.T) {
	s := newStrait(t)
	node := remotetest.NewMycelium(t).Node()
	door := node.Worker() + "/contexts/default/peers/near"
	want(t, 200, "PATCH", s.near.url+"/peers/far", fmt.Sprintf(`{"url": %q}`, door))
	got := want(t, 200, "POST", s.near.url+"/peers/far/check", "")
	if got["code"] != "no_mycelium" || !strings.Contains(fmt.Sprint(got["message"]), "POSTERN_MYCELIUM") {
		t.Error(got)
	}
	time.Sleep(500 * time.Millisecond)
	if _, taking, pushed := node.Counts(); taking != 0 || pushed != 0 {
		t.Errorf("the node was asked %d times, and took %d messages", taking, pushed)
	}
}

func TestTheSettingOfMyceliumIsAnAddress(t *testing.T) {
	t.Parallel()
	for value, ok := range map[string]bool{
		"": true, "http://127.0.0.1:8989": true, "http://[::1]:8989/": true, "127.0.0.1:8989": false,
		"http://127.0.0.1:8989/api": false, "ftp://127.0.0.1": false, "http://u:p@127.0.0.1": false, "http://": false,
	} {
		_, _, err := app.Load(app.Layers{Environ: map[string]string{"POSTERN_MYCELIUM": value},
			Defaults: app.DevDefaults})
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "--mycelium") {
			t.Errorf("%q: %v, want ok %v", value, err, ok)
		}
	}
}
