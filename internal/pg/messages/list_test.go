package messages_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/pg/messages"
)

// A page looks at a bounded number of messages for those that no index finds, and says where the list goes on.
func TestAPageLooksAtABoundedNumberOfMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for n := range 5 {
		w.post(w.chat(fmt.Sprint(n)))
		w.Later(time.Second)
	}
	walk := func(f messages.Filter) (found, pages int) {
		for more := true; more; pages++ {
			list, next, err := w.S.Messages.List(w.Ctx, w.ID, f)
			w.Must(err)
			found += len(list)
			more, f.After = next != nil, next
		}
		return found, pages
	}
	for typ, want := range map[string]int{"mail": 0, "chat": 5} {
		found, pages := walk(messages.Filter{Box: messages.Out, Type: typ, Limit: 9, Examined: 2})
		if found != want || pages != 3 {
			t.Errorf("%d messages of type %s in %d pages, want %d in 3", found, typ, pages, want)
		}
	}
	if found, pages := walk(messages.Filter{Box: messages.Out, Limit: 9}); found != 5 || pages != 1 {
		t.Errorf("%d messages in %d pages, want all in one", found, pages)
	}
}
