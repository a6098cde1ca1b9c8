package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"reflect"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg/messages"
)

type postMessageInput struct {
	Key  string `header:"Idempotency-Key" doc:"The same key and body again: the same message."`
	Body MessageInput
}

// postMessage stores a message in msg_out: 201; 200 for a key or a ref that is known with the same content, 409 with
// another; 403 where the caller has no role in the context that it is for, and where there is none.
func (a *API) postMessage(ctx context.Context, in *postMessageInput) (*messageOutput, error) {
	key, err := keyOf(in.Key)
	if err != nil {
		return nil, err
	}
	p := messages.Posted{Key: key}
	if err := a.opened(ctx, &in.Body, &p); err != nil {
		return nil, err
	}
	if err := in.Body.message(&p); err != nil {
		return nil, err
	}
	if err := a.maySend(ctx, &p); err != nil {
		return nil, err
	}
	m, err := a.Store.Messages.Post(ctx, by(ctx, ""), p)
	if err != nil {
		return nil, err
	}
	out := &messageOutput{Status: http.StatusCreated, Location: "/messages/" + m.ID.String(), ETag: etag(m.Tag())}
	if m.Replay {
		out.Status, out.Replay = http.StatusOK, "true"
	}
	out.Body, err = a.wholeMessage(ctx, m)
	return out, err
}

// opened reads the envelope of a message, if it has one. What the request leaves out is taken from it, and what the
// request says must be the same.
func (a *API) opened(ctx context.Context, in *MessageInput, p *messages.Posted) error {
	if len(in.Envelope) == 0 {
		if in.To.Peer != "" {
			return fault.New(fault.Invalid, "signature_required", "envelope is missing: what goes to another "+
				"installation is signed with a key of the actor that sends it").About("/envelope")
		}
		return nil
	}
	store := a.Store.Messages
	now, err := store.Now(ctx)
	if err != nil {
		return err
	}
	s, public, err := message.Open(in.Envelope)
	if err != nil {
		return err
	}
	var us message.Audience
	if in.To.Peer == "" {
		us, err = store.Here(ctx, s.Audience.Context)
	} else {
		us, err = store.There(ctx, contextID(ctx), string(in.To.Peer), s)
	}
	if err != nil {
		return err
	}
	s, public, actor, err := store.Verify(ctx, in.Envelope, us, now, now.Add(-message.MaxAge))
	if err != nil {
		return err
	}
	if me := scopeOf(ctx).Actor; actor != me {
		return message.Unsigned("its key is of %q, and the request comes from %q", fault.Clip(actor), fault.Clip(me))
	}
	p.Envelope, p.CallerKey = bytes.Clone(in.Envelope), public
	return in.agree(s)
}

// agree fills in what the request leaves out, and refuses what it says otherwise than what was signed. A format that
// was not signed is the default one.
func (in *MessageInput) agree(s *message.Signed) error {
	var jobs []JobInput
	if len(s.Jobs) > 0 {
		if _, err := flow.SpecsIn("/envelope/payload/job", s.Jobs); err != nil { // as the target reads them
			return err
		}
		if err := json.Unmarshal(s.Jobs, &jobs); err != nil {
			return fault.At("/envelope/payload", "job: want a list of jobs, each as POST /jobs takes it")
		}
	}
	for _, f := range []struct {
		at           string
		said, signed any
	}{
		{"/ref", &in.Ref, s.Ref},
		{"/to/context", &in.To.Context, name(s.Audience.Context)},
		{"/to/actor", &in.To.Actor, s.Actor},
		{"/to/topic", &in.To.Topic, name(s.Topic)},
		{"/message_type", &in.Type, s.Type},
		{"/message_format_type", &in.Format, s.Spec(0).Format},
		{"/message", &in.Body, s.Body},
		{"/timeout", &in.Timeout, s.Timeout},
		{"/timeout_ack", &in.TimeoutAck, s.Ack},
		{"/timeout_result", &in.TimeoutResult, s.Result},
		{"/job", &in.Jobs, jobs},
		{"/reply_to", &in.ReplyTo, s.ReplyTo},
	} {
		said := reflect.ValueOf(f.said).Elem()
		if !said.IsZero() && !reflect.DeepEqual(said.Interface(), f.signed) {
			return fault.At(f.at, "%s is not what the envelope says: leave it out, or say the same", f.at[1:])
		}
		if v := reflect.ValueOf(f.signed); v.IsValid() {
			said.Set(v)
		}
	}
	return nil
}

// message checks what no schema can, and makes the message.
func (in *MessageInput) message(p *messages.Posted) error {
	or(&in.Format, message.DefaultFormat)
	p.Spec = message.Spec{
		Ref: in.Ref,
		To: message.To{Peer: string(in.To.Peer), Context: string(in.To.Context), Actor: in.To.Actor,
			Topic: string(in.To.Topic)},
		Type:   in.Type,
		Format: in.Format,
		Body:   in.Body,
		Jobs:   len(in.Jobs),
		Timeouts: message.Timeouts{Deliver: message.Seconds(in.Timeout), Ack: message.Seconds(in.TimeoutAck),
			Result: message.Seconds(in.TimeoutResult)},
		ReplyTo: in.ReplyTo,
	}
	if in.Type == "" {
		return fault.At("/message_type", "message_type is missing: want job, chat or mail")
	}
	if err := p.Spec.Validate(); err != nil {
		return err
	}
	if in.ReplyTo != "" {
		id, err := uuidOf("message", in.ReplyTo)
		if err != nil {
			return fault.At("/reply_to", "reply_to %q: want the id of a message", fault.Clip(in.ReplyTo))
		}
		p.ReplyTo = &id
	}
	if len(in.Jobs) == 0 {
		return nil
	}
	raw, err := json.Marshal(in.Jobs)
	if err != nil {
		return err
	}
	p.Jobs = raw
	_, err = flow.SpecsIn("/job", raw)
	return err
}

// maySend finds the context here that a message is for, and refuses a caller who has no role there that lets it send
// one. Whether there is such a context, it does not say.
func (a *API) maySend(ctx context.Context, p *messages.Posted) error {
	if p.To.Peer != "" {
		return nil // the installation there looks
	}
	s := scopeOf(ctx)
	to := a.Store.Context(p.To.Context)
	needs := map[messages.Role]level{messages.Reader: readers, messages.Executor: executors, messages.Admin: admins}
	if least := needs[messages.Needs(p.Type)]; to == nil || s.who.in(to, a.system()) < least {
		return fault.New(fault.Forbidden, "forbidden", "to.context %q: to send it a %s you need the role %s there, "+
			"or a higher one", fault.Clip(p.To.Context), p.Type, least).About("/to/context")
	}
	p.Target = to.ID
	if p.Type != message.Job {
		return nil
	}
	specs, err := flow.SpecsIn("/job", p.Jobs)
	if err != nil {
		return err
	}
	return a.Store.Flows.CheckMessage(ctx, to.ID, specs)
}
