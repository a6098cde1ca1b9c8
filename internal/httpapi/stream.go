package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/deliveries"
)

const (
	// streamPage is how many events are read at a time for one stream.
	streamPage = 100
	// streamComment is how often a silent stream shows that it lives.
	streamComment = 15 * time.Second
	// streamWrite is how long a client may take to read what is written.
	streamWrite = 30 * time.Second
	// comeBack is how long a client waits, at least, before it comes back to a stream whose process stops.
	comeBack = time.Second
)

type streamInput struct {
	Name        name   `path:"name"`
	LastEventID string `header:"Last-Event-ID" maxLength:"64" doc:"Go on after this one; without it the stream begins now."`
}

// streamSubscription is what a subscription gets as server-sent events.
func (a *API) streamSubscription(ctx context.Context, in *streamInput) (*huma.StreamResponse, error) {
	s, err := a.Store.Deliveries.Subscription(ctx, contextID(ctx), string(in.Name))
	if err != nil {
		return nil, err
	}
	return a.stream(ctx, s, in.LastEventID, func(*deliveries.FeedEvent) bool { return true })
}

type streamTransactionsInput struct {
	Queue       []string `query:"queue,explode" maxItems:"100"`
	QueuePrefix []string `query:"queue_prefix,explode" maxItems:"100"`
	Type        []string `query:"type,explode" maxItems:"100"`
	State       []string `query:"state,explode" maxItems:"8" doc:"that the event leads to"`
	ID          []string `query:"id,explode" maxItems:"1000"`
	LastEventID string   `header:"Last-Event-ID" maxLength:"64" doc:"Go on after this one; without it the stream begins now."`
}

