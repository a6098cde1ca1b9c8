package leader

import "github.com/postern-dev/postern/internal/fault"

// races wants that each input port gets exactly one value, however the walk is begun (S1.16, 5). Of the ways that lead
// from a group to a port, each vertex on them adds as many values as it can put out at once, and each input port takes
// one. The rest is how many values arrive too many, or too few.
func (g *graph) races(groups []EntryGroup) error {
	var ports []int
	before := map[int][]int{} // input port -> the nodes from which it can be reached
	for i, n := range g.nodes {
		if n.kind != inputNode {
			continue
		}
		ports = append(ports, i)
		for j, leads := range g.reach([]int{i}, true) {
			if leads {
				before[i] = append(before[i], j)
			}
		}
	}
	for _, group := range groups {
		begun := g.reach(g.entries(group), false)
		on := make([]bool, len(g.nodes))
		for _, port := range ports {
			clear(on)
			for _, i := range before[port] {
				on[i] = begun[i]
			}
			c := g.concurrency(before[port], on)
			switch {
			case !on[port] || c < 0:
				return fault.At(g.nodes[port].at, "'%s' is unreachable when invoking group '%s'",
					g.nodes[port], fault.Clip(group.Name))
			case c > 0:
				return fault.At(g.nodes[port].at, "'%s' has a race condition on it when invoking group '%s'",
					g.nodes[port], fault.Clip(group.Name))
			}
		}
	}
	return nil
}

func (g *graph) entries(group EntryGroup) []int {
	var list []int
	for _, name := range group.Vertices {
		list = append(list, g.vertex(name))
	}
	return list
}

// concurrency adds up the nodes of the list that are on: a vertex is one, and one more for every port
// beyond the first of its widest variant; an input port is minus one.
func (g *graph) concurrency(list []int, on []bool) int {
	c := 0
	for _, i := range list {
		switch n := &g.nodes[i]; {
		case !on[i]:
		case n.kind == inputNode:
			c--
		case n.kind == vertexNode:
			widest := 0
			for _, variant := range n.next {
				ports := 0
				for _, p := range g.nodes[variant.to].next {
					if on[variant.to] && on[p.to] {
						ports++
					}
				}
				widest = max(widest, ports-1)
			}
			c += 1 + widest
		}
	}
	return c
}

// pairs follows every way from where the walk begins: a list that for_each takes apart is put together by collect
// before anything else happens to it (S1.16, 6).
func (g *graph) pairs(groups []EntryGroup) error {
	seen := [2][]bool{make([]bool, len(g.nodes)), make([]bool, len(g.nodes))}
	var walk func(i int, inside bool) error
	walk = func(i int, inside bool) error {
		n, state := &g.nodes[i], 0
		if inside {
			state = 1
		}
		if seen[state][i] {
			return nil
		}
		seen[state][i] = true
		if len(n.next) == 0 && inside {
			return fault.At(n.at, "'%s' has a for-each edge without a corresponding collect", n)
		}
		for _, a := range n.next {
			next := inside
			switch {
			case !inside && a.kind == ForEach:
				next = true
			case inside && a.kind == Collect:
				next = false
			case !inside && a.kind == Collect:
				return fault.At(n.at, "'%s' has a collect edge without for-each", n)
			case inside && a.kind == ForEach:
				return fault.At(n.at, "'%s' has a nested for-each", n)
			case inside && (a.kind == DoWhile || a.kind == Break):
				return fault.At(n.at, "'%s' has a do-while or break edge inside a for-each", n)
			case inside && a.kind == Static:
				return fault.At(n.at, "'%s' has a static edge inside a for-each", n)
			}
			if err := walk(a.to, next); err != nil {
				return err
			}
		}
		return nil
	}
	for _, group := range groups {
		for _, i := range g.entries(group) {
			if err := walk(i, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// nesting refuses a loop within a loop: none of the nodes between the vertex that a do_while leads back to
// and the port that it leaves from may have an edge of a loop (S1.16, 7).
func (g *graph) nesting() error {
	for source, n := range g.nodes {
		if n.kind != outputNode || n.next[0].kind != DoWhile {
			continue
		}
		again := g.reach([]int{g.vertex(g.nodes[n.next[0].to].vertex)}, false)
		for i, leads := range g.reach([]int{source}, true) {
			if !leads || !again[i] || i == source || g.nodes[i].kind != outputNode {
				continue
			}
			switch g.nodes[i].next[0].kind {
			case DoWhile, Break, ForEach, Collect:
				return fault.At(n.at, "Do-while edge at '%s' has a nested loop inside.", n)
			}
		}
	}
	return nil
}
