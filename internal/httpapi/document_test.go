package httpapi_test

import (
	"slices"
	"strings"
)

// at looks into a document.
func at(v any, keys ...string) any {
	for _, k := range keys {
		m, _ := v.(map[string]any)
		v = m[k]
	}
	return v
}

// takesMatch says whether an operation is done under a condition only.
func takesMatch(doc map[string]any, method, path string) bool {
	params, _ := at(doc, "paths", path, strings.ToLower(method), "parameters").([]any)
	return slices.ContainsFunc(params, func(p any) bool { return at(p, "name") == "If-Match" })
}

// takesReason says whether the body of an operation has a reason.
func takesReason(doc map[string]any, method, path string) bool {
	schema := at(doc, "paths", path, strings.ToLower(method), "requestBody", "content", "application/json", "schema")
	if ref, ok := at(schema, "$ref").(string); ok {
		schema = at(doc, "components", "schemas", ref[strings.LastIndex(ref, "/")+1:])
	}
	return at(schema, "properties", "reason") != nil
}
