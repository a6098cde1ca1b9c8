package leader_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/leader"
)

// S1.11, row by row.
func TestWhatAToolAnswersMeans(t *testing.T) {
	t.Parallel()
	d, err := leader.ParseMeta(meta(nil))
	if err != nil {
		t.Fatal(err)
	}
	const page = "<!DOCTYPE html>\n<html>nginx</html>"
	for _, c := range []struct {
		status int
		body   string // "-": none
		why    string
		class  leader.Class
		code   string
		text   string
	}{
		{200, `{"ok": {"sum": 3}}`, "", leader.Successful, "", ""},
		{200, `{"err_full": {}}`, "", leader.Successful, "", ""},
		{200, `{"ok": {"sum": "3"}}`, "", leader.Fatal, "schema_mismatch", "/ok/sum: got string, want integer"},
		{200, `{"err_full": {}, "ok": {}}`, "", leader.Retriable, "no_answer", "want one variant"},
		{200, `{"ok": 3}`, "", leader.Retriable, "no_answer", "want one variant"},
		{200, `{"ok": true}`, "", leader.Retriable, "no_answer", "want one variant"},
		{200, `{"status": {}}`, "", leader.Retriable, "no_answer", "want one variant"},
		{200, `{}`, "", leader.Retriable, "no_answer", ""},
		{200, `{"message": "service unavailable"}`, "", leader.Retriable, "no_answer", ": service unavailable"},
		{200, `{"status": 503, "message": "down"}`, "", leader.Retriable, "no_answer", ": down"},
		{200, `{"error": {"code": 503, "message": "down"}}`, "", leader.Retriable, "no_answer", ": down"},
		{200, `{"fault": {"faultstring": "down"}}`, "", leader.Retriable, "no_answer", ""},
		{200, `{"error": "no_such_walk", "details": "7"}`, "", leader.Fatal, "http_200", ": 7"},
		{200, `{"error": {"code": "no_such_walk", "message": "7"}}`, "", leader.Fatal, "http_200", ": 7"},
		{201, `{"message": "created"}`, "", leader.Retriable, "no_answer", ": created"},
		{201, `{"error": "no_such_walk", "details": "7"}`, "", leader.Fatal, "http_201", ": 7"},
		{200, `no JSON`, "", leader.Retriable, "no_answer", "want one variant"},
		{200, `["ok"]`, "", leader.Retriable, "no_answer", ""},
		{200, page, "", leader.Retriable, "no_answer", "an HTML page came"},
		{200, ``, "", leader.Retriable, "no_answer", ""},
		{200, "-", "answer_too_large", leader.Fatal, "answer_too_large", "larger than the tool is registered for"},
		{500, "-", "answer_too_large", leader.Retriable, "http_500", ""},
		{404, "-", "answer_too_large", leader.Retriable, "http_404", ""},
		{200, "-", "answer_nested", leader.Fatal, "answer_nested", "64 levels"},
		{200, "-", "timeout", leader.Retriable, "answer_broken", ""},
		{201, `{"ok": {"sum": 3}}`, "", leader.Fatal, "http_201", "a tool answers 200"},
		{202, page, "", leader.Retriable, "no_answer", "an HTML page came"},
		{204, ``, "", leader.Retriable, "no_answer", ""},
		{302, ``, "", leader.Retriable, "redirect", "not followed"},
		{302, page, "", leader.Retriable, "http_302", "an HTML page came"},
		{400, `{"error": "bad", "details": "b"}`, "", leader.Fatal, "http_400", "refuses the call (HTTP 400): b"},
		{400, `{"error": {"code": "bad", "message": "b"}}`, "", leader.Fatal, "http_400", ": b"},
		{400, `{}`, "", leader.Retriable, "http_400", `which refuses by {"error": code`},
		{400, page, "", leader.Retriable, "http_400", "an HTML page came"},
		{401, `{"error": "invalid_token", "error_description": "of a gateway"}`, "", leader.Retriable, "http_401", ""},
		{403, `{"error": "permission_denied", "details": "who are you"}`, "", leader.Fatal, "permission_denied", "who are you"},
		{403, page, "", leader.Retriable, "http_403", "an HTML page came"},
		{404, `{"error": "unknown", "details": "moved"}`, "", leader.Fatal, "http_404", "moved"},
		{404, ``, "", leader.Retriable, "http_404", ""},
		{404, `default backend - 404`, "", leader.Retriable, "http_404", ""},
		{404, page, "", leader.Retriable, "http_404", "an HTML page came"},
		{404, `{"statusCode": 404, "error": "Not Found", "message": "no route"}`, "",
			leader.Retriable, "http_404", ": no route"},
		{404, `{"error": {"code": 404, "message": "no route"}}`, "", leader.Retriable, "http_404", ": no route"},
		{404, `{"error": "Not Found", "details": "no route"}`, "", leader.Retriable, "http_404", ""},
		{408, ``, "", leader.Retriable, "http_408", ""},
		{409, `{"error": "replayed", "details": "other"}`, "", leader.Fatal, "http_409", "another input"},
		{409, ``, "", leader.Retriable, "http_409", ""},
		{422, `{"error": "input_deserialization_error", "details": "a\nis missing"}`, "", leader.Fatal, "input_deserialization_error", "a is missing"},
		{422, `{"error": {"code": "input_deserialization_error", "message": "b"}}`, "", leader.Fatal, "input_deserialization_error", ": b"},
		{422, `{"error": "input_deserialization_error"}`, "", leader.Retriable, "http_422", ""},
		{422, `other`, "", leader.Retriable, "http_422", ""},
		{425, ``, "", leader.Retriable, "http_425", ""},
		{429, ``, "", leader.Retriable, "http_429", ""},
		{429, page, "", leader.Retriable, "http_429", "an HTML page came"},
		{429, `{"error": "busy", "details": "b"}`, "", leader.Retriable, "http_429", ": b"},
		{500, `{"error": "output_serialization_error", "details": ""}`, "",
			leader.Fatal, "output_serialization_error", ""},
		{500, `{"error": "output_serialization_error"}`, "", leader.Retriable, "http_500", ""},
		{500, `{"error": "other", "details": "b"}`, "", leader.Retriable, "http_500", ": b"},
		{500, page, "", leader.Retriable, "http_500", "an HTML page came"},
		{502, ``, "", leader.Retriable, "http_502", ""},
		{502, page, "", leader.Retriable, "http_502", "an HTML page came"},
		{503, `{"error": "answer_too_large", "details": "of our backend"}`, "", leader.Retriable, "http_503", "of our backend"},
		{599, "-", "connection_lost", leader.Retriable, "http_599", ""},
		{0, "-", "connection_refused", leader.Retriable, "connection_refused", "cannot be reached"},
		{0, "-", "address_refused", leader.Retriable, "address_refused", ""},
		{0, "-", "timeout", leader.Retriable, "timeout", ""},
		{0, "-", "bad_worker_url", leader.Fatal, "bad_url", ""},
		{999, ``, "", leader.Retriable, "http_999", ""},
	} {
		p := leader.Reply{Status: c.status, Body: []byte(c.body), Code: c.why, After: time.Minute}
		if c.body == "-" {
			p.Body = nil
		}
		v := d.Judge(p)
		if v.Class != c.class || v.Code != c.code || !strings.Contains(v.Message, c.text) || (v.Message == "") != (c.class == leader.Successful) {
			t.Errorf("%d %s %s: %+v, want %s %s %q", c.status, c.body, c.why, v, c.class, c.code, c.text)
		}
		if (v.Class == leader.Retriable) != (v.After == time.Minute) || v.Class == leader.Successful && string(v.Output) != c.body {
			t.Errorf("%d %s: %+v", c.status, c.body, v)
		}
	}
	if v := leader.Uncalled(d.ValidateInput([]byte(`{}`))); v.Class != leader.Fatal || v.Code != "schema_mismatch" {
		t.Errorf("an input that does not fit: %+v", v)
	}
}

