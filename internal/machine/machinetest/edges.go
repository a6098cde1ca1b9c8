package machinetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/postern-dev/postern/internal/machine"
)

// Move is a pair of states that a rule joins; From is machine.Start for a birth.
type Move struct{ From, To string }

// Edges lists every legal pair of states, each once, in the order of the rules: births and stays too,
// since a history row may tell of them.
func Edges(t machine.Table) []Move {
	var moves []Move
	for _, r := range t.Rules {
		if m := (Move{r.From, r.To}); !slices.Contains(moves, m) {
			moves = append(moves, m)
		}
	}
	return moves
}

// CheckSQL renders the literal expression of a CHECK that lets only legal edges into a table with the columns
// named: CASE from WHEN 'A' THEN to IN ('B', ...) ... ELSE false END. A birth has the empty string as its from.
// stored says under which names a state is kept there, nil: its own. It is a literal and no foreign key: see
// the traps of the hot path. Lists are the cheapest: one text in which the pair is looked for takes 1.1 us a row
// instead of 0.1, and a list of pairs is four times as long to read.
func CheckSQL(t machine.Table, from, to string, stored func(state string) []string) string {
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
