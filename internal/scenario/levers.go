package scenario

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// refusal is how a story shows that something was refused.
func refusal(err error) string {
	f := fault.As(err)
	return fmt.Sprintf("refused (%s): %s", f.Code, f.Detail)
}

// did shows what a lever did, where that is not simply what it was pulled for.
func did(r pg.LeverResult, err error, say say) error {
	switch {
	case err != nil:
		return err
	case r.Pending && r.Changed:
		say("pending: %s", r.At)
	case r.Pending:
		say("pending still: %s", r.At)
	case !r.Changed:
		say("it is so already")
	}
	return nil
}

// on makes a lever on one transaction: NAME UID [reason=]
func on(pull func(s *story, by db.By, id outbox.ID) (pg.LeverResult, error)) func(*story, *command, say) error {
	return func(s *story, c *command, say say) error {
		id, err := s.id(c.word())
		if err != nil {
			return err
		}
		by := s.by
		by.Reason = c.option("reason", "")
		r, err := pull(s, by, id)
		return did(r, err, say)
	}
}

// paused makes pause and resume: NAME queue|sender|pool|dispatcher|processor NAME, and resume transaction UID
func paused(on bool) func(*story, *command, say) error {
	return func(s *story, c *command, say say) error {
		var r pg.LeverResult
		var err error
		switch what := c.word(); what {
		case "transaction":
			id, idErr := s.id(c.word())
			if idErr != nil || on {
				return fmt.Errorf("a transaction is suspended: %w", idErr)
			}
			r, err = s.store.Resume(s.ctx, s.by, id)
		case "queue":
			r, err = s.store.PauseQueue(s.ctx, s.by, c.word(), on)
		case "sender":
			r, err = s.store.PauseSender(s.ctx, s.by, c.word(), on)
		case "pool":
			r, err = s.store.PausePool(s.ctx, s.by, c.word(), on)
		case "processor":
			r, err = s.store.Batches.PauseProcessor(s.ctx, s.by, c.word(), on)
		case "source":
			r, err = s.store.Events.PauseSource(s.ctx, s.by, c.word(), on)
		case "dispatcher":
			r, err = s.store.PauseDispatcher(s.ctx, s.by, c.word(), on)
		default:
			return fmt.Errorf("a %s cannot be paused", what)
		}
		return did(r, err, say)
	}
}

// remove: remove sender|pool|dispatcher NAME [force=true]
func remove(s *story, c *command, _ say) error {
	switch what := c.word(); what {
	case "sender":
		return s.store.RemoveSender(s.ctx, s.by, c.word())
	case "pool":
		return s.store.RemovePool(s.ctx, s.by, c.word())
	case "dispatcher":
		return s.store.RemoveDispatcher(s.ctx, s.by, c.word(), c.option("force", "") == "true")
	default:
		return fmt.Errorf("a %s cannot be removed", what)
	}
}

func drain(s *story, c *command, say say) error {
	r, err := s.store.DrainQueue(s.ctx, s.by, c.word())
	return did(r, err, say)
}

// block: block ACCOUNT [for=30s]
func block(s *story, c *command, say say) error {
	until := pg.Forever
	if text := c.option("for", ""); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			return err
		}
		until = s.now.Add(d)
	}
	r, err := s.store.BlockSender(s.ctx, s.by, c.word(), until)
	return did(r, err, say)
}

func unblock(s *story, c *command, say say) error {
	r, err := s.store.UnblockSender(s.ctx, s.by, c.word())
	return did(r, err, say)
}

// redrive: redrive UID as=UID [queue=] [data=]
func redrive(s *story, c *command, say say) error {
	id, err := s.id(c.word())
	if err != nil {
		return err
	}
	change := pg.Redrive{UID: c.option("as", ""), Data: json.RawMessage(c.option("data", "")), Hash: []byte("redriven")}
	if q, ok := c.options["queue"]; ok {
		delete(c.options, "queue")
		change.Queue = &q
	}
	a, err := s.store.Redrive(s.ctx, s.by, id, change)
	switch {
	case err != nil:
		return err
	case a.Replay:
		say("%s is known", change.UID)
	default:
		s.know(change.UID, a.ID)
	}
	return nil
}

// move: move UID [before=UID] [after=UID] [reason=]; without either: first of what waits.
func move(s *story, c *command, say say) error {
	id, err := s.id(c.word())
	if err != nil {
		return err
	}
	to := pg.Place{}
	for option, at := range map[string]**outbox.ID{"before": &to.Before, "after": &to.After} {
		if uid := c.option(option, ""); uid != "" {
			other, err := s.id(uid)
			if err != nil {
				return err
			}
			*at = &other
		}
	}
	by := s.by
	by.Reason = c.option("reason", "")
	r, err := s.store.Move(s.ctx, by, id, to)
	return did(r, err, say)
}
