package processor

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
)

const example = `{
	"label": "pay", "mode": {"permissioned": {"with_call_limit": {"ann": 2}}}, "duration": {"blocks": 5}, "not_before": "2030-01-01T11:00:00Z",
	"max_concurrent_executions": 1, "priority": "High",
	"actions_config": {"non_atomic": {"expiration_time": 60, "functions": [
		{"domain": "main", "contract_address": "PAY", "message_details": {"message_type": "exec", "message": {"name": "pay", "params_restrictions": [
			{"must_be_included": ["to", "name"]}, {"cannot_be_included": ["memo"]}, {"must_be_value": {"path": ["unit"], "value": "eur"}}]}},
		 "retry_logic": {"times": {"amount": 5}, "interval": {"seconds": 10}}},
		{"domain": "main", "contract_address": "TELL", "message_details": {"message": {"name": "tell"}},
		 "retry_logic": {"times": "indefinitely", "interval": {"blocks": 3}},
		 "callback_confirmation": {"contract_address": "oracle", "callback_message": {"ok": true}, "callback_timeout": 3600}}]}}}`

func read(t *testing.T, text string) Authorization {
	t.Helper()
	a := DefaultAuthorization()
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAnAuthorizationIsWrittenAsItIsRead(t *testing.T) {
	a := read(t, example)
	if err := a.Validate(); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(a)
	if err != nil || !Same(text, json.RawMessage(example)) {
		t.Errorf("%v\n%s\nwant\n%s", err, text, example)
	}
}

// S4.11: the seed's texts.
func TestWhatIsNoAuthorizationIsRefused(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{`"label": "pay"`, `"label": ""`, "Authorization must have a label"},
		{`"label": "pay"`, `"label": "` + strings.Repeat("é", 45) + `"`, "at most 44"},
		{`{"permissioned": {"with_call_limit": {"ann": 2}}}`, `"permissionless"`, "Permissionless authorizations can't have high priority"},
		{`{"ann": 2}`, `{"ann": 0}`, "want 1 or more"},
		{`{"with_call_limit": {"ann": 2}}`, `{}`, `want "permissionless", or actors`},
		{`"domain": "main", "contract_address": "TELL"`, `"domain": "side", "contract_address": "TELL"`, "All functions in an authorization must be executed in the same domain"},
		{`"contract_address": "TELL"`, `"contract_address": ""`, "contract_address is missing"},
		{`"name": "tell"`, `"name": ""`, "name is missing"},
		{`"cannot_be_included": ["memo"]`, `"cannot_be_included": []`, "want one of"},
		{`"max_concurrent_executions": 1`, `"max_concurrent_executions": 0`, "want 1 to"},
		{`{"amount": 5}`, `{"amount": -5}`, "want 0 or more"},
		{`{"seconds": 10}`, `{"seconds": 10, "blocks": 1}`, "want either"},
		{`"non_atomic"`, `"atomic"`, "retried as a whole"},
		{`"expiration_time": 60`, `"expiration_time": -1`, "want seconds"},
		{`"callback_timeout": 3600`, `"callback_timeout": 0`, "want seconds, 1 to"},
	} {
		if !strings.Contains(example, c.from) {
			t.Fatalf("the example lacks %s", c.from)
		}
		err := read(t, strings.Replace(example, c.from, c.to, 1)).Validate()
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.As(err).Detail, c.want) {
			t.Errorf("%s: %v, want %q", c.to, err, c.want)
		}
	}
	empty := read(t, example)
	empty.Actions.NonAtomic.Functions = nil
	if err := empty.Validate(); err == nil || fault.As(err).Detail != "Authorization must have at least one function" {
		t.Error(err)
	}
}

