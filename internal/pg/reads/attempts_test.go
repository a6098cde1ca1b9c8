package reads_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

func TestACallEndsAfterItBeganWhateverTheClocksSay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	id := w.Post("q", "T", "a")[0]
	l := w.Claim(w.Node("n"), pgworld.Everything())[0]
	a := w.Answer(l, pgworld.Done())
	a.StartedAt = a.StartedAt.Add(time.Minute) // this process is ahead of the database
	w.Settle(a)
	h, err := w.S.Reads.History(w.Ctx, w.ID, id)
	w.Must(err)
	for i := range h[1:] {
		if h[i+1].At.Before(h[i].At) {
			t.Errorf("%s is older than %s before it", h[i+1].Event, h[i].Event)
		}
	}
	d, err := w.S.Reads.Attempts(w.Ctx, w.ID, id)
	w.Must(err)
	if len(d) != 1 || d[0].StartedAt.After(*d[0].Answered) {
		t.Errorf("%+v", d)
	}
}
