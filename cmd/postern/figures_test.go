package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/bench"
	"github.com/postern-dev/postern/internal/pgtest"
)

// runSmall runs what make would for a target, in the smallest size.
func runSmall(t *testing.T, url, target, args string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "make", "-C", "../..",
		"--no-print-directory", "-n", target, "ARGS="+args).Output()
	_, line, ok := strings.Cut(string(out), "./cmd/postern ")
	line, _, _ = strings.Cut(line, "\n")
	if err != nil || !ok {
		t.Fatalf("make %s is %s, %v", target, out, err)
	}
	dir := t.TempDir()
	small := strings.Fields(strings.NewReplacer(" fifo ", " fifo-20x5 ", "--runs 9", "--runs 1",
		"docs/plots", dir).Replace(line))
	if target == "bench-check" {
		small = append(small, "--baseline", filepath.Join(dir, "baseline.json"), "--update", "--runs", "1",
			"--queues", "20", "--depth", "2", "--length", "100ms", "--connections", "4")
	}
	postern(t, database(url), small...).want(t, 0)
}

// TestThePageOfFiguresNamesWhatThereIs runs the commands of docs/performance.md as make would, with sizes that take
// seconds instead of hours, and looks for the scenarios, targets and pictures that it speaks of. Peers are not run
// here: they come from npm, and bench/peers has tests of its own; nor is a check beside another build, which has one.
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
	page, db, ran := string(b), pgtest.Empty(t), map[string]bool{}
	commands := regexp.MustCompile(`make (bench[a-z-]*)(?: ARGS="([^"]*)")?`).FindAllStringSubmatch(page, -1)
	if len(commands) < 5 {
		t.Fatalf("the page has the commands %q", commands)
	}
	for _, m := range commands {
		if !strings.Contains(string(makefile), "\n"+m[1]+": ") {
			t.Errorf("%s: the Makefile has no %s", m[0], m[1])
		}
		elsewhere := m[1] == "bench-peers" || strings.Contains(m[2], "--beside")
		if !ran[m[0]] && !elsewhere && !strings.HasPrefix(m[2], "...") {
			ran[m[0]] = true
			runSmall(t, db.URL, m[1], m[2])
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
	rows := regexp.MustCompile("(?m)^\\| (`[^|]*) \\|[^|]*\\|[^|]*\\| \\[").FindAllStringSubmatch(page, -1)
	if len(rows) < 12 {
		t.Fatalf("the page tells of %d scenarios", len(rows))
	}
	for _, r := range rows {
		name, _, _ := strings.Cut(strings.Trim(r[1], "`"), "`")
		if _, err := bench.Find([]string{name}); err != nil {
			t.Errorf("%s: %v", r[1], err)
		}
	}
	for _, m := range regexp.MustCompile(`\]\(((?:plots|journal)/[^)]+)\)`).FindAllStringSubmatch(page, -1) {
		if _, err := os.Stat("../../docs/" + m[1]); err != nil {
			t.Error(err)
		}
	}
}
