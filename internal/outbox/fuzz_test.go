package outbox_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
)

// A text that is read as an id is written as it came, and two texts are never one id, but for the case of letters.
func FuzzParseID(f *testing.F) {
	for _, id := range []outbox.ID{
		{Queue: 1, Seq: 1, Day: 20000, Salt: 1},
		{Queue: 1<<44 - 1, Seq: 1<<40 - 1, Day: 1<<16 - 1, Salt: 1<<22 - 1},
	} {
		f.Add(id.String())
	}
	for _, s := range []string{"", "00000000-0000-4000-8000-000000000000", "{0}", strings.Repeat("-", 36),
		strings.Repeat("g", 36)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := outbox.ParseID(s)
		if err != nil {
			if id != (outbox.ID{}) {
				t.Errorf("%q is refused, and is %+v", s, id)
			}
			return
		}
		if got := id.String(); got != strings.ToLower(s) {
			t.Errorf("%q is written as %q", s, got)
		}
		if id.Queue < 0 || id.Seq < 0 || id.Salt < 0 || id.Day < 0 {
			t.Errorf("%q is %+v", s, id)
		}
		if again, err := outbox.ParseID(id.String()); err != nil || again != id {
			t.Errorf("%+v comes back as %+v: %v", id, again, err)
		}
	})
}

// Of a duration of our JSON nothing is lost when it is written and read again. A number without a unit is none.
func FuzzDuration(f *testing.F) {
	for _, s := range []string{`"90s"`, `"24h"`, `90`, `null`, `"-1h0m0s"`, `"9223372036854775807ns"`, `"1e9s"`,
		`"1h1m1s1ms"`, `"10m0s"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var d outbox.Duration
		if err := json.Unmarshal(text, &d); err != nil || string(text) == "null" {
			return
		}
		if text = []byte(strings.TrimSpace(string(text))); text[0] != '"' && string(text) != "null" {
			t.Errorf("%s is read as %s", text, d)
		}
		said, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var again outbox.Duration
		if err := json.Unmarshal(said, &again); err != nil || again != d {
			t.Errorf("%s is %d, written as %s, which is %d: %v", text, time.Duration(d), said,
				time.Duration(again), err)
		}
	})
}

// The name of an event is that of one event.
func FuzzParseEvent(f *testing.F) {
	for _, e := range outbox.Events {
		f.Add(e.Name())
	}
	f.Add("transaction.test")
	f.Fuzz(func(t *testing.T, s string) {
		if e, ok := outbox.ParseEvent(s); ok && e.Name() != s {
			t.Errorf("%q is %q", s, e.Name())
		}
	})
}
