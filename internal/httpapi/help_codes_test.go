package httpapi_test

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/help"
)

// A transaction ends, and an attempt is recorded, with a code that docs/errors.md has; and it has no code that no
// transaction carries. The codes are read from the source of what decides, calls and records.
func TestEveryErrorOfATransactionHasAParagraph(t *testing.T) {
	t.Parallel()
	paragraphs, refusals := map[string]bool{}, map[string]bool{}
	for _, e := range help.Errors(help.Error) {
		paragraphs[e.Name] = true
	}
	for _, e := range help.Errors(help.Problem) {
		refusals[e.Name] = true
	}
	const composed = "composed of the status"
	codes := map[string]string{"http_NNN": composed, "peer_http_NNN": composed}
	for _, dir := range []string{"remote", "sequencer", "leader", "work", "pg", "pg/*"} {
		files, err := filepath.Glob("../" + dir + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatal(dir, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			syntax, err := parser.ParseFile(gotoken.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, code := range codesIn(syntax) {
				codes[code] = file
			}
		}
	}
	if len(codes) < 45 {
		t.Fatalf("only %d codes were found in the source: has it moved?", len(codes))
	}
	for code, file := range codes {
		if !paragraphs[code] && !refusals[code] {
			t.Errorf("%s has the code %q, of which internal/help says nothing", file, code)
		}
	}
	for name := range paragraphs {
		if codes[name] == "" {
			t.Errorf("internal/help has the code %q, which no transaction carries", name)
		}
	}
}

// codesIn lists the texts that a file gives as the code of an answer, a verdict or an end: constants whose names begin
// with Code, fields and variables of that name, what functions return as a code, and what because() is told.
func codesIn(file *ast.File) (codes []string) {
	add := func(e ast.Expr) {
		if l, ok := e.(*ast.BasicLit); ok && l.Kind == gotoken.STRING {
			if text, err := strconv.Unquote(l.Value); err == nil && text != "" && !strings.HasSuffix(text, "_") {
				codes = append(codes, text)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if strings.HasPrefix(strings.ToLower(name.Name), "code") && i < len(n.Values) {
					add(n.Values[i])
				}
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Code" {
				add(n.Value)
			}
		case *ast.AssignStmt:
			for i, to := range n.Lhs {
				if field, ok := to.(*ast.SelectorExpr); ok && field.Sel.Name == "Code" && i < len(n.Rhs) {
					add(n.Rhs[i])
				}
			}
		case *ast.CallExpr:
			switch name := called(n.Fun); {
			case name == "because" && len(n.Args) == 3, name == "orphan" && len(n.Args) == 3:
				add(n.Args[1])
			case name == "cancelWaiting":
				add(n.Args[5])
			case name == "retry" && len(n.Args) == 2, name == "peerBlocked":
				add(n.Args[0])
			case name == "Uncalled":
				if made, ok := n.Args[0].(*ast.CallExpr); ok && called(made.Fun) == "New" {
					add(made.Args[1])
				}
			}
		case *ast.CompositeLit:
			if kind, ok := n.Type.(*ast.ArrayType); ok && called(kind.Elt) == "rule" {
				for _, row := range n.Elts {
					if row := row.(*ast.CompositeLit); len(row.Elts) == 6 {
						add(row.Elts[4])
					}
				}
			}
		case *ast.FuncDecl:
			if r := n.Type.Results; n.Body != nil && r != nil {
				for at, name := range results(r) {
					if name == "code" || name == "unread" {
						returned(n.Body, at, add)
					}
				}
			}
		}
		return true
	})
	return codes
}

// called is the name of what is called, without its package or its object.
func called(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// results are the names of what a function returns, in their order.
func results(list *ast.FieldList) (names []string) {
	for _, f := range list.List {
		for _, name := range f.Names {
			names = append(names, name.Name)
		}
	}
	return names
}

// returned adds what a function returns at one place of its results.
func returned(body *ast.BlockStmt, at int, add func(ast.Expr)) {
	ast.Inspect(body, func(n ast.Node) bool {
		if r, ok := n.(*ast.ReturnStmt); ok && at < len(r.Results) {
			add(r.Results[at])
		}
		return true
	})
}
