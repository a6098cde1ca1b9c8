package httpapi_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// example is a request and what is shown of its answer.
type example struct {
	Does, Method, Path string
	Headers            map[string]string
	Body               json.RawMessage
	Status             int
	Answer             any
}

// The examples of the contract are played in their order, each file by itself: what they show is what is answered.
func TestExamplesAreAnsweredAsTheySay(t *testing.T) {
	d := newDoor(t)
	d.node()
	files, err := filepath.Glob("../../api/examples/*.json")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var list []example
		if err := json.Unmarshal(text, &list); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		for _, e := range list {
			var headers []string
			for k, v := range e.Headers {
				headers = append(headers, k+": "+v)
			}
			a := d.call(e.Method, e.Path, string(e.Body), headers...)
			if a.status != e.Status || e.Does == "" || e.Answer == nil || !shown(e.Answer, any(a.body)) {
				t.Errorf("%s: %s: answered %d %s", filepath.Base(f), e.Does, a.status, a.raw)
			}
		}
	}
}

// shown says whether an answer has everything that an example shows of it; lists are as long as shown.
func shown(want, got any) bool {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		for k, v := range w {
			if has, there := g[k]; !ok || !there || !shown(v, has) {
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
