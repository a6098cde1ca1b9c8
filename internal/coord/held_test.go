package coord

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"
)

// filled sets a value to one that is not zero, and everything in it.
func filled(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		filled(v.Index(0))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		filled(v.Elem())
	case reflect.Struct:
		if _, is := v.Interface().(time.Time); is {
			v.Set(reflect.ValueOf(noon))
			return
		}
		for n := range v.NumField() {
			filled(v.Field(n))
		}
	default:
		panic(fmt.Sprint("a field of kind ", v.Kind()))
	}
}

// eachField visits all places of a value where one field can change, without what pointers lead to.
func eachField(v reflect.Value, name string, visit func(string, reflect.Value)) {
	_, isTime := v.Interface().(time.Time)
	switch {
	case v.Kind() == reflect.Struct && !isTime:
		for n := range v.NumField() {
			eachField(v.Field(n), name+"."+v.Type().Field(n).Name, visit)
		}
	case v.Kind() == reflect.Slice && v.Len() > 0:
		eachField(v.Index(0), name+"[0]", visit)
		fallthrough
	default:
		visit(name, v)
	}
}

// A field of an intent that Same does not look at would not be written.
func TestSameSeesEachField(t *testing.T) {
	var names []string
	var first Intent
	filled(reflect.ValueOf(&first).Elem())
	eachField(reflect.ValueOf(&first).Elem(), "", func(name string, _ reflect.Value) { names = append(names, name) })
	for k, name := range names {
		var a, b Intent
		filled(reflect.ValueOf(&a).Elem())
		filled(reflect.ValueOf(&b).Elem())
		if !a.Same(&b) {
			t.Fatal("two that are equal are not the same")
		}
		n := 0
		eachField(reflect.ValueOf(&b).Elem(), "", func(_ string, v reflect.Value) {
			if n++; n == k+1 {
				v.SetZero()
			}
		})
		if a.Same(&b) {
			t.Errorf("Same does not see that %s has changed", name)
		}
	}
	if len(names) < 30 {
		t.Errorf("%d fields were tried: %v", len(names), names)
	}
}

// Intents are found by their ids whatever came and went since the index was made.
func TestIntentsAreFoundByTheirIDs(t *testing.T) {
	d := New("tok", "a", Defaults("a"), 1)
	id := func(n int) string { return fmt.Sprint("i", n) }
	for n := range 3 * few {
		d.Intents = append(d.Intents, &Intent{ID: id(n)})
	}
	look := func(when string) {
		t.Helper()
		for n := range 3*few + 2 {
			at := slices.IndexFunc(d.Intents, func(i *Intent) bool { return i.ID == id(n) })
			got := d.Intent(id(n))
			if (got != nil) != (at >= 0) || got != nil && got != d.Intents[at] {
				t.Errorf("%s: %s is found as %v, and stands at %d", when, id(n), got, at)
			}
		}
	}
	look("without an index")
	d = d.Clone()
	look("with one")
	d.Intents = append(d.Intents, &Intent{ID: id(3 * few)})
	look("with one more")
	d = d.Clone()
	look("indexed again")
	for n := 0; n < 3*few; n += 5 {
		d.Intents[n].Receipt = Success
	}
	d = d.Needed()
	look("without those that have ended")
	d.Intents = append(d.Intents, &Intent{ID: id(3*few + 1)})
	slices.Reverse(d.Intents)
	look("in another order")
	d = d.Clone()
	look("indexed once more")
}
