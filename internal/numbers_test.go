package internal_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestEachNumberThatLeavesIsKeptBySomethingReal: the table in docs/numbers.md names a file and a text in it, row by
// row.
func TestEachNumberThatLeavesIsKeptBySomethingReal(t *testing.T) {
	page, err := os.ReadFile(root + "/docs/numbers.md")
	if err != nil {
		t.Fatal(err)
	}
	place, rows := regexp.MustCompile("^`([^`]+)`: `([^`]+)`$"), 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| number") {
			continue
		}
		rows++
		m := place.FindStringSubmatch(strings.TrimSuffix(cells[len(cells)-1], " |"))
		if len(cells) != 4 || m == nil {
			t.Errorf("want number, who gets it, what keeps it, and where: %s", line)
			continue
		}
		if text, err := os.ReadFile(root + "/" + m[1]); err != nil || !strings.Contains(string(text), m[2]) {
			t.Errorf("%s has no %q (%v)", m[1], m[2], err)
		}
	}
	if rows < 14 {
		t.Errorf("%d rows", rows)
	}
}
