package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/bench"
)

// TestThePageOfFiguresNamesWhatThereIs reads the commands of docs/performance.md as the command line would, since to
// run them takes hours, and looks for the scenarios, targets and pictures that it speaks of.
func TestThePageOfFiguresNamesWhatThereIs(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	commands := regexp.MustCompile(`make (bench[a-z-]*)(?: ARGS="([^"]*)")?`).FindAllStringSubmatch(page, -1)
	if len(commands) < 5 {
		t.Fatalf("the page has the commands %q", commands)
	}
	for _, m := range commands {
		if !strings.Contains(string(makefile), "\n"+m[1]+": ") {
			t.Errorf("%s: the Makefile has no %s", m[0], m[1])
		}
		if m[1] != "bench" || m[2] == "" {
			continue
		}
		c, _, err := root().Find([]string{"bench"})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.ParseFlags(strings.Fields(strings.TrimPrefix(m[2], "... "))); err != nil {
			t.Errorf("%s: %v", m[0], err)
		}
		if _, err := bench.Find(c.Flags().Args()); err != nil {
			t.Errorf("%s: %v", m[0], err)
		}
	}
	rows := regexp.MustCompile("(?m)^\\| (`[^|]*) \\|[^|]*\\| `").FindAllStringSubmatch(page, -1)
	if len(rows) < 12 {
		t.Fatalf("the page tells of %d scenarios", len(rows))
	}
	for _, r := range rows {
		name, _, _ := strings.Cut(strings.Trim(r[1], "`"), "`")
		if _, err := bench.Find([]string{name}); err != nil {
			t.Errorf("%s: %v", r[1], err)
		}
	}
	for _, m := range regexp.MustCompile(`\]\((plots/[^)]+)\)`).FindAllStringSubmatch(page, -1) {
		if _, err := os.Stat("../../docs/" + m[1]); err != nil {
			t.Error(err)
		}
	}
}
