package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"
)

// Options say what a worker does besides its handlers. The zero value is of use.
type Options struct {
	Store Store // nil: a Memory

	// Status says what became of a hash, or of a token that began and never ended. Without it a worker can
	// only answer after tokens, and Sent is of no use. An error means "could not ask": it is asked again.
	Status func(context.Context, Question) (Status, error)

	// Secret is that of the dispatcher (whsec_...): calls that are not signed with it are refused. "": all are
	// believed.
	Secret string

	Health func(context.Context) error // asked by GET /health; nil: always well
	Log    *slog.Logger                // nil: the default one
	Grace  time.Duration               // how long calls may go on when the worker stops; 0: 30 s
}

// Worker serves the worker contract with the handlers that it was given. Make one with New, give it
// handlers with Handle, OnSuccess, OnFailure and MaxRetries, then serve it with Run, Serve or Handler.
type Worker struct {
	options    Options
	store      Store
	log        *slog.Logger
	handlers   map[string]handler
	hooks      map[string]hook // by verb and type: on-success/T
	maxRetries map[string]int
	counters   counters
	key        []byte // of Options.Secret
	bad        error  // why it is none: nothing is believed

	hard context.Context // ends when calls are to be cut off
	stop context.CancelFunc

	mu      sync.Mutex
	running map[string]chan struct{} // by token; closed at its end
}

type handler func(context.Context, Info, json.RawMessage, Result) (Answer, error)
type hook func(context.Context, Info, json.RawMessage, Result) error

// New makes a worker without handlers.
func New(o Options) *Worker {
	w := &Worker{options: o, store: o.Store, log: o.Log, handlers: map[string]handler{}, hooks: map[string]hook{},
		maxRetries: map[string]int{}, running: map[string]chan struct{}{}}
	if w.store == nil {
		w.store = &Memory{}
	}
	if w.log == nil {
		w.log = slog.Default()
	}
	w.key, w.bad = keyOf(o.Secret)
	w.hard, w.stop = context.WithCancel(context.Background())
	return w
}

// Handle takes dispatches of a type. All handlers are given before the worker serves.
func Handle[T any](w *Worker, typ string, h func(context.Context, Call[T]) (Answer, error)) {
	w.handlers[typ] = func(ctx context.Context, in Info, data json.RawMessage, before Result) (Answer, error) {
		c := Call[T]{Info: in, Before: before}
		if err := payload(typ, data, &c.Data); err != nil {
			return Answer{}, err
		}
		return h(ctx, c)
	}
}

// OnSuccess is told of each transaction of a type that ended DONE. An error has it told again later; told
// twice it is only if the worker died in between.
func OnSuccess[T any](w *Worker, typ string, h func(context.Context, Ended[T]) error) {
	addHook(w, "on-success", typ, h)
}

// OnFailure is told of each transaction of a type that ended FAILED; see OnSuccess.
func OnFailure[T any](w *Worker, typ string, h func(context.Context, Ended[T]) error) {
	addHook(w, "on-failure", typ, h)
}

func addHook[T any](w *Worker, verb, typ string, h func(context.Context, Ended[T]) error) {
	w.hooks[verb+"/"+typ] = func(ctx context.Context, in Info, data json.RawMessage, r Result) error {
		e := Ended[T]{Info: in, Result: r}
		if err := payload(typ, data, &e.Data); err != nil {
			return err
		}
		return h(ctx, e)
	}
}

// payload reads data into a T. It refuses null unless T has a nil: null would otherwise become a T with zero values,
// and a handler would pay an amount of 0 to an empty name.
func payload[T any](typ string, data json.RawMessage, into *T) error {
	if string(data) == "null" {
		switch reflect.TypeFor[T]().Kind() {
		case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface:
			return nil
		}
		return Rejected("bad_data", fmt.Sprintf("the data of a %s is null", typ))
	}
	if err := json.Unmarshal(data, into); err != nil {
		return Rejected("bad_data", fmt.Sprintf("the data of a %s is not understood: %v", typ, err))
	}
	return nil
}

