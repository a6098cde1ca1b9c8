package internal_test

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// requirementsPage says what each number means that comments and tests cite.
const requirementsPage = "docs/requirements.md"

var (
	cited = regexp.MustCompile(`\bS([0-9]\.[0-9]+)(?: rows? ([0-9]+))?`)
	asked = regexp.MustCompile(`(?m)^\| (S[0-9]\.[0-9]+) \|`)
	rowed = regexp.MustCompile(`(?m)^\| ([0-9]+) \|`)
)

// Every requirement that is cited anywhere has its sentence, and every sentence is cited.
func TestCitedRequirementsAreExplained(t *testing.T) {
	page, err := os.ReadFile("../" + requirementsPage)
	if err != nil {
		t.Fatal(err)
	}
	explained, rows := map[string]bool{}, map[string]bool{}
	for _, m := range asked.FindAllSubmatch(page, -1) {
		explained[string(m[1])] = false
	}
	for _, m := range rowed.FindAllSubmatch(page, -1) {
		rows[string(m[1])] = true
	}
	for _, name := range tracked(t) {
		text, err := os.ReadFile("../" + name)
		if err != nil || name == requirementsPage || bytes.IndexByte(text, 0) >= 0 {
			continue
		}
		for _, m := range cited.FindAllSubmatch(text, -1) {
			number := "S" + string(m[1])
			if _, known := explained[number]; !known {
				t.Errorf("%s cites %s: %s does not say what that is", name, number, requirementsPage)
				continue
			}
			explained[number] = true
			if row := string(m[2]); row != "" && (number != "S2.5" || !rows[row]) {
				t.Errorf("%s cites %s row %s: %s has no such row", name, number, row, requirementsPage)
			}
		}
	}
	for number, used := range explained {
		if !used {
			t.Errorf("%s explains %s, which nothing cites", requirementsPage, number)
		}
	}
}

// tracked lists the files of the repository; where git is not to be had it skips.
func tracked(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("git does not list the files here: %v", err)
	}
	return strings.Fields(string(out))
}
