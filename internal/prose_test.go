package internal_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "write the lists of exceptions anew, where a count has fallen")

// shrinks compares what a house rule finds in each file with the list of exceptions, testdata/name. The list says
// exactly how many there are. -update writes it anew unless there are more in all: it only shrinks, and files may move.
func shrinks(t *testing.T, name string, found map[string]int, rule string) {
	t.Helper()
	file := "testdata/" + name
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	listed, before, now := map[string]int{}, 0, 0
	for line := range strings.Lines(string(text)) {
		var n int
		var p string
		if _, err := fmt.Sscanf(line, "%d %s", &n, &p); err != nil {
			t.Fatalf("%s: %q: %v", file, line, err)
		}
		listed[p] = n
		before += n
	}
	for _, n := range found {
		now += n
	}
	if *update && (now <= before || text == nil) {
		var b strings.Builder
		for _, p := range slices.Sorted(maps.Keys(found)) {
			fmt.Fprintf(&b, "%d %s\n", found[p], p)
		}
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, p := range slices.Sorted(maps.Keys(found)) {
		if n := found[p]; n > listed[p] {
			t.Errorf("%s: %d where %s lists %d: %s", p, n, file, listed[p], rule)
		}
	}
	if !t.Failed() && now < before {
		t.Errorf("%s lists %d, and there are %d: run `go test ./internal -update`, so that it shrinks",
			file, before, now)
	}
}

// columns is how wide a line is shown, with a tab up to the next multiple of four.
func columns(line []byte) int {
	n := 0
	for len(line) > 0 {
		r, size := utf8.DecodeRune(line)
		if line = line[size:]; r == '\t' {
			n += 4 - n%4
		} else {
			n++
		}
	}
	return n
}

func TestLinesEndAt120Columns(t *testing.T) {
	const most = 120
	generated := map[string]bool{}
	for _, f := range goFiles(t) {
		generated[f.path] = f.generated()
	}
	found := map[string]int{}
	walk(t, func(p string, text []byte) {
		if ext := path.Ext(p); ext != ".go" && ext != ".sql" || generated[p] {
			return
		}
		for line := range bytes.Lines(text) {
			if columns(bytes.TrimRight(line, "\r\n")) > most {
				found[p]++
			}
		}
	})
	shrinks(t, "wide.txt", found, "break its lines at 120 columns (a tab is four), one clause of SQL a line")
}

// cryptic finds subjects that a reader has to look for: name the thing, or say A and B.
var cryptic = regexp.MustCompile(
	`(?i)\b(?:whoever|whomever|whosever|nobody|of which|of whom|whose is|as whom|that which)\b` +
		// a sentence or a clause whose subject is "what" or "who"
		`|(?:^|[.:;] )(?:what|who) (?:is|was|has|had|are|were|may|does|` +
		`waits|goes|comes|stands|ends|dies|asks|holds|lies|gathers)\b`)

func TestCommentsNameTheirSubjects(t *testing.T) {
	for _, f := range goFiles(t) {
		if f.generated() {
			continue
		}
		for _, group := range f.syntax.Comments {
			text := strings.Join(strings.Fields(group.Text()), " ")
			line := 1 + bytes.Count(f.text[:group.Pos()-f.syntax.FileStart], []byte("\n"))
			for _, hit := range cryptic.FindAllString(text, -1) {
				t.Errorf("%s:%d: %q: name the subject", f.path, line, hit)
			}
		}
	}
}

func TestTheRuleOfSubjectsFindsWhatItShould(t *testing.T) {
	for text, n := range map[string]int{
		"ingest is Ingest without what has to wait, of which it says which that is":        1,
		"One without an owner is whoever's the API lets so far":                            1,
		"what gathers meanwhile is not its business":                                       1,
		"of whom an identity provider knows as subject, \"\" if nobody is":                 2,
		"actorOf is as whom a peer acts: what it sent has it as initiator":                 1,
		"whoever goes out later waits for whoever goes first":                              2,
		"It is read once. What waits is read again":                                        1,
		"ingest stores what it can and returns the indexes that must wait for this commit": 0,
		"settleTogether settles all but watched ends, which it marks apart":                0,
	} {
		if got := len(cryptic.FindAllString(text, -1)); got != n {
			t.Errorf("%d in %q, want %d", got, text, n)
		}
	}
}

// story is a function that the testing package calls. Its name is a sentence, and its comment may go on from there.
var story = regexp.MustCompile(`^(?:Test|Fuzz|Benchmark|Example)(?:[^a-z]|$)`)

func TestADocCommentBeginsWithTheName(t *testing.T) {
	for _, f := range goFiles(t) {
		if f.generated() {
			continue
		}
		for _, d := range f.syntax.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Doc == nil || f.test() && fn.Recv == nil && story.MatchString(fn.Name.Name) {
				continue
			}
			first, _, _ := strings.Cut(strings.Join(strings.Fields(fn.Doc.Text()), " "), " ")
			first = strings.TrimSuffix(strings.TrimRight(first, ",:;."), "'s")
			if first != "" && first != fn.Name.Name {
				t.Errorf("%s: the comment of %s begins with %q: begin with the name, and say what it does",
					f.path, fn.Name.Name, first)
			}
		}
	}
}

