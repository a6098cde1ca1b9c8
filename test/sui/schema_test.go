// Package sui has the schema of Sui's GraphQL judge what sources of kind sui_graphql ask, and what is tested of them.
package sui

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/validator"

	"github.com/postern-dev/postern/internal/leader"
)

// The package that has the schema, as it was when the query was written.
const (
	suiPackage   = "@mysten/sui@2.33.1"
	suiIntegrity = "b/Nl9H7YbkrHu9GcXvWx14rzCkDMmVG2U3fw9BmpewNAZT7+Rf2fMRP0t6GdFitweHXZKUX91VC5V4O7Cpixpg=="
	suiSchema    = "package/src/graphql/generated/schema.graphql"
)

// schema fetches the schema from npm, and skips the test where there is no npm, or no registry.
func schema(t *testing.T) *ast.Schema {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("npm is not installed: the schema of Sui comes from its package " + suiPackage)
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	pack := exec.CommandContext(ctx, "npm", "pack", suiPackage, "--ignore-scripts", "--silent", "--fetch-retries=0")
	pack.Dir = dir
	if out, err := pack.CombinedOutput(); err != nil {
		t.Skipf("npm does not get %s, so that its schema cannot be asked: %v %s", suiPackage, err, out)
	}
	list, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	packed, err := os.ReadFile(list[0])
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha512.Sum512(packed); base64.StdEncoding.EncodeToString(sum[:]) != suiIntegrity {
		t.Fatalf("%s is not the package that was looked at", suiPackage)
	}
	return gqlparser.MustLoadSchema(&ast.Source{Name: suiSchema, Input: unpack(t, list[0], suiSchema)})
}

// unpack returns a file of an archive.
func unpack(t *testing.T, archive, name string) string {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			t.Fatalf("%s has no %s", archive, name)
		}
		if err != nil {
			t.Fatal(err)
		}
		if head.Name == name {
			text, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
	}
}

// asked is what a source asks.
type asked struct {
	Query     string
	Variables map[string]any
}

func ask(t *testing.T, s leader.Source, cursor string) asked {
	t.Helper()
	var a asked
	d := json.NewDecoder(strings.NewReader(string(s.Page(json.RawMessage(cursor)).Body)))
	d.UseNumber()
	if err := d.Decode(&a); err != nil {
		t.Fatal(err)
	}
	return a
}

// The query is one of the schema, and so are its variables, with every member that a filter may have. A sample answer
// has what the query asks for and nothing else, each value of the kind that the schema says.
func TestTheQueryIsOneOfTheSchema(t *testing.T) {
	s := schema(t)
	fields := slices.Collect(func(yield func(string) bool) {
		for _, f := range s.Types["EventFilter"].Fields {
			if !yield(f.Name) {
				return
			}
		}
	})
	values := map[string]string{"sender": `"0xa1"`, "module": `"0xf1::workflow"`, "type": `"0xf1::workflow::Call"`}
	var query *ast.QueryDocument
	for _, name := range fields {
		value, ok := values[name]
		if !ok {
			value = "7"
		}
		source := leader.Source{
			Kind:   "sui_graphql",
			URL:    "http://127.0.0.1/graphql",
			Filter: json.RawMessage(`{"` + name + `": ` + value + `}`),
			Map:    leader.SourceMap{FQN: "/contents/json/tool"},
		}.WithDefaults()
		if err := source.Validate(); err != nil {
			t.Errorf("a filter of the schema is refused: %v", err)
		}
		latest := source
		latest.Start = "latest"
		for _, a := range []asked{
			ask(t, source, ""),
			ask(t, source, `{"endCursor": "c", "event": "d:0", "checkpoint": "7"}`),
			ask(t, latest, ""),
		} {
			doc, err := gqlparser.LoadQuery(s, a.Query)
			if err != nil {
				t.Fatalf("the schema does not know what is asked: %v", err)
			}
			if _, err := validator.VariableValues(s, doc.Operations[0], a.Variables); err != nil {
				t.Errorf("variables %v: %v", a.Variables, err)
			}
			query = doc
		}
	}
	unknown := leader.Source{
		Kind:   "sui_graphql",
		URL:    "http://127.0.0.1/",
		Filter: json.RawMessage(`{"Package": "0x1"}`),
	}
	a := ask(t, unknown.WithDefaults(), "")
	if _, err := validator.VariableValues(s, query.Operations[0], a.Variables); err == nil {
		t.Error("a filter of JSON-RPC passes: the schema judges no filter")
	}

	sample, err := os.ReadFile("../../internal/leader/testdata/sui_graphql.json")
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ Data any }
	if err := json.Unmarshal(sample, &answer); err != nil {
		t.Fatal(err)
	}
	fits(t, s, "data", query.Operations[0].SelectionSet, answer.Data)
}

// fits compares a value with what was selected.
func fits(t *testing.T, s *ast.Schema, path string, set ast.SelectionSet, value any) {
	t.Helper()
	object, ok := value.(map[string]any)
	if !ok {
		t.Errorf("%s is no object: %v", path, value)
		return
	}
	rest := maps.Clone(object)
	for _, f := range selected(set) {
		v, ok := object[f.Alias]
		if !ok {
			t.Errorf("%s lacks %s", path, f.Alias)
		}
		delete(rest, f.Alias)
		fitsType(t, s, path+"."+f.Alias, f.Definition.Type, f.SelectionSet, v)
	}
	if len(rest) > 0 {
		t.Errorf("%s has what was not asked for: %v", path, rest)
	}
}

func fitsType(t *testing.T, s *ast.Schema, path string, of *ast.Type, set ast.SelectionSet, value any) {
	t.Helper()
	list, isList := value.([]any)
	switch _, isText := value.(string); {
	case value == nil:
		if of.NonNull {
			t.Errorf("%s is null, which the schema does not allow", path)
		}
	case of.Elem != nil && !isList:
		t.Errorf("%s is no list: %v", path, value)
	case of.Elem != nil:
		for _, v := range list {
			fitsType(t, s, path+"[]", of.Elem, set, v)
		}
	case len(set) > 0:
		fits(t, s, path, set, value)
	case of.NamedType == "JSON":
	case isText != slices.Contains([]string{"String", "SuiAddress", "DateTime"}, of.NamedType):
		t.Errorf("%s is %v, and %s in the schema", path, value, of.NamedType)
	}
}

// selected lists the fields of a selection, those of its fragments among them.
func selected(set ast.SelectionSet) (list []*ast.Field) {
	for _, one := range set {
		switch one := one.(type) {
		case *ast.Field:
			list = append(list, one)
		case *ast.FragmentSpread:
			list = append(list, selected(one.Definition.SelectionSet)...)
		}
	}
	return list
}