// S4.12: each rule with its text, in the order of the source. A batch that breaks several is refused by the first.
func TestWhatMayNotBeSentIsRefusedByTheFirstRuleThatItBreaks(t *testing.T) {
	a := read(t, example)
	messages := func(pay, tell string) []Message {
		return []Message{{"exec", json.RawMessage(pay)}, {"", json.RawMessage(tell)}}
	}
	const pay, tell = `{"pay":{"to":{"name":"bob"},"unit":"eur"}}`, `{"tell":{}}`
	early := noon.Add(-2 * time.Hour)
	busy := Use{Enabled: true, Running: 1, Spent: 2}
	for _, c := range []struct {
		actor    string
		messages []Message
		use      Use
		f        Facts
		code     string
		want     string
	}{
		{"bob", nil, Use{Running: 1}, Facts{Now: early, Height: 9}, "forbidden", "The authorization is not enabled"},
		{"bob", nil, busy, Facts{Now: early, Height: 9}, "forbidden", "The authorization functions cant be executed yet"},
		{"bob", nil, Use{Enabled: true, EndsAtHeight: number(9)}, Facts{Now: noon, Height: 9}, "forbidden", "The authorization is expired"},
		{"bob", nil, Use{Enabled: true, EndsAt: after(0)}, Facts{Now: noon}, "forbidden", "The authorization is expired"},
		{"bob", nil, busy, Facts{Now: noon}, "forbidden", "This address is not allowed to execute this action"},
		{"ann", nil, busy, Facts{Now: noon}, "call_limit", "This address is not allowed to execute this action"},
		{"ann", nil, Use{Enabled: true, Running: 1}, Facts{Now: noon}, "invalid", "The amount of messages you send must match the amount of functions in the list"},
		{"ann", []Message{{"", json.RawMessage(pay)}, {"", nil}}, Use{Enabled: true}, Facts{Now: noon}, "invalid", "The message sent has a different type than expected"},
		{"ann", messages(`{"pay":{},"x":1}`, tell), Use{Enabled: true}, Facts{Now: noon}, "invalid", "The message can only have one top level key"},
		{"ann", messages(`{"tell":{}}`, tell), Use{Enabled: true}, Facts{Now: noon}, "invalid", "The message doesn't match the function"},
		{"ann", messages(`{"pay":{"to":{},"unit":"eur"}}`, tell), Use{Enabled: true}, Facts{Now: noon}, "invalid", "The message doesn't pass all the parameter restrictions"},
		{"ann", messages(`{"pay":{"to":{"name":1},"unit":"eur","memo":""}}`, tell), Use{Enabled: true}, Facts{Now: noon}, "invalid", "The message doesn't pass all the parameter restrictions"},
		{"ann", messages(`{"pay":{"to":{"name":1},"unit":"usd"}}`, `[]`), Use{Enabled: true}, Facts{Now: noon}, "invalid", "The message doesn't pass all the parameter restrictions"},
		{"ann", messages(pay, `{"told":{}}`), Use{Enabled: true, Running: 1}, Facts{Now: noon}, "invalid", "The message doesn't match the function"},
		{"ann", messages(pay, tell), Use{Enabled: true, Running: 1}, Facts{Now: noon}, "concurrency_limit", "The authorization has reached its max concurrent executions"},
		{"ann", messages(pay, tell), Use{Enabled: true, Spent: 1}, Facts{Now: noon}, "", ""},
	} {
		err := a.MaySend(c.actor, c.messages, c.use, c.f)
		if fault.CodeOf(err) != c.code || err != nil && fault.As(err).Detail != c.want {
			t.Errorf("%s %v: %v, want %s %q", c.actor, c.use, err, c.code, c.want)
		}
	}
	open := a
	open.Mode = Mode{Permissionless: true}
	if err := open.MaySend("anybody", messages(pay, tell), Use{Enabled: true}, Facts{Now: noon}); err != nil {
		t.Error(err)
	}
}

func TestAnAuthorizationEndsAfterItsDuration(t *testing.T) {
	a := read(t, example)
	if at, height := a.Ends(noon, 100); at != nil || height == nil || *height != 105 {
		t.Errorf("%v %v", at, height)
	}
	a.Duration = Duration{Interval{Seconds: number(60)}}
	if at, height := a.Ends(noon, 100); height != nil || at == nil || !at.Equal(noon.Add(time.Minute)) {
		t.Errorf("%v %v", at, height)
	}
	a.Duration = Duration{}
	if at, height := a.Ends(noon, 100); at != nil || height != nil {
		t.Errorf("%v %v", at, height)
	}
}
