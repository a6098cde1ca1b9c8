package internal_test

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// forReaders are the files that users read, by folder and extension: manuals, the contract and what is generated from
// it, the help of each command, the public packages, and the pages of the machines.
func forReaders(p string) bool {
	switch dir, ext := path.Dir(p), path.Ext(p); {
	case p == requirementsPage:
		return false // explains the numbers
	case p == "README.md", path.Base(p) == "machine.md":
		return true
	case dir == "docs":
		return ext == ".md"
	case dir == "testdata/cli":
		return ext == ".txt"
	}
	return strings.HasPrefix(p, "api/") || strings.HasPrefix(p, "examples/") || strings.HasPrefix(p, "deploy/")
}

var (
	// insider finds words that only those know who build Postern: numbers of requirements, and designs called seeds.
	insider = regexp.MustCompile(`\bS[0-9]\.[0-9]+|(?i)\bseeds?\b(?: [0-9])?`)
	// chances are drawn by a number that is called a seed everywhere.
	chances = regexp.MustCompile(`--seed\b|-seed [0-9]+`)
)

func TestUsersReadTheThingAndNotItsNumber(t *testing.T) {
	const rule = "users read %q: say the thing"
	walk(t, func(p string, text []byte) {
		if !forReaders(p) {
			return
		}
		for i, line := range strings.Split(string(text), "\n") {
			if hit := insider.FindString(chances.ReplaceAllString(line, "")); hit != "" {
				t.Errorf("%s:%d: "+rule, p, i+1, hit)
			}
		}
	})
	// Messages, help and descriptions are strings. SQL is none of them, and cites in its comments.
	for _, f := range goFiles(t) {
		if f.test() || f.generated() {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			if err != nil {
				text = lit.Value // a tag of a struct
			}
			hit := insider.FindString(text)
			if strings.HasPrefix(hit, "S") && !strings.Contains(text, "SELECT") {
				t.Errorf("%s: "+rule, f.path, hit)
			}
			return true
		})
	}
}