// streamTransactions is every acceptance and end in the context as server-sent events. The first stream
// of a context begins once every process has heard of it, which takes two seconds.
func (a *API) streamTransactions(ctx context.Context, in *streamTransactionsInput) (*huma.StreamResponse, error) {
	f, err := (&subscriptionFilter{Queue: names(in.Queue), QueuePrefix: names(in.QueuePrefix), Type: names(in.Type), State: in.State}).filter("")
	if err != nil {
		return nil, err
	}
	for i, id := range in.ID {
		if _, err := outbox.ParseID(id); err != nil {
			return nil, fault.At("id/"+itoa(i), "id: %s", err)
		}
	}
	s, err := a.Store.Deliveries.ContextStream(ctx, contextID(ctx))
	if err != nil {
		return nil, err
	}
	if now, err := a.now(ctx); err != nil {
		return nil, err
	} else if wait := min(s.Since.Sub(now), 5*time.Second); wait > 0 {
		scopeOf(ctx).timed.wait(wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return a.stream(ctx, s, in.LastEventID, func(e *deliveries.FeedEvent) bool {
		return f.Takes(e.Queue, e.Type, e.Event) && (len(in.ID) == 0 || slices.Contains(in.ID, e.ID.String()))
	})
}

// stream answers with events from a cursor on, in order, until the client leaves or this process stops, which says when
// to come back.
func (a *API) stream(ctx context.Context, s *deliveries.Subscription, last string, takes func(*deliveries.FeedEvent) bool) (*huma.StreamResponse, error) {
	at := deliveries.Cursor{Subscription: s.ID, Position: s.Newest}
	var first []*deliveries.FeedEvent
	var err error
	if last != "" {
		if at, err = deliveries.ParseCursor(last, s.ID); err != nil {
			return nil, err
		}
		if first, _, err = a.Store.Deliveries.Feed(ctx, s.ID, s.Include, at.Position, streamPage); err != nil {
			return nil, err
		}
	}
	back, ok := a.news.take()
	if !ok && a.leaving.Load() { // it gets what there is, and is told to come back
		back, ok = func() {}, true
	}
	if !ok {
		return nil, fault.New(fault.Retry, "too_many_streams", "this process has as many streams open as it may").After(2 * time.Second)
	}
	return &huma.StreamResponse{Body: func(c huma.Context) {
		defer back()
		_, w := humachi.Unwrap(c)
		out := &sse{w: w, control: http.NewResponseController(w)}
		h := w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Accel-Buffering", "no")
		w.WriteHeader(http.StatusOK)
		a.follow(c.Context(), s, at, first, takes, out)
	}}, nil
}

// follow writes events until there is a reason not to; that its credential, or its role, holds no more is one. A client
// that comes back with the last id misses nothing.
func (a *API) follow(ctx context.Context, s *deliveries.Subscription, at deliveries.Cursor, list []*deliveries.FeedEvent, takes func(*deliveries.FeedEvent) bool, out *sse) {
	if out.comment("begins after "+at.String()) != nil {
		return
	}
	said, used := time.Now(), time.Now()
	for {
		if len(list) > 0 && a.stillMay(ctx) != nil {
			return
		}
		for _, e := range list {
			at.Position = e.Position
			if takes(e) {
				if out.event(at.String(), e) != nil {
					return
				}
				said = time.Now()
			}
		}
		if len(list) > 0 && out.flush() != nil {
			return
		}
		if len(list) < streamPage {
			open, err := a.rest(ctx, s.ID, at.Position, said.Add(streamComment))
			if !open && ctx.Err() == nil {
				_ = out.goodbye(at.String())
			}
			if !open || err != nil {
				return
			}
			if time.Since(said) >= streamComment {
				if out.comment("") != nil {
					return
				}
				said = time.Now()
			}
		}
		if s.Kind == "stream" && time.Since(used) > time.Minute {
			if a.Store.Deliveries.UseStream(ctx, s.ID) != nil {
				return
			}
			used = time.Now()
		}
		var err error
		if list, _, err = a.Store.Deliveries.Feed(ctx, s.ID, s.Include, at.Position, streamPage); err != nil {
			return // the client comes back, and is told why it cannot go on
		}
	}
}

// rest waits for events as news.after does, until a time, and ends soon after the credential of the stream, with the
// error of stillMay. A look-up that fails, as while the database is away, ends no stream that has nothing to write.
func (a *API) rest(ctx context.Context, sub int32, at int64, until time.Time) (bool, error) {
	for {
		there, open := a.news.after(ctx, sub, at, min(time.Until(until), remembered))
		if !open || there || !time.Now().Before(until) {
			return open, nil
		}
		if err := a.stillMay(ctx); err != nil && fault.KindOf(err) != fault.Retry {
			return true, err
		}
	}
}

// sse writes server-sent events.
type sse struct {
	w       http.ResponseWriter
	control *http.ResponseController
	buffer  bytes.Buffer
}

func (s *sse) event(id string, e *deliveries.FeedEvent) error {
	name := string(e.Event.State())
	if name == "" {
		name = e.Event.Name()
	}
	_ = s.control.SetWriteDeadline(time.Now().Add(streamWrite))
	s.buffer.Reset()
	fmt.Fprintf(&s.buffer, "id: %s\nevent: %s\ndata: %s\n\n", id, name, e.Body)
	_, err := s.w.Write(s.buffer.Bytes())
	return err
}

func (s *sse) comment(text string) error {
	_ = s.control.SetWriteDeadline(time.Now().Add(streamWrite))
	if _, err := fmt.Fprintf(s.w, ": %s\n\n", text); err != nil {
		return err
	}
	return s.flush()
}

// goodbye ends a stream whose process is about to stop. It has no data, so no client takes it for an event; retry says
// when to come back, to each client another time, and id after which event, also to one that has not seen any.
func (s *sse) goodbye(id string) error {
	_ = s.control.SetWriteDeadline(time.Now().Add(streamWrite))
	back := comeBack + rand.N(comeBack)
	if _, err := fmt.Fprintf(s.w, "retry: %d\nid: %s\n\n", back.Milliseconds(), id); err != nil {
		return err
	}
	return s.flush()
}

func (s *sse) flush() error { return s.control.Flush() }
