package processor_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/processor"
)

// canonical is a value in the one text that it has.
func canonical(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("%+v cannot be written: %v", v, err)
	}
	return text
}

// An authorization that is read is written and read as the same, and its refusal names the field.
func FuzzAuthorization(f *testing.F) {
	for _, s := range []string{
		`{"label":"l","mode":"permissionless","duration":"forever","priority":"Med",` +
			`"actions_config":{"atomic":{"functions":[{"domain":"d","message_details":{"message_type":"m",` +
			`"message":{"name":"n"}},"contract_address":"T"}],"retry_logic":{"times":"indefinitely",` +
			`"interval":{"seconds":5}}}}}`,
		`{"label":"l","mode":{"permissioned":{"with_call_limit":{"a":1}}},"duration":{"seconds":3},` +
			`"actions_config":{"non_atomic":{"functions":[{"domain":"d","contract_address":"T",` +
			`"retry_logic":{"times":{"amount":2},"interval":{"blocks":1}},` +
			`"callback_confirmation":{"contract_address":"c","callback_message":{"a":1},` +
			`"callback_timeout":9223372036854775807}}],"expiration_time":-1}}}`,
		`{"mode":{},"duration":{"blocks":0},"priority":"Low"}`,
		`{"actions_config":{"atomic":{},"non_atomic":{}}}`, `null`, `[]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var a processor.Authorization
		if json.Unmarshal(text, &a) != nil {
			return
		}
		if err := a.Validate(); err != nil {
			if x := fault.As(err); x == nil || x.Kind != fault.Invalid || len(x.Fields) != 1 ||
				!strings.HasPrefix(x.Fields[0].Pointer, "/") || x.Detail == "" {
				t.Errorf("%s: %#v", text, err)
			}
			return
		}
		said := canonical(t, a)
		var again processor.Authorization
		if err := json.Unmarshal(said, &again); err != nil || again.Validate() != nil ||
			!bytes.Equal(canonical(t, again), said) {
			t.Errorf("%s is %s, which is %s: %v", text, said, canonical(t, again), err)
		}
		now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		if at := a.Actions.Expires(now); at != nil && at.Before(now) {
			t.Errorf("%s expires at %s", text, at)
		}
		for i := range a.Actions.Functions() {
			if c := a.Actions.Confirmation(i); c != nil && c.Deadline(now).Before(now) {
				t.Errorf("%s: action %d is to be confirmed by %s", text, i, c.Deadline(now))
			}
		}
	})
}

// An envelope of another installation is read as it was written.
func FuzzEnvelope(f *testing.F) {
	f.Add([]byte(`{"id":1,"created_at":"2026-01-02T03:04:05.000006Z",` +
		`"actions_config":{"atomic":{"functions":[{"domain":"d"}]}},"msgs":[{"type":"m","msg":{"n":{"a":1}}}],` +
		`"priority":"High","expiration_time":"2026-01-03T00:00:00Z"}`))
	f.Add([]byte(`{"id":-1,"created_at":"0001-01-01T00:00:00Z","actions_config":{},"msgs":null}`))
	f.Add([]byte(`{"created_at":"9999-12-31T23:59:59.999999999+23:59"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var e processor.Envelope
		if json.Unmarshal(text, &e) != nil {
			return
		}
		if e.Actions.Validate() != nil || processor.CheckMessages(e.Messages, e.Actions.Functions()) != nil {
			return
		}
		e.To("here")
		said := canonical(t, e)
		var again processor.Envelope
		if err := json.Unmarshal(said, &again); err != nil || again.Name() != e.Name() ||
			!bytes.Equal(canonical(t, again), said) {
			t.Errorf("%s is %s, which is %s: %v", text, said, canonical(t, again), err)
		}
	})
}
