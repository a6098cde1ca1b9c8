package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// in sends a request in a context under a fence, wants a status and returns the answer.
func (b *jobBench) in(context string, status int, method, path, body string, fence any) map[string]any {
	b.t.Helper()
	got, text := b.callIn(context, method, path, body, fence)
	if got != status {
		b.t.Fatalf("%s %s in %s: %d, want %d: %s", method, path, context, got, status, text)
	}
	return b.read(text)
}

func (b *jobBench) read(text string) map[string]any {
	b.t.Helper()
	v := map[string]any{}
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		b.t.Fatalf("%v: %s", err, text)
	}
	return v
}

func (b *jobBench) callIn(context, method, path, text string, fence any) (int, string) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(text))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Postern-Context", context)
	if fence != nil {
		req.Header.Set("Postern-Fence", fmt.Sprintf("%.0f", fence))
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	return res.StatusCode, body(b.t, res)
}

// shopBench has a context shop beside default.
func shopBench(t *testing.T) *jobBench {
	t.Helper()
	b := &jobBench{t, clocked(t, map[string]string{"POSTERN_DEBUG_CLOCK": "true"})}
	b.in("default", 201, "PUT", "/contexts/shop", `{"admins": [], "executors": [], "readers": []}`, nil)
	return b
}

// received waits for the next message of the shop.
func (b *jobBench) received() map[string]any {
	b.t.Helper()
	page := b.in("shop", 200, "POST", "/messages:receive?wait=20s", `{"lease": "5s"}`, nil)
	return page["items"].([]any)[0].(map[string]any)
}

// A chat goes from one context to another, is received, acknowledged and answered; its sender reads the answer with it.
func TestAChatIsAnswered(t *testing.T) {
	b := shopBench(t)
	m := b.in("default", 201, "POST", "/messages", `{"ref": 1, "to": {"context": "shop", "topic": "orders"},
		"message_type": "chat", "message_format_type": "html", "message": "<script>alert(1)</script>",
			"timeout_result": 60}`, nil)
	at := "/messages/" + m["id"].(string)
	if m["box"] != "out" || m["status"] != "dispatched" {
		t.Errorf("%v", m)
	}
	got := b.received()
	if got["id"] != m["id"] || got["message"] != "<script>alert(1)</script>" || got["from"] != "default" ||
		got["box"] != "in" {
		t.Errorf("%v", got)
	}
	b.in("shop", 428, "POST", at+"/ack", "", nil)
	b.in("shop", 409, "POST", at+"/ack", "", 1.0)
	if v := b.in("shop", 200, "POST", at+"/ack", "", got["fence"]); v["changed"] != true {
		t.Errorf("%v", v)
	}
	if v := b.in("default", 200, "GET", at, "", nil); v["status"] != "acknowledged" || v["deadline"] == nil {
		t.Errorf("%v", v)
	}
	why := b.in("default", 200, "GET", at+"/why", "", nil)
	if w := why["blockers"].([]any)[0].(map[string]any); w["kind"] != "awaits_result" || w["next"] == nil {
		t.Errorf("%v", why)
	}
	b.in("shop", 200, "POST", at+"/reply", `{"message": "yes"}`, got["fence"])
	v := b.in("default", 200, "GET", at+"?wait=10s", "", nil)
	if v["status"] != "processed" || v["reply"].(map[string]any)["message"] != "yes" {
		t.Errorf("%v", v)
	}
	if got := b.historyOf(at); got != "Created Delivered Received Acknowledged ResultReceived late:Acknowledged" {
		t.Errorf("history: %s", got)
	}
	if v := b.in("default", 200, "POST", "/messages", `{"ref": 1, "to": {"context": "shop", "topic": "orders"},
		"message_type": "chat", "message_format_type": "html", "message": "<script>alert(1)</script>",
			"timeout_result": 60}`,
		nil); v["id"] != m["id"] {
		t.Errorf("%v", v)
	}
	v = b.in("default", 409, "POST", "/messages", `{"ref": 1, "to": {"context": "shop"}, "message_type": "mail",
		"message": "x"}`, nil)
	if v["code"] != "idempotency_conflict" || !strings.Contains(fmt.Sprint(v["differs"]), "message_type") {
		t.Errorf("%v", v)
	}
	for box, n := range map[string]int{"out": 1, "in": 1} { // a chat, and its result
		if items := b.in("default", 200, "GET", "/messages?box="+box, "", nil)["items"].([]any); len(items) != n {
			t.Errorf("%d messages in %s: %v", len(items), box, items)
		}
	}
}

// historyOf is the events of a message, and behind them those that came too late.
func (b *jobBench) historyOf(at string) string {
	b.t.Helper()
	v := b.in("default", 200, "GET", at+"/history", "", nil)
	var events []string
	for _, s := range v["items"].([]any) {
		events = append(events, s.(map[string]any)["event"].(string))
	}
	for _, s := range v["late"].([]any) {
		events = append(events, "late:"+s.(map[string]any)["event"].(string))
	}
	return strings.Join(events, " ")
}

