package internal_test

import (
	"os"
	"regexp"
	"testing"
)

// floorRow is a row of the table of floors: its number and its packages.
var floorRow = regexp.MustCompile(`(?m)^\| \d \| ([^|]*) \|`)
var backticked = regexp.MustCompile("`([^`]+)`")

// TestThePageOfTheHouseSaysWhereEveryPackageStands compares the table of floors with the map.
func TestThePageOfTheHouseSaysWhereEveryPackageStands(t *testing.T) {
	text, err := os.ReadFile(root + "/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, row := range floorRow.FindAllSubmatch(text, -1) {
		for _, name := range backticked.FindAllSubmatch(row[1], -1) {
			told[string(name[1])] = true
		}
	}
	there := map[string]bool{"testdata": true} // its packages are not listed with the others
	for _, f := range goFiles(t) {
		if at, ok := home(f.pkg); ok && floors[at].floor != support {
			there[at] = true
		}
	}
	delete(there, "internal") // holds nothing but the house tests
	for pkg := range there {
		if !told[pkg] {
			t.Errorf("ARCHITECTURE.md: the table of floors lacks %s", pkg)
		}
	}
	for pkg := range told {
		if !there[pkg] {
			t.Errorf("ARCHITECTURE.md: the table of floors names %s, which is not there", pkg)
		}
	}
}