// MaxRetries says how often attempts of a type that fail are repeated, unless the transaction or the
// dispatcher says.
func (w *Worker) MaxRetries(typ string, n int) { w.maxRetries[typ] = n }

var (
	errRunning = errors.New("the call is being worked on: ask again")
	errLeft    = errors.New("the caller has left")
)

// take makes this call the only one that works on token. An error: the caller left while it waited.
func (w *Worker) take(ctx context.Context, token string) (release func(), err error) {
	for {
		w.mu.Lock()
		ended, busy := w.running[token]
		if !busy {
			ended = make(chan struct{})
			w.running[token] = ended
			w.mu.Unlock()
			return func() {
				w.mu.Lock()
				delete(w.running, token)
				w.mu.Unlock()
				close(ended)
			}, nil
		}
		w.mu.Unlock()
		select {
		case <-ended:
		case <-ctx.Done():
			return nil, errLeft
		}
	}
}

func (w *Worker) isRunning(token string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, busy := w.running[token]
	return busy
}

// execute does in once and returns what to answer, also when the same token is sent again. stale: a higher fence came,
// and nothing was done.
func (w *Worker) execute(caller context.Context, in Info, fenced bool,
	run func(context.Context, Info) (Answer, error)) (a Answer, stale, repeat bool, err error) {
	release, err := w.take(caller, in.Token)
	if err != nil {
		return Answer{}, false, false, err
	}
	defer release()
	ctx := w.hard
	if fenced && in.Line != "" {
		lower, err := w.store.Raise(ctx, in.Line, in.Fence)
		if err != nil || lower {
			return unable(err), lower, false, nil
		}
	}
	before, err := w.store.Begin(ctx, in.Token, in.Type)
	switch {
	case err != nil:
		return unable(err), false, false, nil
	case before.Token != "" && !before.Open:
		return before.Answer, false, true, nil
	}
	in.Again = before.Open
	// A deadline that has passed is a clock that differs from Postern's: it would kill every call.
	if time.Until(in.Deadline) > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, in.Deadline)
		defer cancel()
	}
	a = w.safely(ctx, in, run)
	if err := w.keep(in, a); err != nil {
		return Answer{Error: &Error{Class: ClassAmbiguous, Code: "store_failed", Message: err.Error()}}, false, false,
			nil
	}
	return a, false, false, nil
}

// keep keeps an answer, if it is one for good. A blocked call did not happen, so its token is forgotten, unless an
// earlier run of the same token may have happened. A token with an ambiguous answer stays open.
func (w *Worker) keep(in Info, a Answer) error {
	if a.Error != nil && a.Error.Class == ClassAmbiguous {
		return nil
	}
	if a.Error != nil && a.Error.Class == ClassBlocked {
		if in.Again {
			return nil
		}
		return w.store.End(w.hard, in.Token, nil)
	}
	return w.store.End(w.hard, in.Token, &a)
}

// unable says that nothing was done, since the store could not be asked.
func unable(err error) Answer {
	if err == nil {
		return Answer{}
	}
	return Answer{Error: &Error{Class: ClassBlocked, Code: "store_failed", Message: err.Error()}}
}

// safely runs a handler and makes an answer of whatever comes of it.
func (w *Worker) safely(ctx context.Context, in Info, run func(context.Context, Info) (Answer, error)) (a Answer) {
	defer func() {
		if p := recover(); p != nil {
			w.log.Error("a handler panicked", "type", in.Type, "token", in.Token, "panic", p)
			a = Answer{Error: &Error{Class: ClassAmbiguous, Code: "handler_panicked", Message: fmt.Sprint(p)}}
		}
	}()
	a, err := run(ctx, in)
	if err != nil {
		return Answer{Hash: a.Hash, Error: asError(err)}.checked()
	}
	return a.checked()
}
