package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mostWords is how long the pages may be together, but for rendered references and for records of the project.
const mostWords = 24000

// rendered are the pages that make contract writes; records are lists that grow with the project, and are
// looked up.
var (
	rendered = map[string]bool{"api.md": true, "errors.md": true, "metrics.md": true, "settings.md": true}
	records  = map[string]bool{"decisions.md": true, "requirements.md": true}
)

// docsPages are the pages of docs/ with their texts.
func docsPages(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) < 15 {
		t.Fatal(files, err)
	}
	all := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(file)] = string(text)
	}
	return all
}

// Each page says below its title whether one learns from it, works by it, looks things up in it, or understands by it.
func TestEachPageSaysWhatKindItIs(t *testing.T) {
	t.Parallel()
	all := docsPages(t)
	kind := regexp.MustCompile(`^# .+\n\n\*(Tutorial|How-to|Reference|Explanation)\.\*`)
	for name, text := range all {
		if !kind.MatchString(text) {
			t.Errorf("docs/%s: want, below its title, a paragraph that begins with *Tutorial.*, *How-to.*, *Reference.* or *Explanation.*", name)
		}
		if name != "index.md" && !strings.Contains(all["index.md"], "("+name+")") {
			t.Errorf("docs/index.md does not say who should read docs/%s", name)
		}
	}
}

func TestThePagesAreShortTogether(t *testing.T) {
	t.Parallel()
	words := 0
	for name, text := range docsPages(t) {
		if !rendered[name] && !records[name] {
			words += len(strings.Fields(text))
		}
	}
	if words > mostWords {
		t.Errorf("the pages have %d words together, of at most %d: shorten them where they repeat each other",
			words, mostWords)
	}
}

// sitting is for how many minutes of reading a page may last, at 200 words a minute; others have twenty. References
// that are rendered are looked up.
var sitting = map[string]int{"quick-start.md": 5, "sql-outbox.md": 10, "worker.md": 15}

func TestEachPageIsReadInOneSitting(t *testing.T) {
	t.Parallel()
	for name, text := range docsPages(t) {
		minutes := sitting[name]
		if minutes == 0 {
			minutes = 20
		}
		words := len(strings.Fields(text))
		if !rendered[name] && !records[name] && words > 200*minutes {
			t.Errorf("docs/%s has %d words, more than are read in %d minutes: divide it, or shorten it", name, words,
				minutes)
		}
	}
}

// All pages name the API and the database by the same two variables.
func TestThePagesShareTheirVariables(t *testing.T) {
	t.Parallel()
	others := regexp.MustCompile(`\$\{?(API|URL|API_URL|POSTERN|PGURL|DB|DATABASE)\b|\b(API|API_URL)=`)
	all := docsPages(t)
	all["../README.md"] = readme(t)
	for name, text := range all {
		if found := others.FindString(text); found != "" {
			t.Errorf("docs/%s says %s: the API is POSTERN_URL on all pages, and the database DATABASE_URL", name, found)
		}
	}
}

// What the commands of a page write into the checkout, where a reader runs them, git does not take in.
func TestGitIgnoresWhatThePagesWrite(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	const before = `(?m)(?:[^<>=0-9-]>>? ?|2> ?|--out |--file=| -o |(?:127\.0\.0\.1:\d+) )`
	written := regexp.MustCompile(before + `([A-Za-z][\w.-]*\.\w+)`)
	n := 0
	for name, text := range docsPages(t) {
		for _, block := range shell.FindAllStringSubmatch(text, -1) {
			for _, m := range written.FindAllStringSubmatch(block[1], -1) {
				n++
				check := exec.Command("git", "check-ignore", "-q", "--no-index", m[1])
				if check.Dir = "../.."; check.Run() != nil {
					t.Errorf("docs/%s writes %s, which .gitignore does not name", name, m[1])
				}
			}
		}
	}
	if n < 15 {
		t.Errorf("only %d files were found that pages write", n)
	}
	taken := exec.Command("git", "ls-files", "--cached", "--ignored", "--exclude-standard")
	taken.Dir = "../.."
	if out, err := taken.Output(); err != nil || len(out) > 0 {
		t.Errorf("git has files that .gitignore names (%v): %s", err, out)
	}
}

func TestThePageForNodeWorksAsItIsWritten(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is not installed")
	}
	said := play(t, "node.md", installation(t), "127.0.0.1:9111", freeAddress(t))
	if strings.Count(said, "node-1 DONE") != 2 {
		t.Errorf("a post that is repeated is not told as one:\n%s", said)
	}
	mustSay(t, said, "heard node-2")
}

func TestThePageForPythonWorksAsItIsWritten(t *testing.T) {
	t.Parallel()
	said := play(t, "python.md", installation(t), "127.0.0.1:9112", freeAddress(t))
	if strings.Count(said, "python-1 DONE") != 2 {
		t.Errorf("a post that is repeated is not told as one:\n%s", said)
	}
	mustSay(t, said, "heard python-2")
}

func TestTheChecklistForProductionWorksAsItIsWritten(t *testing.T) {
	t.Parallel()
	page := docsPages(t)["production.md"]
	for _, block := range shell.FindAllStringSubmatch(page, -1) {
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", block[1])
		cmd.Env = append(append(os.Environ(), "PATH="+programs(t)+":"+os.Getenv("PATH")), installation(t)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}