func TestTheGlossaryHasWholeEntries(t *testing.T) {
	text, err := os.ReadFile("outbox/doc.go")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, entry := range strings.Split(string(text), "\n//   - ")[1:] {
		entry, _, _ = strings.Cut(entry, "\n//\n") // of the last of a group
		entry, _, _ = strings.Cut(entry, "\npackage")
		entry = strings.Join(strings.Fields(strings.ReplaceAll(entry, "\n//", " ")), " ")
		names, meaning, ok := strings.Cut(entry, ": ")
		if !ok || meaning == "" || !strings.HasSuffix(entry, ".") {
			t.Errorf("%q: want a word, a colon, and sentences that end", entry)
		}
		for name := range strings.SplitSeq(names, ", ") {
			if known[name] {
				t.Errorf("%s is explained twice", name)
			}
			known[name] = true
		}
	}
	for _, name := range []string{
		"installation", "quarantine", "witness", "deployment", "maker", "teller", "pin", "channel message",
		"line", "place", "position (seq)",
	} {
		if !known[name] {
			t.Errorf("the glossary does not explain %s", name)
		}
	}
}

// bare returns the exported names of a file without a comment. A method of a type that is not exported needs none: an
// interface says what it does.
func bare(f *ast.File) (names []string) {
	exported := func(fn *ast.FuncDecl) bool {
		if !fn.Name.IsExported() || fn.Recv == nil {
			return fn.Name.IsExported()
		}
		of := fn.Recv.List[0].Type
		for {
			switch x := of.(type) {
			case *ast.StarExpr:
				of = x.X
			case *ast.IndexExpr:
				of = x.X
			case *ast.Ident:
				return x.IsExported()
			default:
				return true
			}
		}
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if exported(d) && d.Doc == nil {
				names = append(names, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() && d.Doc == nil && s.Doc == nil {
						names = append(names, s.Name.Name)
					}
				case *ast.ValueSpec:
					if s.Names[0].IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
						names = append(names, s.Names[0].Name)
					}
				}
			}
		}
	}
	return names
}

func TestExportedNamesOfTheStoreHaveAComment(t *testing.T) {
	for _, f := range goFiles(t) {
		if _, ok := steps[f.pkg]; !ok || f.test() {
			continue
		}
		for _, name := range bare(f.syntax) {
			t.Errorf("%s: %s has no comment: begin with the name, and say what it does, its units and errors",
				f.path, name)
		}
	}
}

// TestFunctionsFitAScreen counts the functions that are longer than a screen: 60 lines, of tests 120.
func TestFunctionsFitAScreen(t *testing.T) {
	found := map[string]int{}
	for _, f := range goFiles(t) {
		if f.generated() {
			continue
		}
		most := 60
		if f.test() {
			most = 120
		}
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				from, to := int(fn.Pos()-f.syntax.FileStart), int(fn.End()-f.syntax.FileStart)
				if bytes.Count(f.text[from:to], []byte("\n")) >= most {
					found[f.path]++
				}
			}
		}
	}
	const rule = "take its functions apart where their steps have names: 60 lines at most, 120 in tests"
	shrinks(t, "long.txt", found, rule)
}

// A package of the store has at most so many files, and lines that are neither empty nor comments.
const mostFiles, mostLines = 60, 11_200

func TestPackagesOfTheStoreStaySmall(t *testing.T) {
	files, lines := map[string]int{}, map[string]int{}
	for _, f := range goFiles(t) {
		if f.pkg != "internal/pg" && !strings.HasPrefix(f.pkg, "internal/pg/") ||
			strings.HasSuffix(f.path, "_test.go") {
			continue
		}
		files[f.pkg]++
		text, err := os.ReadFile(root + "/" + f.path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
				lines[f.pkg]++
			}
		}
	}
	if len(files) < 5 {
		t.Fatalf("only %d packages were found", len(files))
	}
	for pkg, n := range files {
		if n > mostFiles || lines[pkg] > mostLines {
			t.Errorf("%s has %d files and %d lines: want at most %d and %d; a noun of its own is a room of its own",
				pkg, n, lines[pkg], mostFiles, mostLines)
		}
	}
}
