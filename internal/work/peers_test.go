package work_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/messages"
	"github.com/postern-dev/postern/internal/pg/peers"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/work"
)

// line is a node that calls the peer far, which answers as far does.
type line struct {
	*house
	s   *stores.Store
	now time.Time
	e   *work.Engine
}

func newLine(t *testing.T, far func(remote.PeerCall) remote.PeerAnswer) *line {
	t.Helper()
	h := newHouse(t)
	l := &line{house: h, s: h.store(), now: time.Now()}
	l.s.SetNow(&l.now)
	l.s.Messages.Open = true
	_, err := l.s.Installations.PutPeer(h.ctx, h.by, peers.Settings{Name: "far", Secret: make([]byte, 32),
		URL: "https://far.example/contexts/c/peers/near"}, 0)
	h.must(err)
	l.e = work.New(work.Config{Store: l.s, Worker: remote.Mux{}, NodeName: "n", TTL: time.Hour,
		Log: slog.New(slog.DiscardHandler)})
	call := func(_ context.Context, c remote.PeerCall) remote.PeerAnswer { return far(c) }
	l.e.Add(work.NewMessages(l.e).System(), work.NewPeers(l.e, work.PeersConfig{Call: call}).System())
	h.must(l.e.Manual(h.ctx))
	return l
}

// chat posts a message for far.
func (l *line) chat(body string) *messages.Message {
	l.t.Helper()
	m, err := l.s.Messages.Post(l.ctx, l.by, messages.Posted{Spec: message.Spec{
		To: message.To{Peer: "far", Context: "c"}, Type: message.Chat, Format: "text", Body: body}})
	l.must(err)
	return m
}

// rounds lets the node do all that it can do now, and then again some minutes later, so many times.
func (l *line) rounds(n int) {
	l.t.Helper()
	for range n {
		ctx, cancel := context.WithTimeout(l.ctx, time.Minute)
		_ = l.e.Round(ctx) // a peer that does not answer a question is an error
		cancel()
		l.now = l.now.Add(2 * time.Minute)
	}
}

// answered is an answer with a class and a code.
func answered(class outbox.Class, code string) remote.PeerAnswer {
	return remote.PeerAnswer{Answer: outbox.Answer{Class: class, Code: code, Message: "because"}}
}

// A message is brought until its peer has it, whatever comes back meanwhile: no answer but one that takes it or refuses
// it for good ends its transaction.
func TestAMessageIsBroughtUntilItsPeerHasIt(t *testing.T) {
	t.Parallel()
	list := []remote.PeerAnswer{
		answered(outbox.ClassAmbiguous, "answer_invalid"),
		answered(outbox.ClassAmbiguous, "answer_too_large"),
		answered(outbox.ClassAmbiguous, "http_422"),
		answered(outbox.ClassAmbiguous, "answer_empty"),
		answered(outbox.ClassRetry, "busy"),
		answered(outbox.ClassRetry, "http_400"),
	}
	calls := 0
	l := newLine(t, func(c remote.PeerCall) remote.PeerAnswer {
		if c.Verb != remote.PeerMessages {
			return answered(outbox.ClassAmbiguous, "timeout")
		}
		if calls++; calls <= len(list) {
			return list[calls-1]
		}
		return remote.PeerAnswer{}
	})
	m := l.chat("hello")
	l.rounds(2 * len(list))
	m, err := l.s.Messages.Get(l.ctx, l.by.Context, m.ID)
	l.must(err)
	if m.DeliveredAt == nil || calls != len(list)+1 {
		t.Errorf("after %d calls it is %s (%s: %s), and was stored at %v", calls, m.Status, m.Code, m.Error,
			m.DeliveredAt)
	}
}

// A peer that one process cannot reach is followed by another one that can, while both live.
func TestAPeerThatOneProcessCannotReachIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.s.Messages.Open = true
	_, err := h.s.Installations.PutPeer(h.ctx, h.by, peers.Settings{Name: "far", Secret: make([]byte, 32),
		URL: "https://far.example/contexts/c/peers/near"}, 0)
	h.must(err)
	id := (&line{house: h, s: h.s}).chat("hello").ID
	_, err = h.s.Messages.Route(h.ctx)
	h.must(err)
	h.must(h.s.Messages.AtPeer(h.ctx, id, nil))
	follows := func(name string, call func(remote.PeerCall) remote.PeerAnswer) {
		e := work.New(work.Config{Store: h.store(), Worker: remote.Mux{}, NodeName: name, TTL: time.Hour,
			Log: slog.New(slog.DiscardHandler)})
		e.Add(work.NewPeers(e, work.PeersConfig{
			Call: func(_ context.Context, c remote.PeerCall) remote.PeerAnswer { return call(c) },
		}).System())
		ctx, cancel := context.WithCancel(h.ctx)
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			h.must(<-ended)
		})
	}
	asked := make(chan bool, 1)
	follows("deaf", func(remote.PeerCall) remote.PeerAnswer {
		select {
		case asked <- true:
		default:
		}
		return answered(outbox.ClassBlocked, "no_peers")
	})
	<-asked
	follows("hears", func(c remote.PeerCall) (a remote.PeerAnswer) {
		if c.Verb == remote.PeerFollow {
			a.Body, _ = json.Marshal(map[string]any{
				"words": []messages.Word{{ID: id, Steps: 9, Status: string(message.Processed)}}})
		}
		return a
	})
	for end := time.Now().Add(soon); ; time.Sleep(10 * time.Millisecond) {
		m, err := h.s.Messages.Get(h.ctx, h.by.Context, id)
		if h.must(err); m.Status == message.Processed {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it is %s: the process that cannot ask follows it", m.Status)
		}
	}
}
