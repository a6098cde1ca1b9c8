package messages_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/message"
)

// An envelope for another audience, of a key that no actor has here, or of one that was retired before it was made, is
// refused, and so is one whose actor has no role here: nothing is stored.
func TestWhatAPeerBringsWithoutRightIsNotStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	refused := func(want string, change func(*message.Signed), before string, args ...any) {
		t.Helper()
		a := w.brought(change)
		if before != "" {
			w.Exec(before, args...)
		}
		for range 2 {
			if got := w.arrives(w.S, a); got != want {
				t.Errorf("it is told %s, want %s", got, want)
			}
		}
	}
	const unsigned = "bad_actor_signature"
	same := func(*message.Signed) {}
	refused(unsigned, func(s *message.Signed) { s.Audience.Installation = "another" }, "")
	refused(unsigned, func(s *message.Signed) { s.Audience.Context = "default" }, "")
	refused(unsigned, func(s *message.Signed) { s.Audience.Peer = "far" }, "")
	refused("invalid", func(s *message.Signed) { s.CreatedAt = w.Now.Add(6 * time.Minute) }, "")
	refused("invalid", func(s *message.Signed) { s.Timeout = -1 }, "")
	refused(unsigned, same, `DELETE FROM postern.actor_key`)
	refused(unsigned, same, `UPDATE postern.actor_key SET retired_at = $1`, w.Now.Add(-time.Hour))
	w.Exec(`DELETE FROM postern.actor_key`)
	w.S.Messages.Open = false
	refused(message.CodeForbidden, same, "")
	var n int
	w.Scan(`SELECT count(*) FROM postern.message`, &n)
	if n != 0 {
		t.Errorf("%d messages were stored", n)
	}
}
