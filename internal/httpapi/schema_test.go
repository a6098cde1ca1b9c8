package httpapi_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// contract is the document that an API serves, as JSON.
type contract struct{ doc map[string]any }

// schema follows $ref.
func (c contract) schema(s any) map[string]any {
	m, _ := s.(map[string]any)
	for m["$ref"] != nil {
		at := any(c.doc)
		for part := range strings.SplitSeq(strings.TrimPrefix(m["$ref"].(string), "#/"), "/") {
			at = at.(map[string]any)[part]
		}
		m = at.(map[string]any)
	}
	return m
}

// types are the types that a schema allows, none for all.
func types(s map[string]any) []string {
	switch t := s["type"].(type) {
	case string:
		return []string{t}
	case []any:
		var list []string
		for _, x := range t {
			list = append(list, x.(string))
		}
		return list
	}
	return nil
}

// misfit says where a value, decoded with its digits, does not fit a schema; "" if it does. It knows the
// keywords that the document uses, and refuses to judge by others.
func (c contract) misfit(at string, schema, v any) string {
	s := c.schema(schema)
	for key := range s {
		if !slices.Contains([]string{"type", "properties", "required", "additionalProperties", "items", "enum", "pattern", "minimum", "maximum", "exclusiveMinimum",
			"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "uniqueItems", "format", "oneOf", "description", "examples", "default", "contentEncoding",
			"x-go-type", "x-go-type-skip-optional-pointer", "contentMediaType", "deprecated", "writeOnly", "readOnly", "title"}, key) {
			return at + ": the test does not know the keyword " + key
		}
	}
	if list, ok := s["oneOf"].([]any); ok {
		var said []string
		for _, one := range list {
			if said = append(said, c.misfit(at, one, v)); said[len(said)-1] == "" {
				return ""
			}
		}
		return strings.Join(said, " and ")
	}
	if list := types(s); len(list) > 0 {
		is := typeOf(v)
		if !slices.Contains(list, is) && !(is == "integer" && slices.Contains(list, "number")) {
			return fmt.Sprintf("%s is %s, want %v", at, is, list)
		}
	}
	if enum, ok := s["enum"].([]any); ok && v != nil && !slices.ContainsFunc(enum, func(e any) bool { return fmt.Sprint(e) == fmt.Sprint(v) }) {
		return fmt.Sprintf("%s is %v, want one of %v", at, v, enum)
	}
	switch v := v.(type) {
	case map[string]any:
		return c.objectMisfit(at, s, v)
	case []any:
		if most, ok := s["maxItems"].(json.Number); ok && len(v) > number(most) {
			return fmt.Sprintf("%s has %d items", at, len(v))
		}
		for i, item := range v {
			if said := c.misfit(fmt.Sprintf("%s/%d", at, i), s["items"], item); s["items"] != nil && said != "" {
				return said
			}
		}
	case string:
		if p, ok := s["pattern"].(string); ok && !regexp.MustCompile(p).MatchString(v) {
			return fmt.Sprintf("%s is %q, want %s", at, v, p)
		}
		if _, err := time.Parse(time.RFC3339, v); s["format"] == "date-time" && err != nil {
			return fmt.Sprintf("%s is %q, want a time", at, v)
		}
		if most, ok := s["maxLength"].(json.Number); ok && utf8.RuneCountInString(v) > number(most) {
			return fmt.Sprintf("%s has %d characters", at, utf8.RuneCountInString(v))
		}
	}
	return ""
}

func (c contract) objectMisfit(at string, s, v map[string]any) string {
	properties, _ := s["properties"].(map[string]any)
	for _, name := range required(s) {
		if _, ok := v[name]; !ok {
			return at + "/" + name + " is missing"
		}
	}
	for name, value := range v {
		p, known := properties[name]
		if !known {
			if p = s["additionalProperties"]; p == false {
				return at + "/" + name + " is not in the document"
			}
			if p == nil || p == true {
				continue
			}
		}
		if said := c.misfit(at+"/"+name, p, value); said != "" {
			return said
		}
	}
	return ""
}

func required(s map[string]any) []string {
	var list []string
	names, _ := s["required"].([]any)
	for _, n := range names {
		list = append(list, n.(string))
	}
	return list
}

func number(n json.Number) int {
	i, _ := n.Int64()
	return int(i)
}

func typeOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case json.Number:
		if r, ok := new(big.Rat).SetString(v.String()); ok && r.IsInt() {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	}
	return "object"
}

// decoded reads JSON with all its digits.
func decoded(raw string) (v any, err error) {
	d := json.NewDecoder(strings.NewReader(raw))
	d.UseNumber()
	return v, d.Decode(&v)
}

func TestTheJudgeOfSchemasSeesMisfits(t *testing.T) {
	doc, err := decoded(`{"components": {"schemas": {"A": {"type": "object", "additionalProperties": false, "required": ["n"], "properties": {
		"n": {"type": "integer"}, "s": {"type": ["string", "null"], "pattern": "^a"}, "e": {"type": "string", "enum": ["x"]}, "t": {"type": "string", "format": "date-time"},
		"o": {"oneOf": [{"$ref": "#/components/schemas/A"}, {"type": "null"}]}, "l": {"type": "array", "items": {"type": "boolean"}}}}}}}`)
	if err != nil {
		t.Fatal(err)
	}
	c := contract{doc.(map[string]any)}
	for raw, fits := range map[string]bool{`{"n": 1}`: true, `{"n": 1.0, "s": null, "e": "x", "t": "2026-01-01T00:00:00Z", "o": {"n": 2}, "l": [true]}`: true, `{"n": 1, "o": null}`: true,
		`{}`: false, `{"n": 1.5}`: false, `{"n": "1"}`: false, `{"n": 1, "s": "b"}`: false, `{"n": 1, "e": "y"}`: false, `{"n": 1, "t": "now"}`: false, `{"n": 1, "o": {}}`: false,
		`{"n": 1, "l": [1]}`: false, `{"n": 1, "z": 1}`: false, `[]`: false, `null`: false} {
		v, err := decoded(raw)
		if said := c.misfit("", map[string]any{"$ref": "#/components/schemas/A"}, v); err != nil || (said == "") != fits {
			t.Errorf("%s: %q, %v", raw, said, err)
		}
	}
	if !reflect.DeepEqual(types(map[string]any{"type": "string"}), []string{"string"}) {
		t.Error("a single type")
	}
}
