package outbox_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/postern-dev/postern/internal/outbox"
)

func anyID(t *rapid.T) outbox.ID {
	return outbox.ID{
		Queue: rapid.Int64Range(0, 1<<44-1).Draw(t, "queue"), Seq: rapid.Int64Range(0, 1<<40-1).Draw(t, "seq"),
		Day: outbox.Day(rapid.IntRange(0, 1<<16-1).Draw(t, "day")), Epoch: rapid.IntRange(0, 1<<12-1).Draw(t, "epoch"),
	}
}

func TestAnIDIsReadBackAsItWas(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := anyID(t)
		s := id.String()
		if s[14] != '8' || !strings.ContainsRune("89ab", rune(s[19])) {
			t.Fatalf("%s is no UUIDv8", s)
		}
		back, err := outbox.ParseID(s)
		if err != nil || back != id {
			t.Fatalf("%+v is read back as %+v, %v", id, back, err)
		}
		if up, err := outbox.ParseID(strings.ToUpper(s)); err != nil || up != id {
			t.Fatalf("in capitals %+v, %v", up, err)
		}
		if want := s + ".3"; id.Token(3) != want {
			t.Fatalf("token %s, want %s", id.Token(3), want)
		}
	})
}

func TestTwoIDsAreNeverWrittenAlike(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		if a, b := anyID(t), anyID(t); (a == b) != (a.String() == b.String()) {
			t.Fatalf("%+v and %+v are both %s", a, b, a)
		}
	})
}

func TestWhatIsNoIDIsRefused(t *testing.T) {
	t.Parallel()
	good := outbox.ID{Queue: 7, Seq: 9, Day: 20000, Epoch: 1}.String()
	for name, s := range map[string]string{
		"empty": "", "another version": good[:14] + "4" + good[15:], "another variant": good[:19] + "c" + good[20:],
		"no dashes": strings.ReplaceAll(good, "-", ""), "a dash moved": good[:8] + good[9:14] + "-" + good[14:], "a letter": good[:35] + "g",
		"too long": good + "0", "in braces": "{" + good[1:35] + "}", "a spare bit": good[:23] + "-" + "f" + good[25:], "all zeroes": "00000000-0000-0000-0000-000000000000",
	} {
		if id, err := outbox.ParseID(s); err == nil {
			t.Errorf("%s: %q is read as %+v", name, s, id)
		}
	}
}

func TestADayIsThatOfUTC(t *testing.T) {
	t.Parallel()
	moment := time.Date(2026, 3, 1, 23, 30, 0, 0, time.FixedZone("", -3600)) // 00:30 on the 2nd in UTC
	if d := outbox.DayOf(moment); !d.Time().Equal(time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)) || d.Time().Location() != time.UTC {
		t.Errorf("%s falls on %s", moment, d.Time())
	}
	if !(outbox.ID{}).IsZero() || (outbox.ID{Epoch: 1}).IsZero() {
		t.Error("IsZero")
	}
}

func TestAnIDInALogIsThatOfTheAPI(t *testing.T) {
	id := outbox.ID{Queue: 7, Seq: 3, Day: 20000, Epoch: 1}
	var b bytes.Buffer
	slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "tx", id)
	if want := `"tx":"` + id.String() + `"`; !strings.Contains(b.String(), want) {
		t.Errorf("%s lacks %s", b.String(), want)
	}
}
