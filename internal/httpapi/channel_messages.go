package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/channels"
)

func (a *API) channelMessageRoutes() {
	const tag = "leader"
	get(a, tag, "/channels/{name}/messages", "list-channel-messages",
		"List the messages of a channel, one set at a time", a.listChannelMessages)
	post(a, tag, "/channels/{name}/messages", "send-channel-message",
		"Store a message, and offer it", a.sendChannelMessage, 201, 200)
	post(a, tag, "/channels/{name}/receive", "receive-channel-message",
		"Take the oldest message that is offered", a.receiveChannelMessage, 200, 204)
	post(a, tag, "/channels/{name}/messages/{id}/ack", "ack-channel-message",
		"A message was processed", a.ackChannelMessage, 200)
	post(a, tag, "/channels/{name}/messages/{id}/nack", "nack-channel-message",
		"A message could not be processed: another gets it", a.nackChannelMessage, 200)
}

// channelMessageView is a message of a high-integrity channel.
type channelMessageView struct {
	ID        string          `json:"id"`
	Set       string          `json:"set" enum:"queued,offered,active,acked,dropped"`
	Retries   int             `json:"retries" doc:"nacks"`
	Fence     int64           `json:"fence"`
	Error     *string         `json:"error" doc:"of the last nack; of one that was dropped, why"`
	Payload   json.RawMessage `json:"payload,omitempty" doc:"of what was acknowledged none is kept"`
	CreatedAt time.Time       `json:"created_at"`
	UpdatedAt time.Time       `json:"updated_at"`
}

