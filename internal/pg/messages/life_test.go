package messages_test

import (
	"testing"
	"time"
)

// A peer whose store was restored may have forgotten what it was told to stop: it is told once more.
func TestARestoredPeerIsToldOnceMoreWhatToStop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.S.Messages
	f := w.far()
	lives := func(life int64) {
		t.Helper()
		p, err := w.S.Installations.Peer(w.Ctx, f.Context, f.Peer)
		w.Must(err)
		w.Must(s.Lives(w.Ctx, p, life))
	}
	tells := func(want int) {
		t.Helper()
		stop, _, err := s.ToStop(w.Ctx, f)
		if w.Must(err); len(stop) != want {
			t.Errorf("it is told to stop %v, want %d", stop, want)
		}
		w.Must(s.Stopped(w.Ctx, f, stop))
	}
	id := w.toFar("hello")
	_, err := s.Cancel(w.Ctx, w.By, id)
	w.Must(err)
	lives(5)
	tells(1)
	lives(5)
	lives(0) // an older program does not say
	tells(0)
	lives(6)
	tells(1)
	lives(6)
	tells(0)
}

// A store that was restored asks the peers that knew it before, also where it has nothing open there: they hear of it.
func TestARestoredStoreAsksThePeersThatKnewIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.S.Messages
	f := w.far()
	follows := func(want int) {
		t.Helper()
		list, err := s.Follow(w.Ctx, "one", time.Minute)
		if err != nil || len(list) != want {
			t.Errorf("it follows %v %v, want %d", list, err, want)
		}
	}
	knows := func() {
		p, err := w.S.Installations.Peer(w.Ctx, f.Context, f.Peer)
		w.Must(err)
		w.Must(s.Lives(w.Ctx, p, 5))
	}
	follows(0)
	knows()
	follows(0)
	w.Exec(`UPDATE postern.store SET life = life + 1`)
	follows(1)
	knows()
	follows(0)
	w.Later(3 * time.Minute)
	follows(0)
	w.Must(s.Stopped(w.Ctx, f, nil))
	follows(1) // once a minute, since it may be restored
	knows()
	follows(0)
	w.Must(s.Unfollow(w.Ctx, "one")) // as a process that stops does
	follows(1)
	knows()
	follows(0)
}
