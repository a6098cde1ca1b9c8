package ui

import (
	"fmt"
	"html/template"
	"strings"
)

// box is a thing in a drawing.
type box struct{ Name, Note, URL string }

// The size of a box, and the space between two.
const (
	boxWide, boxHigh = 132, 44
	gapWide, gapHigh = 28, 14
	nameMost         = 16 // characters of a name that fit a box
)

// svg is a drawing as it grows. Colours are those of the style sheet; texts are escaped.
type svg struct{ b strings.Builder }

func (s *svg) open(wide, high int, says string) {
	fmt.Fprintf(&s.b, `<svg class="drawing" viewBox="0 0 %d %d" width="%d" height="%d" `+
		`xmlns="http://www.w3.org/2000/svg"><title>%s</title><defs><marker id="tip" viewBox="0 0 8 8" `+
		`refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">`+
		`<path d="M0 0L8 4L0 8z" class="tip"></path></marker></defs>`,
		wide, high, wide, high, template.HTMLEscapeString(says))
}

func (s *svg) close() template.HTML {
	s.b.WriteString("</svg>")
	return template.HTML(s.b.String()) //nolint:gosec // every text in it was escaped
}

func (s *svg) box(x, y int, b box, class string) {
	name := []rune(b.Name)
	short := b.Name
	if len(name) > nameMost {
		short = string(name[:nameMost-1]) + "…"
	}
	if b.URL != "" {
		fmt.Fprintf(&s.b, `<a href="%s">`, template.HTMLEscapeString(b.URL))
	}
	fmt.Fprintf(&s.b, `<g class="box %s"><title>%s</title><rect x="%d" y="%d" width="%d" height="%d" rx="5"></rect>`+
		`<text x="%d" y="%d" text-anchor="middle">%s</text>`+
		`<text class="note" x="%d" y="%d" text-anchor="middle">%s</text></g>`,
		template.HTMLEscapeString(class), template.HTMLEscapeString(clip(b.Name)), x, y, boxWide, boxHigh,
		x+boxWide/2, y+18, template.HTMLEscapeString(short), x+boxWide/2, y+34, template.HTMLEscapeString(b.Note))
	if b.URL != "" {
		s.b.WriteString(`</a>`)
	}
}

func (s *svg) line(x1, y1, x2, y2 int) {
	fmt.Fprintf(&s.b, `<path class="edge" d="M%d %dL%d %d" marker-end="url(#tip)"></path>`, x1, y1, x2, y2)
}

// bend is a line from the right side of a box to that of one above or below it in its column, past those between.
func (s *svg) bend(x, y1, y2, out int) {
	fmt.Fprintf(&s.b, `<path class="edge" d="M%d %dC%d %d %d %d %d %d" marker-end="url(#tip)"></path>`,
		x, y1, x+out, y1, x+out, y2, x+2, y2)
}

func abs(n int) int { return max(n, -n) }

// row draws the line of a queue: its head at the left.
func row(boxes []box, depth string) template.HTML {
	if len(boxes) == 0 {
		return ""
	}
	s := &svg{}
	s.open(len(boxes)*(boxWide+gapWide), boxHigh+8,
		fmt.Sprintf("The line from its head on: %d of %s", len(boxes), depth))
	for i, b := range boxes {
		class := "behind"
		if i == 0 {
			class = "head"
		}
		x := 4 + i*(boxWide+gapWide)
		if i > 0 {
			s.line(x-2, 4+boxHigh/2, x-gapWide+2, 4+boxHigh/2)
		}
		s.box(x, 4, b, class)
	}
	return s.close()
}

// fan draws what one thing depends on: those at the left, it at the right.
func fan(of []box, one box) template.HTML {
	high := len(of)*(boxHigh+gapHigh) + 8
	s := &svg{}
	s.open(2*boxWide+4*gapWide, high, "What it depends on")
	x := boxWide + 3*gapWide
	middle := high / 2
	for i, b := range of {
		y := 4 + i*(boxHigh+gapHigh)
		s.box(4, y, b, strings.ToLower(b.Note))
		s.line(4+boxWide+2, y+boxHigh/2, x-2, middle)
	}
	s.box(x, middle-boxHigh/2, one, "head")
	return s.close()
}

// drawMachine draws the states of a machine, each with how many are in it. The columns are how far a state is from the
// first one; lines lead from a state to another one, whatever the events, which the table below says.
func drawMachine(m, counts doc) template.HTML {
	edges := edgesOf(m)
	depth := depths(m, edges)
	at, rows, wide := map[string][2]int{}, map[int]int{}, 0
	states, _ := m["states"].([]any)
	for _, x := range states {
		d, _ := x.(doc)
		name := str(d, "name")
		c := depth[name]
		at[name] = [2]int{c, rows[c]}
		rows[c]++
		wide = max(wide, c+1)
	}
	high := 0
	for _, n := range rows {
		high = max(high, n)
	}
	const across, down = boxWide + 3*gapWide, boxHigh + 2*gapHigh
	s := &svg{}
	s.open(wide*across+8, high*down+8, "The states of "+str(m, "name"))
	for _, e := range edges {
		from, to := at[e[0]], at[e[1]]
		x1, y1 := 4+from[0]*across+boxWide, 4+from[1]*down+boxHigh/2
		x2, y2 := 4+to[0]*across, 4+to[1]*down+boxHigh/2
		switch {
		case from[0] < to[0]:
			s.line(x1, y1, x2-2, y2)
		case from[0] == to[0] && (to[1]-from[1] > 1 || from[1]-to[1] > 1): // past the states between them
			s.bend(x1, y1, y2, min(16+8*abs(to[1]-from[1]), 3*gapWide-8))
		case from[0] == to[0] && from[1] < to[1]:
			s.line(x1-boxWide/2, y1+boxHigh/2, x1-boxWide/2, y2-boxHigh/2-2)
		case from[0] == to[0]:
			s.line(x1-boxWide/3, y1-boxHigh/2, x1-boxWide/3, y2+boxHigh/2+2)
		default:
			s.line(x1-boxWide, y1+8, x2+boxWide+2, y2+8)
		}
	}
	terminal := texts(m["terminal"])
	for _, x := range states {
		d, _ := x.(doc)
		name, class := str(d, "name"), "behind"
		p := at[name]
		for _, t := range terminal {
			if t == name {
				class = "terminal"
			}
		}
		note := ""
		if n, ok := counts[name]; ok {
			note = clip(n) + " now"
			if note != "0 now" {
				class = "head"
			}
		}
		s.box(4+p[0]*across, 4+p[1]*down, box{Name: name, Note: note}, class)
	}
	return s.close()
}

// edgesOf are the pairs of states that some rule leads along, without those that stay.
func edgesOf(m doc) (edges [][2]string) {
	seen := map[[2]string]bool{}
	rules, _ := m["rules"].([]any)
	for _, x := range rules {
		r, _ := x.(doc)
		e := [2]string{str(r, "from"), str(r, "to")}
		if e[0] != "" && e[0] != e[1] && !seen[e] {
			seen[e] = true
			edges = append(edges, e)
		}
	}
	return edges
}

// depths is how many steps each state is from the first one.
func depths(m doc, edges [][2]string) map[string]int {
	depth := map[string]int{str(m, "initial"): 0}
	for todo := []string{str(m, "initial")}; len(todo) > 0; todo = todo[1:] {
		for _, e := range edges {
			if _, known := depth[e[1]]; e[0] == todo[0] && !known {
				depth[e[1]] = depth[e[0]] + 1
				todo = append(todo, e[1])
			}
		}
	}
	return depth
}
