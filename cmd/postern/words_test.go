package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// inner are words that only those know who have written Postern: how requirements are numbered, and names of things
// inside the store.
var inner = regexp.MustCompile(`(?i)\bseeds?\b|\bS[0-9]\.[0-9]+|\beras?\b|\bripples?\b|\bbaton\b|\blazy run\b|\btwin\b`)

// unnamed finds subjects that a reader has to look for.
var unnamed = regexp.MustCompile(`(?i)\bwhoever\b|\bnobody\b|\bof which\b|\bof whom\b`)

// lanes is a word that a reader learns by its sentence alone.
var lanes = regexp.MustCompile(`(?i)\blanes?\b`)

// laneSentence says what a lane is.
const laneSentence = "wait for the same thing"

// without removes what is no word of ours: a seed of random numbers is a flag of the devnet and of benchmarks.
var without = strings.NewReplacer("--seed", "", "-seed", "", "seed of", "", "seed int", "", "the seed", "")

// inOurWords reports words that only authors know in a text for others.
func inOurWords(t *testing.T, where, text string) {
	t.Helper()
	text = without.Replace(text)
	for _, word := range inner.FindAllString(text, -1) {
		t.Errorf("%s says %q, which only its authors know: say it in words of the glossary", where, word)
	}
	for _, word := range unnamed.FindAllString(strings.ReplaceAll(text, "'NOBODY'", ""), -1) {
		t.Errorf("%s says %q: name the subject of the sentence", where, word)
	}
	if lanes.MatchString(text) && !strings.Contains(strings.Join(strings.Fields(text), " "), laneSentence) {
		t.Errorf("%s speaks of lanes, and does not say that queues in one %s", where, laneSentence)
	}
}

func TestNoHelpHasWordsOfItsAuthors(t *testing.T) {
	t.Parallel()
	walk(root(), func(path string) { inOurWords(t, path+" -h", string(help(t, path))) })
}

// Of the records of the project, which cite its requirements, this asks nothing.
func TestNoPageHasWordsOfItsAuthors(t *testing.T) {
	t.Parallel()
	for name, text := range docsPages(t) {
		if !records[name] {
			inOurWords(t, "docs/"+name, text)
		}
	}
	inOurWords(t, "README.md", readme(t))
}

func TestNoPublicPackageHasWordsOfItsAuthors(t *testing.T) {
	t.Parallel()
	for _, pkg := range []string{"client", "examples", "outbox", "worker"} {
		out, err := exec.CommandContext(t.Context(), "go", "doc", "-all", "../../api/"+pkg).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		inOurWords(t, "go doc ./api/"+pkg, string(out))
	}
	contract, err := os.ReadFile("../../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	inOurWords(t, "api/openapi.yaml", string(contract))
}

// The first argument of Debug, Info, Warn and Error is what a log line says.
func TestNoLogLineHasWordsOfItsAuthors(t *testing.T) {
	t.Parallel()
	levels := regexp.MustCompile(`^(Debug|Info|Warn|Error)(Context)?$`)
	n := 0
	visit := func(file string) {
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			fun, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !levels.MatchString(fun.Sel.Name) {
				return true
			}
			for _, arg := range call.Args {
				if text, ok := arg.(*ast.BasicLit); ok && text.Kind == token.STRING {
					if s, err := strconv.Unquote(text.Value); err == nil {
						n++
						inOurWords(t, set.Position(text.Pos()).String(), s)
					}
				}
			}
			return true
		})
	}
	err := filepath.WalkDir("../../internal", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			visit(path)
		}
		return err
	})
	if err != nil || n < 100 {
		t.Errorf("only %d texts of log lines were found: %v", n, err)
	}
}
