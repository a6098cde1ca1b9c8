package machinetest

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/postern-dev/postern/internal/machine"
)

// Diagram is one Mermaid diagram. Of kinds other than a state diagram only Kind and Line are filled.
type Diagram struct {
	Kind      string // "stateDiagram-v2", "sequenceDiagram", "graph", "flowchart" ...
	Line      int    // of its first line in the page, counted from 1
	Direction string // "LR", "TB" ..., "" if it names none
	Edges     []machine.Edge
	States    []string          // every name but [*], in the order of the text
	Choices   []string          // states marked <<choice>>
	Aliases   map[string]string // name -> what is shown, where they differ
}

// IsState says whether the diagram is a state diagram, whose edges were read.
func (d Diagram) IsState() bool { return strings.HasPrefix(d.Kind, "stateDiagram") }

// ParseMarkdown reads every Mermaid diagram of a page, in the order of the text. Diagrams that are no
// state diagrams come back with their kind and no edges. The error names the line that cannot be read.
func ParseMarkdown(page string) ([]Diagram, error) {
	var all []Diagram
	begun, fence := 0, ""
	var text []string
	for i, line := range strings.Split(page, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case fence == "" && strings.HasPrefix(trimmed, "```"):
			fence, begun, text = trimmed, i+2, nil
		case fence == "":
		case trimmed != "```":
			text = append(text, line)
		default:
			if fence == "```mermaid" {
				d, err := ParseMermaid(strings.Join(text, "\n"))
				if err != nil {
					return nil, fmt.Errorf("the diagram that begins on line %d: %w", begun, err)
				}
				d.Line = begun
				all = append(all, d)
			}
			fence = ""
		}
	}
	if fence != "" {
		return nil, fmt.Errorf("the block that begins on line %d has no end", begun)
	}
	return all, nil
}

const name = `(\[\*\]|[\pL_][\pL\d_.-]*?)`

var (
	arrowLine     = regexp.MustCompile(`^` + name + `\s*-->\s*` + name + `\s*(?::\s*(.*))?$`)
	choiceLine    = regexp.MustCompile(`^state\s+` + name + `\s+<<(choice|fork|join)>>$`)
	compositeLine = regexp.MustCompile(`^state\s+(?:"([^"]*)"\s+as\s+)?` + name + `\s*\{$`)
	aliasLine     = regexp.MustCompile(`^state\s+"([^"]*)"\s+as\s+` + name + `$`)
	describeLine  = regexp.MustCompile(`^` + name + `\s*:\s*(.*)$`)
	stateLine     = regexp.MustCompile(`^(?:state\s+)?` + name + `$`)
	directionLine = regexp.MustCompile(`^direction\s+(LR|RL|TB|BT|TD)$`)
)

// ParseMermaid reads one diagram. Understood in state diagrams: arrows with and without label, [*],
// direction, composite states, <<choice>>, concurrency (--), descriptions, comments and %%{init}%%.
// Anything else is an error: a line that is skipped could be an edge that is missed.
func ParseMermaid(text string) (Diagram, error) {
	p := parser{seen: map[string]bool{}, regions: map[string]int{}}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "%%") {
			continue
		}
		if p.d.Kind == "" {
			p.d.Kind, p.d.Line = strings.Fields(line)[0], 1
			continue
		}
		if !p.d.IsState() {
			return p.d, nil
		}
		if err := p.line(line); err != nil {
			return Diagram{}, fmt.Errorf("line %d, %q: %w", i+1, line, err)
		}
	}
	switch {
	case p.d.Kind == "":
		return Diagram{}, fmt.Errorf("the diagram is empty: its first line must name a kind")
	case len(p.open) > 0:
		return Diagram{}, fmt.Errorf("composite state %s has no closing brace", p.open[len(p.open)-1])
	}
	return p.d, nil
}

type parser struct {
	d       Diagram
	seen    map[string]bool
	open    []string       // composites around the line, outermost first
	regions map[string]int // composite -> its present region
}

func (p *parser) within() string {
	if len(p.open) == 0 {
		return ""
	}
	return p.open[len(p.open)-1]
}

func (p *parser) state(s string) {
	if s != machine.Outside && !p.seen[s] {
		p.seen[s] = true
		p.d.States = append(p.d.States, s)
	}
}

func (p *parser) alias(name, shown string) {
	p.state(name)
	if p.d.Aliases == nil {
		p.d.Aliases = map[string]string{}
	}
	p.d.Aliases[name] = shown
}

func (p *parser) line(line string) error {
	if m := arrowLine.FindStringSubmatch(line); m != nil {
		p.state(m[1])
		p.state(m[2])
		in := p.within()
		p.d.Edges = append(p.d.Edges, machine.Edge{
			From:   m[1],
			To:     m[2],
			Label:  strings.TrimSpace(m[3]),
			Within: in,
			Region: p.regions[in],
		})
		return nil
	}
	if m := choiceLine.FindStringSubmatch(line); m != nil {
		p.state(m[1])
		if m[2] == "choice" {
			p.d.Choices = append(p.d.Choices, m[1])
		}
		return nil
	}
	if m := compositeLine.FindStringSubmatch(line); m != nil {
		p.state(m[2])
		if m[1] != "" {
			p.alias(m[2], m[1])
		}
		p.open = append(p.open, m[2])
		return nil
	}
	if m := aliasLine.FindStringSubmatch(line); m != nil {
		p.alias(m[2], m[1])
		return nil
	}
	if m := directionLine.FindStringSubmatch(line); m != nil {
		if len(p.open) == 0 {
			p.d.Direction = m[1]
		}
		return nil
	}
	switch line {
	case "--":
		return p.region()
	case "}":
		return p.close()
	}
	if m := describeLine.FindStringSubmatch(line); m != nil {
		p.alias(m[1], m[2])
		return nil
	}
	if m := stateLine.FindStringSubmatch(line); m != nil {
		p.state(m[1])
		return nil
	}
	return fmt.Errorf("not a line of a state diagram that we know: want an arrow, a state, a direction, -- or a brace")
}

// region begins the next concurrent part of the composite state that is open.
func (p *parser) region() error {
	if len(p.open) == 0 {
		return fmt.Errorf("concurrent parts exist only inside a composite state")
	}
	p.regions[p.within()]++
	return nil
}

// close ends the composite state that is open.
func (p *parser) close() error {
	if len(p.open) == 0 {
		return fmt.Errorf("a closing brace without an open composite state")
	}
	p.open = p.open[:len(p.open)-1]
	return nil
}
