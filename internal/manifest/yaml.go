package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// valuesMost is how many values a file may have with its aliases written out: a few lines can ask for billions.
const valuesMost = 200_000

// yamlReader turns the nodes of one file into values.
type yamlReader struct {
	f    *file
	left int // values that may yet be made
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// readYAML reads the documents of a file. The parser knows of what is no YAML at all the line alone.
func (f *file) readYAML(raw []byte) (all []*value) {
	r := yamlReader{f: f, left: valuesMost}
	for d := yaml.NewDecoder(bytes.NewReader(raw)); ; {
		var n yaml.Node
		err := d.Decode(&n)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			at := place{line: 1}
			if m := yamlLine.FindStringSubmatch(err.Error()); m != nil && m[1] != "" {
				at.line, _ = strconv.Atoi(m[1])
			}
			f.wrong(at, "this is no YAML: %s", yamlLine.ReplaceAllString(err.Error(), ""))
			return all
		}
		if len(n.Content) == 1 {
			if v := r.value(n.Content[0]); v.kind != null { // of a document that is empty, or a comment
				all = append(all, v)
			}
		}
		if r.left < 0 {
			f.wrong(place{line: n.Line}, "the file has more than %d values, its aliases written out", valuesMost)
			return nil
		}
	}
}

// value is a node as JSON has it: numbers keep their digits, and times are texts.
func (r *yamlReader) value(n *yaml.Node) *value {
	v := &value{place: place{n.Line, n.Column}}
	if r.left--; r.left < 0 {
		return v
	}
	if n.Style&yaml.TaggedStyle != 0 && n.Tag != "!!str" {
		r.f.wrong(v.place, "the tag %s is not read here: only !!str is", clip(n.Tag))
		return v
	}
	switch n.Kind {
	case yaml.AliasNode:
		of := r.value(n.Alias)
		of.place = v.place
		return of
	case yaml.SequenceNode:
		v.kind = list
		for _, item := range n.Content {
			v.items = append(v.items, r.value(item))
		}
	case yaml.MappingNode:
		v.kind = object
		r.object(v, n)
	default:
		r.scalar(v, n)
	}
	return v
}

func (r *yamlReader) scalar(v *value, n *yaml.Node) {
	switch n.ShortTag() {
	case "!!null":
	case "!!bool":
		v.kind, v.text = truth, strings.ToLower(n.Value)
	case "!!int", "!!float":
		if v.kind, v.text = number, n.Value; !json.Valid([]byte(n.Value)) {
			r.f.wrong(v.place, "%s: want a number in decimal digits, or quotes around a text", clip(n.Value))
			v.text = "0"
		}
	default:
		v.kind, v.text = text, n.Value
	}
}

// object reads the members of a mapping. Objects that are merged into it (<<) give those that it does not have itself.
func (r *yamlReader) object(v *value, n *yaml.Node) {
	first := map[string]place{}
	var merged []*value
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, of := n.Content[i], n.Content[i+1]
		at := place{key.Line, key.Column}
		switch {
		case key.ShortTag() == "!!merge":
			m := r.value(of)
			if merged = append(merged, m); m.kind == list {
				merged = append(merged[:len(merged)-1], m.items...)
			}
			continue
		case key.Kind != yaml.ScalarNode:
			r.f.wrong(at, "a key is no text")
			continue
		}
		if before, twice := first[key.Value]; twice {
			r.f.wrong(at, "%q stands twice: first in line %d", clip(key.Value), before.line)
			continue
		}
		first[key.Value] = at
		v.members = append(v.members, member{at, key.Value, r.value(of)})
	}
	for _, m := range merged {
		if m.kind != object {
			r.f.wrong(m.place, "<<: want an object to merge, or a list of them")
		}
		for _, x := range m.members {
			if _, own := first[x.key]; !own {
				first[x.key] = x.place
				v.members = append(v.members, x)
			}
		}
	}
}
