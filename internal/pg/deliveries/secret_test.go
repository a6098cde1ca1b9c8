package deliveries_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
)

// A rotation whose answer is lost is made again: each secret signs for the day that was said.
func TestARotationThatIsRepeatedKeepsWhatReceiversHave(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	s := w.Subscribe(outbox.Subscription{Name: "s", Kind: "webhook"})
	rotate := func(secret string) {
		t.Helper()
		w.Must(w.S.Deliveries.RotateSecret(w.Ctx, w.By, "s", []byte(secret)))
	}
	n := 0
	signed := func(want ...string) {
		t.Helper()
		n++
		w.Post("q", "T", fmt.Sprint(n))
		w.take(w.S, s.ID, 10)
		var secrets []string
		for _, secret := range w.Due[0].Secrets {
			secrets = append(secrets, string(secret))
		}
		w.Same(secrets, want...)
		w.take(w.S, s.ID, 10, w.receipt(0, "delivered", 0))
	}
	rotate("lost")
	w.Later(time.Hour)
	rotate("second")
	signed("second", "lost", "secret")
	w.Later(23 * time.Hour) // a day behind the first rotation
	signed("second", "lost")
	rotate("third")
	w.Later(time.Hour)
	signed("third", "second")
	w.Later(23 * time.Hour)
	signed("third")
	for i := range 21 {
		rotate(fmt.Sprint(i))
	}
	if err := w.S.Deliveries.RotateSecret(w.Ctx, w.By, "s", []byte("more")); fault.CodeOf(err) != "conflict" {
		t.Errorf("the secret that receivers have would end: %v", err)
	}
}
