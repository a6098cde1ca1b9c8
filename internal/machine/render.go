package machine

import (
	"fmt"
	"strings"
)

// Outside is the [*] of a diagram: before the beginning, or after the end.
const Outside = "[*]"

// Edge is one arrow of a state diagram.
type Edge struct {
	From, To string
	Label    string // text behind the colon, "" if there is none
	Within   string // the composite state that holds the arrow, "" at the top
	Region   int    // which concurrent part of it, counted from 0; a line -- begins the next
}

// Mermaid renders a table as a state diagram. Rules that differ in their effects alone are one arrow;
// a label is the event, with the guard in brackets. machinetest.ParseMermaid reads the same edges back.
func Mermaid(t Table) string {
	var b strings.Builder
	b.WriteString("stateDiagram-v2\n    direction LR\n")
	for _, e := range Arrows(t) {
		fmt.Fprintf(&b, "    %s --> %s", e.From, e.To)
		if e.Label != "" {
			b.WriteString(" : " + e.Label)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// Arrows lists the edges that the diagram of a table has: births from [*] and terminal states to [*].
func Arrows(t Table) []Edge {
	var edges []Edge
	seen := map[Edge]bool{}
	add := func(e Edge) {
		if !seen[e] {
			seen[e] = true
			edges = append(edges, e)
		}
	}
	born := false
	for _, r := range t.Rules {
		born = born || r.From == Start
	}
	if !born {
		add(Edge{From: Outside, To: t.Initial})
	}
	for _, r := range t.Rules {
		e := Edge{From: r.From, To: r.To, Label: r.On}
		if r.From == Start {
			e.From = Outside
		}
		if r.When != "" {
			e.Label += " [" + r.When + "]"
		}
		add(e)
	}
	for _, s := range t.Terminal {
		add(Edge{From: s, To: Outside})
	}
	return edges
}

// Markdown renders the page beside the code: for every table its diagram, what each state means and its
// rules. meanings holds one line per table and state, under the key Table.Name + "." + state; a state
// without one is an error.
func Markdown(tables []Table, meanings map[string]string) (string, error) {
	var b strings.Builder
	b.WriteString("<!-- Rendered from the tables by the test with -update; do not edit. -->\n# Machines\n")
	for _, t := range tables {
		fmt.Fprintf(&b, "\n## %s\n\nFollows %s.\n\n```mermaid\n%s```\n\n| state | meaning |\n|---|---|\n",
			t.Name, t.Follows, Mermaid(t))
		for _, s := range t.States() {
			line, ok := meanings[t.Name+"."+s]
			if !ok {
				return "", fmt.Errorf("%s: state %s has no line that says what it means", t.Name, s)
			}
			fmt.Fprintf(&b, "| %s | %s |\n", s, line)
		}
		b.WriteString("\n| from | event | when | to | do |\n|---|---|---|---|---|\n")
		for _, r := range t.Rules {
			from := r.From
			if from == Start {
				from = "-"
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", from, r.On, r.When, r.To, strings.Join(r.Do, ", "))
		}
	}
	return b.String(), nil
}
