package internal_test

import (
	"go/ast"
	"strings"
	"testing"
)

// beside are packages that are a part of a process, but whose goroutines begin by themselves, with the reason.
var beside = map[string]string{
	"internal/safe":  "it is where they begin",
	"internal/devpg": "it keeps a PostgreSQL for development, in a process of its own",
	"api/worker":     "it is public, so that it imports nothing of ours; what it calls of others it recovers by itself",
}

// processPackages are those of our packages that a process of `serve` or `work` is made of: internal/app and all that
// it imports. The tools beside it (benchmarks, the devnet, the demo, checks of workers) may end by a panic.
func processPackages(t *testing.T) map[string]bool {
	imports := map[string][]string{}
	for _, f := range goFiles(t) {
		if f.test() {
			continue
		}
		for _, path := range f.imports() {
			if pkg, ours := strings.CutPrefix(path, module); ours {
				imports[f.pkg] = append(imports[f.pkg], pkg)
			}
		}
	}
	found := map[string]bool{}
	var add func(pkg string)
	add = func(pkg string) {
		if !found[pkg] {
			found[pkg] = true
			for _, p := range imports[pkg] {
				add(p)
			}
		}
	}
	add("internal/app")
	return found
}

// A panic in a goroutine ends the process, unless the goroutine recovers it. All of ours begin in package safe, so that
// none is forgotten.
func TestEveryGoroutineBeginsWhereAPanicIsRecovered(t *testing.T) {
	process := processPackages(t)
	for _, want := range []string{"internal/pg", "internal/work", "internal/httpapi",
		"internal/remote", "internal/telemetry"} {
		if !process[want] {
			t.Errorf("%s is not found among %v", want, process)
		}
	}
	for _, f := range goFiles(t) {
		if f.test() || !process[f.pkg] || beside[f.pkg] != "" {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if why := unsafe(n); why != "" {
				t.Errorf("%s: %s", f.path, why)
			}
			return true
		})
	}
}

// unsafe says why a statement may end the process, or "".
func unsafe(n ast.Node) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		if !begins(n.Call, "Run") {
			return "a goroutine that begins with neither safe.Run nor Loops.Run: " + text(n.Call.Fun)
		}
	case *ast.CallExpr:
		s, ok := n.Fun.(*ast.SelectorExpr)
		if !ok || len(n.Args) == 0 || s.Sel.Name != "Go" && s.Sel.Name != "AfterFunc" {
			return ""
		}
		f, ok := n.Args[len(n.Args)-1].(*ast.CallExpr)
		if !ok || !begins(f, "Func") {
			return "what " + text(s) + " runs is made by neither safe.Func nor Loops.Func"
		}
	}
	return ""
}

// begins says whether a call is of a function of package safe, or of the method of its Loops that has the same name.
func begins(call *ast.CallExpr, name string) bool {
	s, ok := call.Fun.(*ast.SelectorExpr)
	return ok && s.Sel.Name == name && (text(s.X) == "safe" || strings.HasSuffix(strings.ToLower(text(s.X)), "loops"))
}

// text is how a name reads, as far as it consists of names.
func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return text(e.X) + "." + e.Sel.Name
	}
	return "a function"
}
