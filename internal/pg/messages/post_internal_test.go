package messages

import (
	"bytes"
	"testing"
	"time"
)

// An id says its time: of two, the later one is greater, from one microsecond to the next.
func TestAnIDSaysItsTime(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 14, 4, 10, 999_999_000, time.UTC)
	before := idAt(at)
	for _, later := range []time.Duration{time.Microsecond, 2 * time.Microsecond, time.Millisecond, time.Hour} {
		id := idAt(at.Add(later))
		if bytes.Compare(before[:], id[:]) >= 0 || id.Version() != 7 || id.Variant() != before.Variant() {
			t.Errorf("%s later: %s, and before %s", later, id, before)
		}
		if s, ns := id.Time().UnixTime(); !time.Unix(s, ns).Equal(at.Add(later).Truncate(time.Millisecond)) {
			t.Errorf("%s says %s, want %s", id, time.Unix(s, ns).UTC(), at.Add(later))
		}
		before = id
	}
}
