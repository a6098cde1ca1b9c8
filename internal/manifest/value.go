package manifest

import (
	"encoding/json"
	"strconv"
	"strings"
)

type valueKind int

const (
	null valueKind = iota
	truth
	number
	text
	list
	object
)

// value is a JSON value with its place.
type value struct {
	place
	kind    valueKind
	text    string // of a text, and the literal of a number, true and false
	items   []*value
	members []member
}

// member is one of an object; its place is that of its key.
type member struct {
	place
	key string
	of  *value
}

// json adds the value to b.
func (v *value) json(b []byte) []byte {
	switch v.kind {
	case null:
		return append(b, "null"...)
	case truth, number:
		return append(b, v.text...)
	case text:
		return quoted(b, v.text)
	case list:
		b = append(b, '[')
		for i, item := range v.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = item.json(b)
		}
		return append(b, ']')
	}
	b = append(b, '{')
	for i, m := range v.members {
		if i > 0 {
			b = append(b, ',')
		}
		b = m.of.json(append(quoted(b, m.key), ':'))
	}
	return append(b, '}')
}

func quoted(b []byte, s string) []byte {
	q, _ := json.Marshal(s) // of a string, which never fails
	return append(b, q...)
}

var escaped = strings.NewReplacer("~", "~0", "/", "~1")

// places notes where everything in the value stands.
func (v *value) places(pointer string, into map[string]place) {
	if _, known := into[pointer]; !known {
		into[pointer] = v.place
	}
	for i, item := range v.items {
		item.places(pointer+"/"+strconv.Itoa(i), into)
	}
	for _, m := range v.members {
		at := pointer + "/" + escaped.Replace(m.key)
		into[at] = m.place
		m.of.places(at, into)
	}
}
