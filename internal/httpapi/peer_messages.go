package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/pg/messages"
)

// peerMessageRoutes are those by which a peer brings messages, and asks what has become of them.
func (a *API) peerMessageRoutes() {
	doorCalled(a, "messages", "deliver-message", "As a peer: bring a message, once however often", []int{202},
		a.takePeerMessage)
	doorCalled(a, "follow", "follow-messages", "As a peer: ask what has become of messages", nil, a.followed)
}

// takePeerMessage stores a message of a peer: 202 it is stored; 200 it was known; 409 another one was known by its
// name; 401 bad_actor_signature, 403 and 422: it never will be.
func (a *API) takePeerMessage(ctx context.Context, who *knownCaller) (int, any, error) {
	var in struct {
		Message  string          `json:"message"`
		Envelope json.RawMessage `json:"envelope"`
		Inputs   json.RawMessage `json:"inputs"`
		ReplyTo  *uuid.UUID      `json:"reply_to"`
	}
	if err := json.Unmarshal(who.call.RawBody, &in); err != nil {
		return 0, nil, fault.At("", "the call is not understood: %s", fault.Clip(err.Error()))
	}
	id, err := uuid.Parse(in.Message)
	if err != nil {
		return 0, nil, fault.At("/message", "message %q: want the id that it has where it comes from",
			fault.Clip(in.Message))
	}
	if len(in.Envelope) == 0 {
		return 0, nil, fault.At("/envelope", "envelope is missing: its actor signs what goes to another installation")
	}
	if err := checkInputs(in.Inputs); err != nil {
		return 0, nil, err
	}
	m, known, err := a.Store.Messages.Arrive(ctx, messages.Arrival{
		Context: a.Store.ContextByID(who.context), Peer: who.peer.Name, ID: id, Envelope: in.Envelope,
		Inputs: in.Inputs, ReplyTo: in.ReplyTo,
	})
	if err != nil {
		return 0, nil, err
	}
	status := http.StatusAccepted
	if known {
		status = http.StatusOK
	}
	return status, map[string]any{"message": m.ID, "done": map[string]any{"stored": true}}, nil
}

// checkInputs refuses what are no results of jobs, by their refs.
func checkInputs(raw json.RawMessage) error {
	var inputs map[string]map[string]string
	if len(raw) > 0 && (json.Unmarshal(raw, &inputs) != nil || len(raw) > 2*flow.MaxInputs) {
		return fault.At("/inputs", "inputs: want at most %d bytes of results of jobs, by their refs, each an object "+
			"of strings", 2*flow.MaxInputs)
	}
	return nil
}

// followWaitMost is how long a peer waits for news at most, and followLook how often is looked meanwhile.
const (
	followWaitMost = 30 * time.Second
	followLook     = 200 * time.Millisecond
)

// followed says what a peer does not know yet of messages that it has brought, and ends those that it is told to stop:
// of these it says what their receivers had answered before. It waits until there is something to say.
func (a *API) followed(ctx context.Context, who *knownCaller) (int, any, error) {
	var in struct {
		Open  []messages.Asked `json:"open"`
		Stop  []uuid.UUID      `json:"stop"`
		Abort []uuid.UUID      `json:"abort"`
		Wait  string           `json:"wait"`
		Life  int64            `json:"life"` // of the store of the peer
		Room  int              `json:"room"` // bytes of an answer; 0: as over HTTP
	}
	if err := json.Unmarshal(who.call.RawBody, &in); err != nil {
		return 0, nil, fault.At("", "the call is not understood: %s", fault.Clip(err.Error()))
	}
	if len(in.Open) > messages.MaxAsked || len(in.Stop) > messages.MaxAsked || len(in.Abort) > len(in.Stop) {
		return 0, nil, fault.At("/open", "open has %d items, and stop %d: want at most %d of each", len(in.Open),
			len(in.Stop), messages.MaxAsked)
	}
	length, err := time.ParseDuration(in.Wait)
	if err != nil || length < 0 || length > followWaitMost {
		return 0, nil, fault.At("/wait", "wait %q: want 0s to %s", fault.Clip(in.Wait), followWaitMost)
	}
	if err := a.Store.Messages.Stop(ctx, who.context, who.peer.Name, in.Stop, in.Abort); err != nil {
		return 0, nil, err
	}
	if err := a.Store.Installations.Lives(ctx, who.peer, in.Life); err != nil {
		return 0, nil, err
	}
	words, stopped, err := a.Store.Messages.WordsOfStopped(ctx, who.context, who.peer.Name, in.Stop, in.Room)
	if err != nil {
		return 0, nil, err
	}
	says := func(words []messages.Word, unknown []uuid.UUID) (int, any, error) {
		return http.StatusOK, map[string]any{"words": list(words), "unknown": list(unknown), "stopped": list(stopped),
			"life": who.peer.OwnLife}, nil
	}
	if len(words) > 0 { // the peer asks about its open ones again at once
		return says(words, nil)
	}
	words, unknown, err := a.awaitWords(ctx, who, in.Open, in.Room, length)
	if err != nil {
		return 0, nil, err
	}
	return says(words, unknown)
}

// awaitWords waits until there is something to say to a peer about messages that are open. It looks behind the wait
// whether the call would be believed now: the peer may have been removed meanwhile, or have another secret.
func (a *API) awaitWords(ctx context.Context, who *knownCaller, open []messages.Asked, room int,
	length time.Duration) ([]messages.Word, []uuid.UUID, error) {
	left, _, back := a.beginWait(ctx, length)
	defer back()
	for until, waited := time.Now().Add(left), false; ; waited = true {
		words, unknown, err := a.Store.Messages.Words(ctx, who.context, who.peer.Name, open, room)
		if err != nil {
			return nil, nil, err
		}
		if len(words)+len(unknown) > 0 || !time.Now().Before(until) {
			if waited {
				_, err = a.known(ctx, who.call, "follow")
			}
			return words, unknown, err
		}
		select {
		case <-a.news.end:
			until = time.Time{}
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-time.After(followLook):
		}
	}
}
