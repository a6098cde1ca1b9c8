package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/postern-dev/postern/internal/fault"
)

// Members are those of an object of JSON by their exact names. encoding/json takes Done for done where it reads a
// struct, and other readers do not: an answer would mean one thing to Postern, and another to all others.
type Members map[string]json.RawMessage

// Object reads the members of an object. null has none. An object that has a key twice is refused: which of the two
// counts is for each reader to choose, and a transaction must not end by such a choice.
func Object(body []byte) (m Members, err error) {
	err = json.Unmarshal(body, &m)
	if e := (*json.UnmarshalTypeError)(nil); errors.As(err, &e) {
		return nil, fmt.Errorf("want an object of JSON, but a value of type %s came", e.Value)
	}
	if err == nil && keysOf(body) != len(m) {
		return nil, twice(body)
	}
	return m, err
}

// keysOf counts the keys of an object of valid JSON, without those of the values in it.
func keysOf(body []byte) (n int) {
	depth := 0
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '"':
			for i++; body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ':':
			if depth == 1 {
				n++
			}
		}
	}
	return n
}

// twice names the key that an object of valid JSON has twice.
func twice(body []byte) error {
	d := json.NewDecoder(bytes.NewReader(body))
	seen := map[string]bool{}
	_, err := d.Token()
	for err == nil && d.More() {
		key, _ := d.Token()
		name, _ := key.(string)
		if seen[name] {
			return fmt.Errorf("the key %q occurs twice", fault.Clip(name))
		}
		seen[name] = true
		var skipped json.RawMessage
		err = d.Decode(&skipped)
	}
	return errors.New("a key occurs twice")
}

// Read reads an object into a struct, as Fill does.
func Read(body []byte, into any) error {
	m, err := Object(body)
	if err != nil {
		return err
	}
	return m.Fill(into)
}

// Fill reads the members into the fields of the struct that into points at, each by the name of its json tag; a field
// without one has none. A struct within another one is a raw field there, and is read by a call of its own. The error
// is that of encoding/json, with the name of the member.
func (m Members) Fill(into any) error {
	v := reflect.ValueOf(into).Elem()
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		raw, has := m[name]
		if !has {
			continue
		}
		if field, ok := v.Field(i).Addr().Interface().(*json.RawMessage); ok {
			*field = raw
			continue
		}
		if err := json.Unmarshal(raw, v.Field(i).Addr().Interface()); err != nil {
			if e := (*json.UnmarshalTypeError)(nil); errors.As(err, &e) {
				e.Field = strings.TrimSuffix(name+"."+e.Field, ".")
			}
			return err
		}
	}
	return nil
}
