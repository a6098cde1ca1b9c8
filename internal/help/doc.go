// Package help has what the references say of a code, a kind of blocker or a setting: a paragraph each, and what to do
// about it. docs/errors.md and docs/settings.md are rendered from it; answers name the paragraph by Link.
package help

import (
	_ "embed"
	"strings"
)

// Entry is what a reference says of one name.
type Entry struct {
	Name string
	Says string // what it means; of a setting, when to change it
	Do   string // what to do about it; "" of a setting
}

// Groups of entries on the page of errors.
const (
	Problem = "problem" // codes of refusals
	Why     = "why"     // kinds of blockers
	Error   = "error"   // codes of errors of transactions
)

// Link returns the page with the anchor of a paragraph, as the member help of an answer has it.
func Link(group, name string) string { return "docs/errors.md#" + group + "-" + name }

//go:embed errors.txt
var errors string

//go:embed settings.txt
var settings string

// Errors returns the entries of a group, in the order of the page.
func Errors(group string) []Entry { return read(errors, group) }

// Settings returns the fields of a noun such as Dispatcher. A field within another one has a dot in its name.
func Settings(noun string) []Entry { return read(settings, noun) }

// read finds the entries of a group: a line with group and name, and lines that stand in below it.
func read(text, group string) (list []Entry) {
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		head, rest, _ := strings.Cut(strings.TrimSpace(paragraph), "\n")
		name, ok := strings.CutPrefix(head, group+" ")
		if !ok {
			continue
		}
		says, do, _ := strings.Cut(strings.Join(strings.Fields(rest), " "), "→")
		list = append(list, Entry{Name: name, Says: strings.TrimSpace(says), Do: strings.TrimSpace(do)})
	}
	return list
}
