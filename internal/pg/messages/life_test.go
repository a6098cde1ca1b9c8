package messages_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg/messages"
)

// A peer whose store was restored may have forgotten what it was told to stop: it is told once more.
func TestARestoredPeerIsToldOnceMoreWhatToStop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.S.Messages
	f := w.far()
	tells := func(want int) {
		t.Helper()
		stop, _, err := s.ToStop(w.Ctx, f)
		if w.Must(err); len(stop) != want {
			t.Errorf("it is told to stop %v, want %d", stop, want)
		}
		w.Must(s.Stopped(w.Ctx, f, stop, w.lives(f, 0)))
	}
	id := w.toFar("hello")
	_, err := s.Cancel(w.Ctx, w.By, id)
	w.Must(err)
	w.lives(f, 5)
	tells(1)
	w.lives(f, 5)
	w.lives(f, 0) // an older program does not say
	tells(0)
	w.lives(f, 6)
	tells(1)
	w.lives(f, 6)
	tells(0)
}

// lives says that the store of a peer has a life, 0: nothing, and returns the one that it has.
func (w *world) lives(f messages.Following, life int64) int64 {
	w.T.Helper()
	p, err := w.S.Installations.Peer(w.Ctx, f.Context, f.Peer)
	w.Must(err)
	w.Must(w.S.Installations.Lives(w.Ctx, p, life))
	return cmp.Or(life, p.Life)
}

// crowd makes more messages to the peer far that have ended here in error than it is told to stop at once.
func (w *world) crowd() {
	w.T.Helper()
	id := w.toFar("hello")
	w.Exec(`UPDATE postern.message
		SET was = status, status = 'error', error_code = 'timeout', ended_at = created_at, due_at = NULL`)
	w.Exec(`INSERT INTO postern.message
		SELECT (jsonb_populate_record(m, jsonb_build_object('message_id', gen_random_uuid()))).*
		FROM postern.message m, generate_series(1, 150)
		WHERE m.message_id = $1`, id)
}

// However many messages a peer was told to stop, the note of its other life writes none of them. A peer that says
// another life before it was told of all is told of all anew, and one that says the same goes on where it was.
func TestTheNoteOfAnotherLifeWritesNoMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.S.Messages
	f := w.far()
	w.crowd()
	tells := func(life int64, want ...int) {
		t.Helper()
		for _, n := range want {
			was := w.Lines(`SELECT xmin::text FROM postern.message ORDER BY message_id`)
			w.lives(f, life)
			if is := w.Lines(`SELECT xmin::text FROM postern.message ORDER BY message_id`); !slices.Equal(is, was) {
				t.Errorf("life %d has written messages", life)
			}
			stop, _, err := s.ToStop(w.Ctx, f)
			if w.Must(err); len(stop) != n {
				t.Errorf("in life %d it is told to stop %d, want %d", life, len(stop), n)
			}
			w.Must(s.Stopped(w.Ctx, f, stop, life))
		}
	}
	tells(5, 100, 51, 0)
	tells(6, 100)
	tells(7, 100, 51, 0)
}

// What a peer was told to stop in a life before is told anew, in whichever order two sessions note that and the other
// life of the peer, and where the clock has gone back.
func TestWhatWasToldInALifeBeforeIsToldAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.S.Messages
	f := w.far()
	w.crowd()
	tells := func(want int) []uuid.UUID {
		t.Helper()
		stop, _, err := s.ToStop(w.Ctx, f)
		if w.Must(err); len(stop) != want {
			t.Errorf("it is told to stop %d, want %d", len(stop), want)
		}
		return stop
	}
	w.lives(f, 5)
	for life := int64(5); life < 7; life++ {
		w.Must(s.Stopped(w.Ctx, f, tells(100), life))
		left := tells(51)
		w.At(w.Now.Add(-time.Hour))
		p, err := w.S.Installations.Peer(w.Ctx, f.Context, f.Peer)
		w.Must(err)
		both := []func() error{
			func() error { return s.Stopped(w.Ctx, f, left, life) }, // the peer was asked before
			func() error { return w.S.Installations.Lives(w.Ctx, p, life+1) },
		}
		if life == 6 {
			slices.Reverse(both)
		}
		hold := w.Begin(w.S.Pool())
		_, err = hold.Exec(w.Ctx, `SELECT FROM postern.peer FOR UPDATE`)
		w.Must(err)
		done := make(chan error, 2)
		for i, note := range both {
			go func() { done <- note() }()
			w.UntilBlocked(i + 1)
		}
		w.Must(hold.Rollback(w.Ctx))
		w.Must(<-done)
		w.Must(<-done)
	}
	for _, want := range []int{100, 51, 0} {
		w.Must(s.Stopped(w.Ctx, f, tells(want), 7))
	}
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
	knows := func() { w.lives(f, 5) }
	follows(0)
	knows()
	follows(0)
	w.Exec(`UPDATE postern.store SET life = life + 1`)
	follows(1)
	knows()
	follows(0)
	w.Later(3 * time.Minute)
	follows(0)
	w.Must(s.Stopped(w.Ctx, f, nil, 5))
	follows(1) // once a minute, since it may be restored
	knows()
	follows(0)
	w.Must(s.Unfollow(w.Ctx, "one")) // as a process that stops does
	follows(1)
	knows()
	follows(0)
}

