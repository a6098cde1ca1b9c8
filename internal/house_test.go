package internal_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const root = ".."

// goFile is one file of our module, parsed with its comments.
type goFile struct {
	path   string // from the root, with slashes
	pkg    string // its directory
	text   []byte
	syntax *ast.File
}

func (f goFile) test() bool      { return strings.HasSuffix(f.path, "_test.go") }
func (f goFile) generated() bool { return ast.IsGenerated(f.syntax) }

func (f goFile) imports() []string {
	var paths []string
	for _, i := range f.syntax.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		paths = append(paths, p)
	}
	return paths
}

// walk calls f for each file of our module; nested modules and what git or builds keep are left out.
func walk(t *testing.T, f func(path string, text []byte)) {
	t.Helper()
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			if os.IsNotExist(err) { // a temporary file of somebody's editor or build
				return nil
			}
			return err
		}
		rel, _ := filepath.Rel(root, p)
		if d.IsDir() {
			_, nested := os.Stat(filepath.Join(p, "go.mod"))
			if rel != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || nested == nil) {
				return fs.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil || !info.Mode().IsRegular() || info.Size() > 4<<20 {
			return nil
		}
		text, err := os.ReadFile(p)
		if err == nil && bytes.IndexByte(text, 0) < 0 {
			f(filepath.ToSlash(rel), text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

var parsed struct {
	once  sync.Once
	files []goFile
}

// goFiles returns every Go file of our module, whatever its build tags.
func goFiles(t *testing.T) []goFile {
	t.Helper()
	parsed.once.Do(func() {
		walk(t, func(p string, text []byte) {
			if path.Ext(p) != ".go" || strings.Contains(p, "testdata/") {
				return
			}
			syntax, err := parser.ParseFile(token.NewFileSet(), p, text, parser.ParseComments)
			if err != nil {
				t.Errorf("%s cannot be parsed: %v", p, err)
				return
			}
			parsed.files = append(parsed.files, goFile{path: p, pkg: path.Dir(p), text: text, syntax: syntax})
		})
	})
	if len(parsed.files) == 0 {
		t.Fatal("no Go file was found: is the module's root not the directory above this one?")
	}
	return parsed.files
}

func TestEveryPackageExplainsItself(t *testing.T) {
	explained := map[string]bool{}
	for _, f := range goFiles(t) {
		if f.test() {
			continue
		}
		name := f.syntax.Name.Name
		doc := f.syntax.Doc.Text()
		if name != "main" && doc != "" && !strings.HasPrefix(doc, "Package "+name+" ") {
			t.Errorf("%s: the package comment must begin with \"Package %s \"", f.path, name)
		}
		explained[f.pkg] = explained[f.pkg] || doc != ""
	}
	for pkg, ok := range explained {
		if !ok {
			t.Errorf("package %s has no doc comment that says what goes in and what comes out", pkg)
		}
	}
}

// large lists the Go files above 20 K that are not generated, each with its reason.
var large = map[string]string{}

func TestNoFileOutgrowsItsReader(t *testing.T) {
	const most = 20 << 10
	seen := map[string]bool{}
	for _, f := range goFiles(t) {
		if len(f.text) <= most || f.generated() {
			continue
		}
		seen[f.path] = true
		if large[f.path] == "" {
			t.Errorf("%s has %d bytes, more than %d: split it, or list it with its reason", f.path, len(f.text), most)
		}
	}
	for p := range large {
		if !seen[p] {
			t.Errorf("%s is listed as large and is not: take it off the list", p)
		}
	}
}

// unnumbered finds the word without the number of an issue behind it: a reader could not look up such a promise.
var unnumbered = regexp.MustCompile(`\b` + "TO" + `DO\b(?:[ :(]*#\d+)?`)

func TestNothingIsLeftToDoWithoutANumber(t *testing.T) {
	walk(t, func(p string, text []byte) {
		for _, hit := range unnumbered.FindAll(text, -1) {
			if !bytes.Contains(hit, []byte("#")) {
				t.Errorf("%s: %q without #number: do it, or open an issue", p, hit)
				return
			}
		}
	})
}
