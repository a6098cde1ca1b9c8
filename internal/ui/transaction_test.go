package ui_test

import (
	"strings"
	"testing"
)

// Of a head that was called for long, its page shows the last calls, and says that there are more.
func TestThePageOfATransactionShowsItsLastAttempts(t *testing.T) {
	h := newHouse(t, "none")
	b := h.browser()
	page := "/ui/c/default/transactions/" + h.scenario("default")["first"]
	if _, err := h.store.Pool().Exec(t.Context(), `
		INSERT INTO postern.attempt (queue_id, seq, day, attempt, fence, step, class, code, error, nothing_done,
			answered_at)
		SELECT n.queue_id, 1, t.day, 1, i, 'dispatch', 'blocked', 'BUSY', 'call ' || i || '.', true,
			t.created_at + i * interval '1 ms'
		FROM postern.queue_name n
		JOIN postern.task t ON t.queue_id = n.queue_id AND t.seq = 1, generate_series(1, 150) i
		WHERE n.name = 'line'`); err != nil {
		t.Fatal(err)
	}
	s := b.get(page)
	_, shown, _ := strings.Cut(s.text, "<h2>Attempts</h2>")
	for text, want := range map[string]bool{"call 150.": true, "call 51.": true, "call 50.": false,
		"the last 100<": true} {
		if strings.Contains(shown, text) != want {
			t.Errorf("that the attempts have %q is %t: %s", text, !want, shown)
		}
	}
}
