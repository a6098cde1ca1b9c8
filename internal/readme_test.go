package internal_test

import (
	"os"
	"regexp"
	"testing"
)

var packageRow = regexp.MustCompile("(?m)^\\| (`[^|]*`) \\|")
var backticked = regexp.MustCompile("`([^`]+)`")

func TestTheReadmeSaysWhereEveryPackageLives(t *testing.T) {
	text, err := os.ReadFile(root + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, row := range packageRow.FindAllSubmatch(text, -1) {
		for _, name := range backticked.FindAllSubmatch(row[1], -1) {
			told[string(name[1])] = true
		}
	}
	there := map[string]bool{}
	for _, f := range goFiles(t) {
		if at, ok := home(f.pkg); ok {
			there[at] = true
		}
	}
	delete(there, "internal") // holds nothing but the house tests
	there["testdata"] = true  // its packages are not listed with the others
	for pkg := range there {
		if !told[pkg] {
			t.Errorf("README.md: the table of where things live lacks %s", pkg)
		}
	}
	for pkg := range told {
		if !there[pkg] {
			t.Errorf("README.md: the table of where things live names %s, which is not there", pkg)
		}
	}
}