// A variant is one that the output schema names, whichever way; where it names none, any may be.
func TestAVariantIsOneThatTheSchemaNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		schema string
		own    bool // {"ok": {}} is an answer of the tool
	}{
		{`{"oneOf": [{"properties": {"ok": {"required": ["sum"]}}, "required": ["ok"]}]}`, true},
		{`{"oneOf": [{"required": ["ok"], "maxProperties": 0}]}`, true},
		{`{"oneOf": [{"properties": {"yes": {}}, "required": ["yes"]}]}`, false},
		{`{"oneOf": [{"$ref": "#/$defs/Yes"}, {"$ref": "#/$defs/Ok"}], "$defs": {"Yes": {"required": ["yes"]},
			"Ok": {"properties": {"ok": {"required": ["sum"]}}, "required": ["ok"]}}}`, true},
		{`{"oneOf": [{"$ref": "#/$defs/Yes"}],
			"$defs": {"Yes": {"properties": {"yes": {}}, "required": ["yes"]}}}`, false},
		{`{"oneOf": [{"$ref": "#/$defs/a~1b"}], "$defs": {"a/b": {"required": ["yes"]}}}`, false},
		{`{"oneOf": [{"$ref": "#/$defs/Loop"}],
			"$defs": {"Loop": {"$ref": "#/$defs/Loop", "maxProperties": 0}}}`, true},
		{`{"oneOf": [{"properties": {"yes": {}}, "required": ["yes"]},
			{"patternProperties": {"^err_": {}}, "maxProperties": 0}]}`, true},
		{`{"oneOf": [{"allOf": [{"required": ["yes"]}]}]}`, true},
		{`{"oneOf": [false]}`, true},
	} {
		d, err := leader.ParseMeta(meta(map[string]string{"output_schema": c.schema}))
		if err != nil {
			t.Fatalf("%s: %v", c.schema, err)
		}
		v := d.Judge(leader.Reply{Status: 200, Body: []byte(`{"ok": {}}`)})
		if (v.Class == leader.Fatal) != c.own || (v.Code == "schema_mismatch") != c.own {
			t.Errorf("%s: %+v, want an answer of the tool %t", c.schema, v, c.own)
		}
	}
}

// Only the tool's own word keeps it alone for hours.
func TestOnlyAToolAsksForHours(t *testing.T) {
	t.Parallel()
	d, err := leader.ParseMeta(meta(nil))
	if err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]time.Duration{
		`{"error": "busy", "details": "for today"}`: 8 * time.Hour,
		`maintenance`:            5 * time.Minute,
		`{"message": "no more"}`: 5 * time.Minute,
		``:                       5 * time.Minute,
	} {
		if v := d.Judge(leader.Reply{Status: 429, Body: []byte(body), After: 8 * time.Hour}); v.After != want {
			t.Errorf("%s: %+v, want %s", body, v, want)
		}
	}
}
