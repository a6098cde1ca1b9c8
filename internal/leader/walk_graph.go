package leader

import (
	"fmt"

	"github.com/postern-dev/postern/internal/fault"
)

// graph is a walk taken apart: vertex -> output variant -> output port -> input port -> vertex. Nodes are
// numbered as they appear in the document.
type graph struct {
	nodes []node
	index map[nodeKey]int
}

type nodeKind int

const (
	vertexNode nodeKind = iota
	variantNode
	outputNode
	inputNode
)

// nodeKey names a node. A do_while edge leads to a phantom: a vertex of its own, so that the way back closes no cycle.
type nodeKey struct {
	kind                  nodeKind
	vertex, variant, port string
	phantom               bool
}

type node struct {
	nodeKey
	at   string // the pointer to where the document names it first
	next []arrow
	prev []int
}

type arrow struct {
	to   int
	kind EdgeKind
}

// String is the node as errors name it.
func (k nodeKey) String() string {
	v := fault.Clip(k.vertex)
	if k.phantom {
		v += "-do-while"
	}
	switch k.kind {
	case variantNode:
		return fmt.Sprintf("Output variant: %s.%s", v, fault.Clip(k.variant))
	case outputNode:
		return fmt.Sprintf("Output port: %s.%s.%s", v, fault.Clip(k.variant), fault.Clip(k.port))
	case inputNode:
		return fmt.Sprintf("Input port: %s.%s", v, fault.Clip(k.port))
	}
	return "Vertex: " + v
}

// build makes the graph of the edges, in their order (S1.16, 2). An output port can be used once.
func build(edges []Edge) (*graph, error) {
	g := &graph{index: map[nodeKey]int{}}
	for i, e := range edges {
		at := fmt.Sprintf("/edges/%d", i)
		kind := e.Kind
		if kind == "" {
			kind = Normal
		}
		back := kind == DoWhile
		from := g.node(nodeKey{kind: vertexNode, vertex: e.From.Vertex}, at+"/from/vertex")
		variant := g.node(nodeKey{kind: variantNode, vertex: e.From.Vertex, variant: e.From.Variant}, at+"/from/output_variant")
		output := g.node(nodeKey{kind: outputNode, vertex: e.From.Vertex, variant: e.From.Variant, port: e.From.Port}, at+"/from/output_port")
		to := g.node(nodeKey{kind: vertexNode, vertex: e.To.Vertex, phantom: back}, at+"/to/vertex")
		input := g.node(nodeKey{kind: inputNode, vertex: e.To.Vertex, port: e.To.Port, phantom: back}, at+"/to/input_port")
		if g.joined(variant, output) {
			return nil, fault.At(at+"/from", "Edge from '%s' to '%s' already exists.", g.nodes[variant], g.nodes[output])
		}
		g.join(from, variant, Normal)
		g.join(variant, output, Normal)
		g.join(output, input, kind)
		g.join(input, to, Normal)
	}
	return g, nil
}

func (g *graph) node(k nodeKey, at string) int {
	i, known := g.index[k]
	if !known {
		i = len(g.nodes)
		g.index[k] = i
		g.nodes = append(g.nodes, node{nodeKey: k, at: at})
	}
	return i
}

// joined says whether an arrow leads from one to the other.
func (g *graph) joined(from, to int) bool {
	for _, p := range g.nodes[to].prev {
		if p == from {
			return true
		}
	}
	return false
}

func (g *graph) join(from, to int, kind EdgeKind) {
	if n := &g.nodes[to]; n.kind != vertexNode && g.joined(from, to) || n.kind == vertexNode && len(g.nodes[from].next) > 0 {
		return
	}
	g.nodes[from].next = append(g.nodes[from].next, arrow{to, kind})
	g.nodes[to].prev = append(g.nodes[to].prev, from)
}

// vertex finds the vertex of that name, -1 if no edge touches it.
func (g *graph) vertex(name string) int {
	if i, known := g.index[nodeKey{kind: vertexNode, vertex: name}]; known {
		return i
	}
	return -1
}

// reach returns what can be reached from the nodes, themselves included; backward: what reaches them.
func (g *graph) reach(from []int, backward bool) []bool {
	seen := make([]bool, len(g.nodes))
	stack := make([]int, 0, len(from))
	visit := func(i int) {
		if i >= 0 && !seen[i] {
			seen[i] = true
			stack = append(stack, i)
		}
	}
	for _, i := range from {
		visit(i)
	}
	for len(stack) > 0 {
		n := &g.nodes[stack[len(stack)-1]]
		stack = stack[:len(stack)-1]
		if backward {
			for _, p := range n.prev {
				visit(p)
			}
			continue
		}
		for _, a := range n.next {
			visit(a.to)
		}
	}
	return seen
}

// cyclic says whether some way leads back to where it began: then there is no order in which every node
// comes after those before it.
func (g *graph) cyclic() bool {
	open := make([]int, len(g.nodes)) // arrows into it that are not followed yet
	var free []int
	for i := range g.nodes {
		if open[i] = len(g.nodes[i].prev); open[i] == 0 {
			free = append(free, i)
		}
	}
	done := 0
	for len(free) > 0 {
		n := &g.nodes[free[len(free)-1]]
		free = free[:len(free)-1]
		done++
		for _, a := range n.next {
			if open[a.to]--; open[a.to] == 0 {
				free = append(free, a.to)
			}
		}
	}
	return done < len(g.nodes)
}
