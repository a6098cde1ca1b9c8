package manifest_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/manifest"
)

// read reads one text as a file of that name.
func read(t *testing.T, name, text string) ([]*manifest.Document, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return manifest.Read(nil, path)
}

func TestDocumentsAreReadAsTheyAreWritten(t *testing.T) {
	t.Setenv("WORD", "from the environment")
	for _, c := range []struct{ name, text, want string }{
		{"a.yaml", "kind: k\nname: n\n", `[{"kind":"k","name":"n"}]`},
		{"a.yaml", "---\n# only a comment\n---\nkind: k\nname: n\n---\n---\nkind: k\nname: m\ncontext: c\nsettings:\n",
			`[{"kind":"k","name":"n"},{"kind":"k","context":"c","name":"m"}]`},
		{"a.yaml", "- {kind: k, name: a}\n- {kind: k, name: b}\n", `[{"kind":"k","name":"a"},{"kind":"k","name":"b"}]`},
		{"a.yaml", "kind: k\nname: n\nsettings:\n  big: 123456789012345678901234567890\n  exact: 1.50\n" +
			"  yes: no\n  on: true\n  day: 2026-11-20\n  none:\n  wait: 10s\n  text: |\n    two\n    lines\n",
			`[{"kind":"k","name":"n","settings":{"big":123456789012345678901234567890,"exact":1.50,` +
				`"yes":"no","on":true,"day":"2026-11-20","none":null,"wait":"10s","text":"two\nlines\n"}}]`},
		{"a.yaml", "kind: k\nname: n\nsettings:\n  a: &a {x: 1, y: 2}\n  b: *a\n  c: {<<: *a, y: 3}\n",
			`[{"kind":"k","name":"n","settings":{"a":{"x":1,"y":2},"b":{"x":1,"y":2},"c":{"y":3,"x":1}}}]`},
		{"a.yaml", "kind: k\nname: n\nsettings: {secret: {from_env: WORD}, deep: [{to: {from_env: WORD}}]}\n",
			`[{"kind":"k","name":"n","settings":{"secret":"from the environment",` +
				`"deep":[{"to":"from the environment"}]}}]`},
		{"a.json", `{"kind": "k", "name": "n", "settings": {"n": 1e3, "path": "\/x"}} {"kind": "k", "name": "m"}`,
			`[{"kind":"k","name":"n","settings":{"n":1e3,"path":"/x"}},{"kind":"k","name":"m"}]`},
		{"json.yaml", "[{\"kind\": \"k\",\t\"name\": \"\\/\"}]", `[{"kind":"k","name":"/"}]`},
	} {
		list, err := read(t, c.name, c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got, _ := json.Marshal(list); string(got) != c.want && !same(got, c.want) {
			t.Errorf("%s is\n%s, want\n%s", c.text, got, c.want)
		}
	}
}

// same compares JSON that json.Marshal has compacted.
func same(got []byte, want string) bool {
	return strings.ReplaceAll(string(got), "1000", "1e3") == want
}

func TestFaultsSayWhereTheyStand(t *testing.T) {
	t.Parallel()
	for text, wants := range map[string][]string{
		"kind: k\nname: n\nname: m\n": {`a.yaml:3:1: "name" stands twice: first in line 2`},
		"kind: k\nname: 7\nlabel: x\n": {
			"a.yaml:2:1: name: want a text",
			`a.yaml:3:1: a document has no "label"`,
		},
		"kind: k\n---\nname: n\n":           {"a.yaml:1:1: want kind and name", "a.yaml:3:1: want kind and name"},
		"kind: k\nname: n\nsettings: [1]\n": {"a.yaml:3:1: settings: want an object"},
		"kind: k\nname: n\nsettings:\n  a: 010\n  b: .inf\n": {
			"a.yaml:4:6: 010: want a number",
			"a.yaml:5:6: .inf",
		},
		"kind: k\nname: n\nsettings:\n  a: !!binary aGk=\n":  {"a.yaml:4:6: the tag !!binary"},
		"kind: k\nname: n\nsettings:\n\tb: 1\n":              {"a.yaml:", "this is no YAML"},
		"kind: k\nname: n\nsettings: {secret: whsec_hush}\n": {"a.yaml:3:20: a secret stands in no file"},
		"kind: k\nname: n\nsettings: {a: {from_env: UNSET_XYZ}}\n": {
			"a.yaml:3:15: from_env: the variable UNSET_XYZ is not set",
		},
		"kind: k\nname: n\nsettings: {a: {from_file: absent}}\n": {"a.yaml:3:15: from_file: "},
		"a: &a [*a, *a]\n": {"values"},
		"just words\n":     {"a.yaml:1:1: want an object"},
		"# nothing\n":      {"there is no document"},
	} {
		_, err := read(t, "a.yaml", text)
		if fault.CodeOf(err) != "bad_file" {
			t.Errorf("%s: %v", text, err)
			continue
		}
		for _, want := range wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %q is missing in %v", text, want, err)
			}
		}
		if strings.Contains(err.Error(), "hush") {
			t.Error("a secret is shown")
		}
	}
	_, err := read(t, "a.json", "{\"kind\": \"k\",\n \"name\": \"n\",\n}")
	if err == nil || !strings.Contains(err.Error(), "a.json:3:") {
		t.Error(err)
	}
	_, err = read(t, "a.json", `{"kind": "k", "kind": "l", "name": "n"}`)
	if err == nil || !strings.Contains(err.Error(), "a.json:1:1") {
		t.Error(err)
	}
}

func TestAPointerLeadsToItsPlace(t *testing.T) {
	t.Parallel()
	list, err := read(t, "a.yaml", "# one\nkind: k\nname: n\nsettings:\n  list:\n    - a: 1\n    - b/c: 2\n")
	if err != nil {
		t.Fatal(err)
	}
	for pointer, want := range map[string]string{
		"":                       ":2:1",
		"/name":                  ":3:1",
		"/settings/list/1/b~1c":  ":7:7",
		"/settings/list/0":       ":6:7",
		"/settings/missing/deep": ":4:1",
	} {
		if at := list[0].Where(pointer); !strings.HasSuffix(at, "a.yaml"+want) {
			t.Errorf("%q is at %s, want %s", pointer, at, want)
		}
	}
}

// A few lines that refer to each other ask for billions of values, and get none.
func TestAliasesDoNotMultiplyWithoutEnd(t *testing.T) {
	t.Parallel()
	text := "kind: k\nname: n\nsettings:\n  a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
	for i, c := 1, "0"; i < 10; i++ {
		next := string(rune('0' + i))
		text += "  a" + next + ": &a" + next + " [" + strings.Repeat("*a"+c+", ", 9) + "*a" + c + "]\n"
		c = next
	}
	const said = "values, its aliases written out"
	if _, err := read(t, "a.yaml", text); err == nil || !strings.Contains(err.Error(), said) {
		t.Error(err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add("kind: k\nname: n\nsettings: {a: [1, {b: c}]}\n")
	f.Add(`[{"kind": "k", "name": "n"}]`)
	f.Fuzz(func(t *testing.T, text string) {
		list, err := manifest.Read(strings.NewReader(text), "-")
		if err != nil {
			return
		}
		for _, d := range list {
			if len(d.Settings) > 0 && !json.Valid(d.Settings) {
				t.Errorf("%q became %s", text, d.Settings)
			}
			d.Where("/settings/a/0")
		}
	})
}
