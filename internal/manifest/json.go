package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/postern-dev/postern/internal/strict"
)

// depthMost is how deep values may lie in each other.
const depthMost = 64

// readJSON reads JSON values that stand one behind the other.
func (f *file) readJSON(raw []byte) (all []*value) {
	for d := json.NewDecoder(bytes.NewReader(raw)); ; {
		var one json.RawMessage
		err := d.Decode(&one)
		if errors.Is(err, io.EOF) {
			return all
		}
		end := int(d.InputOffset())
		if err != nil {
			if e := (*json.SyntaxError)(nil); errors.As(err, &e) {
				end = int(e.Offset)
			}
			f.wrong(placeOf(raw, end), "this is no JSON: %s", err)
			return all
		}
		begin := end - len(one)
		if err := strict.Check(one, depthMost); err != nil {
			f.wrong(placeOf(raw, begin), "this is no JSON that is accepted: %s", err)
			continue
		}
		r := jsonReader{raw: raw, base: begin, d: json.NewDecoder(bytes.NewReader(one))}
		r.d.UseNumber()
		all = append(all, r.value())
	}
}

// placeOf is the line and column of an offset.
func placeOf(raw []byte, offset int) place {
	before := raw[:min(max(offset, 0), len(raw))]
	line := bytes.LastIndexByte(before, '\n')
	return place{1 + bytes.Count(before, []byte("\n")), len(before) - line}
}

// jsonReader reads one value that is known to be right.
type jsonReader struct {
	raw  []byte
	base int
	d    *json.Decoder
}

// here is the place of the token that comes next.
func (r *jsonReader) here() place {
	at := r.base + int(r.d.InputOffset())
	for at < len(r.raw) && bytes.IndexByte([]byte(" \t\r\n,:"), r.raw[at]) >= 0 {
		at++
	}
	return placeOf(r.raw, at)
}

func (r *jsonReader) value() *value {
	v := &value{place: r.here()}
	token, _ := r.d.Token()
	switch t := token.(type) {
	case bool:
		if v.kind, v.text = truth, "false"; t {
			v.text = "true"
		}
	case json.Number:
		v.kind, v.text = number, t.String()
	case string:
		v.kind, v.text = text, t
	case json.Delim:
		v.kind = list
		if t == '{' {
			v.kind = object
		}
		for r.d.More() {
			if v.kind == list {
				v.items = append(v.items, r.value())
				continue
			}
			at := r.here()
			key, _ := r.d.Token()
			name, _ := key.(string)
			v.members = append(v.members, member{at, name, r.value()})
		}
		_, _ = r.d.Token() // its end
	}
	return v
}
