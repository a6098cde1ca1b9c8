package pg_test

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/batches"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/processor"
)

// resultRoom is a stage with an event whose tool has answered, which it does not know, one whose result is to be sent,
// and one that is Dead.
func resultRoom(w *world) []roomOp {
	n := w.Node("n")
	w.Dispatcher(leader.TypeResult, nil)
	source := leader.Source{Name: "app", Kind: "push", Map: leader.SourceMap{FQN: "/tool"}, Buffer: 2}.WithDefaults()
	_, err := w.S.Events.PutSource(w.Ctx, w.By, source, 0)
	w.Must(err)
	push := func(id string) uuid.UUID {
		out, err := w.S.Events.PushEvents(w.Ctx, w.By, "app", []leader.Item{{Identity: id,
			JSON: json.RawMessage(`{"tool":"xyz.labs.add@1"}`), FQN: "xyz.labs.add@1"}}, nil)
		w.Must(err)
		return out[0].ID
	}
	tell := func(s *stores.Store) error {
		list, _, err := s.Events.LostEvents(w.Ctx, uuid.UUID{})
		if err == nil {
			_, err = s.Events.AdvanceEvents(w.Ctx, "n", list)
		}
		return err
	}
	advance := func() { w.Must(tell(w.S)) }
	send := func(s *stores.Store) error {
		work, err := s.Events.LeaderWork(w.Ctx)
		if err == nil {
			_, err = s.Events.SendResults(w.Ctx, work, n)
		}
		return err
	}
	later := func(s *stores.Store) error {
		w.Later(time.Hour) // until then what was given back is left alone
		return send(s)
	}
	take := func() {
		work, err := w.S.Events.LeaderWork(w.Ctx)
		w.Must(err)
		_, err = w.S.Events.TakeEvents(w.Ctx, work, n)
		w.Must(err)
	}
	answered := func(a outbox.Answer) {
		for _, l := range w.Claim(n, pgworld.Everything()) {
			w.Settle(w.Answer(l, a))
		}
	}
	done := outbox.Answer{Result: outbox.Result{Done: json.RawMessage(`{"variant": "ok", "output": {"ok": {}}}`)}}
	dead := push("a")
	advance()
	take()
	answered(done)
	advance()
	w.Must(send(w.S))
	answered(outbox.Answer{Class: outbox.ClassRejected, Code: "500", Message: "no"})
	advance()
	push("b")
	take()
	answered(done)
	advance()
	push("c")
	take()
	answered(done)
	w.Later(time.Minute)
	return []roomOp{
		{name: "advance an event", run: tell},
		{name: "send results", reacts: true, then: later, run: send},
		{name: "redrive", anew: true, run: func(s *stores.Store) error {
			_, err := s.Events.RedriveEvent(w.Ctx, w.By, dead)
			return err
		}},
	}
}

// callbackRoom is a stage with a batch that waits for its callback.
func callbackRoom(w *world) []roomOp {
	w.By.Actor = "owner"
	_, err := w.S.Batches.PutProcessor(w.Ctx, w.By,
		batches.Processor{Name: "main", Owner: "owner", TickInterval: time.Second}, 0)
	w.Must(err)
	w.Dispatcher("ADD", nil)
	shape := processor.MessageDetails{Message: processor.MessageShape{Name: "add"}}
	function := processor.Function{Domain: "main", ContractAddress: "ADD", MessageDetails: shape}
	waits := function
	waits.Callback = &processor.Confirmation{ContractAddress: "oracle", CallbackMessage: json.RawMessage(`{"ok":true}`)}
	message := processor.Message{Msg: json.RawMessage(`{"add":{"i":1}}`)}
	v, err := w.S.Batches.Enqueue(w.Ctx, w.By, "main", batches.NewBatch{
		Actions: processor.Actions{NonAtomic: &processor.Subroutine{
			Functions: []processor.Function{waits, function}}},
		Messages: []processor.Message{message, message}})
	w.Must(err)
	n := w.Node("n")
	w.Later(2 * time.Second)
	_, err = w.S.Batches.Tick(w.Ctx, w.By, "main")
	w.Must(err)
	for _, l := range w.Claim(n, pgworld.Everything()) {
		w.Settle(w.Answer(l, pgworld.Done()))
	}
	w.Must(w.S.Batches.AdvanceProcessor(w.Ctx, w.ID, "main"))
	w.Later(2 * time.Second)
	confirm := func(payload string) func(s *stores.Store) error {
		oracle := w.By
		oracle.Actor = "oracle"
		return func(s *stores.Store) error {
			_, err := s.Batches.Confirm(w.Ctx, oracle, "main", v.ID, json.RawMessage(payload))
			return err
		}
	}
	return []roomOp{
		{name: "confirm", anew: true, run: confirm(`{"ok":true}`)},
		{name: "confirm wrongly", anew: true, run: confirm(`{"ok":false}`)},
		{name: "evict", anew: true, run: func(s *stores.Store) error {
			_, err := s.Batches.Evict(w.Ctx, w.By, "main", batches.Eviction{ID: v.ID})
			return err
		}},
	}
}

// sentRoom is a stage with a processor to which another installation, and an actor, may send batches.
func sentRoom(w *world) []roomOp {
	w.By.Actor = "owner"
	_, err := w.S.Batches.PutProcessor(w.Ctx, w.By,
		batches.Processor{Name: "main", Owner: "owner", TickInterval: time.Second}, 0)
	w.Must(err)
	w.Dispatcher("ADD", nil)
	w.Must(w.S.Batches.PutPeer(w.Ctx, w.By, "main", "site", []byte("a secret of the two of them")))
	shape := processor.MessageDetails{Message: processor.MessageShape{Name: "add"}}
	actions := func() processor.Actions {
		f := processor.Function{Domain: "main", ContractAddress: "ADD", MessageDetails: shape}
		return processor.Actions{NonAtomic: &processor.Subroutine{Functions: []processor.Function{f}}}
	}
	list := []processor.Message{{Msg: json.RawMessage(`{"add":{"i":1}}`)}}
	allowed := processor.DefaultAuthorization()
	allowed.Label, allowed.Mode = "pay", processor.Mode{Limits: map[string]int64{"ann": 2}}
	allowed.Actions = actions()
	_, err = w.S.Batches.PutAuthorization(w.Ctx, w.By, allowed, 0)
	w.Must(err)
	ann := w.By
	ann.Actor = "ann"
	ids := `SELECT batch_id::text FROM postern.batch ORDER BY 1`
	at := w.Now
	return []roomOp{
		{name: "receive a batch", keeps: ids, run: func(s *stores.Store) error {
			_, err := s.Batches.Receive(w.Ctx, w.By, "main", batches.Arrival{Peer: "site", Origin: "there", Posted: at,
				Envelope: processor.Envelope{ID: 7, CreatedAt: at, Actions: actions(), Messages: list}})
			return err
		}},
		{name: "send a batch", keeps: ids, run: func(s *stores.Store) error {
			_, err := s.Batches.Send(w.Ctx, ann, "pay", list, 0, db.Once{Key: "once", Hash: []byte("once")})
			return err
		}},
	}
}