// A peer whose store was restored may have open again what was processed here in the days before: it is told to stop
// that, too, once for each life. What it says then of its copy changes nothing here; another answer is kept as late.
func TestARestoredPeerIsToldToStopWhatWasProcessed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.S.Messages
	f := w.far()
	tells := func(want ...uuid.UUID) {
		t.Helper()
		for len(want) > 0 {
			stop, abort, err := s.ToStop(w.Ctx, f)
			if w.Must(err); !slices.Equal(stop, want[:min(len(want), 100)]) || len(abort) > 0 {
				t.Fatalf("it is told to stop %d: %v, abort %v, want %d: %v", len(stop), stop, abort, len(want), want)
			}
			w.Must(s.Stopped(w.Ctx, f, stop, w.lives(f, 0)))
			want = want[len(stop):]
		}
		if stop, _, err := s.ToStop(w.Ctx, f); err != nil || len(stop) > 0 {
			t.Errorf("it is told to stop %v %v, want none", stop, err)
		}
	}
	answer := &messages.Told{ID: uuid.New(), Format: "text", Body: "yes"}
	hears := func(id uuid.UUID, steps int, r *messages.Told) {
		t.Helper()
		w.Must(s.Hear(w.Ctx, f, messages.Word{ID: id, Steps: steps, Status: "processed", Result: r}))
	}
	w.lives(f, 5)
	old, id := w.toFar("old"), w.toFar("hello")
	hears(old, 4, nil)
	w.Later(8 * 24 * time.Hour)
	hears(id, 4, answer)
	w.Later(time.Second)
	tells()
	was := w.Lines(`SELECT to_jsonb(m) - 'stop_told_at' || jsonb_build_object('late', (SELECT count(*)
		FROM postern.message_late)) FROM postern.message m ORDER BY message_id`)
	w.lives(f, 6)
	tells(id)
	hears(id, 7, answer) // its jobs have written more
	w.Same(w.Lines(`SELECT to_jsonb(m) - 'stop_told_at' || jsonb_build_object('late', (SELECT count(*)
		FROM postern.message_late)) FROM postern.message m ORDER BY message_id`), was...)
	after := w.toFar("after")
	hears(after, 4, nil)
	tells()
	w.Later(time.Second)
	w.lives(f, 7)
	tells(id, after)
	hears(id, 8, &messages.Told{ID: uuid.New(), Format: "text", Body: "twice"})
	w.Same(w.late(id), string(message.OnResult))

	w.Exec(`INSERT INTO postern.message
		SELECT (jsonb_populate_record(m, jsonb_build_object('message_id', gen_random_uuid()))).*
		FROM postern.message m, generate_series(1, 150)
		WHERE m.message_id = $1`, after)
	var all []uuid.UUID
	w.Must(w.S.Pool().QueryRow(w.Ctx, `SELECT array_agg(message_id ORDER BY ended_at, message_id)
		FROM postern.message
		WHERE context_id IS NOT NULL AND message_id <> $1`, old).Scan(&all))
	w.Later(time.Second)
	w.lives(f, 8)
	tells(all...)
}

// A peer at which something was processed in the days before is asked once a minute also where nothing is open there:
// it may have been restored.
func TestAPeerThatHasProcessedSomethingIsAskedOnceAMinute(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.far()
	w.lives(f, 5)
	id := w.toFar("hello")
	w.Must(w.S.Messages.Hear(w.Ctx, f, messages.Word{ID: id, Steps: 4, Status: "processed"}))
	follows := func(want int) {
		t.Helper()
		list, err := w.S.Messages.Follow(w.Ctx, "one", time.Minute)
		if err != nil || len(list) != want {
			t.Errorf("it follows %v %v, want %d", list, err, want)
		}
		w.lives(f, 5)
	}
	follows(1)
	follows(0)
	w.Later(3 * time.Minute)
	follows(1)
	follows(0)
	w.Later(8 * 24 * time.Hour)
	follows(0)
}
