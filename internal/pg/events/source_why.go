package events

import (
	"context"
	"fmt"
	"time"

	"github.com/postern-dev/postern/internal/pg/reads"
)

// WhySource says why a source brings no events, or that it does. One that gives no page is asked again for as long as
// it takes; its blocker quotes the last answer.
func (s *Store) WhySource(ctx context.Context, contextID int32, name string) (*reads.Why, error) {
	v, err := s.Source(ctx, contextID, name)
	if err != nil {
		return nil, err
	}
	shut, err := s.Reads.Shut(ctx, contextID, "", v.answered())
	if err != nil {
		return nil, err
	}
	w := &reads.Why{State: v.State, Blockers: []reads.Blocker{}}
	object := "/sources/" + v.Name
	block := func(kind, detail string, levers ...reads.Lever) *reads.Blocker {
		w.Blockers = append(w.Blockers, reads.Blocker{
			Kind:   kind,
			Object: object,
			Since:  v.answered(),
			Detail: detail,
			Levers: levers,
		})
		return &w.Blockers[len(w.Blockers)-1]
	}
	resume := reads.NewLever("POST", "admin", "sources", v.Name, "resume")
	drained := s.Accepts(contextID)
	switch {
	case v.State == "paused":
		w.Summary = "it is not read: somebody paused it"
		block("source_paused", "it goes on where it was paused", resume)
	case v.State == "failed":
		w.Summary = "it has stopped: " + v.LastError
		block("source_stopped", v.LastError, resume)
	case len(shut) > 0 && v.Kind != "push":
		w.Summary, w.Blockers = "it is not read: "+shut[0].Detail, shut
	case drained != nil:
		w.Summary = "it brings nothing: " + drained.Error()
		b := block("context_draining", drained.Error())
		if c := s.ContextByID(contextID); c != nil {
			b.Object = "/contexts/" + c.Name
			b.Levers = []reads.Lever{reads.NewLever("POST", "admin", "contexts", c.Name, "resume")}
		}
	case v.Kind == "push":
		w.Moving, w.Summary = true, "it takes what is pushed to it, and is not asked"
	case v.Failures > 0:
		w.Moving, w.Summary = true, "it gives no page, and is asked again for as long as it takes: "+v.LastError
		detail := fmt.Sprintf("%s (asked %d times)", v.LastError, v.Failures)
		b := block("no_page", detail, reads.NewLever("PATCH", "admin", "sources", v.Name).With("url", v.URL))
		b.Next = &reads.NextStep{At: v.NextAt, What: "it is asked again"}
	case v.Lag > 0:
		w.Moving, w.Summary = true, "it is being read: it was not at its end for "+v.Lag.Round(time.Second).String()
	default:
		w.Moving, w.Summary = true, "it is read to its end"
	}
	return w, nil
}

// answered is when a source answered last, or when it was made.
func (v *Source) answered() time.Time {
	if v.PolledAt != nil {
		return *v.PolledAt
	}
	return v.CreatedAt
}
