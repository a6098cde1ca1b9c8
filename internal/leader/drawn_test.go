package leader_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
)

// drawnJSON is any document, with what looks like schemas among it.
func drawnJSON(t *rapid.T, depth int) any {
	kinds := 8
	if depth == 0 {
		kinds = 5
	}
	switch rapid.IntRange(0, kinds).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return json.Number(rapid.SampledFrom([]string{"0", "-1", "1.5", "1e5", "1e400", "99999999999999999999", "1e99999999"}).Draw(t, "number"))
	case 3:
		return rapid.String().Draw(t, "text")
	case 4:
		return rapid.SampledFrom([]string{"object", "integer", "string", "#", "#/$defs/a", "#n", "^a+$", "(a|aa)*b", "(", "file:///etc/passwd", "https://json-schema.org/draft/2020-12/schema"}).Draw(t, "word")
	case 5, 6:
		m := map[string]any{}
		for range rapid.IntRange(0, 4).Draw(t, "members") {
			name := rapid.SampledFrom([]string{"type", "properties", "items", "anyOf", "oneOf", "allOf", "not", "if", "then", "$ref", "$dynamicRef", "$dynamicAnchor", "$anchor", "$id", "$schema", "$defs",
				"enum", "const", "pattern", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames", "required", "dependentSchemas", "prefixItems", "contains",
				"uniqueItems", "minimum", "multipleOf", "a", "b", "", "a/b~c"}).Draw(t, "name")
			m[name] = drawnJSON(t, depth-1)
		}
		return m
	default:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "items") {
			list = append(list, drawnJSON(t, depth-1))
		}
		return list
	}
}

// drawnSchema is any document, or in half of the cases a schema that is valid by itself: of definitions with any two
// documents, one in thirty is.
func drawnSchema(t *rapid.T, depth int) any {
	if rapid.Bool().Draw(t, "any document") {
		return drawnJSON(t, depth)
	}
	return rapid.SampledFrom([]any{true, map[string]any{}, map[string]any{"type": "object", "additionalProperties": false}, map[string]any{"type": []any{"string", "null"}},
		map[string]any{"properties": map[string]any{"a": map[string]any{"type": "integer"}}, "required": []any{"a"}}, map[string]any{"not": map[string]any{"pattern": "^a+$"}},
		map[string]any{"$defs": map[string]any{"a": map[string]any{"items": map[string]any{"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}}).Draw(t, "schema")
}

func text(t *rapid.T, v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Whatever a tool says of itself, it is taken or refused with a pointer; and whatever is held against what was taken
// fits or does not: nothing panics, and nothing takes long.
func TestDrawnDefinitionsAreTakenOrRefused(t *testing.T) {
	t.Parallel()
	taken := 0
	rapid.Check(t, func(t *rapid.T) {
		start := time.Now()
		m := map[string]any{"fqn": "xyz.labs.drawn@1", "url": "http://tool.example", "input_schema": drawnSchema(t, 4), "output_schema": map[string]any{"oneOf": []any{drawnSchema(t, 3)}}}
		if rapid.IntRange(0, 9).Draw(t, "odd") == 0 {
			m[rapid.SampledFrom([]string{"fqn", "url", "type", "timeout", "max_answer", "description", "output_schema"}).Draw(t, "member")] = drawnJSON(t, 2)
		}
		d, err := leader.ParseMeta(text(t, m))
		if err != nil {
			if f := fault.As(err); f.Kind != fault.Invalid || len(f.Fields) != 1 || f.Detail == "" {
				t.Fatalf("%s: %+v", text(t, m), f)
			}
			return
		}
		taken++
		for range 3 {
			doc := text(t, drawnJSON(t, 4))
			if err := d.ValidateInput(doc); err != nil && fault.CodeOf(err) != "schema_mismatch" {
				t.Fatalf("%s against %s: %v", doc, text(t, m), err)
			}
			if v, err := d.ValidateOutput(doc); (v == "") != (err != nil) && string(doc[:1]) != "{" {
				t.Fatalf("%s: %q %v", doc, v, err)
			}
			for _, status := range []int{0, 200, 204, 302, 404, 422, 500} {
				if v := d.Judge(leader.Reply{Status: status, Body: doc, Code: fmt.Sprint(status)}); v.Class == "" || v.Class != leader.Successful && (v.Code == "" || v.Message == "") {
					t.Fatalf("%d %s: %+v", status, doc, v)
				}
			}
		}
		if all := time.Since(start); all > time.Minute {
			t.Fatalf("%s took %s", text(t, m), all)
		}
	})
	if taken == 0 {
		t.Error("no definition was taken: what is drawn is never valid")
	}
}

func FuzzParseMeta(f *testing.F) {
	f.Add(meta(nil), []byte(`{"a": 1}`))
	f.Fuzz(func(t *testing.T, raw, doc []byte) {
		d, err := leader.ParseMeta(raw)
		if err != nil {
			return
		}
		_ = d.ValidateInput(doc)
		_, _ = d.ValidateOutput(doc)
	})
}
