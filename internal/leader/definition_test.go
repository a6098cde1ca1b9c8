package leader_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
)

// meta is a definition with the members replaced that change names.
func meta(change map[string]string) []byte {
	m := map[string]json.RawMessage{
		"fqn": json.RawMessage(`"xyz.postern.add@1"`), "url": json.RawMessage(`"http://tool.example"`),
		"input_schema":  json.RawMessage(`{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"$ref": "#/$defs/small"}}, "required": ["a"], "$defs": {"small": {"type": "integer", "maximum": 9}}}`),
		"output_schema": json.RawMessage(`{"$schema": "https://json-schema.org/draft/2020-12/schema", "oneOf": [{"type": "object", "properties": {"ok": {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}}, "required": ["ok"], "additionalProperties": false}, {"type": "object", "properties": {"err_full": {"type": "object"}}, "required": ["err_full"], "additionalProperties": false}]}`),
	}
	for k, v := range change {
		if m[k] = json.RawMessage(v); v == "" {
			delete(m, k)
		}
	}
	raw, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return raw
}

func TestADefinitionChecksWhatGoesInAndComesOut(t *testing.T) {
	t.Parallel()
	d, err := leader.ParseMeta(meta(nil))
	if err != nil {
		t.Fatal(err)
	}
	if d.FQN.String() != "xyz.postern.add@1" || d.Timeout != 30*time.Second || d.MaxAnswer != 1<<20 {
		t.Errorf("%+v", d)
	}
	for raw, want := range map[string]string{
		`{"a": 1}`:          "",
		`{"a": 1, "b": 9}`:  "",
		`{"a": 1, "b": 10}`: "Input data does not match the input schema: /b: maximum: want 9",
		`{"b": 1}`:          "Input data does not match the input schema: the document: missing property 'a'",
		`{"a": "x"}`:        "Input data does not match the input schema: /a: got string, want integer",
		`{"a": 1e9999999}`:  "Input data does not match the input schema: /a: the number is beyond what is reckoned with: want at most 1000 digits",
		`{"a": 1} {}`:       "Input data does not match the input schema: it is no JSON: something follows the document",
		"{\"a\": \"\xff\"}": "Input data does not match the input schema: it is no JSON: it is not UTF-8",
		`{"a": 1, "x": ` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`: "Input data does not match the input schema: /x" + strings.Repeat("/0", 29) + "/...: nested deeper than 64 levels",
	} {
		err := d.ValidateInput(json.RawMessage(raw))
		if (err == nil) != (want == "") || err != nil && (err.Error() != want || fault.CodeOf(err) != "schema_mismatch") {
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
	}
	for raw, want := range map[string][2]string{
		`{"ok": {"sum": 3}}`:             {"ok", ""},
		`{"err_full": {}}`:               {"err_full", ""},
		`{"ok": {"sum": 3}, "more": {}}`: {"", "tool output must contain exactly one variant"},
		`{}`:                             {"", "tool output must contain exactly one variant"},
		`[]`:                             {"", "tool output must contain exactly one variant"},
		`{"ok": 3}`:                      {"", "payload must be an object"},
		`{"ok": {"sum": "3"}}`:           {"", "Output data does not match the output schema: /ok/sum: got string, want integer"},
		`{"other": {}}`:                  {"", "Output data does not match the output schema: the document: missing property 'ok'"},
	} {
		variant, err := d.ValidateOutput(json.RawMessage(raw))
		if variant != want[0] || (err == nil) != (want[1] == "") || err != nil && !strings.HasPrefix(err.Error(), want[1]) {
			t.Errorf("%s: %q, %v, want %q", raw, variant, err, want)
		}
	}
	if f := fault.As(d.ValidateInput(json.RawMessage(`{"a": "x", "b": 10}`))).Fields; len(f) != 2 || f[0].Pointer == f[1].Pointer || f[0].Pointer[:1] != "/" {
		t.Errorf("the pointers of what does not fit: %+v", f)
	}
}

func TestABrokenDefinitionIsRefusedWithThePointer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ member, value, pointer, text string }{
		{"fqn", `"add"`, "/fqn", "Invalid tool FQN format"},
		{"fqn", `7`, "/fqn", "fqn is a number: want a string"},
		{"type", `"onchain"`, "/type", `a tool of type "onchain" is not called from here`},
		{"url", `"ftp://x"`, "/url", "want http(s)://host"},
		{"url", `"http://x/?a=b"`, "/url", "want http(s)://host"},
		{"timeout", `"0s"`, "/timeout", "want a duration"},
		{"timeout", `"1h"`, "/timeout", "at most 10m"},
		{"max_answer", `99999999`, "/max_answer", "want 1024 to 10485760 bytes"},
		{"input_schema", ``, "/input_schema", "input_schema is missing"},
		{"input_schema", `null`, "/input_schema", "an object or a boolean"},
		{"input_schema", `{"type": "integre"}`, "/input_schema/type", "this is no schema of draft 2020-12"},
		{"input_schema", `{"properties": {"a/b": {"minimum": "x"}}}`, "/input_schema/properties/a~1b/minimum", "got string, want number"},
		{"input_schema", `{"$schema": "http://json-schema.org/draft-07/schema#"}`, "/input_schema/$schema", "want https://json-schema.org/draft/2020-12/schema"},
		{"input_schema", `{"properties": {"x": {"$ref": "file:///etc/passwd"}}}`, "/input_schema/properties/x/$ref", "leads out of the schema: nothing is loaded"},
		{"input_schema", `{"items": {"$ref": "https://example.com/schema"}}`, "/input_schema/items/$ref", "nothing is loaded"},
		{"input_schema", `{"items": {"$ref": "other.json"}}`, "/input_schema/items/$ref", "nothing is loaded"},
		{"input_schema", `{"$ref": "#/$defs/none"}`, "/input_schema/$ref", "leads nowhere"},
		{"input_schema", `{"allOf": [{"$ref": "#none"}]}`, "/input_schema/allOf/0/$ref", "leads nowhere"},
		{"input_schema", `{"properties": {"x": {"pattern": "(?=a)"}}}`, "/input_schema/properties/x/pattern", "cannot be run (RE2)"},
		{"input_schema", `{"patternProperties": {"(a": true}}`, "/input_schema/patternProperties/(a", "cannot be run"},
		{"input_schema", `{"pattern": "` + strings.Repeat("x{1000}", 11) + `"}`, "/input_schema/pattern", "too large"},
		{"input_schema", `{"minimum": 1e99999}`, "/input_schema/minimum", "beyond what is reckoned with"},
		{"input_schema", strings.Repeat(`{"not": `, 64) + "true" + strings.Repeat("}", 64), "/input_schema" + strings.Repeat("/not", 64), "nested deeper than 64 levels"},
		{"input_schema", `{"description": "` + strings.Repeat("x", 65536) + `"}`, "/input_schema", "at most 65536 are run"},
		{"output_schema", `{"type": "object"}`, "/output_schema", "The tool meta does not contain a top-level 'oneOf' key. Please make sure to use an enum as the Tool output type."},
		{"output_schema", `true`, "/output_schema", "top-level 'oneOf' key"},
		{"output_schema", `{"oneOf": []}`, "/output_schema/oneOf", "minItems"},
	} {
		_, err := leader.ParseMeta(meta(map[string]string{c.member: c.value}))
		f := fault.As(err)
		if err == nil || f.Kind != fault.Invalid || len(f.Fields) != 1 || f.Fields[0].Pointer != c.pointer || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s %.80s: %q %+v, want %s %q", c.member, c.value, f.Fields, err, c.pointer, c.text)
		}
	}
	for _, raw := range []string{``, `[]`, `"x"`, `{"fqn": `, `null`} {
		if _, err := leader.ParseMeta([]byte(raw)); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%q is a definition: %v", raw, err)
		}
	}
}

// A word that looks like a keyword, among data or among names of properties, is none.
func TestASchemaMayDescribeASchema(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		`{"properties": {"$ref": {"type": "string"}, "$schema": {"const": "http://json-schema.org/draft-07/schema#"}}}`,
		`{"const": {"$ref": "file:///etc/passwd", "$schema": "x"}}`,
		`{"$ref": "https://json-schema.org/draft/2020-12/schema"}`,
		`{"$defs": {"n": {"$dynamicAnchor": "n", "type": "integer"}}, "items": {"$dynamicRef": "#n"}}`,
	} {
		if _, err := leader.ParseMeta(meta(map[string]string{"input_schema": s})); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
}

// Schemas that branch so often, or compare so much, that an unbounded check would take hours.
func TestAHostileSchemaTakesABoundedTime(t *testing.T) {
	t.Parallel()
	doubling := func(keyword, leaf string) string {
		var defs []string
		for i := range 60 {
			ref := fmt.Sprintf(`{"$ref": "#/$defs/d%d"}`, i+1)
			switch keyword {
			case "dependentSchemas":
				defs = append(defs, fmt.Sprintf(`"d%d": {"dependentSchemas": {"a": %s, "b": %s}}`, i, ref, ref))
			case "patternProperties":
				defs = append(defs, fmt.Sprintf(`"d%d": {"patternProperties": {"a": %s, "^a": %s}}`, i, ref, ref))
			default:
				defs = append(defs, fmt.Sprintf(`"d%d": {"%s": [%s, %s]}`, i, keyword, ref, ref))
			}
		}
		return fmt.Sprintf(`{%s, "d60": %s}`, strings.Join(defs, ", "), leaf)
	}
	numbers := make([]string, 7000)
	for i := range numbers {
		numbers[i] = strconv.Itoa(i)
	}
	nested := strings.Repeat(`{"a": `, 60) + "1" + strings.Repeat("}", 60)
	many := "[" + strings.TrimSuffix(strings.Repeat("-1,", 20_000), ",") + "]"
	for name, c := range map[string]struct{ schema, doc string }{
		"anyOf":             {`{"$ref": "#/$defs/d0", "$defs": ` + doubling("anyOf", `false`) + `}`, `1`},
		"allOf":             {`{"$ref": "#/$defs/d0", "$defs": ` + doubling("allOf", `true`) + `}`, `1`},
		"not":               {`{"not": {"$ref": "#/$defs/d0"}, "$defs": ` + doubling("anyOf", `{"type": "null"}`) + `}`, `1`},
		"dependentSchemas":  {`{"not": {"$ref": "#/$defs/d0"}, "$defs": ` + doubling("dependentSchemas", `false`) + `}`, `{"a": 1, "b": 1}`},
		"patternProperties": {`{"not": {"$ref": "#/$defs/d0"}, "$defs": ` + doubling("patternProperties", `false`) + `}`, nested},
		"recursion":         {`{"anyOf": [{"properties": {"a": {"$ref": "#"}}, "required": ["z"]}, {"properties": {"a": {"$ref": "#"}}, "required": ["y"]}]}`, nested},
		"dynamic":           {`{"$dynamicRef": "#n", "$defs": {"n": {"$dynamicAnchor": "n", "anyOf": [{"properties": {"a": {"$dynamicRef": "#n"}}, "required": ["z"]}, {"properties": {"a": {"$dynamicRef": "#n"}}, "required": ["y"]}]}}}`, nested},
		"enum":              {`{"items": {"enum": [` + strings.Join(numbers, ",") + `]}}`, many},
		"patterns":          {`{"items": {"pattern": "` + strings.Repeat("(a|aa){500}", 3) + `b"}}`, `["` + strings.Repeat("a", 200_000) + `"]`},
		"unique":            {`{"allOf": [` + strings.TrimSuffix(strings.Repeat(`{"uniqueItems": true},`, 2000), ",") + `]}`, `[` + many + `,` + many + `]`},
		"unevaluated":       {`{"allOf": [` + strings.TrimSuffix(strings.Repeat(`{"unevaluatedItems": true},`, 2000), ",") + `]}`, many},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := leader.ParseMeta(meta(map[string]string{"input_schema": c.schema}))
			if err != nil {
				t.Fatal(err)
			}
			// the bound is in units of work, so however slow the machine is: this ends, or the tests never do
			err = d.ValidateInput(json.RawMessage(c.doc))
			if err == nil || !strings.Contains(err.Error(), "takes too long") {
				t.Errorf("%v", err)
			}
			if err := d.ValidateInput(json.RawMessage(`null`)); err != nil && strings.Contains(err.Error(), "takes too long") && name != "anyOf" && name != "allOf" && name != "not" {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

// A large document of the usual kind is checked.
func TestALargeDocumentIsChecked(t *testing.T) {
	t.Parallel()
	d, err := leader.ParseMeta(meta(map[string]string{"input_schema": `{"type": "array", "items": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "object", "properties": {"name": {"type": "string", "pattern": "^[a-z]+$"}}, "required": ["name"], "additionalProperties": false}]}}`}))
	if err != nil {
		t.Fatal(err)
	}
	for name, item := range map[string]string{"small": `1,`, "named": `{"name": "abc"},`} {
		doc := "[" + strings.TrimSuffix(strings.Repeat(item, 1<<18/len(item)), ",") + "]"
		start := time.Now()
		if err := d.ValidateInput(json.RawMessage(doc)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		t.Logf("%s: 256 KiB in %s", name, time.Since(start))
	}
}
