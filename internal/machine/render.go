package machine

import (
	"fmt"
	"strings"
)

// Mermaid renders a table as a state diagram. Rules that differ in their effects alone are one arrow;
// a label is the event, with the guard in brackets. ParseMermaid reads the same edges back.
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

// CheckSQL renders the literal expression of a CHECK that lets only legal edges into a table with the columns
// named: CASE from WHEN 'A' THEN to IN ('B', ...) ... ELSE false END. A birth has the empty string as its from.
// stored says under which names a state is kept there, nil: its own. It is a literal and no foreign key: see
// the traps of the hot path. Lists are the cheapest: one text in which the pair is looked for takes 1.1 us a row
// instead of 0.1, and a list of pairs is four times as long to read.
func CheckSQL(t Table, from, to string, stored func(state string) []string) string {
	if stored == nil {
		stored = func(state string) []string { return []string{state} }
	}
	next := map[string][]string{}
	var order []string
	for _, m := range Edges(t) {
		for _, name := range stored(m.From) {
			if next[name] == nil {
				order = append(order, name)
			}
			for _, to := range stored(m.To) {
				next[name] = append(next[name], quote(to))
			}
		}
	}
	var b strings.Builder
	b.WriteString("CASE " + from)
	for _, name := range order {
		fmt.Fprintf(&b, " WHEN %s THEN %s IN (%s)", quote(name), to, strings.Join(next[name], ", "))
	}
	b.WriteString(" ELSE false END")
	return b.String()
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// Markdown renders the page beside the code: for every table its diagram, what each state means and its
// rules. meanings holds one line per table and state, under the key Table.Name + "." + state; a state
// without one is an error.
func Markdown(tables []Table, meanings map[string]string) (string, error) {
	var b strings.Builder
	b.WriteString("<!-- Rendered from the tables by the test with -update; do not edit. -->\n# Machines\n")
	for _, t := range tables {
		fmt.Fprintf(&b, "\n## %s\n\nFollows %s.\n\n```mermaid\n%s```\n\n| state | meaning |\n|---|---|\n", t.Name, t.Follows, Mermaid(t))
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
