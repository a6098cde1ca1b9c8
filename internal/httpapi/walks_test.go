package httpapi_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

const sampleWalk = `{"vertices": [{"name": "a", "kind": {"variant": "off_chain", "tool_fqn": "com.test.one@1"}, "entry_ports": [{"name": "in"}]},
	{"name": "b", "kind": {"variant": "off_chain", "tool_fqn": "com.test.two@1"}}],
	"default_values": [{"vertex": "b", "input_port": "2", "value": {"storage": "inline", "data": [1.50]}}],
	"edges": [{"from": {"vertex": "a", "output_variant": "ok", "output_port": "x"}, "to": {"vertex": "b", "input_port": "1"}}]}`

func TestAWalkIsJudgedByVertexAndPort(t *testing.T) {
	d := newDoor(t)
	a := d.want(200, "POST", "/walks:validate", sampleWalk)
	if a.body["valid"] != true || a.body["vertices"] != float64(2) || !strings.Contains(a.raw, `["_default_group"]`) {
		t.Errorf("%s", a.raw)
	}
	for text, body := range map[string]string{
		"'Input port: b.1' is an entry port or has an edge leading into it": strings.Replace(sampleWalk, `"input_port": "2"`, `"input_port": "1"`, 1),
		"Invalid tool FQN format":                   strings.Replace(sampleWalk, "com.test.two@1", "com.two@1", 1),
		"/edges/0/from/output_variant: is required": strings.Replace(sampleWalk, `"output_variant": "ok", `, ``, 1),
		"/vertices/0/colour: unexpected property":   strings.Replace(sampleWalk, `{"name": "a"`, `{"colour": 1, "name": "a"`, 1),
	} {
		if a := d.want(422, "POST", "/walks:validate", body); !strings.Contains(a.str("detail"), text) {
			t.Errorf("%s, want %q", a.raw, text)
		}
	}
}

// The documents of the design's reference, through the door.
func TestWalksOfTheReferenceAreJudgedOverHTTP(t *testing.T) {
	dir := "../../../shared/vectors/nexus_dags/"
	b, err := os.ReadFile(dir + "_expected.json")
	if err != nil {
		t.Skipf("the vectors are not beside this checkout: %v", err)
	}
	var expected struct {
		Cases []struct {
			File, Expect string
			Contains     string `json:"error_contains"`
		}
	}
	if err := json.Unmarshal(b, &expected); err != nil {
		t.Fatal(err)
	}
	d := newDoor(t)
	for _, c := range expected.Cases {
		doc, err := os.ReadFile(dir + c.File)
		if err != nil {
			t.Fatal(err)
		}
		status := map[bool]int{true: 200, false: 422}[c.Expect == "ok"]
		if a := d.want(status, "POST", "/walks:validate", string(doc)); status == 422 && !strings.Contains(a.str("detail"), c.Contains) {
			t.Errorf("%s: %s, want %q", c.File, a.raw, c.Contains)
		}
	}
}
