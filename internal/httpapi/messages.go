package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg/messages"
)

// messagesPath begins the paths of messages.
const messagesPath = "/messages"

func (a *API) messageRoutes() {
	const tag = "messages"
	post(a, tag, "/messages", "post-message", "Send a message to a context", a.postMessage, 201, 200)
	get(a, tag, "/messages", "list-messages", "List the messages of a box, the newest first", a.listMessages)
	get(a, tag, "/messages/{id}", "get-message", "Read one message", a.getMessage)
	get(a, tag, "/messages/{id}/history", "get-message-history", "What happened to a message, and what came too late",
		a.getMessageHistory)
	get(a, tag, "/messages/{id}/why", "get-message-why", "What a message waits for", a.whyMessage)
	get(a, tag, "/messages/{id}/logs", "get-message-logs", "What the jobs of a message have written", a.getMessageLogs)
	post(a, tag, "/messages/{id}/cancel", "cancel-message", "Take back a message that one has sent",
		a.cancelMessage, 200)
	post(a, tag, "/messages:receive", "receive-messages", "Take the oldest messages of msg_in", a.receiveMessages,
		200, 204)
	post(a, tag, "/messages/{id}/ack", "ack-message", "Say that one has a message", a.ackMessage, 200)
	post(a, tag, "/messages/{id}/processed", "processed-message", "Say that a message is done with",
		a.processedMessage, 200)
	post(a, tag, "/messages/{id}/reply", "reply-message", "Answer a message with its result", a.replyMessage, 200)
	post(a, tag, "/messages/{id}/reject", "reject-message", "Refuse a message", a.rejectMessage, 200)
}

// messageTo says where a message is to go.
type messageTo struct {
	Peer    name   `json:"peer,omitempty" doc:"Another installation; without it, this one."`
	Context name   `json:"context,omitempty" doc:"As the installation there calls it."`
	Actor   string `json:"actor,omitempty" maxLength:"200" doc:"Who alone may receive it; any executor without it."`
	Topic   name   `json:"topic,omitempty" doc:"What a receiver may ask for."`
}

// MessageInput is what a client writes of a message.
type MessageInput struct {
	Ref           *int64          `json:"ref,omitempty" doc:"0 to 4294967295, the caller's own: it names one message."`
	To            messageTo       `json:"to"`
	Type          string          `json:"message_type,omitempty" enum:"job,chat,mail,result" doc:"result: see reply."`
	Format        string          `json:"message_format_type,omitempty" enum:"html,text,md,logs" doc:"[text]"`
	Body          string          `json:"message,omitempty" doc:"At most 1 MiB. It is data, and shown as it is."`
	Timeout       int64           `json:"timeout,omitempty" doc:"Seconds until it is delivered; 0: any time."`
	TimeoutAck    int64           `json:"timeout_ack,omitempty" doc:"From then on until it is acknowledged."`
	TimeoutResult int64           `json:"timeout_result,omitempty" doc:"From then on until it has its result."`
	Jobs          []JobInput      `json:"job,omitempty" maxItems:"100" doc:"Of type job: made there, all or none."`
	ReplyTo       string          `json:"reply_to,omitempty" maxLength:"36" doc:"The id of a message that it answers."`
	Envelope      json.RawMessage `json:"envelope,omitempty" doc:"DSSE, by the caller's key; says all the rest again."`
}

