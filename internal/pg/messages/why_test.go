package messages_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/messages"
	"github.com/postern-dev/postern/internal/pg/reads"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// why explains a message to a context. Each blocker says what it has to, and promises nothing for the past.
func (w *world) why(contextID int32, id uuid.UUID) *reads.Why {
	w.T.Helper()
	y, err := w.S.Messages.WhyMessage(w.Ctx, contextID, id)
	w.Must(err)
	for _, b := range y.Blockers {
		if b.Since.IsZero() || b.Object == "" || b.Detail == "" || b.Next != nil && b.Next.At.Before(w.Now) {
			w.T.Errorf("%+v says not what is to be said", b)
		}
		for _, l := range b.Levers {
			if strings.HasPrefix(l.Path, "/transactions/") && strings.HasSuffix(l.Path, "/cancel") {
				w.T.Errorf("%+v has a lever that is refused", b)
			}
		}
	}
	return y
}

// blocks finds a blocker of a kind whose detail has all parts.
func (w *world) blocks(y *reads.Why, kind string, parts ...string) reads.Blocker {
	w.T.Helper()
	for _, b := range y.Blockers {
		has := b.Kind == kind
		for _, part := range parts {
			has = has && strings.Contains(b.Detail, part)
		}
		if has {
			return b
		}
	}
	w.T.Errorf("%q is not said with %q: %+v", kind, parts, y.Blockers)
	return reads.Blocker{}
}

// A message that a receiver holds waits for that one; once its lease is over it waits for any. Both boxes say so.
func TestWhyNamesTheReceiverAndTheTriesBeforeIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.sent(func(p *messages.Posted) { p.Timeouts.Ack = time.Hour })
	delivered := w.Now
	for _, box := range []int32{w.ID, w.shop.Context} {
		b := w.blocks(w.why(box, id), "not_acknowledged", "no receiver has been handed it", "any executor")
		if !b.Since.Equal(delivered) || !b.Next.At.Equal(delivered.Add(time.Hour)) {
			t.Errorf("%+v", b)
		}
	}
	for n := range 2 {
		w.Later(time.Minute)
		w.one()
		handed := w.Now
		said := []string{"was handed it, once", "was handed it, 2 times"}[n]
		b := w.blocks(w.why(w.ID, id), "not_acknowledged", said)
		if !b.Since.Equal(handed) || !b.Next.At.Equal(handed.Add(time.Minute)) {
			t.Errorf("%+v", b)
		}
	}
	w.Later(2 * time.Minute)
	b := w.blocks(w.why(w.shop.Context, id), "not_acknowledged", "handed out 2 times", "any executor there again")
	if !b.Since.Equal(w.Now.Add(-time.Minute)) || !b.Next.At.Equal(delivered.Add(time.Hour)) {
		t.Errorf("%+v", b)
	}
	w.Later(time.Hour)
	w.why(w.ID, id) // its deadline is over, and no process has looked: nothing is promised for the past
	m := w.sent(func(p *messages.Posted) { p.To.Actor = "ann" })
	w.blocks(w.why(w.ID, m), "not_acknowledged", "ann alone")
}

// A message that its peer does not take waits for its transaction: that is tried again at a time.
func TestWhyNamesTheTriesAtThePeer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.Node("n")
	f := w.far()
	toFar := func(p *messages.Posted) { p.Target, p.To = 0, message.To{Peer: "far", Context: "c"} }
	first, second := w.post(w.chat("1", toFar))[0], w.post(w.chat("2", toFar))[0]
	w.route()
	again := func() {
		t.Helper()
		for _, l := range w.Claim(node, pgworld.Everything()) {
			w.Settle(w.Answer(l, outbox.Answer{Class: outbox.ClassRetry, Code: "http_503", Message: "not now"}))
		}
	}
	again()
	b := w.blocks(w.why(w.ID, first), "retry_delay", "attempt 1 failed", "not now")
	if b.Next == nil || !b.Next.At.After(w.Now) {
		t.Errorf("no next try is named: %+v", b)
	}
	y := w.why(w.ID, second)
	w.blocks(y, "undelivered", "peer far, which has not taken it")
	w.blocks(y, "head_of_line")
	w.blocks(y, "retry_delay", "attempt 1 failed")

	w.Must(w.S.Messages.AtPeer(w.Ctx, first, nil))
	w.blocks(w.why(w.ID, first), "not_acknowledged", "of peer far")
	w.Later(time.Second)
	w.Must(w.S.Messages.Lost(w.Ctx, f, first))
	y = w.why(w.ID, first)
	if b := w.blocks(y, "undelivered", "1 of at most 3"); !b.Since.Equal(w.Now) {
		t.Errorf("%+v", b)
	}
	w.blocks(y, "retry_delay", "attempt 1 failed")
}

// A peer that takes no calls is named for what it has as well as for what it has not: it is not asked, either. So is a
// quarantine of what goes to it.
func TestWhyNamesAPeerThatRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.far()
	there, away := w.toFar("1"), w.leave("2")[0]
	p, err := w.S.Installations.Peer(w.Ctx, w.ID, "far")
	w.Must(err)
	w.Must(w.S.Installations.Met(w.Ctx, p, "", "peer_unauthenticated", "another secret"))
	for id, kind := range map[uuid.UUID]string{there: "not_acknowledged", away: "undelivered"} {
		y := w.why(w.ID, id)
		w.blocks(y, kind)
		w.blocks(y, "peer_refused", "another secret")
	}
	w.Must(w.S.EnterQuarantine(w.Ctx, w.By, pg.Quarantine{Context: "default", Reason: "a test"}))
	w.Must(w.S.Refresh(w.Ctx))
	for _, id := range append([]uuid.UUID{there, away}, w.post(w.chat("here"))...) {
		if b := w.blocks(w.why(w.ID, id), "quarantined", "a test"); !strings.Contains(fmt.Sprint(b.Object), "default") {
			t.Errorf("%+v", b)
		}
	}
}

// What the jobs of a message wait for is said in their context alone. Where the message comes from, the answer names
// that context, and nothing of it: no reason, no object, and no lever, which would act on what has that name here.
func TestWhySaysOfAnotherContextHowManyJobsAreOpen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.post(w.jobs(1, 2))[0]
	w.route()
	_, err := w.S.PauseContext(w.Ctx, w.shop, "shop", true)
	w.Must(err)
	w.Must(w.S.Refresh(w.Ctx))
	y, err := w.S.Messages.WhyMessage(w.Ctx, w.shop.Context, id)
	w.Must(err)
	w.blocks(y, "awaits_result", "2 of its jobs have not ended")
	if len(y.Blockers) < 2 {
		t.Errorf("its own context hears of no reason: %+v", y)
	}
	y = w.why(w.ID, id)
	b := w.blocks(y, "awaits_result", "2 of its jobs have not ended", "context shop")
	if len(y.Blockers) != 1 || len(b.Levers) != 1 || b.Levers[0].Path != "/messages/"+id.String()+"/cancel" {
		t.Errorf("%+v", y)
	}
	if !strings.Contains(y.Summary, "context shop") {
		t.Error(y.Summary)
	}
}
