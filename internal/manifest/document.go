package manifest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Document is what one thing is to be.
type Document struct {
	Kind     string          `json:"kind"`
	Context  string          `json:"context,omitempty"`
	Name     string          `json:"name"`
	Settings json.RawMessage `json:"settings,omitempty"`

	file  string
	begin place
	at    map[string]place // of what stands in it, by JSON pointers
}

// place is where something stands in a file; column 0: only the line is known.
type place struct{ line, column int }

func (p place) String() string {
	if p.column == 0 {
		return fmt.Sprint(p.line)
	}
	return fmt.Sprintf("%d:%d", p.line, p.column)
}

// Where says where a JSON pointer into the document stands: file, line and column. Of what is missing it is the
// place of what should have it.
func (d *Document) Where(pointer string) string {
	for {
		if p, ok := d.at[pointer]; ok {
			return d.file + ":" + p.String()
		}
		i := strings.LastIndexByte(pointer, '/')
		if i < 0 {
			return d.file + ":" + d.begin.String()
		}
		pointer = pointer[:i]
	}
}

// members are what a document has.
var members = []string{"kind", "context", "name", "settings"}

// document makes a document of a value, and says what keeps it from being one.
func (f *file) document(v *value) {
	d := &Document{file: f.name, begin: v.place, at: map[string]place{}}
	if v.kind != object {
		f.wrong(v.place, "want an object with kind, name and settings")
		return
	}
	wrong := len(f.faults)
	v.places("", d.at)
	texts := map[string]*string{"kind": &d.Kind, "context": &d.Context, "name": &d.Name}
	for _, m := range v.members {
		into := texts[m.key]
		switch {
		case into != nil && m.of.kind != text:
			f.wrong(m.place, "%s: want a text; quote what looks like a number", m.key)
		case into != nil:
			*into = m.of.text
		case !slices.Contains(members, m.key):
			f.wrong(m.place, "a document has no %q: it has %s", clip(m.key), strings.Join(members, ", "))
		case m.of.kind == null:
		case m.of.kind != object:
			f.wrong(m.place, "settings: want an object, the body of its PUT")
		default:
			f.resolve(m.of, true)
			d.Settings = m.of.json(nil)
		}
	}
	if len(f.faults) == wrong && (d.Kind == "" || d.Name == "") {
		f.wrong(v.place, "want kind and name in every document")
	}
	if len(f.faults) == wrong {
		f.documents = append(f.documents, d)
	}
}

func clip(s string) string {
	if r := []rune(s); len(r) > 64 {
		return string(r[:61]) + "..."
	}
	return s
}
