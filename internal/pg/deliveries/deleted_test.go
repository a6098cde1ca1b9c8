package deliveries_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/deliveries"
)

// failedHook makes a webhook s, and returns its delivery, which failed for good.
func (w *world) failedHook() deliveries.DeliveryID {
	w.T.Helper()
	w.Dispatcher("T", nil)
	s := w.Subscribe(outbox.Subscription{Name: "s", Kind: "webhook"})
	w.Post("q", "T", "a")
	w.Same(w.take(w.S, s.ID, 10), "q/a accepted 1")
	w.Same(w.take(w.S, s.ID, 10, w.receipt(0, "failed", 0)))
	list, err := w.S.Deliveries.Deliveries(w.Ctx, w.ID, deliveries.DeliveryFilter{State: []string{"failed"}, Limit: 10})
	w.Must(err)
	if len(list) != 1 {
		w.T.Fatalf("failed: %+v", list)
	}
	return list[0].DeliveryID
}

func (w *world) retry(id deliveries.DeliveryID) string {
	_, err := w.S.Deliveries.RetryDelivery(w.Ctx, w.By, id)
	if err == nil {
		return "retried"
	}
	return fault.CodeOf(err)
}

// hooksSQL tells the deliveries of webhooks.
const hooksSQL = `SELECT concat_ws(' ', state, error, ended_at IS NOT NULL, next_at IS NOT NULL)
	FROM postern.delivery WHERE subscription_id > 0`

// A deleted subscription is never delivered: a delivery that became due there would keep its day for ever.
func TestADeliveryOfADeletedSubscriptionIsNotRetried(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.failedHook()
	w.Must(w.S.Deliveries.RemoveSubscription(w.Ctx, w.By, "s"))
	if got := w.retry(id); got != "wrong_state" {
		t.Errorf("the retry: %s", got)
	}
	w.Same(w.Lines(hooksSQL), "failed because t f")
}

// A retry and the deletion of its subscription meet behind the row of the subscription: either may come first.
func TestARetryBesideTheDeletionOfItsSubscription(t *testing.T) {
	t.Parallel()
	for _, deletion := range []bool{true, false} {
		w := newWorld(t)
		id := w.failedHook()
		remove := func() error { return w.S.Deliveries.RemoveSubscription(w.Ctx, w.By, "s") }
		var said string
		var waited bool
		if deletion {
			said, waited = w.Beside(remove, func() string { return w.retry(id) })
		} else {
			said, waited = w.Beside(func() error {
				_, err := w.S.Deliveries.RetryDelivery(w.Ctx, w.By, id)
				return err
			}, func() string { w.Must(remove()); return "deleted" })
		}
		if want := map[bool]string{true: "wrong_state", false: "deleted"}[deletion]; said != want || !waited {
			t.Errorf("deletion first is %t: the second said %s, want %s; it waited: %t", deletion, said, want, waited)
		}
		why := map[bool]string{true: "because", false: "the subscription was deleted"}[deletion]
		w.Same(w.Lines(hooksSQL), "failed "+why+" t f")
	}
}

// The sweep ends a delivery that is open though its subscription was deleted: it holds its day no longer.
func TestTheSweepEndsWhatIsLeftOfADeletedSubscription(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.failedHook()
	w.Post("q", "T", "b")
	other := w.Subscribe(outbox.Subscription{Name: "other", Kind: "webhook"})
	w.Post("q", "T", "c")
	w.Same(w.take(w.S, other.ID, 10), "q/c accepted 1")
	w.Must(w.S.Deliveries.RemoveSubscription(w.Ctx, w.By, "s"))
	w.Exec(`UPDATE postern.delivery SET state = 'pending', next_at = created_at, ended_at = NULL, error = NULL
		WHERE subscription_id = $1`, id.Track)
	w.Must(w.S.Deliveries.TidySubscriptions(w.Ctx))
	w.Same(w.Lines(hooksSQL+` ORDER BY subscription_id`), "failed the subscription was deleted t f", "pending f t")
	w.Exec(`UPDATE postern.delivery SET state = 'failed', next_at = NULL, ended_at = created_at
		WHERE state = 'pending'`)
	w.Same(w.Lines(`SELECT DISTINCT coalesce(postern.day_held_by(day, day, 'infinity'), 'not held')
		FROM postern.delivery`), "not held")
}
