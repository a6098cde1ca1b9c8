package pg_test

import (
	"testing"
	"time"
)

func TestACallEndsAfterItBeganWhateverTheClocksSay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	id := w.post("q", "T", "a")[0]
	l := w.claim(w.node("n"), everything())[0]
	a := w.answer(l, done())
	a.StartedAt = a.StartedAt.Add(time.Minute) // this process is ahead of the database
	w.settle(a)
	h, err := w.s.History(w.ctx, w.id, id)
	w.must(err)
	for i := range h[1:] {
		if h[i+1].At.Before(h[i].At) {
			t.Errorf("%s is older than %s before it", h[i+1].Event, h[i].Event)
		}
	}
	d, err := w.s.Attempts(w.ctx, w.id, id)
	w.must(err)
	if len(d) != 1 || d[0].StartedAt.After(*d[0].Answered) {
		t.Errorf("%+v", d)
	}
}
