// Package help has what the references say of a code, a kind or a setting, in a paragraph each, with what to do about it.
// docs/errors.md and docs/settings.md are rendered from it, and answers name the paragraph by Of.
package help

// Entry is what the reference says of one name.
type Entry struct {
	Name string
	Says string // what it means
	Do   string // what to do about it
}

// Of a name which the page has a heading for.
const (
	Problem = "problem" // the code of a refusal
	Why     = "why"     // the kind of a blocker
	Error   = "error"   // the code of the error of a transaction
)

// Page is where the paragraphs are.
const Page = "docs/errors.md"

// Link returns the page with the anchor of a paragraph, as the member help of an answer has it.
func Link(of, name string) string { return Page + "#" + of + "-" + name }
