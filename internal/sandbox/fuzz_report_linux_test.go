package sandbox

import (
	"bufio"
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Each report that is a line of its own is read, whatever is written before and behind it, and however long that is.
func FuzzReadReports(f *testing.F) {
	for _, s := range []string{"", "\n", "{}", "{}\n", "null\n{}\nx\n", "[]\n", `{"Ended":true,"Exit":3}`, "\r\n",
		"\x00\n"} {
		f.Add([]byte(s), 0)
		f.Add([]byte(s), 64<<10)
	}
	f.Add([]byte(" "), 64<<10-2)
	f.Fuzz(func(t *testing.T, noise []byte, long int) {
		if long > 0 {
			noise = append(slices.Clone(noise), bytes.Repeat([]byte("x"), min(long, 1<<20))...)
		}
		want := report{Ended: true, Exit: 7, Signal: -1, Error: "a\nb"}
		line, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		text := slices.Concat(noise, []byte("\n"), line, []byte("\n"), noise, []byte("\n"), line, []byte("\n"))
		var got []report
		reportsIn(bytes.NewReader(text), func(r report) { got = append(got, r) })
		n := 0
		for _, r := range got {
			if reflect.DeepEqual(r, want) {
				n++
			}
		}
		if n < 2 {
			t.Errorf("of two reports between lines of %d bytes, %.80q, came %d", len(noise), noise, n)
		}
	})
}

// An order is read as it is written, and the commands behind it are left to read.
func FuzzReadOrder(f *testing.F) {
	f.Add("/tmp/x", "/bin/sh", "A=b\n", []byte("tk"))
	f.Add("", "", "\x00\xff", []byte(`{"Dir":"y"}`+"\n"))
	f.Fuzz(func(t *testing.T, dir, path, env string, rest []byte) {
		o := order{Box: true, Dir: strings.ToValidUTF8(dir, ""), Path: strings.ToValidUTF8(path, ""),
			Env: []string{strings.ToValidUTF8(env, "")}, Unmapped: true}
		var b bytes.Buffer
		if err := writeLine(&b, o); err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(bytes.NewReader(append(b.Bytes(), rest...)))
		got, err := readOrder(r)
		left := new(bytes.Buffer)
		if _, failed := left.ReadFrom(r); failed != nil || err != nil || !reflect.DeepEqual(got, o) ||
			!bytes.Equal(left.Bytes(), rest) {
			t.Errorf("%+v with %q behind it is %+v with %q: %v", o, rest, got, left, err)
		}
		if _, err := readOrder(bufio.NewReader(bytes.NewReader(rest))); err == nil && !bytes.Contains(rest,
			[]byte("\n")) {
			t.Errorf("%q, which was cut, is an order", rest)
		}
	})
}