// messageView is a message as clients read it.
type messageView struct {
	ID            string          `json:"id"`
	Box           string          `json:"box" enum:"out,in" doc:"msg_out or msg_in of the context"`
	CallerID      string          `json:"caller_id" doc:"the actor that sent it"`
	Ref           *int64          `json:"ref"`
	From          *string         `json:"from" doc:"the context that sent it; null: it came from a peer"`
	To            messageTo       `json:"to"`
	Peer          *string         `json:"peer" doc:"the other installation; null: it stays in this one"`
	Type          string          `json:"message_type" enum:"job,chat,mail,result"`
	Format        string          `json:"message_format_type" enum:"html,text,md,logs"`
	Body          string          `json:"message,omitempty" doc:"not in lists"`
	Timeout       int64           `json:"timeout"`
	TimeoutAck    int64           `json:"timeout_ack"`
	TimeoutResult int64           `json:"timeout_result"`
	Job           json.RawMessage `json:"job,omitempty" doc:"not in lists; for readers without the values of env_vars"`
	Jobs          []string        `json:"jobs,omitempty" doc:"ids of the jobs that were made of it here; not in lists"`
	ReplyTo       *string         `json:"reply_to"`
	Status        string          `json:"status" enum:"dispatched,acknowledged,processed,error"`
	Signed        bool            `json:"signed" doc:"it came in an envelope"`
	Result        json.RawMessage `json:"result,omitempty" doc:"of the result of jobs: how each ended"`
	Reply         *messageReply   `json:"reply" doc:"its result; null: it has none yet; not in lists"`
	Receiver      *string         `json:"receiver" doc:"the actor that was handed it last"`
	LeaseUntil    *time.Time      `json:"lease_until"`
	Deadline      *time.Time      `json:"deadline" doc:"that runs; null: none does"`
	Error         *jobError       `json:"error"`
	CreatedAt     time.Time       `json:"created_at"`
	DeliveredAt   *time.Time      `json:"delivered_at"`
	AckedAt       *time.Time      `json:"acked_at"`
	EndedAt       *time.Time      `json:"ended_at"`
	UpdatedAt     time.Time       `json:"updated_at"`
}

// messageReply is the result of a message.
type messageReply struct {
	ID       string          `json:"id"`
	CallerID string          `json:"caller_id"`
	Format   string          `json:"message_format_type"`
	Body     string          `json:"message"`
	Result   json.RawMessage `json:"result,omitempty"`
}

func (a *API) viewMessage(ctx context.Context, m *messages.Message, box string) messageView {
	v := messageView{
		ID:            m.ID.String(),
		Box:           box,
		CallerID:      m.Actor,
		Ref:           m.Ref,
		From:          a.nameOf(m.Context),
		To:            messageTo{Context: name(m.ToContext), Actor: m.ToActor, Topic: name(m.Topic)},
		Peer:          ptr(m.Peer),
		Type:          m.Type,
		Format:        m.Format,
		Timeout:       int64(m.Timeouts.Deliver / time.Second),
		TimeoutAck:    int64(m.Timeouts.Ack / time.Second),
		TimeoutResult: int64(m.Timeouts.Result / time.Second),
		Status:        string(m.Status),
		Signed:        len(m.Envelope) > 0,
		Receiver:      ptr(m.Receiver),
		LeaseUntil:    utc(m.LeaseUntil),
		Deadline:      utc(m.Due),
		Error:         viewJobError(m.Code, m.Error, nil),
		CreatedAt:     m.CreatedAt.UTC(),
		DeliveredAt:   utc(m.DeliveredAt),
		AckedAt:       utc(m.AckedAt),
		EndedAt:       utc(m.EndedAt),
		UpdatedAt:     m.UpdatedAt.UTC(),
	}
	if m.ReplyTo != nil {
		v.ReplyTo = ptr(m.ReplyTo.String())
	}
	if box == messages.Out && m.Peer != "" {
		v.To.Peer = name(m.Peer)
	}
	return v
}

// nameOf is the name of a context, nil where there is none.
func (a *API) nameOf(id int32) *string {
	if c := a.Store.ContextByID(id); c != nil {
		return &c.Name
	}
	return nil
}

