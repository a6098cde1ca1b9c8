package internal

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// past are statements that write past Exec, WriteRow and Run, and why they may.
var past = map[string]string{
	"pg/conf.go makeLane":          "what the statement of its caller needs, made if it is not there",
	"pg/db/lack.go DB.listLacks":   "it says the name of a function that it does not call",
	"pg/db/lack.go DB.makeDay":     "what another statement needs, of which nothing was done",
	"pg/db/span.go DB.EnsureDays":  "what another statement needs, of which nothing was done",
	"pg/merge/merge.go mergeGroup": "a session of its own, whose errors are shown as they are",
}

var (
	// writing is what a statement that writes has in it.
	writing = regexp.MustCompile(`(?i)\bINSERT\s+INTO\s+postern\.|\bDELETE\s+FROM\b|\bUPDATE\s+postern\.`)
	// function is a function of the schema, with its body.
	function = regexp.MustCompile(`(?is)CREATE (?:OR REPLACE )?FUNCTION postern\.(\w+)\(.*?\$\$(.*?)\$\$`)
	// made is a table that a function makes, moves or drops.
	made = regexp.MustCompile(`(?i)\bEXECUTE\b.*\b(CREATE|DROP|ALTER)\b`)
)

// A statement that writes goes through Exec, WriteRow or Run, which call an answer that was lost commit_unknown. Query
// and QueryRow of a pool say database_unavailable, which means that nothing was done.
func TestALostAnswerOfAWriteIsUnknown(t *testing.T) {
	writers := writersOf(t)
	has := func(name string) bool { return slices.Contains(writers, name) }
	if !has("roll_on") || !has("drop_day") || has("salt") {
		t.Fatalf("of the functions of the schema, those that write are %v", writers)
	}
	calls := regexp.MustCompile(`\bpostern\.(` + strings.Join(writers, "|") + `)\(`)
	files, texts := storeFiles(t)
	unused := maps.Clone(past)
	for path, file := range files {
		for _, decl := range file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			where := path + " " + nameOf(fn)
			ast.Inspect(fn, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || !sendsAtOnce(call) {
					return true
				}
				text := textOf(call, texts[filepath.Dir(path)])
				if !writing.MatchString(text) && !calls.MatchString(text) {
					return true
				}
				if _, known := past[where]; !known {
					t.Errorf("%s writes by a %s past Exec, WriteRow and Run: %.90s", where,
						call.Fun.(*ast.SelectorExpr).Sel.Name, strings.Join(strings.Fields(text), " "))
				}
				delete(unused, where)
				return true
			})
		}
	}
	for where := range unused {
		t.Errorf("%s is listed, and does not write past them", where)
	}
}

// writersOf lists the functions of the schema that write.
func writersOf(t *testing.T) (list []string) {
	paths, _ := filepath.Glob("../migrations/*.sql")
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range function.FindAllStringSubmatch(string(text), -1) {
			if writing.MatchString(f[2]) || made.MatchString(f[2]) {
				list = append(list, f[1])
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// storeFiles parses the store, and reads the texts of the constants and variables of each of its packages.
func storeFiles(t *testing.T) (files map[string]*ast.File, texts map[string]map[string]string) {
	files, texts = map[string]*ast.File{}, map[string]map[string]string{}
	set := token.NewFileSet()
	err := filepath.WalkDir("pg", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return err
		}
		files[path] = file
		dir := filepath.Dir(path)
		if texts[dir] == nil {
			texts[dir] = map[string]string{}
		}
		for _, decl := range file.Decls {
			if g, ok := decl.(*ast.GenDecl); ok {
				for _, spec := range g.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok {
						for _, name := range v.Names {
							texts[dir][name.Name] = literals(v)
						}
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files, texts
}

// sendsAtOnce says whether a call sends a statement, other than through the methods that know of lost answers.
func sendsAtOnce(call *ast.CallExpr) bool {
	fn, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	on, plain := fn.X.(*ast.Ident)
	switch fn.Sel.Name {
	case "Query", "QueryRow":
		conn, ok := fn.X.(*ast.SelectorExpr)
		return !ok || conn.Sel.Name != "Conn" // of a Txn, whose commit comes later
	case "Exec":
		return !plain || on.Name != "s" // of a store
	}
	return false
}

// textOf is the text of the statement of a call: its literals, and those of what it names.
func textOf(call *ast.CallExpr, names map[string]string) string {
	text := ""
	for _, arg := range call.Args {
		if _, ok := arg.(*ast.FuncLit); ok {
			continue
		}
		text += literals(arg)
		ast.Inspect(arg, func(n ast.Node) bool {
			if name, ok := n.(*ast.Ident); ok {
				text += " " + names[name.Name]
			}
			return true
		})
	}
	return text
}

func literals(n ast.Node) (text string) {
	ast.Inspect(n, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			text += l.Value + " "
		}
		return true
	})
	return text
}

// nameOf is the name of a function, with its receiver.
func nameOf(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	on := fn.Recv.List[0].Type
	if star, ok := on.(*ast.StarExpr); ok {
		on = star.X
	}
	return fmt.Sprintf("%v.%s", on, fn.Name.Name)
}
