package messages

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg/reads"
)

// WhyMessage explains a message: the next step that it waits for, since when, and which deadline runs; NotFound. It
// locks nothing: its answer was true a moment ago.
func (s *Store) WhyMessage(ctx context.Context, contextID int32, id uuid.UUID) (*reads.Why, error) {
	m, err := s.Get(ctx, contextID, id)
	if err != nil {
		return nil, err
	}
	w := &reads.Why{State: string(m.Status), Blockers: []reads.Blocker{}}
	b := reads.Blocker{Object: path(id)}
	if (m.Context == contextID || m.Context == 0) && !m.Status.Ended() {
		b.Levers = []reads.Lever{{Method: "POST", Path: path(id) + "/cancel", Role: "admin"}}
	}
	if m.Due != nil {
		b.Next = &reads.NextStep{At: *m.Due, What: "it ends in error, since " + deadlineOf(m) + " is over"}
	}
	switch {
	case m.Status.Ended():
		b.Kind, b.Since, b.Detail = "terminal", *m.EndedAt, "it has ended"
		if m.Code != "" {
			b.Detail = fmt.Sprintf("it has ended (%s): %s", m.Code, m.Error)
		}
	case m.DeliveredAt == nil:
		if err := s.undelivered(ctx, m, w, &b); err != nil {
			return nil, err
		}
	case m.Status == message.Dispatched:
		b.Kind, b.Since = "not_acknowledged", *m.DeliveredAt
		b.Detail = fmt.Sprintf("it stands in msg_in of context %s, and is not acknowledged",
			fault.Clip(m.ToContext))
		if m.LeaseUntil != nil {
			b.Detail += fmt.Sprintf("; %s was handed it, until %s", m.Receiver, m.LeaseUntil.UTC().Format(time.RFC3339))
		}
	default:
		b.Kind, b.Since = "awaits_result", *m.AckedAt
		b.Detail = fmt.Sprintf("%s has acknowledged it, and has not answered it", m.Receiver)
		if m.Peer != "" && m.Context != 0 {
			b.Detail = fmt.Sprintf("peer %s has acknowledged it, and has not answered it", m.Peer)
		}
		if m.JobsOpen != nil {
			b.Detail = fmt.Sprintf("%d of its jobs have not ended", *m.JobsOpen)
		}
	}
	w.Blockers = append(w.Blockers, b)
	if m.JobsOpen != nil {
		if err := s.whyJobs(ctx, m, w); err != nil {
			return nil, err
		}
	}
	w.Summary = fmt.Sprintf("message %s is %s: %s", id, w.State, w.Blockers[len(w.Blockers)-1].Detail)
	return w, nil
}

// undelivered says why a message has not reached msg_in.
func (s *Store) undelivered(ctx context.Context, m *Message, w *reads.Why, b *reads.Blocker) error {
	b.Kind, b.Since = "undelivered", m.CreatedAt
	switch {
	case s.Quarantined(m.Context, ""):
		b.Detail = "its context is in quarantine: nothing goes out of it"
	case m.RoutedAt == nil:
		w.Moving = true
		b.Detail = "it waits for the look at the rights of its sender, which comes within a second while a node works"
	default:
		return s.atDoor(ctx, m, b)
	}
	return nil
}

// atDoor says why a message has not reached its peer.
func (s *Store) atDoor(ctx context.Context, m *Message, b *reads.Blocker) error {
	b.Since = *m.RoutedAt
	b.Detail = fmt.Sprintf("it is on its way to peer %s, which has not taken it", m.Peer)
	p, err := s.installations.Peer(ctx, m.Context, m.Peer)
	switch {
	case fault.KindOf(err) == fault.NotFound:
		b.Kind, b.Object = "peer_refused", "/peers/"+m.Peer
		b.Detail = fmt.Sprintf("peer %s was removed: PUT /peers/%s has it delivered", m.Peer, m.Peer)
	case err != nil:
		return err
	case p.RefusedAt != nil:
		b.Kind, b.Object, b.Since = "peer_refused", "/peers/"+m.Peer, *p.RefusedAt
		b.Detail = fmt.Sprintf("peer %s takes no calls (%s): %s", m.Peer, p.RefusedCode, p.Refused)
		b.Levers = append(b.Levers, reads.Lever{Method: "POST", Path: "/peers/" + m.Peer + "/check", Role: "admin"})
	}
	return nil
}

func deadlineOf(m *Message) string {
	switch {
	case m.Status == message.Acknowledged:
		return message.CodeTimeoutResult
	case m.DeliveredAt != nil:
		return message.CodeTimeoutAck
	}
	return message.CodeTimeout
}

// whyJobs adds what the first job waits for that has not ended.
func (s *Store) whyJobs(ctx context.Context, m *Message, w *reads.Why) error {
	jobs, err := s.flows.JobsOfMessage(ctx, m.ID)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		if j.Status.Ended() {
			continue
		}
		of, err := s.flows.WhyJob(ctx, m.Target, j.ID)
		if err != nil {
			return err
		}
		w.Moving = w.Moving || of.Moving
		w.Blockers = append(w.Blockers, of.Blockers...)
		return nil
	}
	w.Moving = true
	return nil
}
