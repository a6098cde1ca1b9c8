package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
)

// Question is what Options.Status is asked: after a hash, or after a token whose end the kit does not know.
type Question struct {
	Type  string // "" in a batch, for a hash that the store does not know
	Token string
	Hash  string
}

// Status is what became of something. Make one with Pending, Included, Finished, Failed or Unknown; for a question by
// token, set Hash too.
type Status struct {
	State         string
	Hash          string
	Nonce         string
	BlockHeight   string // digits, of an included one: the block, or any number that says where it is
	Confirmations int    // how deep its block lies; 0 for one that does not count
	FailureReason string
	Class         string          // ClassRejected of a failed one: see Final
	Result        json.RawMessage // of a finished one
}

// The states that a status can have.
const (
	statePending  = "pending"
	stateIncluded = "included"
	stateDone     = "done"
	stateFailed   = "failed"
	stateUnknown  = "unknown"
)

// Pending says that it is on its way.
func Pending() Status { return Status{State: statePending} }

// Included says that it is there, in the block of this height; confirmations deep, or 0 for "not counted".
func Included(height uint64, confirmations int) Status {
	return Status{State: stateIncluded, BlockHeight: strconv.FormatUint(height, 10), Confirmations: confirmations}
}

// Finished says that it happened, with v as the result, and that nothing takes it back: for what has no blocks. The
// result is what Done makes of v.
func Finished(v any) Status { return Status{State: stateDone, Result: Done(v).Done} }

// Failed says that it failed, and can no longer happen. Another attempt goes out while there are retries left.
func Failed(reason string) Status { return Status{State: stateFailed, FailureReason: reason} }

// Final says of a failed one that another attempt would not do better: none goes out.
func (s Status) Final() Status { s.Class = ClassRejected; return s }

// Unknown says that there never was such a thing, or that it was dropped: it will be sent again. Where you
// could not ask, return an error instead: that says nothing, and is asked again.
func Unknown() Status { return Status{State: stateUnknown} }

// body is the answer to a question.
func (s Status) body() map[string]any {
	m := map[string]any{"state": s.State, "block_height": nil, "failure_reason": nil}
	for key, v := range map[string]string{"hash": s.Hash, "nonce": s.Nonce, "block_height": s.BlockHeight,
		"failure_reason": s.FailureReason, "class": s.Class} {
		if v != "" {
			m[key] = v
		}
	}
	if s.Confirmations > 0 {
		m["confirmations"] = s.Confirmations
	}
	if s.State == stateDone {
		m["done"] = s.Result
	}
	return m
}

// ask asks the hook. A status that is none says nothing, like an error.
func (w *Worker) ask(ctx context.Context, q Question) (Status, error) {
	s, err := w.options.Status(ctx, q)
	states := []string{statePending, stateIncluded, stateDone, stateFailed, stateUnknown}
	if err == nil && !slices.Contains(states, s.State) {
		err = fmt.Errorf("the status hook returned state %q: want pending, included, done, failed or unknown", s.State)
	}
	return s, err
}

// byToken says what is known of a token. One whose answer is an error is "failed"; one that is done is so with its
// result.
func (w *Worker) byToken(ctx context.Context, typ, token string) (Status, error) {
	if w.isRunning(token) {
		return Status{}, errRunning
	}
	e, err := w.store.Find(ctx, token, "")
	switch {
	case err != nil:
		return Status{}, err
	case e.Token == "" || e.Open:
		if w.options.Status == nil {
			return Unknown(), nil
		}
		return w.ask(ctx, Question{Type: typ, Token: token})
	case e.Answer.Error != nil && e.Answer.Error.Class == ClassRejected:
		return Failed(e.Answer.Error.Message).Final(), nil
	case e.Answer.Error != nil:
		return Failed(e.Answer.Error.Message), nil
	case len(e.Answer.Done) > 0:
		return Status{State: stateDone, Hash: e.Answer.Hash, Result: e.Answer.Done}, nil
	}
	if w.options.Status == nil {
		s := Pending()
		s.Hash, s.Nonce = e.Answer.Hash, e.Answer.Nonce
		return s, nil
	}
	s, err := w.ask(ctx, Question{Type: e.Type, Hash: e.Answer.Hash})
	if s.Hash == "" && s.State != stateUnknown {
		s.Hash = e.Answer.Hash
	}
	return s, err
}

// byHash asks the hook after a hash.
func (w *Worker) byHash(ctx context.Context, typ, hash string) (Status, error) {
	if typ == "" {
		e, err := w.store.Find(ctx, "", hash)
		if err != nil {
			return Status{}, err
		}
		typ = e.Type
	}
	s, err := w.ask(ctx, Question{Type: typ, Hash: hash})
	s.Hash = hash
	return s, err
}

// byHashSafely is byHash for a goroutine of our own, where a handler that panics would end the process.
func (w *Worker) byHashSafely(ctx context.Context, hash string) (s Status, err error) {
	defer func() {
		if p := recover(); p != nil {
			w.log.Error("a handler panicked", "hash", hash, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("the handler of statuses panicked: %v", p)
		}
	}()
	return w.byHash(ctx, "", hash)
}

// aside is how many questions of a batch are asked side by side.
const aside = 8

// byHashes asks after many, in their order. One that could not be asked spoils all: a gap would be taken
// for an answer.
func (w *Worker) byHashes(ctx context.Context, hashes []string) ([]Status, error) {
	out, errs := make([]Status, len(hashes)), make([]error, len(hashes))
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(aside, len(hashes)) {
		wg.Go(func() {
			for i := range next {
				out[i], errs[i] = w.byHashSafely(ctx, hashes[i])
			}
		})
	}
	for i := range hashes {
		next <- i
	}
	close(next)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
