package messages_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg/messages"
)

// A receiver that fails whenever it is handed a message, and is handed it again and again, makes its history no longer:
// that has the first time of each receiver, and the message counts the others. What a receiver says late is kept still.
func TestAMessageThatIsHandedOutAgainAndAgainIsCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.sent()
	first := w.one()
	second := w.shop
	second.Actor = "second"
	for range 4 {
		for _, by := range []string{w.shop.Actor, second.Actor} {
			w.Later(2 * time.Minute)
			as := w.shop
			as.Actor = by
			list, err := w.S.Messages.Receive(w.Ctx, as, messages.Receiving{Max: 1, Lease: time.Minute})
			if err != nil || len(list) != 1 {
				t.Fatalf("%d messages: %v", len(list), err)
			}
		}
	}
	m, err := w.S.Messages.Get(w.Ctx, w.ID, id)
	w.Must(err)
	if m.Steps != first.Steps+1 || m.Handed != 9 || !m.HandedAt.Equal(w.Now) || m.Tag() <= first.Tag() {
		t.Errorf("it was handed out %d times, at %s, and has %d steps, where it had %d", m.Handed, m.HandedAt, m.Steps,
			first.Steps)
	}
	w.Same(w.Lines(`SELECT count(*)::text FROM postern.message_step WHERE event = 'Received'`), "2")
	why, err := w.S.Messages.WhyMessage(w.Ctx, w.shop.Context, id)
	if err != nil || !strings.Contains(why.Blockers[0].Detail, "was handed it, 9 times, until") {
		t.Errorf("%+v %v", why, err)
	}
	if _, err := w.S.Messages.Ack(w.Ctx, w.shop, id, first.Fence); said(err) != "stale_fence" {
		t.Errorf("an ack with the first fence: %v", err)
	}
	if got := w.late(id); fmt.Sprint(got) != fmt.Sprint([]message.Event{message.OnAcknowledged}) {
		t.Errorf("late is %v", got)
	}
}

// Of two receivers that come at one time for a message whose lease is over, one is handed it, and it is counted once.
func TestAMessageIsHandedOutAgainOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sent()
	m := w.one()
	w.Later(2 * time.Minute)
	other := w.Another(4)
	second, waited := w.Beside(func() error { _, err := w.receive(w.S, 5); return err }, func() string {
		list, err := w.receive(other, 5)
		return fmt.Sprint(len(list), " ", said(err))
	})
	now, err := w.S.Messages.Get(w.Ctx, w.ID, m.ID)
	if w.Must(err); second != "0 ok" || waited || now.Handed != 2 || now.Steps != m.Steps {
		t.Errorf("the second has %q, and waited: %v; handed out %d times", second, waited, now.Handed)
	}
}
