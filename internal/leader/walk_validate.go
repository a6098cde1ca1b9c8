package leader

import (
	"fmt"

	"github.com/postern-dev/postern/internal/fault"
)

// Validate judges a walk (S1.16): nil, or Invalid with the text of the first check that fails and the pointer to its
// subject. It refuses before a document that does not have the form of a walk at all.
func (w *Walk) Validate() error {
	if err := w.form(); err != nil {
		return err
	}
	groups, err := w.groups()
	if err != nil {
		return err
	}
	g, err := build(w.Edges)
	if err != nil {
		return err
	}
	if len(w.Edges) == 0 && len(w.Vertices) == 1 {
		g.node(nodeKey{kind: vertexNode, vertex: w.Vertices[0].Name}, "/vertices/0")
	}
	for _, check := range []func() error{
		func() error { return w.definitions(g) },
		func() error { return w.loops(g) },
		func() error { return g.races(groups) },
		func() error { return g.pairs(groups) },
		func() error { return g.nesting() },
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// Groups names the entry groups of a walk.
func (w *Walk) Groups() []string {
	var names []string
	for _, g := range w.EntryGroups {
		names = append(names, g.Name)
	}
	if names == nil {
		names = []string{DefaultGroup}
	}
	return names
}

// groups lists where the walk can begin (S1.16, 1).
func (w *Walk) groups() ([]EntryGroup, error) {
	have := map[string]bool{}
	begins := EntryGroup{Name: DefaultGroup}
	for _, v := range w.Vertices {
		have[v.Name] = true
		if len(v.EntryPorts) > 0 {
			begins.Vertices = append(begins.Vertices, v.Name)
		}
	}
	for i, g := range w.EntryGroups {
		for j, v := range g.Vertices {
			if !have[v] {
				return nil, fault.At(fmt.Sprintf("/entry_groups/%d/vertices/%d", i, j), "Entry group '%s' references a non-existing vertex '%s'.", fault.Clip(g.Name), fault.Clip(v))
			}
		}
	}
	switch {
	case len(w.EntryGroups) > 0:
		return w.EntryGroups, nil
	case len(begins.Vertices) == 0:
		return nil, fault.At("/vertices", "The DAG has no entry vertices or ports.")
	}
	return []EntryGroup{begins}, nil
}

// definitions holds the lists of the document against its edges (S1.16, 3).
func (w *Walk) definitions(g *graph) error {
	defined := map[string]bool{}
	for i, v := range w.Vertices {
		at := fmt.Sprintf("/vertices/%d", i)
		k := nodeKey{kind: vertexNode, vertex: v.Name}
		switch {
		case g.vertex(v.Name) < 0:
			return fault.At(at, "'%s' is not connected to the DAG.", k)
		case defined[v.Name]:
			return fault.At(at, "'%s' is defined multiple times.", k)
		}
		defined[v.Name] = true
	}
	entries := map[nodeKey]bool{}
	for i, v := range w.Vertices {
		for j, p := range v.EntryPorts {
			at, k := fmt.Sprintf("/vertices/%d/entry_ports/%d", i, j), nodeKey{kind: inputNode, vertex: v.Name, port: p.Name}
			if _, fed := g.index[k]; fed {
				return fault.At(at, "'%s' has an edge leading to it and therefore cannot be an entry port.", k)
			}
			if entries[k] {
				return fault.At(at, "'%s' is defined multiple times.", k)
			}
			entries[k] = true
		}
	}
	for i, d := range w.DefaultValues {
		k := nodeKey{kind: inputNode, vertex: d.Vertex, port: d.Port}
		if _, fed := g.index[k]; fed || entries[k] {
			return fault.At(fmt.Sprintf("/default_values/%d", i), "'%s' is an entry port or has an edge leading into it and therefore cannot have a default value.", k)
		}
	}
	answers := map[string]bool{}
	for _, o := range w.Outputs {
		answers[o.Vertex] = true
	}
	for i, v := range w.Vertices {
		if n := g.vertex(v.Name); answers[v.Name] && len(g.nodes[n].next) > 0 {
			return fault.At(fmt.Sprintf("/vertices/%d", i), "'%s' cannot have both outgoing edges and ports marked as output.", g.nodes[n])
		}
	}
	return w.references(g, defined)
}

// references refuses what names a vertex that the document does not define; the reference lets it pass,
// and such a walk then waits for ever.
func (w *Walk) references(g *graph, defined map[string]bool) error {
	for _, n := range g.nodes {
		if !defined[n.vertex] {
			return fault.At(n.at, "'%s' is not defined.", nodeKey{kind: vertexNode, vertex: n.vertex})
		}
	}
	for i, d := range w.DefaultValues {
		if !defined[d.Vertex] {
			return fault.At(fmt.Sprintf("/default_values/%d/vertex", i), "'%s' is not defined.", nodeKey{kind: vertexNode, vertex: d.Vertex})
		}
	}
	for i, o := range w.Outputs {
		if !defined[o.Vertex] {
			return fault.At(fmt.Sprintf("/outputs/%d/vertex", i), "'%s' is not defined.", nodeKey{kind: vertexNode, vertex: o.Vertex})
		}
	}
	return nil
}

// loops wants a way on beside every way back, and no cycle but these (S1.16, 4).
func (w *Walk) loops(g *graph) error {
	type variant struct{ vertex, variant string }
	vertices, variants := map[EdgeKind]map[string]bool{DoWhile: {}, Break: {}}, map[EdgeKind]map[variant]bool{DoWhile: {}, Break: {}}
	for _, e := range w.Edges {
		if e.Kind == DoWhile || e.Kind == Break {
			vertices[e.Kind][e.From.Vertex] = true
			variants[e.Kind][variant{e.From.Vertex, e.From.Variant}] = true
		}
	}
	for _, c := range []struct {
		has, lacks EdgeKind
		text       string
	}{{DoWhile, Break, "Vertex '%s' has a do-while edge but no corresponding break edge."},
		{Break, DoWhile, "Vertex '%s' has a break edge but no corresponding do-while edge."}} {
		for i, e := range w.Edges {
			if e.Kind == c.has && !vertices[c.lacks][e.From.Vertex] {
				return fault.At(fmt.Sprintf("/edges/%d", i), c.text, fault.Clip(e.From.Vertex))
			}
		}
	}
	for i, e := range w.Edges {
		if v := (variant{e.From.Vertex, e.From.Variant}); variants[DoWhile][v] && variants[Break][v] {
			return fault.At(fmt.Sprintf("/edges/%d", i), "'%s' has both a do-while and a break edge, but they must branch.",
				nodeKey{kind: variantNode, vertex: v.vertex, variant: v.variant})
		}
	}
	if g.cyclic() {
		return fault.At("/edges", "The provided graph contains one or more cycles.")
	}
	return nil
}
