package leader

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/postern-dev/postern/internal/fault"
)

// Walk is a graph of tools as people define it (S1.16): an output port of one vertex feeds an input port
// of another. Where a walk begins are entry ports; one that is begun in several ways has entry groups.
type Walk struct {
	Vertices      []Vertex       `json:"vertices" maxItems:"1000"`
	Edges         []Edge         `json:"edges" maxItems:"1000"`
	DefaultValues []DefaultValue `json:"default_values,omitempty" maxItems:"1000"`
	EntryGroups   []EntryGroup   `json:"entry_groups,omitempty" maxItems:"32" doc:"None: the vertices with entry ports form the group _default_group."`
	Outputs       []FromPort     `json:"outputs,omitempty" maxItems:"1000" doc:"What the walk answers with."`
}

// Vertex is one use of a tool.
type Vertex struct {
	Name       string     `json:"name" minLength:"1" maxLength:"200"`
	Kind       VertexKind `json:"kind"`
	EntryPorts []Port     `json:"entry_ports,omitempty" maxItems:"1000" doc:"Inputs that the start of the walk brings."`
}

// VertexKind says which tool it is.
type VertexKind struct {
	Variant string `json:"variant" enum:"off_chain,on_chain"`
	ToolFQN string `json:"tool_fqn" maxLength:"200" example:"xyz.taluslabs.example@1"`
}

// Port is an input port of the vertex around it.
type Port struct {
	Name string `json:"name" minLength:"1" maxLength:"200"`
}

// Edge leads from an output port to an input port.
type Edge struct {
	Kind EdgeKind `json:"kind,omitempty" enum:"normal,for_each,collect,do_while,break,static" default:"normal"`
	From FromPort `json:"from"`
	To   ToPort   `json:"to"`
}

// EdgeKind says how often what comes out goes in.
type EdgeKind string

// The kinds of edges; "" is Normal.
const (
	Normal  EdgeKind = "normal"
	ForEach EdgeKind = "for_each" // once per element, until Collect
	Collect EdgeKind = "collect"
	DoWhile EdgeKind = "do_while" // back to an earlier vertex, until Break
	Break   EdgeKind = "break"
	Static  EdgeKind = "static"
)

// FromPort is an output port.
type FromPort struct {
	Vertex  string `json:"vertex" minLength:"1" maxLength:"200"`
	Variant string `json:"output_variant" minLength:"1" maxLength:"200"`
	Port    string `json:"output_port" minLength:"1" maxLength:"200"`
}

// ToPort is an input port.
type ToPort struct {
	Vertex string `json:"vertex" minLength:"1" maxLength:"200"`
	Port   string `json:"input_port" minLength:"1" maxLength:"200"`
}

// DefaultValue is what an input port gets that nothing else feeds.
type DefaultValue struct {
	Vertex string          `json:"vertex" minLength:"1" maxLength:"200"`
	Port   string          `json:"input_port" minLength:"1" maxLength:"200"`
	Value  json.RawMessage `json:"value"`
}

// EntryGroup names the vertices of one way to begin.
type EntryGroup struct {
	Name     string   `json:"name" minLength:"1" maxLength:"200"`
	Vertices []string `json:"vertices" minItems:"1" maxItems:"1000"`
}

// DefaultGroup is the only entry group of a walk that names none.
const DefaultGroup = "_default_group"

// Limits of one walk, so that judging it takes milliseconds.
const (
	maxParts  = 1000 // of each: vertices, edges, default values, outputs
	maxGroups = 32
	maxName   = 200
)

// form says what is not even the form of a walk, with the pointer to it; nil if it can be judged.
func (w *Walk) form() error {
	for _, l := range []struct {
		at     string
		n, max int
	}{{"/vertices", len(w.Vertices), maxParts}, {"/edges", len(w.Edges), maxParts}, {"/default_values", len(w.DefaultValues), maxParts},
		{"/outputs", len(w.Outputs), maxParts}, {"/entry_groups", len(w.EntryGroups), maxGroups}} {
		if l.n > l.max {
			return fault.At(l.at, "%s has %d entries, at most %d can be judged", l.at[1:], l.n, l.max)
		}
	}
	ports := 0
	for i, v := range w.Vertices {
		at := fmt.Sprintf("/vertices/%d", i)
		if err := named(at+"/name", v.Name); err != nil {
			return err
		}
		if v.Kind.Variant != "off_chain" && v.Kind.Variant != "on_chain" {
			return fault.At(at+"/kind/variant", "'Vertex: %s' is of kind %q: want off_chain or on_chain", fault.Clip(v.Name), fault.Clip(v.Kind.Variant))
		}
		if _, err := ParseFQN(v.Kind.ToolFQN); err != nil {
			return fault.At(at+"/kind/tool_fqn", "'Vertex: %s' names the tool %q: %s", fault.Clip(v.Name), fault.Clip(v.Kind.ToolFQN), err)
		}
		for j, p := range v.EntryPorts {
			if err := named(fmt.Sprintf("%s/entry_ports/%d/name", at, j), p.Name); err != nil {
				return err
			}
		}
		if ports += len(v.EntryPorts); ports > maxParts {
			return fault.At(at+"/entry_ports", "the walk has more than %d entry ports", maxParts)
		}
	}
	return w.formOfEdges()
}

func (w *Walk) formOfEdges() error {
	for i, e := range w.Edges {
		at := fmt.Sprintf("/edges/%d", i)
		switch e.Kind {
		case "", Normal, ForEach, Collect, DoWhile, Break, Static:
		default:
			return fault.At(at+"/kind", "an edge of kind %q: want normal, for_each, collect, do_while, break or static", fault.Clip(string(e.Kind)))
		}
		for _, n := range []struct{ at, name string }{{"/from/vertex", e.From.Vertex}, {"/from/output_variant", e.From.Variant}, {"/from/output_port", e.From.Port},
			{"/to/vertex", e.To.Vertex}, {"/to/input_port", e.To.Port}} {
			if err := named(at+n.at, n.name); err != nil {
				return err
			}
		}
	}
	for i, g := range w.EntryGroups {
		at := fmt.Sprintf("/entry_groups/%d", i)
		if err := named(at+"/name", g.Name); err != nil {
			return err
		}
		if n := len(g.Vertices); n == 0 || n > maxParts {
			return fault.At(at+"/vertices", "entry group %q has %d vertices: want 1 to %d", fault.Clip(g.Name), n, maxParts)
		}
	}
	return nil
}

func named(at, name string) error {
	if name == "" || len(name) > maxName || !utf8.ValidString(name) {
		return fault.At(at, "%q is no name here: want 1 to %d bytes", fault.Clip(name), maxName)
	}
	return nil
}
