package httpapi

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// unbuilt are the codes of the design that are never answered, with the reason.
var unbuilt = map[string]string{}

// Every code of the design has a row with its status and whether it is retryable, or a reason in unbuilt.
func TestEveryCodeOfTheDesignIsThereOrExplained(t *testing.T) {
	page, err := os.ReadFile("../../../shared/design/api.md")
	if err != nil {
		t.Skip("the design is not here, so its codes are not compared: ", err)
	}
	_, table, _ := strings.Cut(string(page), "| status | codes (R = retryable) |")
	table, _, _ = strings.Cut(table, "\n\n")
	n := 0
	for _, row := range strings.Split(table, "\n") {
		cells := strings.Split(row, "|")
		if len(cells) < 4 || !strings.ContainsAny(cells[1], "45") {
			continue
		}
		names, _, _ := strings.Cut(cells[2], "; `Retry-After`")                        // a header
		said := regexp.MustCompile(`\([^)]*\)|`+"`[^`]*`").ReplaceAllString(names, "") // texts beside the codes
		shape := regexp.MustCompile(`\b([a-z]+(?:_[a-z]+)*)( R\b)?[ ]*(?:[,;]|$)`)
		for _, m := range shape.FindAllStringSubmatch(said, -1) {
			n++
			p, ok := problems[m[1]]
			switch {
			case !ok && unbuilt[m[1]] == "":
				t.Errorf("code %s of the design is none of ours, and unbuilt does not say why", m[1])
			case ok && (p.retryable != (m[2] != "") || !strings.Contains(cells[1], strconv.Itoa(p.status))):
				t.Errorf("code %s: status %d, retryable %v; the design says %s%s", m[1], p.status, p.retryable,
					strings.TrimSpace(cells[1]), m[2])
			}
		}
	}
	if n < 40 {
		t.Errorf("only %d codes were found in the design", n)
	}
}
