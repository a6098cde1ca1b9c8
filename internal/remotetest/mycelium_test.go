package remotetest_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/remotetest"
)

// asks makes a request to the API of a node.
func asks(t *testing.T, method, url, body string) (status int, m map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return 0, nil
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	if len(bytes.TrimSpace(text)) > 0 {
		if err := json.Unmarshal(text, &m); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	return res.StatusCode, m
}

// What docs/api.yaml of threefoldtech/mycelium says of messages, by its examples: a fake node does it.
func TestAFakeNodeOfMyceliumDoesWhatItsAPISays(t *testing.T) {
	t.Parallel()
	network := remotetest.NewMycelium(t)
	near, far := network.Node(), network.Node()
	const api = "/api/v1/messages"
	to := func(key, more string) string { return `{"dst": {"pk": "` + key + `"}, "payload": "xuV+"` + more + `}` }

	status, pushed := asks(t, "POST", near.URL()+api, to(far.Key, `, "topic": "hpV+"`))
	if id, _ := pushed["id"].(string); status != 201 || len(id) != 16 {
		t.Fatalf("a push that does not wait: %d %v", status, pushed)
	}
	if status, m := asks(t, "GET", far.URL()+api+"?topic=xuV%2B", ""); status != 204 {
		t.Errorf("another topic: %d %v", status, m)
	}
	for _, peek := range []string{"true", "false"} {
		status, m := asks(t, "GET", far.URL()+api+"?topic=hpV%2B&peek="+peek, "")
		if status != 200 || m["id"] != pushed["id"] || m["srcPk"] != near.Key || m["dstPk"] != far.Key ||
			m["payload"] != "xuV+" || m["topic"] != "hpV+" || m["srcIp"] == nil || m["dstIp"] == nil {
			t.Errorf("peek=%s: %d %v", peek, status, m)
		}
	}
	if status, m := asks(t, "GET", far.URL()+api, ""); status != 204 {
		t.Errorf("it was taken: %d %v", status, m)
	}
	began := time.Now()
	if status, _ := asks(t, "GET", far.URL()+api+"?timeout=1", ""); status != 204 || time.Since(began) < time.Second {
		t.Errorf("a request that waits: %d after %s", status, time.Since(began))
	}
	status, m := asks(t, "POST", near.URL()+api+"?reply_timeout=0", to(far.Key, ""))
	if status != 408 || m["id"] == nil {
		t.Errorf("a push without a reply: %d %v", status, m)
	}
	if status, _ := asks(t, "GET", far.URL()+api, ""); status != 200 { // what came without a topic
		t.Errorf("a message without a topic: %d", status)
	}
	replied := make(chan map[string]any)
	go func() {
		_, m := asks(t, "POST", near.URL()+api+"?reply_timeout=30", to(far.Key, ""))
		replied <- m
	}()
	_, m = asks(t, "GET", far.URL()+api+"?timeout=30", "")
	if status, _ := asks(t, "POST", far.URL()+api+"/reply/"+m["id"].(string), to(near.Key, "")); status != 204 {
		t.Errorf("a reply: %d", status)
	}
	if got := <-replied; got["id"] != m["id"] || got["srcPk"] != far.Key || got["topic"] != nil {
		t.Errorf("the push was answered %v", got)
	}
}

// While a request waits for a message, a node takes no push: so do released nodes, and callers have to live with it.
func TestAFakeNodeOfMyceliumDoesOneThingAtATime(t *testing.T) {
	t.Parallel()
	network := remotetest.NewMycelium(t)
	near, far := network.Node(), network.Node()
	waits := make(chan struct{})
	go func() {
		defer close(waits)
		asks(t, "GET", near.URL()+"/api/v1/messages?timeout=1", "")
	}()
	for taking := 0; taking == 0; time.Sleep(time.Millisecond) {
		_, taking, _ = near.Counts()
	}
	began := time.Now()
	asks(t, "POST", near.URL()+"/api/v1/messages", `{"dst": {"pk": "`+far.Key+`"}, "payload": ""}`)
	if d := time.Since(began); d < 500*time.Millisecond {
		t.Errorf("a push went through in %s while a request waited", d)
	}
	<-waits
}