// wholeMessage is a message with all that lists leave out.
func (a *API) wholeMessage(ctx context.Context, m *messages.Message) (messageView, error) {
	box := messages.In
	if m.Context == contextID(ctx) {
		box = messages.Out
	}
	v := a.viewMessage(ctx, m, box)
	v.Body, v.Result, v.Job = m.Body, m.Result, a.shownJobs(ctx, m.Jobs)
	if m.Type == message.Job {
		jobs, err := a.Store.Flows.JobsOfMessage(ctx, m.ID)
		if err != nil {
			return v, err
		}
		for _, j := range jobs {
			v.Jobs = append(v.Jobs, j.ID.String())
		}
	}
	if m.Status != message.Processed {
		return v, nil
	}
	r, err := a.Store.Messages.ResultOf(ctx, m.ID)
	if err == nil && r != nil {
		v.Reply = &messageReply{r.ID.String(), r.Actor, r.Format, r.Body, r.Result}
	}
	return v, err
}

// shownJobs are the jobs of a message as they are shown: to readers without the values of their environments.
func (a *API) shownJobs(ctx context.Context, raw json.RawMessage) json.RawMessage {
	var list []JobInput
	if len(raw) == 0 || json.Unmarshal(raw, &list) != nil {
		return nil
	}
	for i := range list {
		list[i].Env = a.shownEnv(ctx, list[i].Env)
	}
	out, err := json.Marshal(list)
	if err != nil {
		return nil
	}
	return out
}

type messageOutput struct {
	Status   int
	Location string `header:"Location"`
	ETag     string `header:"ETag"`
	Replay   string `header:"Idempotent-Replay" doc:"true when the key or the ref was known already"`
	Applied  string `header:"Preference-Applied"`
	Body     messageView
}

type getMessageInput struct {
	ID     string `path:"id" maxLength:"36"`
	Wait   string `query:"wait" example:"30s" doc:"How long to wait for its end, at most 60s."`
	Prefer string `header:"Prefer" doc:"wait=N, in seconds."`
}

// getMessage answers a message, at its end or when the time to wait is over.
func (a *API) getMessage(ctx context.Context, in *getMessageInput) (*messageOutput, error) {
	id, err := uuidOf("message", in.ID)
	if err != nil {
		return nil, err
	}
	var m *messages.Message
	applied, err := a.untilEnd(ctx, in.Wait, in.Prefer, func() (bool, error) {
		m, err = a.Store.Messages.Get(ctx, contextID(ctx), id)
		return err == nil && m.Status.Ended(), err
	})
	if err != nil {
		return nil, err
	}
	out := &messageOutput{Status: http.StatusOK, ETag: etag(m.Tag()), Applied: applied}
	out.Body, err = a.wholeMessage(ctx, m)
	return out, err
}

type listMessagesInput struct {
	Box      string `query:"box" enum:"out,in" default:"out" doc:"msg_out or msg_in."`
	Status   string `query:"status" enum:"dispatched,acknowledged,processed,error"`
	Type     string `query:"type" enum:"job,chat,mail,result"`
	CallerID string `query:"caller_id" maxLength:"200"`
	Peer     string `query:"peer" maxLength:"200"`
	Ref      string `query:"ref" pattern:"^[0-9]{1,10}$"`
	ReplyTo  string `query:"reply_to" maxLength:"36" doc:"The id of the message that they answer."`
	Limit    int    `query:"limit" minimum:"1" maximum:"500" default:"50"`
	Cursor   string `query:"cursor" doc:"next of the page before, with the same filters."`
}

