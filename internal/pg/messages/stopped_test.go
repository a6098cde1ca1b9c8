package messages_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg/messages"
)

// What the receivers of messages had answered before these were stopped is told once, as much as one answer has; of
// those that the stop has ended, and of those that are not here, there is nothing to say.
func TestWhatWasAnsweredBeforeAStopIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var ids []uuid.UUID
	answers := []func(m *messages.Message){
		func(*messages.Message) {},
		func(m *messages.Message) {
			_, err := w.S.Messages.Ack(w.Ctx, w.shop, m.ID, m.Fence)
			w.Must(err)
		},
		func(m *messages.Message) {
			_, err := w.S.Messages.Reject(w.Ctx, w.shop, m.ID, m.Fence)
			w.Must(err)
		},
		func(m *messages.Message) {
			_, err := w.S.Messages.Processed(w.Ctx, w.shop, m.ID, m.Fence)
			w.Must(err)
		},
	}
	for range 3 {
		answers = append(answers, func(m *messages.Message) {
			_, err := w.S.Messages.Answered(w.Ctx, w.shop, m.ID, m.Fence, messages.Reply{Format: "text",
				Body: strings.Repeat("x", 600_000)})
			w.Must(err)
		})
	}
	for _, answer := range answers {
		a := w.brought()
		w.Same([]string{w.arrives(w.S, a)}, "ok")
		answer(w.one())
		ids = append(ids, a.ID)
	}
	ids = append(ids, uuid.New())
	said := map[uuid.UUID]string{}
	for calls := 1; len(ids) > 0; calls++ {
		w.Must(w.S.Messages.Stop(w.Ctx, w.shop.Context, "near", ids, nil))
		words, done, err := w.S.Messages.WordsOfStopped(w.Ctx, w.shop.Context, "near", ids, 0)
		w.Must(err)
		for _, word := range words {
			said[word.ID] = fmt.Sprint(word.Status, " ", word.Code, " ", word.Result != nil)
		}
		for _, id := range done {
			if said[id] == "" {
				said[id] = "nothing"
			}
		}
		left := []uuid.UUID{}
		for _, id := range ids {
			if said[id] == "" {
				left = append(left, id)
			}
		}
		if ids = left; calls > 4 {
			t.Fatalf("%d are still left: %v", len(ids), said)
		}
	}
	counts := map[string]int{}
	for _, s := range said {
		counts[s]++
	}
	want := map[string]int{"nothing": 3, "error rejected false": 1, "processed  false": 1, "processed  true": 3}
	if fmt.Sprint(counts) != fmt.Sprint(want) {
		t.Errorf("told are %v, want %v", counts, want)
	}
}

// What a peer says of a message that a deadline has ended here is kept as late, once.
func TestAnAnswerBehindADeadlineIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.far()
	id := w.toFar("hello")
	w.Exec(`UPDATE postern.message
		SET was = status, status = 'error', error_code = 'timeout_ack', ended_at = created_at, due_at = NULL`)
	for range 2 {
		w.Must(w.S.Messages.Hear(w.Ctx, f, messages.Word{ID: id, Steps: 5, Status: string(message.Processed),
			Result: &messages.Told{ID: uuid.New(), Format: "text", Body: "yes"}}))
	}
	if got := w.late(id); len(got) != 1 || got[0] != string(message.OnResult) || w.stands(id) != "error timeout_ack" {
		t.Errorf("%v, and it stands %s", got, w.stands(id))
	}
}

// Retention keeps a message that its peer has not been told to stop, for as long as that peer is there: whenever the
// line to it is back, it would do what was taken back.
func TestWhatAPeerIsToStopOutlivesRetention(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.S.Messages
	f := w.far()
	left := func(want ...uuid.UUID) {
		t.Helper()
		w.Must(w.S.Refresh(w.Ctx))
		_, err := w.S.Retain(w.Ctx, 24*time.Hour)
		w.Must(err)
		stop, _, err := s.ToStop(w.Ctx, f)
		if w.Must(err); !slices.Equal(stop, want) {
			t.Errorf("it is to stop %v, want %v", stop, want)
		}
	}
	told, untold := w.toFar("told"), w.toFar("untold")
	for _, id := range []uuid.UUID{told, untold} {
		_, err := s.Cancel(w.Ctx, w.By, id)
		w.Must(err)
	}
	w.Later(48 * time.Hour)
	left(told, untold)
	w.Must(s.Stopped(w.Ctx, f, []uuid.UUID{told}, w.lives(f, 0)))
	left(untold)
	w.Later(6 * 24 * time.Hour)
	left(untold)
	if _, err := s.Get(w.Ctx, w.ID, told); said(err) != "not_found" {
		t.Error(said(err))
	}
	w.Exec(`UPDATE postern.peer SET removed_at = clock_timestamp()`)
	left()
}
