package httpapi_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// docs/api.md is rendered from the contract, as everything in it that can be.
func TestTheCommittedContractHasItsPage(t *testing.T) {
	const path = "../../docs/api.md"
	got := reference(newDoor(t).want(200, "GET", "/openapi.json", "").body)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("docs/api.md is not what the contract says: make contract, and read the diff")
	}
}

const referenceHead = `# API reference

*Reference.* Every request of the API in a line each. The whole contract, with every field, its bounds and an example,
is [api/openapi.yaml](../api/openapi.yaml), which a running process serves as ` + "`/openapi.yaml` and `/openapi.json`" + `; a Go client of it is
` + "`api/client`" + `. This page is rendered from it by ` + "`make contract`" + `.

- A refusal is ` + "`application/problem+json`" + `: ` + "`code`" + ` says which, ` + "`errors`" + ` name field, value and what would be right, ` + "`retryable`" + ` whether to send it again.
- ` + "`Authorization: Bearer KEY`" + ` says who you are ([security](security.md)), ` + "`Postern-Context`" + ` for which tenant, where that is not the key's own.
- A list answers ` + "`items` and `next`" + `, which is the ` + "`cursor`" + ` of the following page and null at the end.
  A page may be short, even empty, before it: where a database has more than 60 partitions, a list goes through them by sixties.
- What can be changed has an ` + "`ETag`" + `: sent as ` + "`If-Match`" + `, a change that somebody else made since is 412.
`

func reference(doc map[string]any) string {
	type line struct{ path, method, text string }
	tags := map[string][]line{}
	paths := doc["paths"].(map[string]any)
	for path, item := range paths {
		for method, op := range item.(map[string]any) {
			o := op.(map[string]any)
			var asks []string
			params, _ := o["parameters"].([]any)
			for _, p := range params {
				if p := p.(map[string]any); p["in"] == "query" {
					asks = append(asks, "`"+p["name"].(string)+"`")
				}
			}
			tag := o["tags"].([]any)[0].(string)
			tags[tag] = append(tags[tag], line{path, method, fmt.Sprintf("| `%s %s` | %s | %s |\n", strings.ToUpper(method), path, o["summary"], strings.Join(asks, " "))})
		}
	}
	out := &strings.Builder{}
	out.WriteString(referenceHead)
	for _, tag := range slices.Sorted(maps.Keys(tags)) {
		list := tags[tag]
		slices.SortFunc(list, func(a, b line) int { return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.method, b.method)) })
		fmt.Fprintf(out, "\n## %s\n\n| request | what it does | in the query |\n|---|---|---|\n", strings.ToUpper(tag[:1])+tag[1:])
		for _, l := range list {
			out.WriteString(l.text)
		}
	}
	return out.String()
}
