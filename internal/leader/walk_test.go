package leader_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
)

// S1.16, on the documents of the design's reference with its verdicts.
func TestWalksGetTheVerdictOfTheReference(t *testing.T) {
	var expected struct {
		Cases []struct {
			File, Expect string
			Contains     string `json:"error_contains"`
		}
	}
	vector(t, "nexus_dags/_expected.json", &expected)
	files, err := os.ReadDir(vectors + "nexus_dags")
	if err != nil || len(expected.Cases) == 0 || len(expected.Cases) != len(files)-1 {
		t.Fatalf("%d cases for %d files, %v", len(expected.Cases), len(files)-1, err)
	}
	for _, c := range expected.Cases {
		var w leader.Walk
		vector(t, "nexus_dags/"+c.File, &w)
		err := w.Validate()
		switch {
		case c.Expect == "ok" && err != nil, c.Expect != "ok" && (err == nil || !strings.Contains(err.Error(), c.Contains)):
			t.Errorf("%s: %v, want %s %q", c.File, err, c.Expect, c.Contains)
		case err != nil && (fault.KindOf(err) != fault.Invalid || len(fault.As(err).Fields) != 1 || fault.As(err).Fields[0].Pointer == ""):
			t.Errorf("%s: %+v has no pointer", c.File, fault.As(err))
		}
	}
}

// walk writes a document briefly: vertices "a+in" begin with the port in; edges "a.ok.out>b.in", with the
// kind behind a space.
func walk(vertices string, edges ...string) *leader.Walk {
	w := &leader.Walk{}
	for _, s := range strings.Fields(vertices) {
		name, ports, _ := strings.Cut(s, "+")
		v := leader.Vertex{Name: name, Kind: leader.VertexKind{Variant: "off_chain", ToolFQN: "com.test.test@1"}}
		for _, p := range strings.Split(ports, ",") {
			if p != "" {
				v.EntryPorts = append(v.EntryPorts, leader.Port{Name: p})
			}
		}
		w.Vertices = append(w.Vertices, v)
	}
	for _, s := range edges {
		s, kind, _ := strings.Cut(s, " ")
		from, to, _ := strings.Cut(s, ">")
		f, o := strings.Split(from, "."), strings.Split(to, ".")
		w.Edges = append(w.Edges, leader.Edge{Kind: leader.EdgeKind(kind), From: leader.FromPort{Vertex: f[0], Variant: f[1], Port: f[2]}, To: leader.ToPort{Vertex: o[0], Port: o[1]}})
	}
	return w
}

