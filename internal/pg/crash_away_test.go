package pg_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/flows"
	"github.com/postern-dev/postern/internal/pg/messages"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// flowsOf lists the jobs of a context.
var flowsOf = flows.JobFilter{Limit: 10}

// signedJob is what an actor signs of a job for the peer far, each by a key of its own.
func (l *letters) signedJob(n byte) []byte {
	l.T.Helper()
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
	envelope, err := message.Write(message.Signed{CreatedAt: l.Now, Type: message.Job,
		Audience: message.Audience{Installation: "i", Context: "c", Peer: "near"},
		Jobs:     json.RawMessage(`[{"script": "1", "script_type": "python"}]`)}, key)
	l.Must(err)
	return envelope
}

// offered is an error where an answer is not that a try was offered.
func offered(a outbox.Answer) error {
	if a.Class == "" {
		return nil
	}
	return fmt.Errorf("the offer came to nothing: %s: %s", a.Code, a.Message)
}

// farJob posts a flow with one job for far, and returns what its node has in hand of it.
func (l *letters) farJob(n pg.Node, no byte) (*flows.Flow, *pg.Lease) {
	l.T.Helper()
	ref := int64(1)
	f, err := l.S.Flows.PostFlow(l.Ctx, l.By, flows.FlowSpec{Start: true, Jobs: []flow.Spec{{Ref: &ref, Script: "1",
		ScriptType: "python", Timeout: time.Minute, NeedTimeout: time.Hour, Peer: "far",
		Envelope: l.signedJob(no)}}})
	l.Must(err)
	list := l.Claim(n, pgworld.Everything())
	i := slices.IndexFunc(list, func(x *pg.Lease) bool { return x.Task.Type == flow.Type("python") })
	return f, list[i]
}

// farJobRoom is a stage with jobs of flows for the peer far: one that is to be offered to it, one whose message is to
// be routed, and one that is there.
func farJobRoom(w *world) []roomOp {
	l := newLetters(w)
	n := w.Node("n")
	offer := func(s *stores.Store, lease *pg.Lease) error {
		return offered(s.Flows.Offer(w.Ctx, lease, lease.Task.Token(lease.Attempt)))
	}
	sent := func(no byte) *flows.Flow {
		f, lease := l.farJob(n, no)
		a := w.S.Flows.Offer(w.Ctx, lease, lease.Task.Token(lease.Attempt))
		w.Must(offered(a))
		w.Settle(w.Answer(lease, a))
		return f
	}
	f := sent(1)
	_, err := w.S.Messages.Route(w.Ctx)
	w.Must(err)
	jobs, err := w.S.Flows.JobsOf(w.Ctx, w.ID, f.ID)
	w.Must(err)
	there := *jobs[0].Carried
	w.Must(w.S.Messages.AtPeer(w.Ctx, there, nil))
	w.Must(w.S.Messages.Hear(w.Ctx, l.far, messages.Word{ID: there, Steps: 2, Status: "acknowledged"}))
	sent(2)
	_, lease := l.farJob(n, 3)
	w.Later(time.Second)
	ops := []roomOp{
		{name: "offer to a peer", keeps: `SELECT try_id::text FROM postern.job_try ORDER BY 1`,
			run: func(s *stores.Store) error { return offer(s, lease) }},
		{name: "route a job", reacts: true, then: l.carry, run: func(s *stores.Store) error {
			_, err := s.Messages.Route(w.Ctx)
			return err
		}},
		{name: "cancel a flow that is away", reacts: true, then: func(s *stores.Store) error {
			return s.Flows.TakeBack(w.Ctx)
		}, run: func(s *stores.Store) error {
			_, err := s.Flows.CancelFlow(w.Ctx, w.By, f.ID)
			return err
		}},
	}
	return append(ops, l.awayOps(there)...)
}

// awayOps are what becomes of a job at a peer.
func (l *letters) awayOps(there uuid.UUID) []roomOp {
	hear := func(w messages.Word) func(s *stores.Store) error {
		w.ID = there
		return func(s *stores.Store) error { return s.Messages.Hear(l.Ctx, l.far, w) }
	}
	result := func(end string) *messages.Told {
		return &messages.Told{ID: uuid.New(), Format: "text", Result: json.RawMessage(`{"jobs": [` + end + `]}`)}
	}
	return []roomOp{
		{name: "hear that a job has started",
			run: hear(messages.Word{Steps: 3, Status: "acknowledged", Started: true})},
		{name: "hear what a job writes", run: hear(messages.Word{Steps: 3, Status: "acknowledged", Started: true,
			Lines: []messages.Piece{{N: 1, Stream: "stdout", Text: "a"}}})},
		{name: "hear the result of a job", keeps: messageIDs, run: hear(messages.Word{Steps: 5, Status: "processed",
			Started: true, Result: result(`{"status": "finished", "result": {"k": "v"}}`)})},
		{name: "hear that a job has failed", keeps: messageIDs, run: hear(messages.Word{Steps: 5, Status: "processed",
			Started: true, Result: result(`{"status": "error", "error": {"code": "exit", "message": "it broke"}}`)})},
		{name: "lose a job", reacts: true, then: l.carry, run: func(s *stores.Store) error {
			return s.Messages.Lost(l.Ctx, l.far, there)
		}},
		{name: "recall a job", run: func(s *stores.Store) error {
			return s.Flows.Away.Recall(l.Ctx, []uuid.UUID{there})
		}},
		{name: "end a job by its deadline", run: func(s *stores.Store) error {
			l.Later(48 * time.Hour)
			_, err := s.Messages.Expire(l.Ctx)
			return err
		}},
	}
}
