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
		Queue: rapid.Int64Range(0, 1<<43-1).Draw(t, "queue"), Seq: rapid.Int64Range(0, 1<<40-1).Draw(t, "seq"),
		Day: outbox.Day(rapid.IntRange(0, 1<<16-1).Draw(t, "day")), Salt: rapid.IntRange(0, 1<<22-1).Draw(t, "salt"),
	}
}

// anyBatch is what is told of a processor: its numbers are as long as position and salt together.
func anyBatch(t *rapid.T) outbox.ID {
	return outbox.OfProcessor(rapid.Int32Range(0, 1<<31-1).Draw(t, "processor"), rapid.Int64Range(0, 1<<62-1).Draw(t, "number"),
		outbox.Day(rapid.IntRange(0, 1<<16-1).Draw(t, "day")))
}

func anything(t *rapid.T) outbox.ID {
	if rapid.Bool().Draw(t, "of a processor") {
		return anyBatch(t)
	}
	return anyID(t)
}

func anyTime(t *rapid.T) time.Time {
	return time.UnixMicro(rapid.Int64Range(0, 1<<52).Draw(t, "arrival"))
}

func TestAnIDIsReadBackAsItWas(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := anything(t)
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
	})
}

func TestTwoIDsAreNeverWrittenAlike(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		if a, b := anything(t), anything(t); (a == b) != (a.String() == b.String()) {
			t.Fatalf("%+v and %+v are both %s", a, b, a)
		}
	})
}

// TestTheLayoutOfAnID: the bits lie where they are said to lie, so that ids that were given stay what they are.
func TestTheLayoutOfAnID(t *testing.T) {
	t.Parallel()
	for want, id := range map[string]outbox.ID{
		"00000000-0000-8000-8000-000000000000": {},
		"00000000-0010-8000-8000-000000000000": {Queue: 1},
		"00000000-0000-8000-8000-000000000001": {Seq: 1},
		"00000000-0000-8001-8000-000000000000": {Seq: 1 << 36},
		"00000000-0000-8000-8000-400000000000": {Day: 1},
		"00000000-0000-8000-8000-001000000000": {Salt: 1},
		"00000000-0000-8010-8000-000000000000": {Salt: 1 << 10},
		"00000000-0001-8000-8000-000000000000": {Salt: 1 << 18},
		"7fffffff-ffff-8fff-bfff-ffffffffffff": {Queue: 1<<43 - 1, Seq: 1<<40 - 1, Day: 1<<16 - 1, Salt: 1<<22 - 1},
		"80000000-0020-8010-8000-000000000003": outbox.OfProcessor(2, 1<<50+3, 0),
	} {
		if id.String() != want {
			t.Errorf("%+v is written %s, want %s", id, id, want)
		}
	}
}

// TestWhatArrivedAtAnotherTimeHasAnotherToken, whatever place, attempt and day it shares with what was lost; and
// another id, but for one in four million.
func TestWhatArrivedAtAnotherTimeHasAnotherToken(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id, at, attempt := anyID(t), anyTime(t), rapid.IntRange(1, 1000).Draw(t, "attempt")
		later := at.Add(time.Duration(rapid.Int64Range(1, 1<<40).Draw(t, "later")) * time.Microsecond)
		if a, b := id.Token(at, attempt), id.Token(later, attempt); a == b {
			t.Fatalf("both are %s", a)
		}
		if a, b := id.Token(at, attempt), id.Token(at.In(time.FixedZone("", 3600)), attempt); a != b {
			t.Fatalf("sent again it is %s, was %s", b, a)
		}
		if d := later.Sub(at).Microseconds(); d < 1<<22 && outbox.SaltOf(at, "") == outbox.SaltOf(later, "") {
			t.Fatalf("%s and %d us later have one salt", at, d)
		}
		if id.HookToken(at, outbox.OnSuccess) == id.HookToken(later, outbox.OnSuccess) || id.EventID(at, outbox.EventDone) == id.EventID(later, outbox.EventDone) {
			t.Fatal("a hook or an event is named alike")
		}
	})
}

// TestWhatWasMovedHasTheSaltOfWhereItWas: those of one batch arrive together, and stand in another order where they
// were moved to.
func TestWhatWasMovedHasTheSaltOfWhereItWas(t *testing.T) {
	t.Parallel()
	at := time.Now()
	seen := map[int]bool{outbox.SaltOf(at, ""): true}
	for seq := range int64(1000) {
		seen[outbox.SaltOf(at, outbox.ID{Queue: 9000, Seq: seq + 1, Salt: 5}.String())] = true
	}
	if len(seen) != 1001 {
		t.Errorf("1001 have %d salts", len(seen))
	}
}

func TestWhatIsNoIDIsRefused(t *testing.T) {
	t.Parallel()
	good := outbox.ID{Queue: 7, Seq: 9, Day: 20000, Salt: 1}.String()
	for name, s := range map[string]string{
		"empty": "", "another version": good[:14] + "4" + good[15:], "another variant": good[:19] + "c" + good[20:],
		"no dashes": strings.ReplaceAll(good, "-", ""), "a dash moved": good[:8] + good[9:14] + "-" + good[14:], "a letter": good[:35] + "g",
		"too long": good + "0", "in braces": "{" + good[1:35] + "}", "all zeroes": "00000000-0000-0000-0000-000000000000",
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
	if !(outbox.ID{}).IsZero() || (outbox.ID{Salt: 1}).IsZero() {
		t.Error("IsZero")
	}
}

func TestAnIDInALogIsThatOfTheAPI(t *testing.T) {
	id := outbox.ID{Queue: 7, Seq: 3, Day: 20000, Salt: 1}
	var b bytes.Buffer
	slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "tx", id)
	if want := `"tx":"` + id.String() + `"`; !strings.Contains(b.String(), want) {
		t.Errorf("%s lacks %s", b.String(), want)
	}
}
