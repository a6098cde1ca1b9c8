package machinetest

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/machine"
)

// Published is what a published design says of states: the edges of its state diagrams in the order of its text, and,
// where it draws none, the states that it names.
type Published struct {
	Document string
	Diagrams [][]machine.Edge
	States   []string
}

// Read takes a published design apart.
func Read(document, page string) (Published, error) {
	p := Published{Document: document}
	diagrams, err := ParseMarkdown(strings.ReplaceAll(page, "~~~", "```"))
	if err != nil {
		return p, err
	}
	for _, d := range diagrams {
		if d.IsState() {
			p.Diagrams = append(p.Diagrams, d.Edges)
		}
	}
	if len(p.Diagrams) > 0 {
		return p, nil
	}
	for _, found := range namedState.FindAllStringSubmatch(page, -1) {
		if !slices.Contains(p.States, found[1]) {
			p.States = append(p.States, found[1])
		}
	}
	return p, nil
}

var namedState = regexp.MustCompile("`([A-Z][A-Z_]+)`")

// nothing stands in a cell that is empty, since editors take blanks from the ends of lines.
const nothing = "-"

// Facts writes designs as a table: document, number of the diagram, composite state, region, from, to, event; or
// document, "state", and its name.
func Facts(list []Published) string {
	var b strings.Builder
	for _, p := range list {
		for n, edges := range p.Diagrams {
			for _, e := range edges {
				fmt.Fprintf(&b, "%s\t%d\t%s\t%d\t%s\t%s\t%s\n", p.Document, n+1, cmp.Or(e.Within, nothing),
					e.Region, e.From, e.To, cmp.Or(e.Label, nothing))
			}
		}
		for _, s := range p.States {
			fmt.Fprintf(&b, "%s\tstate\t%s\n", p.Document, s)
		}
	}
	return b.String()
}

// ReadFacts reads that table back. Lines that begin with # say what it is.
func ReadFacts(text string) (list []Published, err error) {
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.Split(line, "\t")
		if len(list) == 0 || list[len(list)-1].Document != cells[0] {
			list = append(list, Published{Document: cells[0]})
		}
		p := &list[len(list)-1]
		if len(cells) == 3 && cells[1] == "state" {
			p.States = append(p.States, cells[2])
			continue
		}
		if len(cells) != 7 {
			return nil, fmt.Errorf("line %d has %d cells, want 7", i+1, len(cells))
		}
		n, err := strconv.Atoi(cells[1])
		region, notRegion := strconv.Atoi(cells[3])
		if err != nil || notRegion != nil || n < len(p.Diagrams) || n > len(p.Diagrams)+1 {
			return nil, fmt.Errorf("line %d: want the number of a diagram and of a region", i+1)
		}
		if n > len(p.Diagrams) {
			p.Diagrams = append(p.Diagrams, nil)
		}
		p.Diagrams[n-1] = append(p.Diagrams[n-1], machine.Edge{
			From:   cells[4],
			To:     cells[5],
			Label:  strings.TrimPrefix(cells[6], nothing),
			Within: strings.TrimPrefix(cells[2], nothing),
			Region: region,
		})
	}
	return list, nil
}

// PublishedIn is what a published design says, as the table in path, testdata/diagrams.txt, has it. The table is
// compared with the designs where they lie beside the checkout.
func PublishedIn(t *testing.T, path, document string) Published {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	list, err := ReadFacts(string(text))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	for _, p := range list {
		if p.Document == document {
			return p
		}
	}
	t.Fatalf("%s says nothing of %s", path, document)
	return Published{}
}
