package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestEveryCommandOfTheDesignIsThere compares the commands with those of the design.
func TestEveryCommandOfTheDesignIsThere(t *testing.T) {
	page, err := os.ReadFile("../../../shared/design/api.md")
	if err != nil {
		t.Skip("the design is not here, so its commands are not compared: ", err)
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
				if !there {
					t.Errorf("postern %s of the design is no command", strings.Join(words, " "))
				}
			}
		}
	}
	if n < 40 {
		t.Errorf("only %d commands were found in the design", n)
	}
}