// Jobs of a message are executed at its target, and their ends are its result.
func TestJobsOfAMessageAreExecutedAtItsTarget(t *testing.T) {
	b := shopBench(t)
	m := b.in("default", 201, "POST", "/messages", `{"to": {"context": "shop"}, "message_type": "job", "job": [
		{"ref": 1, "script": "print(1)", "script_type": "python", "env_vars": {"A": "b"}},
		{"ref": 2, "script": "print(2)", "script_type": "python"}]}`, nil)
	at := "/messages/" + m["id"].(string)
	r := b.in("shop", 200, "POST", "/runners/r/register", `{"instance": "i", "script_types": ["python"], "slots":
		4}`, nil)
	done := 0
	for try := 0; done < 2 && try < 10; try++ {
		req := fmt.Sprintf(`{"epoch": %.0f, "max": 4, "holds": []}`, r["epoch"])
		status, text := b.callIn("shop", "POST", "/runners/r/claim?wait=10s", req, nil)
		if status != 200 {
			continue
		}
		for _, j := range b.read(text)["jobs"].([]any) {
			j := j.(map[string]any)
			b.in("shop", 200, "POST", fmt.Sprint("/tries/", j["try"], "/finish"), `{"result": {"k": "v"}}`, j["fence"])
			done++
		}
	}
	v := b.in("default", 200, "GET", at+"?wait=20s", "", nil)
	if v["status"] != "processed" || len(v["jobs"].([]any)) != 2 {
		t.Fatalf("%v", v)
	}
	if got := fmt.Sprint(v["reply"]); strings.Count(got, "status:finished") != 2 || strings.Count(got,
		"map[k:v]") != 2 {
		t.Errorf("%s", got)
	}
	if got := b.historyOf(at); got != "Created Delivered Acknowledged ResultReceived" {
		t.Errorf("history: %s", got)
	}
}

// Each deadline ends its message with its name, by the clock by which everything is decided.
func TestDeadlinesOfMessagesFollowTheClock(t *testing.T) {
	b := shopBench(t)
	m := b.in("default", 201, "POST", "/messages", `{"to": {"context": "shop"}, "message_type": "mail", "message": "x",
		"timeout": 600, "timeout_ack": 600, "timeout_result": 600}`, nil)
	at := "/messages/" + m["id"].(string)
	got := b.received()
	b.in("default", 200, "POST", "/debug/clock", `{"advance": "11m"}`, nil)
	if v := b.in("default", 200, "GET", at+"?wait=10s", "", nil); v["error"].(map[string]any)["code"] != "timeout_ack" {
		t.Errorf("%v", v)
	}
	b.in("shop", 409, "POST", at+"/reply", `{"message": "too late"}`, got["fence"])
	if got := b.historyOf(at); got != "Created Delivered Received Deadline late:ResultReceived" {
		t.Errorf("history: %s", got)
	}
}

// What cannot be meant is refused with its place, and nothing is stored.
func TestBadMessagesAreRefused(t *testing.T) {
	b := shopBench(t)
	chat := func(more string) string {
		return `{"to": {"context": "shop"}, "message_type": "chat", "message": "x"` + more + `}`
	}
	for body, want := range map[string]string{
		chat(`, "timeout": -1`): "422 /timeout",
		chat(`, "timeout_ack":
			9223372036854775807`): "422 /timeout_ack",
		chat(`, "timeout_result":
			31536001`): "422 /timeout_result",
		chat(`, "reply_to": "x"`): "422 /reply_to",
		chat(`, "job": [{"script": "1", "script_type":
			"python"}]`): "422 /job",
		`{"to": {"context": "nowhere"}, "message_type": "chat", "message":
			"x"}`: "403 /to/context",
		`{"to": {}, "message_type": "chat", "message":
			"x"}`: "422 /to/context",
		`{"to": {"context": "shop"}, "message_type": "result", "message":
			"x"}`: "422 /message_type",
		`{"to": {"context": "shop"}, "message":
			"x"}`: "422 /message_type",
		`{"to": {"context": "shop"}, "message_type":
			"job"}`: "422 /job",
		`{"to": {"context": "shop"}, "message_type": "job", "job": [{"script": "", "script_type":
			"python"}]}`: "422 /job/0/script",
		`{"to": {"context": "shop"}, "message_type": "job", "job": [{"script": "1", "script_type":
			"cobol"}]}`: "422 /job/0/script_type",
		`{"to": {"context": "shop", "peer": "far"}, "message_type": "chat", "message":
			"x"}`: "422 /envelope",
		`{"to": {"context": "shop"}, "message_type": "chat", "message": "` + strings.Repeat("x", 1<<20+1) +
			`"}`: "422 /message",
		chat(`, "envelope": {"payloadType": "x", "payload": "", "signatures":
			[]}`): "422 /envelope/payloadType",
	} {
		status, text := b.callIn("default", "POST", "/messages", body, nil)
		v := b.read(text)
		at := ""
		if errs, ok := v["errors"].([]any); ok && len(errs) > 0 {
			at = errs[0].(map[string]any)["pointer"].(string)
		}
		if got := fmt.Sprint(status, " ", at); got != want {
			t.Errorf("%.150s: %s, want %s: %.300s", body, got, want, text)
		}
	}
	if status, text := b.callIn("default", "POST", "/messages",
		`{"to": {"context": "shop"}, "message_type": "chat", "message": "`+strings.Repeat("x", 1<<20)+`"}`,
		nil); status != 201 {
		t.Errorf("a message of 1 MiB: %d %.200s", status, text)
	}
	if items := b.in("default", 200, "GET", "/messages", "", nil)["items"].([]any); len(items) != 1 {
		t.Errorf("%d messages are stored", len(items))
	}
}
