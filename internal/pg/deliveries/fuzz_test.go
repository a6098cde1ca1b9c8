package deliveries_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/deliveries"
)

// A text that is read as a cursor is written as it came, and is of the subscription that was meant.
func FuzzParseCursor(f *testing.F) {
	for _, s := range []string{"c1-2", "c1-", "c-1-2", "c01-2", "c1-+2", "cc1-2", "1-2", "c2147483648-1",
		"c1-9223372036854775808", ""} {
		f.Add(s, int32(1))
	}
	f.Fuzz(func(t *testing.T, s string, of int32) {
		c, err := deliveries.ParseCursor(s, of)
		if err == nil && (c.String() != s || c.Subscription != of || c.Position < 0) {
			t.Errorf("%q of %d is %+v", s, of, c)
		}
		if code := fault.CodeOf(err); err != nil && code != "bad_cursor" && code != "cursor_expired" {
			t.Errorf("%q of %d: %v", s, of, err)
		}
	})
}

// A text that is read as the id of a delivery is written as it came.
func FuzzParseDeliveryID(f *testing.F) {
	id := outbox.ID{Queue: 1, Seq: 2, Day: 20000, Salt: 3}.String()
	for _, s := range []string{id + ".done.7", id + ".done.hook", id + ".failed.callback", id + ".done.-1", id +
		".done.0", id + "..", "", "..."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := deliveries.ParseDeliveryID(s)
		if err == nil && d.String() != s {
			t.Errorf("%q is %+v", s, d)
		}
		if err != nil && fault.KindOf(err) != fault.NotFound {
			t.Errorf("%q: %v", s, err)
		}
	})
}
