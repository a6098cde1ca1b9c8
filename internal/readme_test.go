package internal_test

import (
	"go/ast"
	"os"
	"regexp"
	"strconv"
	"testing"
)

// floorRow is a row of the table of floors: its number and its packages.
var floorRow = regexp.MustCompile(`(?m)^\| \d \| ([^|]*) \|`)
var backticked = regexp.MustCompile("`([^`]+)`")

// stepRow is a row of the table of rooms: its step and its packages.
var stepRow = regexp.MustCompile("(?m)^\\| pg (\\d) \\| (`internal/pg[^|]*) \\| [^|]+ \\|$")

// TestThePageOfTheHouseSaysWhichRoomsThereAre compares the table of rooms with the steps of the store.
func TestThePageOfTheHouseSaysWhichRoomsThereAre(t *testing.T) {
	text, err := os.ReadFile(root + "/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]string{}
	for _, row := range stepRow.FindAllSubmatch(text, -1) {
		for _, name := range backticked.FindAllSubmatch(row[2], -1) {
			told[string(name[1])] = string(row[1])
		}
	}
	for pkg, s := range steps {
		if got := told[pkg]; got != strconv.Itoa(s.step) {
			t.Errorf("ARCHITECTURE.md: the table of rooms has %s on step %q, the floors test on %d", pkg, got, s.step)
		}
		delete(told, pkg)
	}
	for pkg := range told {
		t.Errorf("ARCHITECTURE.md: the table of rooms names %s, which is none", pkg)
	}
}

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

// pointed is a place in our code as the page of the house names it: a file and a function.
var pointed = regexp.MustCompile("`([a-z_/]+\\.go)#(\\w+)`")

// TestThePageOfTheHouseNamesFunctionsThatAreThere looks for each function of the table of questions in its file.
func TestThePageOfTheHouseNamesFunctionsThatAreThere(t *testing.T) {
	text, err := os.ReadFile(root + "/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, f := range goFiles(t) {
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				there[f.path+"#"+fn.Name.Name] = true
			}
		}
	}
	places := pointed.FindAllSubmatch(text, -1)
	if len(places) < 10 {
		t.Errorf("ARCHITECTURE.md names %d functions: is the table of questions gone?", len(places))
	}
	for _, at := range places {
		if place := string(at[1]) + "#" + string(at[2]); !there[place] {
			t.Errorf("ARCHITECTURE.md names %s, which is not there", place)
		}
	}
}
