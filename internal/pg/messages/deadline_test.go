package messages_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg/messages"
)

// passes counts from now on the deadlines that end messages, by their names.
func (w *world) passes() map[string]int {
	passed := map[string]int{}
	w.S.Messages.Passed = func(code string) { passed[code]++ }
	return passed
}

// Each deadline that is over ends its message by its name, whatever comes first behind it, and what comes is late. It
// is counted once, and not in a dry run.
func TestWhateverComesBehindADeadlineFindsItOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.far()
	passed := w.passes()
	within := func(p *messages.Posted) {
		p.Timeouts = message.Timeouts{Deliver: 5 * time.Second, Ack: 5 * time.Second, Result: 5 * time.Second}
	}
	away := func(p *messages.Posted) {
		within(p)
		p.Target, p.To = 0, message.To{Peer: "far", Context: "c"}
	}
	unrouted := w.post(w.chat("stays", within))[0]
	jobs := w.jobs(1)
	within(&jobs)
	ended := w.post(jobs)[0]
	w.Later(6 * time.Second)
	w.route()
	w.Same([]string{w.stands(unrouted), w.stands(ended)}, "error timeout", "error timeout")

	brought, refused := w.post(w.chat("goes", away))[0], w.post(w.chat("is not taken", away))[0]
	cancelled, answered := w.post(w.chat("is not wanted", within))[0], w.post(jobs)[0]
	w.route()
	w.end(answered, 1)
	w.Later(6 * time.Second)
	w.Must(w.S.Messages.AtPeer(w.Ctx, brought, nil))
	w.Must(w.S.Messages.AtPeer(w.Ctx, refused, &messages.Refusal{Code: "no", Text: "it will not have it"}))
	dry, end := w.S.DryRun(w.Ctx)
	if r, err := w.S.Messages.Cancel(dry, w.By, cancelled); err != nil || r.State != "error" {
		t.Errorf("a dry run of a cancel says %+v %v", r, err)
	}
	end()
	if r, err := w.S.Messages.Cancel(w.Ctx, w.By, cancelled); err != nil || r.Changed || r.State != "error" {
		t.Errorf("a cancel says %+v %v", r, err)
	}
	w.settle()
	for id, want := range map[uuid.UUID]string{
		brought: "error timeout, late Delivered", refused: "error timeout, late Refused",
		cancelled: "error timeout_ack, late ", answered: "error timeout_result, late ResultReceived",
	} {
		if got := w.stands(id) + ", late " + strings.Join(w.late(id), " "); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if want := map[string]int{"timeout": 4, "timeout_ack": 1, "timeout_result": 1}; !maps.Equal(passed, want) {
		t.Errorf("counted are %v, want %v", passed, want)
	}
}

// A deadline is counted that a word of a receiver finds over, or a word of a peer, or only the look for deadlines.
func TestADeadlineIsCountedThatAWordFindsOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.far()
	passed := w.passes()
	ack := func(p *messages.Posted) { p.Timeouts.Ack = time.Minute }
	w.sent(ack)
	held := w.one()
	w.sent(ack)
	away := w.post(w.chat("goes", ack, func(p *messages.Posted) {
		p.Target, p.To = 0, message.To{Peer: "far", Context: "c"}
	}))[0]
	w.route()
	w.Must(w.S.Messages.AtPeer(w.Ctx, away, nil))
	w.Later(2 * time.Minute)
	for range 2 {
		if _, err := w.S.Messages.Ack(w.Ctx, w.shop, held.ID, held.Fence); said(err) != "wrong_state" {
			t.Errorf("an ack behind the deadline: %v", err)
		}
		if passed[message.CodeTimeoutAck] != 1 {
			t.Errorf("counted are %v", passed)
		}
	}
	w.Must(w.S.Messages.Hear(w.Ctx, f, messages.Word{ID: away, Steps: 3, Status: "acknowledged"}))
	if passed[message.CodeTimeoutAck] != 2 {
		t.Errorf("counted are %v", passed)
	}
	n, err := w.S.Messages.Expire(w.Ctx)
	if w.Must(err); n != 1 || passed[message.CodeTimeoutAck] != 3 || len(passed) != 1 {
		t.Errorf("%d messages, and counted are %v", n, passed)
	}
}

// A job that is recalled behind its deadline ends by that.
func TestARecallBehindADeadlineFindsItOver(t *testing.T) {
	t.Parallel()
	s := newSails(t)
	j := s.sent()
	s.hears(word(j, 3, "acknowledged", false))
	passed := s.passes()
	s.Later(48 * time.Hour)
	s.Must(s.S.Flows.Away.Recall(s.Ctx, []uuid.UUID{*j.Carried}))
	if got := s.stands(*j.Carried); got != "error timeout_result" || passed["timeout_result"] != 1 {
		t.Error(got, passed)
	}
}

// Words of an actor that was never handed a message are not kept, and those under a fence that was not either: they
// would be without bound, and stand for those of its receiver.
func TestWordsOfWhoNeverHeldAMessageAreNotKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ann, ben := w.shop, w.shop
	ann.Actor, ben.Actor = "ann", "ben"
	id := w.sent()
	list, err := w.S.Messages.Receive(w.Ctx, ann, messages.Receiving{Max: 1, Lease: time.Minute})
	w.Must(err)
	w.Later(61 * time.Second)
	second := w.one()
	for fence := second.Fence - 2; fence < second.Fence+5; fence++ {
		_, _ = w.S.Messages.Reject(w.Ctx, ben, id, fence)
	}
	_, _ = w.S.Messages.Reject(w.Ctx, ann, id, second.Fence+1)
	if got := w.late(id); len(got) != 0 {
		t.Errorf("late %v", got)
	}
	_, _ = w.S.Messages.Reject(w.Ctx, ann, id, list[0].Fence)
	if got := w.late(id); !slices.Equal(got, []string{"Refused"}) {
		t.Errorf("late %v", got)
	}
}
