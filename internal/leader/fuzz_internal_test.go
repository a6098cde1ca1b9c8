package leader

import (
	"bytes"
	"encoding/json"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
)

// A JSON pointer finds what one would who reads the whole document, and the parts of a pointer make it again.
func FuzzPointer(f *testing.F) {
	for doc, pointer := range map[string]string{
		`{"a":[{"b~/":1}]}`: "/a/0/b~0~1", `[1,2]`: "/1", `{"":{"":2}}`: "//", `{"a":1}`: "", `[[]]`: "/0/0",
		`{"0":[0]}`: "/0/00",
		`{"~1":1}`:  "/~01", `{"a":"\ud800"}`: "/a", `{"a":1,"a":{"b":2}}`: "/a/b",
	} {
		f.Add([]byte(doc), pointer)
	}
	f.Fuzz(func(t *testing.T, doc []byte, pointer string) {
		if pointer != "" && pointer[0] != '/' || !json.Valid(doc) {
			return
		}
		found := at(doc, pointer)
		want, there := follow(t, doc, pointer)
		if there != (found != nil) {
			t.Fatalf("%q in %q: %q", pointer, doc, found)
		}
		if !there {
			return
		}
		got, _ := follow(t, found, "")
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q in %q: %q, want %v", pointer, doc, found, want)
		}
	})
}

// follow reads a whole document and follows a pointer in it.
func follow(t *testing.T, doc []byte, pointer string) (v any, there bool) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	if pointer == "" {
		return v, true
	}
	for _, step := range strings.Split(pointer[1:], "/") {
		step = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
		switch within := v.(type) {
		case map[string]any:
			if v, there = within[step]; !there {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(within) {
				return nil, false
			}
			v = within[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// A page is the same whether it comes at once or byte by byte, and its events stand where its bytes do.
func FuzzTakeApart(f *testing.F) {
	for _, s := range []string{`{"events":[{"id":1},{"id":"\"]"}],"next":"c"}`, `{"events":[1,2}`, `[]`,
		`{"events":[{"a":[}]}]}`, `{"events":null}`,
		`{"events":[` + strings.Repeat(`[`, 80) + strings.Repeat(`]`, 80) + `]}`,
		`{"a":{"events":[1]},"events":[2],"events":[3]}`, " \n{\"events\":[ ]}\t", `{"events":[]}x`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, page []byte) {
		pointers := []string{"/id", "/a/0"}
		a, err := takeApart(bytes.NewReader(page), "/events", pointers, 1<<20)
		b, err2 := takeApart(iotest.OneByteReader(bytes.NewReader(page)), "/events", pointers, 1<<20)
		if (err == nil) != (err2 == nil) || err == nil && !reflect.DeepEqual(a, b) {
			t.Fatalf("%q at once: %+v %v; in pieces: %+v %v", page, a, err, b, err2)
		}
		if err != nil {
			return
		}
		if !json.Valid(a.rest) {
			t.Errorf("%q leaves %q", page, a.rest)
		}
		for _, e := range a.events {
			if e.sum == nil && !bytes.Contains(page, e.raw) {
				t.Errorf("%q has the event %q", page, e.raw)
			}
		}
		if json.Valid(page) {
			for _, e := range a.events {
				if !json.Valid(e.raw) {
					t.Errorf("%q is JSON, and its event %q is not", page, e.raw)
				}
			}
		}
	})
}

// The cursor of a table is read as it is written, and a URL of a table's database has no secret and no door to files.
func FuzzTableCursor(f *testing.F) {
	f.Add([]byte(`{"at":"1","key":"2","seen":"3","since":"2026-01-02T03:04:05Z"}`),
		"postgres://u@h:1/d?sslmode=require")
	f.Add([]byte(`null`), "postgres://u:secret@h/d")
	f.Add([]byte(`{"key":"2"}`), "postgres://u@h/d?sslmode=disable&passfile=/etc/passwd")
	f.Add([]byte(`{"seen":"2"}`), "postgresql://u@h,i/d")
	f.Fuzz(func(t *testing.T, raw []byte, database string) {
		if err := checkDatabase(database); err == nil && database != "" {
			u, err := url.Parse(database)
			if err != nil {
				t.Fatal(err)
			}
			if _, has := u.User.Password(); has || u.User.Username() == "" || strings.Contains(u.Host, ",") ||
				len(u.Query()) > 1 {
				t.Errorf("%q is let in", database)
			}
		}
		c, trouble := ReadTableCursor(raw)
		if trouble != nil {
			return
		}
		said, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if again, trouble := ReadTableCursor(said); string(said) != "{}" && (trouble != nil ||
			!reflect.DeepEqual(again, c)) {
			t.Errorf("%q is %s, which is %+v: %v", raw, said, again, trouble)
		}
	})
}