type listChannelMessagesInput struct {
	Name   name   `path:"name"`
	Set    string `query:"set" enum:"queued,offered,active,acked,dropped" default:"queued"`
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"50"`
	Cursor string `query:"cursor" doc:"next of the page before."`
}

type channelMessagesOutput struct {
	Link string `header:"Link"`
	Body struct {
		Items []channelMessageView `json:"items"`
		Next  *string              `json:"next"`
	}
}

// listChannelMessages lists one set of a channel by id, and the ends of one id by their fences.
func (a *API) listChannelMessages(ctx context.Context, in *listChannelMessagesInput) (*channelMessagesOutput, error) {
	p := Paging{Limit: in.Limit, Cursor: in.Cursor}
	limit, err := p.limit(a)
	if err != nil {
		return nil, err
	}
	or(&in.Set, "queued")
	filters, after := []any{"messages", in.Name, in.Set}, channels.ChannelMessageAfter{}
	if err := p.read(filters, &after); err != nil {
		return nil, err
	}
	found, err := a.Store.Channels.ChannelMessages(ctx, contextID(ctx), string(in.Name),
		strings.ToUpper(in.Set[:1])+in.Set[1:], after, limit+1)
	if err != nil {
		return nil, err
	}
	out := &channelMessagesOutput{}
	out.Body.Items = []channelMessageView{}
	for i, m := range found {
		if i == limit {
			out.Body.Next, out.Link = p.next(ctx, filters,
				channels.ChannelMessageAfter{ID: found[i-1].ID, Fence: found[i-1].Fence})
			break
		}
		out.Body.Items = append(out.Body.Items,
			channelMessageView{m.ID, strings.ToLower(m.Set), m.Retries, m.Fence, ptr(m.Error), m.Payload,
				m.CreatedAt.UTC(), m.UpdatedAt.UTC()})
	}
	return out, nil
}

// conduit opens a channel for somebody outside. The leader's own are its own.
func (a *API) conduit(ctx context.Context, called string) (*channels.Conduit[json.RawMessage], error) {
	if channels.OwnedChannel(called) {
		return nil, fault.New(fault.Conflict, "in_use",
			"channel %q is a part of the leader: others neither send over it nor receive", called)
	}
	return channels.OpenConduit[json.RawMessage](ctx, a.Store.Channels, contextID(ctx), called)
}

type sendChannelMessageInput struct {
	Name name `path:"name"`
	Body struct {
		ID      string          `json:"id" minLength:"1" maxLength:"255" doc:"The sender's name of it: what is brought twice is sent once."`
		Payload json.RawMessage `json:"payload"`
	}
}

type sendChannelMessageOutput struct {
	Status int
	Body   struct {
		ID   string `json:"id"`
		Sent bool   `json:"sent" doc:"false: the channel is full, or it was there. It is stored, and offered later."`
	}
}

// sendChannelMessage stores a message and offers it, if there is room: 201; 200 if it is there already.
func (a *API) sendChannelMessage(ctx context.Context, in *sendChannelMessageInput) (*sendChannelMessageOutput, error) {
	if len(in.Body.Payload) == 0 {
		return nil, fault.At("/payload", "payload is required")
	}
	c, err := a.conduit(ctx, string(in.Name))
	if err != nil {
		return nil, err
	}
	sent, err := c.Send(ctx, channels.Outgoing[json.RawMessage]{ID: in.Body.ID, Payload: in.Body.Payload})
	if err != nil {
		return nil, err
	}
	out := &sendChannelMessageOutput{Status: http.StatusCreated}
	out.Body.ID, out.Body.Sent = in.Body.ID, sent[0] == channels.SentOffered
	if sent[0] == channels.SentExists {
		out.Status = http.StatusOK
	}
	return out, nil
}

type receiveChannelMessageInput struct {
	Name   name   `path:"name"`
	Wait   string `query:"wait" example:"30s" doc:"How long to wait for a message, at most 60s; wins over Prefer: wait=N."`
	Prefer string `header:"Prefer" doc:"wait=N, in seconds."`
}

type heldChannelMessage struct {
	ID      string          `json:"id"`
	Payload json.RawMessage `json:"payload"`
	Fence   int64           `json:"fence" doc:"to be given with ack and nack"`
	Retries int             `json:"retries"`
	Error   *string         `json:"error" doc:"of the last nack"`
	SentAt  time.Time       `json:"sent_at"`
}

type receiveChannelMessageOutput struct {
	Status  int
	Applied string `header:"Preference-Applied"`
	Body    *heldChannelMessage
}

// receiveEvery is how often a channel is looked at for who waits.
const receiveEvery = 250 * time.Millisecond

// receiveChannelMessage takes the oldest offer and makes it active, under a fence: 200, or 204 when there is none.
func (a *API) receiveChannelMessage(ctx context.Context,
	in *receiveChannelMessageInput) (*receiveChannelMessageOutput, error) {
	length, err := a.lengthOf(in.Wait, in.Prefer)
	if err != nil {
		return nil, err
	}
	c, err := a.conduit(ctx, string(in.Name))
	if err != nil {
		return nil, err
	}
	out := &receiveChannelMessageOutput{Status: http.StatusNoContent}
	left, applied, back := a.beginWait(ctx, length)
	defer back()
	out.Applied = applied
	for until := time.Now().Add(left); ; {
		list, err := c.Receive(ctx, pg.Node{}, 1)
		if err != nil {
			return nil, err
		}
		if len(list) > 0 {
			h := list[0]
			out.Status, out.Body = http.StatusOK, &heldChannelMessage{h.ID, h.Payload, h.Fence,
				h.Retries, ptr(h.Error), h.SentAt.UTC()}
			return out, nil
		}
		if !time.Now().Before(until) {
			return out, nil
		}
		select {
		case <-ctx.Done():
			return out, nil
		case <-a.news.end: // one more look
			until = time.Time{}
		case <-time.After(receiveEvery):
		}
		if err := a.stillMay(ctx); err != nil {
			return nil, err
		}
	}
}

type judgeChannelMessageInput struct {
	Name name   `path:"name"`
	ID   string `path:"id" maxLength:"255"`
	Body struct {
		Fence  int64  `json:"fence" doc:"as it was given by receive"`
		Reason string `json:"reason,omitempty" maxLength:"1000" doc:"nack: why it could not be processed."`
	}
}

func (a *API) ackChannelMessage(ctx context.Context, in *judgeChannelMessageInput) (*leverOutput, error) {
	return a.judgeChannelMessage(ctx, in, leader.ChannelMessageOk)
}

func (a *API) nackChannelMessage(ctx context.Context, in *judgeChannelMessageInput) (*leverOutput, error) {
	return a.judgeChannelMessage(ctx, in, leader.ChannelMessageErr)
}

// judgeChannelMessage ends or gives back a message that is held under a fence: 409 stale_fence if it is not.
func (a *API) judgeChannelMessage(ctx context.Context,
	in *judgeChannelMessageInput, event string) (*leverOutput, error) {
	c, err := a.conduit(ctx, string(in.Name))
	if err != nil {
		return nil, err
	}
	changed := true
	if event == leader.ChannelMessageOk {
		changed, err = c.Ack(ctx, in.ID, in.Body.Fence)
	} else {
		err = c.Nack(ctx, in.ID, in.Body.Fence, in.Body.Reason)
	}
	return lever(pg.LeverResult{Changed: changed}, err)
}
