package work

import (
	"context"
	"errors"
	"time"

	"github.com/postern-dev/postern/internal/pg/messages"
)

// How often a node looks after messages: at once when it knows of something, else so often.
const (
	messagesEvery = time.Second
	messagesRest  = 3 * time.Millisecond // between two turns, so that one takes what several brought
)

// Messages looks after messages: it routes them, ends those whose jobs have ended, and those whose deadline is over.
type Messages struct {
	*Node
	bell chan struct{}
}

// NewMessages makes what looks after messages in the process of an engine.
func NewMessages(e *Engine) *Messages {
	m := &Messages{Node: e.Node, bell: make(chan struct{}, 1)}
	m.Store.Messages.Ring = func() { knock(m.bell) }
	return m
}

// System is what the engine runs of it. What another process has posted is in rows, which this one finds.
func (m *Messages) System() System {
	return System{
		Name:  "messages",
		Loops: []Loop{m.loop()},
		Round: m.once,
	}
}

func (m *Messages) loop() Loop {
	return Loop{
		Name:      "messages",
		Does:      "look after messages",
		Await:     func(ctx context.Context) bool { return m.Store.Await(ctx, messages.Messages) },
		Every:     messagesEvery,
		Bell:      m.bell,
		Rest:      messagesRest,
		Retry:     messagesEvery,
		RetryMost: 10 * time.Second,
		Once: func(ctx context.Context) (Turn, error) {
			n, err := m.once(ctx)
			t := Turn{Did: n}
			if n > 0 {
				t.Next = AtOnce
			}
			return t, err
		},
	}
}

// once does all that can be done now, and returns how much that was. A deadline that is over comes first: what the
// rest of this turn would do for such a message is late.
func (m *Messages) once(ctx context.Context) (int, error) {
	if m.Store.QuarantinedWhole() {
		return 0, nil
	}
	s := m.Store.Messages
	expired, err := s.Expire(ctx)
	if err != nil {
		return expired, err
	}
	removed := 0
	if s.Has(messages.Removed) {
		if removed, err = s.EndRemoved(ctx); err != nil {
			return expired, err
		}
	}
	routed, failed := s.Route(ctx)
	settled, err := s.Settle(ctx)
	return expired + removed + routed + settled, errors.Join(failed, err)
}
