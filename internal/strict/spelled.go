package strict

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// Spelled refuses valid JSON with a member that encoding/json would take for a field of into though it is written
// otherwise, such as Job for job. A reader that compares letters finds none there, and of two that differ in letters
// alone encoding/json keeps the last. Values that read themselves are not looked into.
func Spelled(body []byte, into any) error { return spelled(body, reflect.TypeOf(into).Elem(), "") }

var readsItself = reflect.TypeFor[json.Unmarshaler]()

func spelled(body []byte, t reflect.Type, at string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case reflect.PointerTo(t).Implements(readsItself):
	case t.Kind() == reflect.Slice:
		var list []json.RawMessage
		if t.Elem().Kind() == reflect.Uint8 || json.Unmarshal(body, &list) != nil {
			return nil
		}
		for i, one := range list {
			if err := spelled(one, t.Elem(), at+"/"+strconv.Itoa(i)); err != nil {
				return err
			}
		}
	case t.Kind() == reflect.Struct:
		var members Members
		if json.Unmarshal(body, &members) != nil {
			return nil
		}
		return members.spelled(t, at)
	}
	return nil
}

func (m Members) spelled(t reflect.Type, at string) error {
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		for key := range m {
			if key != name && strings.EqualFold(key, name) {
				return fmt.Errorf("the member %.80q at %s/: write it %q", key, at, name)
			}
		}
		if raw, has := m[name]; has {
			if err := spelled(raw, t.Field(i).Type, at+"/"+name); err != nil {
				return err
			}
		}
	}
	return nil
}
