package ui_test

import (
	"fmt"
	"strings"
	"testing"
)

// The text of a message is data: its page and its list show it as it is, whatever its format says.
func TestATextOfAMessageIsNeverRendered(t *testing.T) {
	h := newHouse(t, "none")
	m := h.api("POST", "/messages", fmt.Sprintf(`{"to": {"context": "default", "topic": "t"}, "message_type": "chat",
		"message_format_type": "html", "message": %q}`, markup))
	id := fmt.Sprint(m["id"])
	b := h.browser()
	s := b.get("/ui/c/default/messages/" + id)
	if s.status != 200 || !strings.Contains(s.text, "&lt;script&gt;alert") || strings.Contains(s.text,
		"<script>alert") {
		t.Errorf("the text is not there as text: %d %s", s.status, s.text)
	}
	for _, want := range []string{"undelivered", "dispatched", "/cancel"} {
		if !strings.Contains(s.text, want) {
			t.Errorf("the page lacks %q: %s", want, s.text)
		}
	}
	if s := b.get("/ui/c/default/messages"); s.status != 200 || !strings.Contains(s.text, id) ||
		strings.Contains(s.text, "<script>alert") {
		t.Errorf("the list: %d %s", s.status, s.text)
	}
}