// These walks fail in ways that the reference's documents do not try.
func TestEachCheckOfAWalkHasItsText(t *testing.T) {
	with := func(w *leader.Walk, change func(*leader.Walk)) *leader.Walk { change(w); return w }
	for _, c := range []struct {
		w        *leader.Walk
		text, at string
	}{
		{walk("a+in"), "", ""},
		{walk("a+in b", "a.ok.x>b.1"), "", ""},
		{walk("a b", "a.ok.x>b.1"), "The DAG has no entry vertices or ports.", "/vertices"},
		{walk("a+in b", "a.ok.x>b.1", "a.ok.x>b.2"), "Edge from 'Output variant: a.ok' to 'Output port: a.ok.x' already exists.", "/edges/1/from"},
		{walk("a+in,in b", "a.ok.x>b.1"), "'Input port: a.in' is defined multiple times.", "/vertices/0/entry_ports/1"},
		{walk("a+in b", "a.ok.x>c.1"), "'Vertex: b' is not connected to the DAG.", "/vertices/1"},
		{walk("a+in", "a.ok.x>c.1"), "'Vertex: c' is not defined.", "/edges/0/to/vertex"},
		{with(walk("a+in b", "a.ok.x>b.1"), func(w *leader.Walk) { w.Outputs = []leader.FromPort{{Vertex: "a", Variant: "ok", Port: "y"}} }),
			"'Vertex: a' cannot have both outgoing edges and ports marked as output.", "/vertices/0"},
		{with(walk("a+in b", "a.ok.x>b.1"), func(w *leader.Walk) { w.Outputs = []leader.FromPort{{Vertex: "c", Variant: "ok", Port: "y"}} }),
			"'Vertex: c' is not defined.", "/outputs/0/vertex"},
		{with(walk("a+in b", "a.ok.x>b.1"), func(w *leader.Walk) {
			w.DefaultValues = []leader.DefaultValue{{Vertex: "a", Port: "in", Value: json.RawMessage("1")}}
		}), "'Input port: a.in' is an entry port or has an edge leading into it and therefore cannot have a default value.", "/default_values/0"},
		{walk("a+in b", "a.ok.x>b.1", "b.lt.x>a.2 do_while"), "Vertex 'b' has a do-while edge but no corresponding break edge.", "/edges/1"},
		{walk("a+in b c", "a.ok.x>b.1", "b.ok.x>c.1", "c.ok.x>b.2"), "The provided graph contains one or more cycles.", "/edges"},
		{walk("a+in b", "a.ok.x>b.1", "a.ok.y>b.1"), "'Input port: b.1' has a race condition on it when invoking group '_default_group'", "/edges/0/to/input_port"},
		{walk("a+in b c", "a.ok.x>b.1", "a.err.x>b.2", "b.ok.x>c.1"), "'Input port: c.1' is unreachable when invoking group '_default_group'", "/edges/2/to/input_port"},
		{walk("a+in b", "a.ok.x>b.1 collect"), "'Output port: a.ok.x' has a collect edge without for-each", "/edges/0/from/output_port"},
		{walk("a+in b", "a.ok.x>b.1 for_each"), "'Vertex: b' has a for-each edge without a corresponding collect", "/edges/0/to/vertex"},
		{walk("a+in b c", "a.ok.x>b.1 for_each", "b.ok.x>c.1 static"), "'Output port: b.ok.x' has a static edge inside a for-each", ""},
		{walk("a+in b c d", "a.ok.x>b.1", "b.ok.x>c.1 for_each", "c.ok.x>d.1 collect", "d.lt.x>a.2 do_while", "d.eq.x>e.1 break"), "'Vertex: e' is not defined.", ""},
		{walk("a+in b c d e", "a.ok.x>b.1", "b.ok.x>c.1 for_each", "c.ok.x>d.1 collect", "d.lt.x>a.2 do_while", "d.eq.x>e.1 break"),
			"Do-while edge at 'Output port: d.lt.x' has a nested loop inside.", "/edges/3/from/output_port"},
		// a vertex may bear the name of the phantom that a way back leads to
		{walk("a+in b a-do-while", "a.ok.x>b.1", "b.lt.x>a.2 do_while", "b.eq.x>a-do-while.2 break"), "", ""},
		{with(walk("a+in"), func(w *leader.Walk) { w.Vertices[0].Kind.ToolFQN = "com.test@1" }), "names the tool \"com.test@1\": Invalid tool FQN format", "/vertices/0/kind/tool_fqn"},
		{with(walk("a+in"), func(w *leader.Walk) { w.Vertices[0].Kind.Variant = "near_chain" }), "want off_chain or on_chain", "/vertices/0/kind/variant"},
		{walk("a+in b", "a.ok.x>b.1 twice"), "an edge of kind \"twice\"", "/edges/0/kind"},
		{with(walk("a+in"), func(w *leader.Walk) { w.EntryGroups = make([]leader.EntryGroup, 33) }), "at most 32", "/entry_groups"},
	} {
		err := c.w.Validate()
		if (err == nil) != (c.text == "") || err != nil && (!strings.Contains(err.Error(), c.text) || c.at != "" && fault.As(err).Fields[0].Pointer != c.at) {
			t.Errorf("%+v:\n%v at %+v, want %q at %s", c.w.Edges, err, fault.As(err), c.text, c.at)
		}
	}
}

// A ladder of diamonds has 2^n ways through it, which cannot all be counted.
func TestALargeWalkIsJudgedAtOnce(t *testing.T) {
	w := walk("v0+in")
	for i := range 249 {
		next := walk(fmt.Sprintf("v%d", i+1), fmt.Sprintf("v%d.ok.x>v%d.1", i, i+1), fmt.Sprintf("v%d.ok.y>v%d.2", i, i+1))
		w.Vertices, w.Edges = append(w.Vertices, next.Vertices...), append(w.Edges, next.Edges...)
	}
	begun := time.Now()
	err := w.Validate()
	if took := time.Since(begun); took > 60*time.Second {
		t.Errorf("took %s", took)
	}
	if err != nil { // each puts out two values, and the next takes both
		t.Error(err)
	}
}
