package machinetest_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/machine"
	"github.com/postern-dev/postern/internal/machine/machinetest"
)

const seeds = "../../../../shared/seeds"

func seed(t *testing.T, name string) []machinetest.Diagram {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(seeds, name))
	if err != nil {
		t.Skipf("the published designs are not beside this checkout: %v", err)
	}
	ds, err := machinetest.ParseMarkdown(string(page))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return ds
}

// Each diagram of the seeds: line, kind and number of arrows, counted as lines with -->.
func TestEveryDiagramOfTheSeedsIsRead(t *testing.T) {
	type diagram struct {
		line  int
		kind  string
		edges int
	}
	for name, want := range map[string][]diagram{
		"1-leader.md":    {{8, "sequenceDiagram", 0}, {108, "stateDiagram-v2", 21}, {143, "stateDiagram-v2", 16}},
		"2-sequencer.md": nil,
		"4-processor.md": nil,
		"5-coordinator.md": {{21, "sequenceDiagram", 0}, {58, "graph", 0}, {90, "stateDiagram-v2", 9},
			{171, "sequenceDiagram", 0}, {232, "graph", 0}},
		"3-distributed-sequencer.md": {
			{44, "stateDiagram-v2", 26}, {92, "stateDiagram-v2", 5}, {141, "stateDiagram-v2", 23},
			{194, "stateDiagram-v2", 11}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []diagram
			for _, d := range seed(t, name) {
				got = append(got, diagram{d.Line, d.Kind, len(d.Edges)})
			}
			if !slices.Equal(got, want) {
				t.Errorf("read %v, want %v", got, want)
			}
		})
	}
}

func TestCompositeStatesChoicesAndPartsOfASeedAreRead(t *testing.T) {
	d := seed(t, "1-leader.md")[1]
	if want := []string{"if_successful", "if_exists", "if_channel_capacity"}; !slices.Equal(d.Choices, want) {
		t.Errorf("choices %v, want %v", d.Choices, want)
	}
	const in = "HighIntegrityChannel"
	for _, want := range []machine.Edge{
		{From: "[*]", To: "Receiver", Label: "Start", Within: in},
		{From: "ReceiveMessage", To: "MoveToActiveSet", Within: in},
		{From: "if_successful", To: "NackMessage", Label: "Err", Within: in},
		{From: "[*]", To: "Sender", Label: "Start", Within: in, Region: 1},
		{From: "SendMessage", To: "[*]", Label: "send", Within: in, Region: 1},
	} {
		if !slices.Contains(d.Edges, want) {
			t.Errorf("the diagram lacks %+v", want)
		}
	}
}

func TestLabelsAreReadHoweverTheColonStands(t *testing.T) {
	d := seed(t, "3-distributed-sequencer.md")[2]
	for _, want := range []machine.Edge{
		{From: "PreAssembly_Blocked", To: "Pooled"},
		{From: "Submitted", To: "Confirmed", Label: "Confirmed"}, // written ":Confirmed"
		{From: "Assembling", To: "Assembling", Label: "RequestTimeoutInterval"},
		{From: "[*]", To: "PreAssembly_Blocked", Label: "Received"},
	} {
		if !slices.Contains(d.Edges, want) {
			t.Errorf("the diagram lacks %+v", want)
		}
	}
	if d.Direction != "LR" {
		t.Errorf("direction %q, want LR", d.Direction)
	}
}

func TestTheRestOfTheLanguageIsRead(t *testing.T) {
	d, err := machinetest.ParseMermaid(`
%%{init: {"theme":"dark"}}%%
stateDiagram-v2
    direction TB
    state "On the way" as moving
    idle
    idle: Nothing to do
    idle-->moving:go: now
    state "The inner" as inner {
        direction LR
        a.b --> c-d
        state deep {
            e --> [*]
            --
            [*] --> f
        }
        c-d --> a.b : back
    }
    %% the end
    moving --> inner
`)
	if err != nil {
		t.Fatal(err)
	}
	want := []machine.Edge{
		{From: "idle", To: "moving", Label: "go: now"},
		{From: "a.b", To: "c-d", Within: "inner"},
		{From: "e", To: "[*]", Within: "deep"},
		{From: "[*]", To: "f", Within: "deep", Region: 1},
		{From: "c-d", To: "a.b", Label: "back", Within: "inner"},
		{From: "moving", To: "inner"},
	}
	if !slices.Equal(d.Edges, want) {
		t.Errorf("edges %v, want %v", d.Edges, want)
	}
	if want := []string{"moving", "idle", "inner", "a.b", "c-d", "deep", "e", "f"}; !slices.Equal(d.States, want) {
		t.Errorf("states %v, want %v", d.States, want)
	}
	if d.Direction != "TB" || d.Aliases["moving"] != "On the way" || d.Aliases["idle"] != "Nothing to do" ||
		d.Aliases["inner"] != "The inner" {
		t.Errorf("direction %q, aliases %v", d.Direction, d.Aliases)
	}
}

func TestWhatCannotBeReadIsAnErrorThatNamesTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "is empty",
		"stateDiagram-v2\n a ==> b":          `line 2, "a ==> b"`,
		"stateDiagram-v2\n }":                "without an open composite",
		"stateDiagram-v2\n --":               "only inside a composite",
		"stateDiagram-v2\n state a {\n b":    "a has no closing brace",
		"stateDiagram-v2\n a --> b c":        "line 2",
		"stateDiagram-v2\n note left of a.b": "line 2",
	} {
		if _, err := machinetest.ParseMermaid(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives %v, want %q in it", text, err, want)
		}
	}
	for page, want := range map[string]string{
		"x\n```mermaid\nstateDiagram\n a => b\n```\n": "begins on line 3",
		"x\n```go\n": "line 3 has no end",
	} {
		if _, err := machinetest.ParseMarkdown(page); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives %v, want %q in it", page, err, want)
		}
	}
}

func FuzzParseMermaid(f *testing.F) {
	f.Add("stateDiagram-v2\n[*] --> a : b\nstate c {\n a --> c\n --\n c --> [*]\n}")
	f.Add("stateDiagram-v2\ndirection LR\n[*] --> Shut : Built\nShut --> Open : Push [unlocked]\nOpen --> [*]\n")
	f.Fuzz(func(t *testing.T, text string) {
		d, err := machinetest.ParseMermaid(text)
		if err == nil && d.Kind == "" {
			t.Error("a diagram without kind and without error")
		}
	})
}
