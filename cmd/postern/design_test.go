package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Every command of the design is there, or ARCHITECTURE.md says why it is not.
func TestEveryCommandOfTheDesignIsThereOrExplained(t *testing.T) {
	page, err := os.ReadFile("../../../shared/design/api.md")
	if err != nil {
		t.Skip("the design is not here, so its commands are not compared: ", err)
	}
	explained, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| command | does |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	n := 0
	for row := range strings.Lines(strings.ReplaceAll(table, `\|`, "/")) {
		cell := strings.Split(row, "|")[1]
		for _, m := range regexp.MustCompile("`([a-z][a-z-]*)(?: ([a-z]+(?:/[a-z]+)+|[a-z]+))?").FindAllStringSubmatch(cell, -1) {
			for _, sub := range strings.Split(m[2], "/") {
				n++
				words := strings.Fields(m[1] + " " + sub)
				c, _, err := root().Find(words)
				there := err == nil && c.Name() == words[len(words)-1]
				if !there && !strings.Contains(string(explained), "`postern "+m[1]+"`") {
					t.Errorf("postern %s of the design is no command, and ARCHITECTURE.md does not say why", strings.Join(words, " "))
				}
			}
		}
	}
	if n < 40 {
		t.Errorf("only %d commands were found in the design", n)
	}
}
