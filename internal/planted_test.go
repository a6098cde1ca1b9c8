package internal_test

import (
	"go/ast"
	"testing"
)

// A fault of a domain is planted by its simulation alone: nothing that is shipped can have one.
func TestOnlyTheSimulationPlantsFaults(t *testing.T) {
	found := 0
	for _, f := range goFiles(t) {
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok || s.Sel.Name != "Plant" {
				return true
			}
			if x, ok := s.X.(*ast.Ident); ok && x.Name == "coord" {
				found++
				if f.pkg != "internal/coord/coordtest" {
					t.Errorf("%s plants a fault", f.path)
				}
			}
			return true
		})
	}
	if found == 0 {
		t.Error("the simulation plants none")
	}
}
