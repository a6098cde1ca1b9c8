package flow

import (
	"fmt"
	"html"
	"slices"
	"strings"
)

// Node is a job as a drawing of its flow shows it.
type Node struct {
	Ref        int64
	Status     JobStatus
	ScriptType string
	Needs      []int64
}

// Mermaid draws jobs as a flowchart, each behind those that it needs.
func Mermaid(nodes []Node) string {
	var b strings.Builder
	b.WriteString("flowchart LR\n")
	for _, n := range nodes {
		fmt.Fprintf(&b, "    j%d[\"%d %s: %s\"]:::%s\n", n.Ref, n.Ref, n.ScriptType, n.Status, n.Status)
	}
	for _, n := range nodes {
		for _, need := range n.Needs {
			fmt.Fprintf(&b, "    j%d --> j%d\n", need, n.Ref)
		}
	}
	for _, s := range JobStatuses {
		fmt.Fprintf(&b, "    classDef %s fill:%s\n", s, colours[s])
	}
	return b.String()
}

var colours = map[JobStatus]string{
	JobDispatched: "#e8e8e8",
	JobWaiting:    "#fff3cd",
	JobStarted:    "#cfe2ff",
	JobFinished:   "#d1e7dd",
	JobError:      "#f8d7da",
}

// Sizes of a drawing.
const (
	boxWidth, boxHeight = 190, 44
	gapWide, gapHigh    = 60, 18
)

// SVG draws jobs in columns from left to right, each behind all that it needs.
func SVG(nodes []Node) string {
	at := map[int64][2]int{}
	var widest, highest int
	rows := map[int]int{}
	for _, n := range inOrder(nodes) {
		column := 0
		for _, need := range n.Needs {
			if p, ok := at[need]; ok {
				column = max(column, p[0]+1)
			}
		}
		at[n.Ref] = [2]int{column, rows[column]}
		rows[column]++
		widest, highest = max(widest, column+1), max(highest, rows[column])
	}
	corner := func(ref int64) (x, y int) {
		p := at[ref]
		return 10 + p[0]*(boxWidth+gapWide), 10 + p[1]*(boxHeight+gapHigh)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" `+
		`font-size="13">`+"\n", 20+widest*(boxWidth+gapWide), 20+highest*(boxHeight+gapHigh))
	b.WriteString(`<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" ` +
		`orient="auto"><path d="M0,0 L8,4 L0,8 z"/></marker></defs>` + "\n")
	for _, n := range nodes {
		x, y := corner(n.Ref)
		for _, need := range n.Needs {
			fromX, fromY := corner(need)
			fmt.Fprintf(&b, `<path data-from="%d" data-to="%d" d="M%d,%d L%d,%d" stroke="black" fill="none" `+
				`marker-end="url(#a)"/>`+"\n", need, n.Ref, fromX+boxWidth, fromY+boxHeight/2, x, y+boxHeight/2)
		}
		fmt.Fprintf(&b, `<g data-ref="%d" data-status="%s"><rect x="%d" y="%d" width="%d" height="%d" rx="4" `+
			`fill="%s" stroke="#555"/>`, n.Ref, n.Status, x, y, boxWidth, boxHeight, colours[n.Status])
		fmt.Fprintf(&b, `<text x="%d" y="%d">%d %s</text><text x="%d" y="%d">%s</text></g>`+"\n", x+8, y+18, n.Ref,
			html.EscapeString(n.ScriptType), x+8, y+35, n.Status)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// inOrder puts jobs behind what they need.
func inOrder(nodes []Node) (list []Node) {
	done := map[int64]bool{}
	var add func(n Node)
	add = func(n Node) {
		if done[n.Ref] {
			return
		}
		done[n.Ref] = true
		for _, need := range n.Needs {
			if i := slices.IndexFunc(nodes, func(x Node) bool { return x.Ref == need }); i >= 0 {
				add(nodes[i])
			}
		}
		list = append(list, n)
	}
	for _, n := range nodes {
		add(n)
	}
	return list
}
