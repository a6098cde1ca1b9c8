package worker

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A call is believed only with the key by which it was signed, for what it was signed for, and with its own body.
func FuzzBelieve(f *testing.F) {
	key := []byte(strings.Repeat("k", 32))
	for _, c := range [][3]string{{"webhook-id", "dispatch/T/1", "{}"}, {"webhook-id", "dispatch/T", "{}"},
		{"webhook-signature", "v1,", "{}"},
		{"webhook-signature", "v1,AAAA v1a,BBBB", "{}"}, {"webhook-timestamp", "", "{}"}, {"webhook-timestamp",
			"99999999999999999999", "{}"},
		{"webhook-timestamp", "-1", "{}"}, {"webhook-timestamp", "9223372036854775807", "{}"}, {"webhook-id",
			"status/dispatch/T/1", ""},
		{"x", "", "{} "}, {"x", "", "{}"}} {
		f.Add(c[0], c[1], c[2])
	}
	f.Fuzz(func(t *testing.T, name, value, body string) {
		h := http.Header{}
		at := fmt.Sprint(time.Now().Unix())
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.%s", "dispatch/T/1", at, "{}")
		h.Set("webhook-id", "dispatch/T/1")
		h.Set("webhook-timestamp", at)
		h.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
		right := h.Get("webhook-signature")
		h.Set(name, value)
		err := Believe(key, h, "dispatch/T", []byte(body))
		same := h.Get("webhook-id") == "dispatch/T/1" && h.Get("webhook-timestamp") == at && body == "{}"
		if err == nil && !same || err != nil && same && h.Get("webhook-signature") == right {
			t.Errorf("%s: %q with the body %q: %v", name, value, body, err)
		}
		if err == nil && (Believe([]byte("another key of 24 bytes.."), h, "dispatch/T", []byte(body)) == nil ||
			Believe(key, h, "dispatch/TU", []byte(body)) == nil || Believe(key, h, "status/T", []byte(body)) == nil) {
			t.Errorf("%s: %q is believed for another call", name, value)
		}
	})
}

// A last line that was cut is lost alone, and a whole line that is none of ours is refused: the file is never taken for
// an empty one.
func FuzzLoad(f *testing.F) {
	for _, s := range []string{"", "{", `{"token":"b","type":"T"`, "x\n", "{}\n", `{"token":"b"}` + "\n", "null\n",
		"\n",
		`{"line":"l","fence":5,"at":"2026-01-02T03:04:05Z"}` + "\n", `{"token":"a","ended":true}` + "\n", "[]",
		`{"token":"a","ended":true,"answer":{}}` + "\n{"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, tail []byte) {
		at := filepath.Join(t.TempDir(), "store")
		const first = `{"token":"kept","type":"T","at":"9999-01-02T03:04:05Z"}` + "\n"
		if err := os.WriteFile(at, append([]byte(first), tail...), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := OpenFile(at, 0)
		if err != nil {
			if !strings.Contains(string(tail), "\n") {
				t.Errorf("%q, which was cut, is refused: %v", tail, err)
			}
			if text, _ := os.ReadFile(at); string(text) != first+string(tail) {
				t.Errorf("a file that is refused is %q now", text)
			}
			return
		}
		defer s.Close()
		e, err := s.Find(context.Background(), "kept", "")
		if err != nil || e.Token != "kept" && !strings.Contains(string(tail), "\n") {
			t.Errorf("before %q nothing is kept: %+v, %v", tail, e, err)
		}
	})
}
