package ui_test

import (
	"strings"
	"testing"
)

// Lists count what lies in channels and subscriptions to a thousand, and say that there is more; the page of one counts
// further.
func TestListsCountToAThousand(t *testing.T) {
	h := newHouse(t, "none")
	b := h.browser()
	shows := func(path, want string) {
		t.Helper()
		if s := b.get("/ui/c/default/" + path); s.status != 200 || !strings.Contains(s.text, want) {
			t.Errorf("%s has no %s: %d %s", path, want, s.status, s.text)
		}
	}
	h.crowd(20)
	h.api("PUT", "/channels/ch", `{"kind": "integrity"}`)
	if _, err := h.store.Pool().Exec(t.Context(), `INSERT INTO postern.channel_message (channel_id, message_id, payload,
			state, fence, draw, created_at, updated_at)
		SELECT l.channel_id, i::text, '{}', 'Queued', 1, i, clock_timestamp(), clock_timestamp()
		FROM postern.channel l, generate_series(1, 1234) i
		WHERE l.name = 'ch'`); err != nil {
		t.Fatal(err)
	}
	shows("channels", "<bdi>more than 1,000</bdi>")
	shows("channels/ch", "<bdi>1234</bdi>")
	h.api("PUT", "/subscriptions/hook", `{"kind": "pull", "events": ["transaction.done"]}`)
	if _, err := h.store.Pool().Exec(t.Context(), `INSERT INTO postern.delivery (queue_id, seq, day, subscription_id,
			event, context_id, cursor, at, state, created_at)
		SELECT 1000000 + i, 1, current_date, s.subscription_id, 'done', s.context_id, i, clock_timestamp(), 'kept',
			clock_timestamp()
		FROM postern.subscription s, generate_series(1, 1500) i`); err != nil {
		t.Fatal(err)
	}
	shows("subscriptions", "<bdi>more than 1,000</bdi>")
	shows("subscriptions/hook", "<bdi>1500</bdi>")
}
