package main

import (
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/app"
)

// column is one of a table. Its cells are never cut.
type column struct {
	head string
	cell func(record) string
	soft bool // left out where not all columns fit, the last soft one first
	tail bool // a sentence: it is wrapped into the room that the other columns leave
}

// leastTail is how narrow a column of sentences may get before columns move to lines of their own.
const leastTail = 24

// paper is what a table is written on: how wide it is (0: as wide as it takes), and whether it has colours.
type paper struct {
	width   int
	colours bool
}

// paperOf is the paper of a command: its terminal, else what COLUMNS says. A pipe or a file gets one line a row, so
// that programs which look for words in lines find all of a row.
func paperOf(cmd *cobra.Command) paper {
	p := paper{}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 20 {
		p.width = n
	}
	if cmd.OutOrStdout() != io.Writer(os.Stdout) {
		return p
	}
	if columns, _, terminal := app.Terminal(os.Stdout); terminal {
		p.colours = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
		switch {
		case columns > 20:
			p.width = columns
		case p.width == 0:
			p.width = 80
		}
	}
	return p
}

// table writes records in columns that fit the paper; columns that are empty everywhere are left out.
func (p paper) table(out io.Writer, columns []column, rows []record) {
	var list []filled
	for _, c := range columns {
		f := filled{column: c, width: utf8.RuneCountInString(c.head), cells: make([]string, len(rows))}
		empty := true
		for i, r := range rows {
			f.cells[i] = c.cell(r)
			f.width, empty = max(f.width, utf8.RuneCountInString(f.cells[i])), empty && f.cells[i] == ""
		}
		if !empty || len(rows) == 0 || len(list) == 0 {
			list = append(list, f)
		}
	}
	lines := p.fit(list)

	plain := func(s string) string { return s }
	for i, line := range lines {
		line.write(out, i, func(f filled) string { return strings.ToUpper(f.head) }, plain)
	}
	for row := range rows {
		for i, line := range lines {
			line.write(out, i, func(f filled) string { return f.cells[row] }, p.paint)
		}
	}
}

// filled is a column with what stands in it.
type filled struct {
	column
	cells []string
	width int
}

// tableLine are the columns that stand beside each other. A row takes several such lines where one is too narrow.
type tableLine []filled

// wide is how wide the columns and the gaps between them are.
func wide(columns []filled) int {
	sum := 2 * (len(columns) - 1)
	for _, c := range columns {
		sum += c.width
	}
	return sum
}

// fit arranges columns on the paper: it leaves out soft ones, narrows sentences, and at last begins further lines.
func (p paper) fit(columns []filled) []tableLine {
	if p.width == 0 || wide(columns) <= p.width {
		return []tableLine{columns}
	}
	whole := slices.Clone(columns)
	for i, c := range whole {
		if c.tail {
			whole[i].width = min(c.width, leastTail)
		}
	}
	for i := len(whole) - 1; i > 0 && wide(whole) > p.width; i-- {
		if whole[i].soft {
			whole, columns = slices.Delete(whole, i, i+1), slices.Delete(columns, i, i+1)
		}
	}

	var lines []tableLine
	var line tableLine
	for i, c := range whole {
		if len(line) > 0 && wide(append(slices.Clone(line), c))+indentOf(len(lines)) > p.width {
			lines, line = append(lines, line), nil
		}
		if c.tail {
			c.width = min(columns[i].width, max(leastTail, p.width-wide(append(slices.Clone(line),
				c))+c.width-indentOf(len(lines))))
		}
		line = append(line, c)
	}
	return append(lines, line)
}

// indentOf is how far the lines of a row stand in, after the first.
func indentOf(line int) int {
	if line == 0 {
		return 0
	}
	return 2
}

// write writes one line of a row, or of the heads, as many lines as its longest sentence takes.
func (l tableLine) write(out io.Writer, number int, cell func(filled) string, paint func(string) string) {
	parts, most := make([][]string, len(l)), 1
	for i, c := range l {
		parts[i] = []string{cell(c)}
		if utf8.RuneCountInString(parts[i][0]) > c.width {
			parts[i] = wrap(parts[i][0], c.width)
		}
		most = max(most, len(parts[i]))
	}
	for n := range most {
		var b strings.Builder
		b.WriteString(strings.Repeat(" ", indentOf(number)))
		for i, c := range l {
			text := ""
			if n < len(parts[i]) {
				text = parts[i][n]
			}
			b.WriteString(paint(text))
			if i < len(l)-1 {
				b.WriteString(strings.Repeat(" ", c.width-utf8.RuneCountInString(text)+2))
			}
		}
		if s := strings.TrimRight(b.String(), " "); s != "" {
			io.WriteString(out, s+"\n")
		}
	}
}

// clip shortens a text that an error quotes.
func clip(s string, width int) string {
	r := []rune(s)
	if len(r) <= width {
		return s
	}
	return string(r[:width-1]) + "…"
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

// indented writes a text behind a label, wrapped to the paper. A label that is too long has a line of its own.
func (p paper) indented(out io.Writer, label string, indent int, text string) {
	lines := []string{text}
	if p.width > 0 {
		lines = wrap(text, max(p.width-indent, 20))
	}
	gap := indent - utf8.RuneCountInString(label)
	switch {
	case label == "" || gap > 0:
	case p.width == 0 || utf8.RuneCountInString(label)+1+utf8.RuneCountInString(text) <= p.width:
		gap = 1
	default:
		io.WriteString(out, label+"\n")
		label, gap = "", indent
	}
	for i, l := range lines {
		if i == 0 {
			io.WriteString(out, label+strings.Repeat(" ", max(gap, 0))+p.paint(l)+"\n")
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
