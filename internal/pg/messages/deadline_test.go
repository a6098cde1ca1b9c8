package messages_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg/messages"
)

// Each deadline that is over ends its message by its name, whatever comes first behind it, and what comes is late.
func TestWhateverComesBehindADeadlineFindsItOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.far()
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
}

// A job that is recalled behind its deadline ends by that.
func TestARecallBehindADeadlineFindsItOver(t *testing.T) {
	t.Parallel()
	s := newSails(t)
	j := s.sent()
	s.hears(word(j, 3, "acknowledged", false))
	s.Later(48 * time.Hour)
	s.Must(s.S.Flows.Away.Recall(s.Ctx, []uuid.UUID{*j.Carried}))
	if got := s.stands(*j.Carried); got != "error timeout_result" {
		t.Error(got)
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
