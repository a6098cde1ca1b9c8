package httpapi_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// Operations, parameters and fields that clients may use do not go by accident. A line of the golden file has an
// operation with the parameters of its query, or an object with its fields. -update adds new ones; a line that is gone
// is taken out by hand.
func TestNothingOfTheSurfaceIsGone(t *testing.T) {
	const path = "testdata/surface.txt"
	now := surface(newDoor(t).want(200, "GET", "/openapi.json", "").body)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	golden := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		name, list, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		golden[name] = strings.Fields(list)
	}
	for name, list := range golden {
		if _, ok := now[name]; !ok {
			t.Errorf("%s is gone from the contract", name)
			continue
		}
		for _, part := range list {
			if !slices.Contains(now[name], part) {
				t.Errorf("%s has no %s any more", name, part)
			}
		}
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(now)) {
		b.WriteString(name + ": " + strings.Join(slices.Sorted(slices.Values(now[name])), " ") + "\n")
	}
	switch {
	case t.Failed():
		t.Log("clients may need it: if it is meant, take it out of " + path + " by hand")
	case *update:
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	case b.String() != string(text):
		t.Error(path + " lacks what is new: make contract")
	}
}

// surface lists operations with their query, and objects with their fields.
func surface(doc map[string]any) map[string][]string {
	all := map[string][]string{}
	for path, item := range doc["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			list := []string{}
			params, _ := op.(map[string]any)["parameters"].([]any)
			for _, p := range params {
				if p := p.(map[string]any); p["in"] == "query" {
					list = append(list, p["name"].(string))
				}
			}
			all[strings.ToUpper(method)+" "+path] = list
		}
	}
	for name, schema := range doc["components"].(map[string]any)["schemas"].(map[string]any) {
		properties, _ := schema.(map[string]any)["properties"].(map[string]any)
		all[name] = slices.Collect(maps.Keys(properties))
	}
	return all
}