// listMessages lists a box, the newest first.
func (a *API) listMessages(ctx context.Context, in *listMessagesInput) (*pageOf[messageView], error) {
	p := Paging{Limit: in.Limit, Cursor: in.Cursor}
	limit, err := p.limit(a)
	if err != nil {
		return nil, err
	}
	or(&in.Box, messages.Out)
	filters := []any{"messages", in.Box, in.Status, in.Type, in.CallerID, in.Peer, in.Ref, in.ReplyTo}
	f := messages.Filter{Box: in.Box, Status: in.Status, Type: in.Type, Actor: in.CallerID, Peer: in.Peer,
		Limit: limit + 1}
	if in.Ref != "" {
		n, err := refOf(in.Ref)
		if err != nil {
			return nil, err
		}
		f.Ref = &n
	}
	if in.ReplyTo != "" {
		id, err := uuidOf("message", in.ReplyTo)
		if err != nil {
			return nil, err
		}
		f.ReplyTo = &id
	}
	if in.Cursor != "" {
		f.After = &messages.Place{}
		if err := p.read(filters, f.After); err != nil {
			return nil, err
		}
	}
	found, further, err := a.Store.Messages.List(ctx, contextID(ctx), f)
	if err != nil {
		return nil, err
	}
	out := &pageOf[messageView]{}
	out.Body, out.Link, err = goesOn(ctx, &p, limit, filters, found, further,
		func(m *messages.Message) messages.Place { return messages.Place{At: m.CreatedAt, ID: m.ID} },
		plainly(func(m *messages.Message) messageView { return a.viewMessage(ctx, m, in.Box) }))
	return out, err
}

// OneMessage is the path of a message.
type OneMessage struct {
	ID string `path:"id" maxLength:"36"`
}

func (in *OneMessage) id() (uuid.UUID, error) { return uuidOf("message", in.ID) }

type messageHistoryOutput struct {
	Body struct {
		Items []jobStepView `json:"items"`
		Late  []lateView    `json:"late" doc:"what was said after its end, or by one that held it no more"`
	}
}

type lateView struct {
	At    time.Time       `json:"at"`
	Event string          `json:"event"`
	By    string          `json:"by"`
	Fence int64           `json:"fence" doc:"under which it was said; 0: under none"`
	Said  json.RawMessage `json:"said"`
}

func (a *API) getMessageHistory(ctx context.Context, in *OneMessage) (*messageHistoryOutput, error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	steps, late, err := a.Store.Messages.History(ctx, contextID(ctx), id)
	if err != nil {
		return nil, err
	}
	out := &messageHistoryOutput{}
	out.Body.Items, out.Body.Late = []jobStepView{}, []lateView{}
	for _, s := range steps {
		out.Body.Items = append(out.Body.Items, jobStepView{s.At.UTC(), s.Event, s.Was, s.Status, s.By, s.Text})
	}
	for _, l := range late {
		out.Body.Late = append(out.Body.Late, lateView{l.At.UTC(), l.Event, l.By, l.Fence, l.Body})
	}
	return out, nil
}

type messageLogsInput struct {
	OneMessage
	Limit int `query:"limit" minimum:"1" maximum:"10000" default:"1000" doc:"The last so many lines."`
}

type messageLogsOutput struct {
	Body struct {
		Items []messageLogView `json:"items"`
	}
}

type messageLogView struct {
	At     time.Time `json:"at"`
	Job    string    `json:"job" doc:"its ref, or its id; empty of what a peer has told"`
	Stream string    `json:"stream"`
	Text   string    `json:"text"`
}

func (a *API) getMessageLogs(ctx context.Context, in *messageLogsInput) (*messageLogsOutput, error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	or(&in.Limit, 1000)
	lines, err := a.Store.Messages.Logs(ctx, contextID(ctx), id, in.Limit)
	if err != nil {
		return nil, err
	}
	out := &messageLogsOutput{}
	out.Body.Items = []messageLogView{}
	for _, l := range lines {
		out.Body.Items = append(out.Body.Items, messageLogView{l.At.UTC(), l.Job, l.Stream, l.Text})
	}
	return out, nil
}

// whyMessage says what a message waits for.
func (a *API) whyMessage(ctx context.Context, in *OneMessage) (*whyOutput, error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	w, err := a.Store.Messages.WhyMessage(ctx, contextID(ctx), id)
	if err != nil {
		return nil, err
	}
	return &whyOutput{viewWhy(w)}, nil
}
