package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAWalkIsJudgedWithoutAServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "walk.json")
	write := func(edges string) {
		t.Helper()
		doc := `{"vertices": [{"name": "a", "kind": {"variant": "off_chain", "tool_fqn": "com.test.one@1"}, "entry_ports": [{"name": "in"}]},
			{"name": "b", "kind": {"variant": "off_chain", "tool_fqn": "com.test.two@1"}}], "edges": [` + edges + `]}`
		if err := os.WriteFile(file, []byte(doc), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	edge := `{"from": {"vertex": "a", "output_variant": "ok", "output_port": "x"}, "to": {"vertex": "b", "input_port": "1"}}`
	write(edge)
	postern(t, nil, "walk", "validate", file, "-o", "table").want(t, 0, "valid: 2 vertices, 1 edges; begins as _default_group")
	postern(t, nil, "walk", "validate", file, "-o", "json").want(t, 0, `"valid":true`)
	write(edge + "," + edge)
	postern(t, nil, "walk", "validate", file).want(t, 1, "Edge from 'Output variant: a.ok' to 'Output port: a.ok.x' already exists.")
	write(`{"colour": 1}`)
	postern(t, nil, "walk", "validate", file).want(t, 1, "is no definition of a walk", "colour")
	postern(t, nil, "walk", "validate", file+".not").want(t, 2, "no such file")
	postern(t, nil, "walk", "judge").want(t, 2, "unknown command")
	postern(t, nil, "walk", "valdate").want(t, 2, "did you mean `postern walk validate`?")
	postern(t, nil, "psot").want(t, 2, "did you mean `postern post`?")
	for _, args := range [][]string{ // the name is wrong, and not the flag behind it
		{"quarantine", "entr", "--reason", "restored"},
		{"quarantine", "-o", "json", "entr", "--reason=restored"},
	} {
		r := postern(t, nil, args...)
		r.want(t, 2, `unknown command "entr"`, "did you mean `postern quarantine enter`?")
		if strings.Contains(r.stderr, "unknown flag") {
			t.Errorf("%q: %s", args, r.stderr)
		}
	}
	postern(t, nil, "psot", "--queue", "q").want(t, 2, "did you mean `postern post`?")
	postern(t, nil, "quarantine", "--reason", "restored").want(t, 2, "unknown flag: --reason")
}
