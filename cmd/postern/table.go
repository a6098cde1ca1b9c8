package main

import (
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/app"
)

// column is one of a table.
type column struct {
	head string
	cell func(record) string
	firm bool // shortened only when all others are as short as can be
	tail bool // a cell that is too long is cut at its end, as a sentence, not in the middle, as a name
}

// narrow is how short a column may get.
const narrow = 6

// paper is what a table is written on: how wide it is, and whether it has colours.
type paper struct {
	width   int
	colours bool
}

// paperOf is the paper of a command: its terminal, else 80 columns without colours.
func paperOf(cmd *cobra.Command) paper {
	p := paper{width: 80}
	if cmd.OutOrStdout() != io.Writer(os.Stdout) {
		return p
	}
	if columns, _, terminal := app.Terminal(os.Stdout); terminal {
		p.colours = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
		if columns > 20 {
			p.width = columns
		}
	}
	return p
}

// table writes records in columns that fit the paper; columns that are empty everywhere are left out.
func (p paper) table(out io.Writer, columns []column, rows []record) {
	cells := make([][]string, len(rows))
	var kept []column
	var widths []int
	for _, c := range columns {
		width := utf8.RuneCountInString(c.head)
		column, empty := make([]string, len(rows)), true
		for i, r := range rows {
			column[i] = c.cell(r)
			width, empty = max(width, utf8.RuneCountInString(column[i])), empty && column[i] == ""
		}
		if empty && len(rows) > 0 && len(kept) > 0 {
			continue
		}
		kept, widths = append(kept, c), append(widths, width)
		for i := range rows {
			cells[i] = append(cells[i], column[i])
		}
	}
	fit(kept, widths, p.width)
	line := func(row []string, paint func(string) string) {
		var b strings.Builder
		for i, cell := range row {
			cell = cut(cell, widths[i], kept[i].tail)
			if i > 0 {
				b.WriteString("  ")
			}
			b.WriteString(paint(cell))
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)))
			}
		}
		io.WriteString(out, strings.TrimRight(b.String(), " ")+"\n")
	}
	heads := make([]string, len(kept))
	for i, c := range kept {
		heads[i] = strings.ToUpper(c.head)
	}
	line(heads, func(s string) string { return s })
	for _, row := range cells {
		line(row, p.paint)
	}
}

// fit takes from the widest column until all of them and the gaps between them fit.
func fit(columns []column, widths []int, width int) {
	over := 2 * (len(widths) - 1)
	for _, w := range widths {
		over += w
	}
	for over -= width; over > 0; over-- {
		widest := -1
		for _, firm := range []bool{false, true} {
			for i, w := range widths {
				if columns[i].firm == firm && w > narrow && (widest < 0 || w > widths[widest]) {
					widest = i
				}
			}
			if widest >= 0 {
				break
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

// cut shortens a text to width: a sentence at its end, a name in the middle, where names differ least.
func cut(s string, width int, tail bool) string {
	r := []rune(s)
	if len(r) <= width {
		return s
	}
	if tail {
		return string(r[:width-1]) + "…"
	}
	front := width / 2
	return string(r[:front]) + "…" + string(r[len(r)-(width-front-1):])
}

// wrap breaks a text into lines of at most width, between words where it can.
func wrap(s string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(s) {
		for utf8.RuneCountInString(word) > width {
			if line != "" {
				lines, line = append(lines, line), ""
			}
			r := []rune(word)
			lines, word = append(lines, string(r[:width])), string(r[width:])
		}
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	return append(lines, line)
}

// indented writes a text under a label, wrapped to the paper.
func (p paper) indented(out io.Writer, label string, indent int, text string) {
	gap := indent - utf8.RuneCountInString(label)
	if label != "" {
		gap = max(gap, 1)
	}
	for i, l := range wrap(text, max(p.width-indent, 20)) {
		if i == 0 {
			io.WriteString(out, label+strings.Repeat(" ", gap)+p.paint(l)+"\n")
		} else {
			io.WriteString(out, strings.Repeat(" ", indent)+l+"\n")
		}
	}
}

// colours of words that say how something is.
var colours = map[string][]string{
	"32": {"DONE", "ok", "done"},
	"31": {"FAILED", "UNRESOLVED", "bad", "refused"},
	"33": {"RETRY", "DELAY", "BLOCKED", "CANCELLED", "warn", "pending"},
	"36": {"DISPATCHING", "REVISION", "INCLUSION", "WAITING_INCLUSION"},
}

// paint colours such a word, on paper that has colours.
func (p paper) paint(s string) string {
	if p.colours {
		for colour, words := range colours {
			if slices.Contains(words, s) {
				return "\x1b[" + colour + "m" + s + "\x1b[0m"
			}
		}
	}
	return s
}
