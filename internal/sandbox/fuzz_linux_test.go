package sandbox

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// What a script leaves as its result is refused by a text that a person can read, or is an object of strings that
// PostgreSQL takes, and that a server reads as the runner did.
func FuzzReadResult(f *testing.F) {
	for _, s := range []string{`{}`, `{"n": "3"}`, `{"n": 3}`, `{"n": null}`, `null`, `[]`, `{"a": "1", "a": "2"}`,
		"{\"a\": \"\\u0000\"}", "{\"a\": \"\\ud800\"}", "\xef\xbb\xbf{}", "{\"\xff\": \"\xfe\"}", "{} {}",
		strings.Repeat(`{"a":`, 20_000), `{"a": "` + strings.Repeat("<", largestResult-9) + `"}`} {
		f.Add([]byte(s))
	}
	at := filepath.Join(f.TempDir(), "result")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(at, text, 0o600); err != nil {
			t.Fatal(err)
		}
		result, err := readResult(at)
		if err != nil {
			if len(err.Error()) > 400 || !utf8.ValidString(err.Error()) {
				t.Errorf("it is refused by %q", err)
			}
			return
		}
		for k, v := range result {
			if s := k + v; !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
				t.Errorf("%q is %q, which PostgreSQL does not take", k, v)
			}
		}
		var sent map[string]string
		if told, err := json.Marshal(result); err != nil || json.Unmarshal(told, &sent) != nil {
			t.Errorf("%q cannot be told: %v", result, err)
		}
		if n := sizeOf(result); n > largestResult {
			t.Errorf("it has %d bytes as JSON", n)
		}
		if !maps.Equal(sent, result) {
			t.Errorf("%q is told as %q", result, sent)
		}
	})
}

// Whatever a script writes, and in whatever pieces it comes, its lines are text that PostgreSQL takes, none is longer
// than a line may be, and together they cost no more than the log may take. Nothing of valid text is lost below that.
func FuzzOutput(f *testing.F) {
	f.Add([]byte("one\ntwo\r\nthree"), uint16(1), uint16(1000))
	f.Add([]byte("\n\n\n\n"), uint16(2), uint16(60))
	f.Add([]byte("\x00\xff\xf0\x9f\n\x98\x80"), uint16(3), uint16(1000))
	f.Add([]byte(strings.Repeat("ä€😀", 6000)), uint16(4095), uint16(65_535))
	f.Add(bytes.Repeat([]byte{0x80}, 40_000), uint16(7), uint16(65_535))
	f.Fuzz(func(t *testing.T, text []byte, piece, limit uint16) {
		var told strings.Builder
		cost := 0
		o := &output{left: int64(limit), sink: func(l Line) {
			if len(l.Text) > longestLine || !utf8.ValidString(l.Text) || strings.ContainsRune(l.Text, 0) {
				t.Errorf("a line of %d bytes: %.100q", len(l.Text), l.Text)
			}
			if l.Stream == "stdout" {
				cost += len(l.Text) + lineCost
				told.WriteString(l.Text)
			}
		}}
		kept := o.read("stdout", &pieces{text, int(piece) + 1}, keptStdout)
		if n := sizeOf(printed(kept)); n > largestResult {
			t.Errorf("as a result it has %d bytes", n)
		}
		switch plain := strings.NewReplacer("\n", "", "\r", "").Replace(string(text)); {
		case cost > int(limit):
			t.Errorf("the lines cost %d of %d", cost, limit)
		case o.bytes != int64(len(text)):
			t.Errorf("%d of %d bytes were read", o.bytes, len(text))
		case !utf8.ValidString(kept) || strings.ContainsRune(kept, 0):
			t.Errorf("what is kept is %.100q", kept)
		case !o.cut && utf8.Valid(text) && !bytes.ContainsRune(text, 0) &&
			strings.ReplaceAll(told.String(), "\r", "") != plain:
			t.Errorf("%.100q is told as %.100q", plain, told.String())
		}
	})
}

// pieces reads as many bytes at a time.
type pieces struct {
	left []byte
	size int
}

func (p *pieces) Read(b []byte) (n int, err error) {
	n = copy(b[:min(len(b), p.size)], p.left)
	if p.left = p.left[n:]; n == 0 {
		return 0, os.ErrClosed
	}
	return n, nil
}
