package internal_test

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	creates   = regexp.MustCompile(`CREATE TABLE postern\.(\w+)`)
	named     = regexp.MustCompile(`\bpostern\.(\w+)`)
	bracketed = regexp.MustCompile(`\([^)]*\)`)
)

// schemaTables returns the tables that the migrations create.
func schemaTables(t *testing.T) map[string]bool {
	t.Helper()
	tables := map[string]bool{}
	walk(t, func(p string, text []byte) {
		if path.Dir(p) != "migrations" || path.Ext(p) != ".sql" {
			return
		}
		for _, m := range creates.FindAllSubmatch(text, -1) {
			tables[string(m[1])] = true
		}
	})
	if len(tables) < 40 {
		t.Fatalf("the migrations create %d tables: were they found?", len(tables))
	}
	return tables
}

// pageTables returns the tables that a page of a package lists: the first sentence below "# Tables", without what
// stands in brackets.
func pageTables(page string) []string {
	_, below, found := strings.Cut(page, "# Tables\n")
	if !found {
		return nil
	}
	list, _, _ := strings.Cut(bracketed.ReplaceAllString(below, ""), ".")
	var names []string
	for _, word := range strings.FieldsFunc(list, func(r rune) bool { return strings.ContainsRune(" ,\n\t", r) }) {
		if word != "and" {
			names = append(names, word)
		}
	}
	return names
}

// rooms returns the package of the store on whose page each table stands.
func rooms(t *testing.T, tables map[string]bool) map[string]string {
	t.Helper()
	of := map[string]string{}
	for _, f := range goFiles(t) {
		if _, known := steps[f.pkg]; !known || path.Base(f.path) != "doc.go" {
			continue
		}
		for _, name := range pageTables(f.syntax.Doc.Text()) {
			switch {
			case !tables[name]:
				t.Errorf("%s lists the table %q, which no migration creates", f.path, name)
			case of[name] != "":
				t.Errorf("%s lists the table %s, and so does the page of %s", f.path, name, of[name])
			}
			of[name] = f.pkg
		}
	}
	return of
}

func TestEveryTableIsOnThePageOfOneRoom(t *testing.T) {
	tables := schemaTables(t)
	of := rooms(t, tables)
	for name := range tables {
		if of[name] == "" {
			t.Errorf("the table %s is on no page: list it below \"# Tables\" in the doc.go of its package", name)
		}
	}
}

// beyond lists tables that the SQL of a package names although they are kept above or beside it, each with its reason.
var beyond = map[string]map[string]string{
	"internal/pg/db": {
		"task":     "the witness looks for the newest acknowledged commits",
		"outcome":  "the witness looks for the newest acknowledged commits",
		"queue":    "the witness looks for the newest acknowledged commits",
		"node":     "the witness looks for the newest acknowledged commits",
		"retained": "the witness does not miss what retention has dropped",
	},
	"internal/pg": {
		"actor":   "a member refers to one: the foreign key does, too",
		"api_key": "a context is removed with its keys, in one commit",
	},
	"internal/pg/deliveries": {
		"processor":  "an event of a batch has the name of its processor",
		"batch_step": "a notice of a timeout has the id of its batch",
	},
	"internal/pg/reads": {
		"api_key":  "the key that pulled a lever is called by its name",
		"delivery": "figures of what is still to be delivered",
		"source":   "figures of what sources are behind",
	},
}

// systemless are packages of the store whose SQL is about all tables: that is what they are for.
var systemless = []string{"internal/pg/migrate", "internal/pg/merge", "internal/pg/verify", "internal/pg/doctor",
	"internal/pg/addresses"}

// sqlTables returns the tables of the schema that string literals of a file name.
func sqlTables(f goFile, tables map[string]bool) []string {
	var names []string
	add := func(name string) {
		if name = strings.TrimSuffix(name, "_old"); tables[name] && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
				for _, m := range named.FindAllStringSubmatch(text, -1) {
					add(m[1])
				}
			}
		case *ast.CallExpr: // db.InsertMany("task", ...)
			fn, ok := n.Fun.(*ast.SelectorExpr)
			if !ok || fn.Sel.Name != "InsertMany" {
				break
			}
			if lit, ok := n.Args[0].(*ast.BasicLit); ok {
				name, _ := strconv.Unquote(lit.Value)
				add(name)
			}
		}
		return true
	})
	return names
}

// A package of the store names in its SQL the tables that it keeps, and those of packages that it may import.
func TestSQLNamesTablesOfItsRoomAndOfThoseBelow(t *testing.T) {
	tables := schemaTables(t)
	of := rooms(t, tables)
	used := map[string]map[string]bool{}
	for _, f := range goFiles(t) {
		if _, known := steps[f.pkg]; !known || f.test() || slices.Contains(systemless, f.pkg) {
			continue
		}
		for _, name := range sqlTables(f, tables) {
			if of[name] == f.pkg || climbs(f.pkg, of[name]) == "" {
				continue
			}
			if beyond[f.pkg][name] == "" {
				t.Errorf("%s names the table %s of %s, which it may not import: let that package register the SQL",
					f.path, name, of[name])
			}
			if used[f.pkg] == nil {
				used[f.pkg] = map[string]bool{}
			}
			used[f.pkg][name] = true
		}
	}
	for pkg, names := range beyond {
		for name := range names {
			if !used[pkg][name] {
				t.Errorf("%s names %s no more: take it off the list", pkg, name)
			}
		}
	}
}

func TestThePagesAreReadAsTheyAreWritten(t *testing.T) {
	const page = "# Words\n\n# Tables\n\nchannel (settings. One each), batch_line,\nand drop. It reads event.\n"
	if got := pageTables(page); !slices.Equal(got, []string{"channel", "batch_line", "drop"}) {
		t.Errorf("the page lists %q", got)
	}
}
