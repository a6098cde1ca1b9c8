package strict

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// Members are those of an object of JSON by their exact names. encoding/json takes Done for done where it reads a
// struct, and other readers do not: an answer would mean one thing to Postern, and another to all others.
type Members map[string]json.RawMessage

// Object reads the members of an object. null has none.
func Object(body []byte) (m Members, err error) {
	err = json.Unmarshal(body, &m)
	if e := (*json.UnmarshalTypeError)(nil); errors.As(err, &e) {
		return nil, fmt.Errorf("want an object of JSON, but a value of type %s came", e.Value)
	}
	return m, err
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
