package ui_test

import (
	"fmt"
	"strings"
	"testing"
)

// The first page shows the nodes that work, however many have died since they began, and says that there are more pools
// than it shows.
func TestTheFirstPageShowsWhoWorks(t *testing.T) {
	h := newHouse(t, "none")
	b := h.browser()
	const page = "/ui/c/default/now"
	if s := b.get(page); !strings.Contains(s.text, "none works") {
		t.Errorf("there is no node: %s", s.text)
	}
	for i := range 20 {
		h.api("PUT", fmt.Sprintf("/pools/p%02d", i), `{}`)
	}
	if s := b.get(page); strings.Contains(s.text, "all pools") {
		t.Error("there are more pools than all")
	}
	h.api("PUT", "/pools/p20", `{}`)
	if _, err := h.store.Pool().Exec(t.Context(), `
		INSERT INTO postern.node (node_id, name, kind, ttl, heartbeat_at, dead_at)
		SELECT i, 'n' || i, 'work', '1 h', clock_timestamp(), CASE WHEN i > 1 THEN clock_timestamp() END
		FROM generate_series(1, 60) i`); err != nil {
		t.Fatal(err)
	}
	s := b.get(page)
	if !strings.Contains(s.text, ">n1</a>") || strings.Contains(s.text, ">n60</a>") ||
		strings.Contains(s.text, "none works") {
		t.Errorf("of the nodes one lives: %s", s.text)
	}
	if !strings.Contains(s.text, "all pools") {
		t.Error("nothing leads to the other pools")
	}
}
