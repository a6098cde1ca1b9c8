package pg_test

import (
	"encoding/json"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/flows"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// flowRoom is a stage with a runner that holds two tries and was silent for long, a third that is offered, a flow whose
// first transaction has failed, one that has started and one that has not, and a job that waits for a name.
func flowRoom(w *world) []roomOp {
	n := w.Node("n")
	spec := func(ref int64) flow.Spec {
		return flow.Spec{Ref: &ref, Script: "1", ScriptType: "python", Timeout: time.Minute, Retries: 1,
			NeedTimeout: time.Hour}
	}
	post := func(s *stores.Store, v flow.Spec, key string) (*flows.Job, error) {
		return s.Flows.PostJob(w.Ctx, w.By, v, key)
	}
	posted := func(v flow.Spec) *flows.Job {
		j, err := post(w.S, v, "")
		w.Must(err)
		return j
	}
	offer := func() {
		for _, l := range w.Claim(n, pgworld.Everything()) {
			w.Settle(w.Answer(l, w.S.Flows.Offer(w.Ctx, l, l.Task.Token(l.Attempt))))
		}
	}
	register := func(s *stores.Store, name string) (epoch int64, err error) {
		epoch, _, err = s.Flows.Register(w.Ctx, w.By, name,
			flows.Registration{Instance: name, Able: []string{"python"}, Slots: 2})
		return epoch, err
	}
	epoch, err := register(w.S, "a")
	w.Must(err)
	for ref := range int64(3) {
		posted(spec(ref))
		offer()
		w.Later(time.Second)
	}
	c, err := w.S.Flows.Claim(w.Ctx, w.ID, "a", epoch, 2, nil)
	w.Must(err)
	held, other := c.Taken[0], c.Taken[1]
	second := spec(2)
	second.Dependends = []int64{1}
	of := func(key string, start bool) flows.FlowSpec {
		return flows.FlowSpec{Jobs: []flow.Spec{spec(1), second}, Start: start, Key: key}
	}
	made := func(key string, start bool) *flows.Flow {
		f, err := w.S.Flows.PostFlow(w.Ctx, w.By, of(key, start))
		w.Must(err)
		return f
	}
	made("fails", true)
	for _, l := range w.Claim(n, pgworld.Everything()) {
		w.Settle(w.Answer(l, outbox.Answer{Class: outbox.ClassRejected, Code: "no", Message: "no"}))
	}
	waits := spec(4)
	waits.Prerequisites = []string{"ok"}
	needs := posted(waits)
	begun, notBegun := made("begun", true), made("still", false)
	w.Later(time.Hour / 2)
	holds := []flows.Hold{{Try: held.ID, Fence: held.Fence}, {Try: other.ID, Fence: other.Fence}}
	repost := func(s *stores.Store) error {
		w.Later(time.Minute) // until then it may be under way
		_, err := s.Flows.Repost(w.Ctx)
		return err
	}
	takeBack := func(s *stores.Store) error { return s.Flows.TakeBack(w.Ctx) }
	end := func(said flows.Said) func(s *stores.Store) error {
		return func(s *stores.Store) error {
			_, err := s.Flows.End(w.Ctx, w.ID, held.ID, held.Fence, said)
			return err
		}
	}
	return []roomOp{
		{name: "post a job", then: repost, reacts: true, run: func(s *stores.Store) error {
			_, err := post(s, spec(9), "key")
			return err
		}},
		{name: "post a flow", then: repost, reacts: true, run: func(s *stores.Store) error {
			_, err := s.Flows.PostFlow(w.Ctx, w.By, of("another", true))
			return err
		}},
		{name: "start a flow", then: repost, reacts: true, run: func(s *stores.Store) error {
			_, err := s.Flows.Start(w.Ctx, w.By, notBegun.ID)
			return err
		}},
		{name: "register", anew: true, run: func(s *stores.Store) error {
			_, err := register(s, "a")
			return err
		}},
		{name: "claim", anew: true, run: func(s *stores.Store) error {
			_, err := s.Flows.Claim(w.Ctx, w.ID, "a", epoch, 1, holds[:1])
			return err
		}},
		{name: "renew", unseen: true, run: func(s *stores.Store) error {
			_, err := s.Flows.Renew(w.Ctx, w.ID, "a", epoch, holds)
			return err
		}},
		{name: "log", run: func(s *stores.Store) error {
			return s.Flows.AppendLog(w.Ctx, w.ID, held.ID, held.Fence,
				[]flows.Line{{N: 1, Stream: "stdout", Text: "x"}})
		}},
		{name: "finish", run: end(flows.Said{Result: json.RawMessage(`{"n": "1"}`)})},
		{name: "fail", run: end(flows.Said{Code: "exit", Error: "it broke"})},
		{name: "lapse", run: func(s *stores.Store) error {
			_, err := s.Flows.Lapse(w.Ctx)
			return err
		}},
		{name: "meet", run: func(s *stores.Store) error {
			_, err := s.Flows.Meet(w.Ctx, w.By, needs.ID, []string{"ok"})
			return err
		}},
		{name: "cancel a job", anew: true, reacts: true, then: takeBack, run: func(s *stores.Store) error {
			_, err := s.Flows.Cancel(w.Ctx, w.By, held.Job)
			return err
		}},
		{name: "cancel a flow", anew: true, reacts: true, then: takeBack, run: func(s *stores.Store) error {
			_, err := s.Flows.CancelFlow(w.Ctx, w.By, begun.ID)
			return err
		}},
		{name: "advance", reacts: true, then: takeBack, run: func(s *stores.Store) error {
			_, err := s.Flows.Advance(w.Ctx)
			return err
		}},
	}
}

// changedFlowRoom is a stage with a flow that has ended in error, one that has started, and one that has not.
func changedFlowRoom(w *world) []roomOp {
	n := w.Node("n")
	spec := func(ref int64, needs ...int64) flow.Spec {
		return flow.Spec{Ref: &ref, Script: "1", ScriptType: "python", Timeout: time.Minute, NeedTimeout: time.Hour,
			Dependends: needs}
	}
	made := func(key string, start bool) *flows.Flow {
		f, err := w.S.Flows.PostFlow(w.Ctx, w.By,
			flows.FlowSpec{Jobs: []flow.Spec{spec(1), spec(2, 1)}, Start: start, Key: key})
		w.Must(err)
		return f
	}
	failed := made("failed", true)
	for _, l := range w.Claim(n, pgworld.Everything()) {
		w.Settle(w.Answer(l, outbox.Answer{Class: outbox.ClassRejected, Code: "no", Message: "no"}))
	}
	_, err := w.S.Flows.Advance(w.Ctx)
	w.Must(err)
	begun, notBegun := made("begun", true), made("still", false)
	w.Later(time.Minute)
	repost := func(s *stores.Store) error {
		w.Later(time.Minute) // until then it may be under way
		_, err := s.Flows.Repost(w.Ctx)
		return err
	}
	add := func(f *flows.Flow) func(s *stores.Store) error {
		return func(s *stores.Store) error {
			err := s.Flows.AddJobs(w.Ctx, w.By, f.ID, []flow.Spec{spec(3, 2), spec(4)})
			if fault.KindOf(err) == fault.Invalid { // its refs are there: it was done before
				return nil
			}
			return err
		}
	}
	return []roomOp{
		{name: "add jobs", run: add(notBegun)},
		{name: "add jobs to one that has started", then: repost, reacts: true, run: add(begun)},
		{name: "redrive a flow", then: repost, reacts: true, keeps: `SELECT flow_id::text FROM postern.flow ORDER BY 1`,
			run: func(s *stores.Store) error {
				_, err := s.Flows.Redrive(w.Ctx, w.By, failed.ID, flows.Redrive{Key: "again"})
				return err
			}},
		{name: "remove a job", anew: true, run: func(s *stores.Store) error {
			return s.Flows.RemoveJob(w.Ctx, w.By, begun.ID, 2)
		}},
		{name: "change the environment", run: func(s *stores.Store) error {
			return s.Flows.PatchFlow(w.Ctx, w.By, notBegun.ID, map[string]string{"A": "1"}, 0)
		}},
	}
}
