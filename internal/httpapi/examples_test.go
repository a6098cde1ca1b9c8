package httpapi_test

import (
	"testing"

	"github.com/postern-dev/postern/api/examples"
)

// The examples of the contract are played in their order, each file by itself, and the answers are the ones that they
// show.
func TestExamplesAreAnsweredAsTheySay(t *testing.T) {
	d := newDoor(t)
	d.node()
	all, err := examples.All()
	if err != nil || len(all) < 2 {
		t.Fatal(all, err)
	}
	for _, list := range all {
		for _, e := range list {
			var headers []string
			for k, v := range e.Headers {
				headers = append(headers, k+": "+v)
			}
			a := d.call(e.Method, e.Path, string(e.Body), headers...)
			if a.status != e.Status || e.Does == "" || e.Answer == nil || !shown(e.Answer, any(a.body)) {
				t.Errorf("%s: answered %d %s", e.Does, a.status, a.raw)
			}
		}
	}
}

// shown says whether an answer has everything that an example shows of it. Lists are as long as shown, but blockers,
// whose first one is shown: the others depend on how long it stands.
func shown(want, got any) bool {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		for k, v := range w {
			has, there := g[k]
			if list, _ := has.([]any); k == "blockers" && len(list) > 1 {
				has = list[:1]
			}
			if !ok || !there || !shown(v, has) {
				return false
			}
		}
		return ok
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return false
		}
		for i := range w {
			if !shown(w[i], g[i]) {
				return false
			}
		}
		return true
	}
	return want == got
}
