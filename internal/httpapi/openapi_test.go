package httpapi_test

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/httpapi"
	"github.com/postern-dev/postern/internal/outbox"
)

var update = flag.Bool("update", false, "write golden files")

func TestTheCommittedContractIsTheOneThatIsServed(t *testing.T) {
	const path = "../../api/openapi.yaml"
	got, err := httpapi.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("api/openapi.yaml is not what the code serves: go test ./internal/httpapi -run Contract -update, and read the diff")
	}
	for _, s := range outbox.States {
		if !strings.Contains(string(got), "- "+string(s)+"\n") {
			t.Errorf("the state %s is missing from the contract", s)
		}
	}
}

func TestEveryOperationIsWellDescribed(t *testing.T) {
	if n := len(httpapi.Operations()); n < 30 {
		t.Errorf("only %d operations", n)
	}
	d := newDoor(t)
	a := d.want(200, "GET", "/openapi.json", "")
	seen := map[string]bool{}
	for path, item := range a.body["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			o := op.(map[string]any)
			id, _ := o["operationId"].(string)
			if seen[id] || id == "" || o["summary"] == "" || o["tags"] == nil {
				t.Errorf("%s %s: operationId %q, summary %v, tags %v", method, path, id, o["summary"], o["tags"])
			}
			seen[id] = true
		}
	}
	d.want(200, "GET", "/openapi.yaml", "")
}
