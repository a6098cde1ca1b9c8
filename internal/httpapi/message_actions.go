package httpapi

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg/messages"
)

type receiveMessagesInput struct {
	Wait   string `query:"wait" example:"30s" doc:"How long to wait for one, at most 60s; wins over Prefer: wait=N."`
	Prefer string `header:"Prefer" doc:"wait=N, in seconds."`
	Body   *struct {
		Max   int    `json:"max,omitempty" minimum:"1" maximum:"100" doc:"How many; 1 unless said."`
		Lease string `json:"lease,omitempty" example:"30s" doc:"For how long; 1s to 1h, 30s unless said."`
		Topic name   `json:"topic,omitempty" doc:"Those of this topic alone."`
	}
}

type receiveMessagesOutput struct {
	Status  int
	Applied string `header:"Preference-Applied"`
	Body    *receivedMessages
}

type receivedMessages struct {
	Items []receivedMessage `json:"items"`
}

// receivedMessage is a message as a receiver is handed it.
type receivedMessage struct {
	messageView
	Fence int64 `json:"fence" doc:"to be given with ack, processed, reply and reject"`
}

// receiveMessages hands out the oldest messages of msg_in, each under a fence and for a time: 200; 204 for none.
func (a *API) receiveMessages(ctx context.Context, in *receiveMessagesInput) (*receiveMessagesOutput, error) {
	r, err := in.receiving()
	if err != nil {
		return nil, err
	}
	length, err := a.lengthOf(in.Wait, in.Prefer)
	if err != nil {
		return nil, err
	}
	out := &receiveMessagesOutput{Status: http.StatusNoContent}
	left, applied, back := a.beginWait(ctx, length)
	defer back()
	out.Applied = applied
	who := by(ctx, "")
	for until, vain := time.Now().Add(left), false; ; vain = true {
		list, err := a.Store.Messages.Receive(ctx, who, r)
		if err != nil {
			return nil, err
		}
		left := time.Until(until)
		if len(list) > 0 || left <= 0 {
			if len(list) > 0 {
				out.Status, out.Body = http.StatusOK, a.viewReceived(ctx, list)
			}
			return out, nil
		}
		if vain {
			select {
			case <-ctx.Done():
				return out, nil
			case <-a.news.end:
			case <-time.After(min(vainPause, left)):
			}
		}
		if err := a.Store.Messages.Await(ctx, who, r.Topic, time.Until(until), a.news.end); err != nil {
			return nil, err
		}
		select {
		case <-a.news.end: // one more look
			until = time.Time{}
		case <-ctx.Done():
			return out, nil
		default:
		}
		if err := a.stillMay(ctx); err != nil {
			return nil, err
		}
	}
}

func (in *receiveMessagesInput) receiving() (messages.Receiving, error) {
	r := messages.Receiving{Max: 1, Lease: message.DefaultLease}
	if in.Body == nil {
		return r, nil
	}
	or(&in.Body.Max, 1)
	r.Max, r.Topic = in.Body.Max, string(in.Body.Topic)
	if in.Body.Lease != "" {
		d, err := time.ParseDuration(in.Body.Lease)
		if err != nil || d < time.Second || d > message.MaxLease {
			return r, fault.At("/lease", "lease %q: want a duration from 1s to %s", fault.Clip(in.Body.Lease),
				message.MaxLease)
		}
		r.Lease = d
	}
	return r, nil
}

func (a *API) viewReceived(ctx context.Context, list []*messages.Message) *receivedMessages {
	v := &receivedMessages{Items: []receivedMessage{}}
	for _, m := range list {
		one := receivedMessage{a.viewMessage(ctx, m, messages.In), m.Fence}
		one.Body = m.Body
		v.Items = append(v.Items, one)
	}
	return v
}

// OnMessage is what a call about a message takes that a receiver holds.
type OnMessage struct {
	OneMessage
	Fence string `header:"Postern-Fence" maxLength:"20" doc:"Required: as the receive gave it."`
}

type judgeMessageInput struct {
	OnMessage
}

type judgeMessageOutput struct {
	Body struct {
		Changed bool `json:"changed" doc:"false: the same was said before"`
	}
}

// judge has a receiver say something of a message: 200, the same again too; 409 stale_fence or wrong_state, where it is
// kept as late; 409 stale_fence for another actor than its receiver; 428 without a fence.
func (in *OnMessage) judge(say func(id uuid.UUID, fence int64) (bool, error)) (*judgeMessageOutput, error) {
	try := OnTry{ID: in.ID, Fence: in.Fence}
	fence, err := try.fence()
	if err != nil {
		return nil, err
	}
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	out := &judgeMessageOutput{}
	out.Body.Changed, err = say(id, fence)
	return out, err
}

func (a *API) ackMessage(ctx context.Context, in *judgeMessageInput) (*judgeMessageOutput, error) {
	return in.judge(func(id uuid.UUID, fence int64) (bool, error) {
		return a.Store.Messages.Ack(ctx, by(ctx, ""), id, fence)
	})
}

func (a *API) processedMessage(ctx context.Context, in *judgeMessageInput) (*judgeMessageOutput, error) {
	return in.judge(func(id uuid.UUID, fence int64) (bool, error) {
		return a.Store.Messages.Processed(ctx, by(ctx, ""), id, fence)
	})
}

type replyMessageInput struct {
	OnMessage
	Body struct {
		Format string `json:"message_format_type,omitempty" enum:"html,text,md,logs" doc:"text unless said."`
		Body   string `json:"message" doc:"At most 1 MiB."`
	}
}

// replyMessage ends a message with its result, which its sender reads with it.
func (a *API) replyMessage(ctx context.Context, in *replyMessageInput) (*judgeMessageOutput, error) {
	or(&in.Body.Format, message.DefaultFormat)
	if err := message.CheckBody("/message", in.Body.Body); err != nil {
		return nil, err
	}
	return in.judge(func(id uuid.UUID, fence int64) (bool, error) {
		return a.Store.Messages.Answered(ctx, by(ctx, ""), id, fence, messages.Reply{Format: in.Body.Format,
			Body: in.Body.Body})
	})
}

type rejectMessageInput struct {
	OnMessage
	Body *reasonBody
}

func (a *API) rejectMessage(ctx context.Context, in *rejectMessageInput) (*judgeMessageOutput, error) {
	return in.judge(func(id uuid.UUID, fence int64) (bool, error) {
		return a.Store.Messages.Reject(ctx, by(ctx, strings.TrimSpace(in.Body.reason())), id, fence)
	})
}

type cancelMessageInput struct {
	OneMessage
	Trial
	Body *reasonBody
}

// cancelMessage takes back a message that has not ended. Jobs that were made of it go on.
func (a *API) cancelMessage(ctx context.Context, in *cancelMessageInput) (*leverOutput, error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	return lever(a.Store.Messages.Cancel(ctx, by(ctx, in.Body.reason()), id))
}
