package app_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// hostile are payloads that no request may say either, each with where it is refused.
func hostile() map[string]map[string]any {
	raw := func(text string) json.RawMessage { return json.RawMessage(text) }
	job := func(member string) map[string]any {
		return map[string]any{"message_type": "job", "job": raw(`[{"script": "1", "script_type": "python", ` +
			member + `}]`)}
	}
	chat := func(member string, value any) map[string]any {
		return map[string]any{"message_type": "chat", "message": "hello", member: value}
	}
	const at = "/envelope/payload "
	return map[string]map[string]any{
		at + "NUL in topic":         chat("topic", raw(`"\u0000"`)),
		at + "NUL in actor":         chat("actor", raw(`"a\u0000"`)),
		at + "NUL in a variable":    job(`"env_vars": {"A": "\u0000"}`),
		at + "half a surrogate":     job(`"env_vars": {"A": "\ud800"}`),
		at + "a key twice":          job(`"env_vars": {"A": "b"}, "env_vars": {}`),
		at + "deeper than 64":       job(`"x": ` + strings.Repeat("[", 64) + strings.Repeat("]", 64)),
		at + "job another spelling": job(`"Env_Vars": {"A": "b"}`),

		"/envelope/payload/job/0/queue too long":  job(`"queue": "` + strings.Repeat("q", 3000) + `"`),
		"/envelope/payload/job/0/queue of others": job(`"queue": "peer:far:dev"`),
		"/message_format_type unknown":            chat("message_format_type", "xml"),
		"/message_type unknown":                   chat("message_type", "letter"),
		"/to/topic no name":                       chat("topic", "a b"),
		"/to/actor too long":                      chat("actor", strings.Repeat("a", 3000)),
	}
}

// An envelope is read as strictly as a request: where it is posted, and at the door of a peer, which refuses it for
// good, so that a message that an older version has sent ends, and those behind it go on.
func TestWhatIsSignedIsReadAsStrictlyAsARequest(t *testing.T) {
	s := newStrait(t)
	refused := map[string]string{} // requests, by their faults
	for name, fields := range hostile() {
		body := s.signs(s.key, fields)
		status := 422
		if strings.Contains(name, "of others") {
			status = 403
		}
		v := want(t, status, "POST", s.near.url+"/messages", body)
		pointer, _, _ := strings.Cut(name, " ")
		if !strings.Contains(fmt.Sprint(v["errors"]), "pointer:"+pointer) {
			t.Errorf("%s: %v", name, v)
		}
		refused[name] = body
	}
	j := s.farJob(1, nil, map[string]any{"env_vars": json.RawMessage(`{"A": "\u0000"}`)})
	j["env_vars"] = map[string]string{"A": ""}
	body, err := json.Marshal(map[string]any{"jobs": []any{j}})
	if err != nil {
		t.Fatal(err)
	}
	v := want(t, 422, "POST", s.near.url+"/flows", string(body))
	if !strings.Contains(fmt.Sprint(v["errors"]), "pointer:/jobs/0/envelope/payload") {
		t.Errorf("%v", v)
	}
	for _, list := range []string{"/messages", "/flows"} {
		if items := want(t, 200, "GET", s.near.url+list, "")["items"].([]any); len(items) != 0 {
			t.Errorf("%d of %s are stored", len(items), list)
		}
	}
	s.refusesAtTheDoor(refused)
}

// refusesAtTheDoor brings far what near refuses to post: as messages that near took before it looked.
func (s *strait) refusesAtTheDoor(bodies map[string]string) {
	s.t.Helper()
	s.cut.Store(true)
	at := map[string]string{}
	for name, body := range bodies {
		var in struct{ Envelope json.RawMessage }
		if err := json.Unmarshal([]byte(body), &in); err != nil {
			s.t.Fatal(err)
		}
		at[name] = s.chats(name)
		id := at[name][strings.LastIndexByte(at[name], '/')+1:]
		const sql = `UPDATE postern.message SET envelope = $2 WHERE message_id = $1`
		if _, err := s.near.db.Pool.Exec(s.t.Context(), sql, id, []byte(in.Envelope)); err != nil {
			s.t.Fatal(err)
		}
	}
	next := s.chats("I am well")
	s.cut.Store(false)
	for name, path := range at {
		code := "invalid"
		if strings.Contains(name, "of others") {
			code = "forbidden"
		}
		if m := s.becomes(path, "error"); !strings.Contains(fmt.Sprint(m["error"]), "code:"+code) {
			s.t.Errorf("%s: %v", name, m["error"])
		}
	}
	s.delivered(next)
}
