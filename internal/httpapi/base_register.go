package httpapi

import (
	"context"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
)

// operation is what all routes have in common.
func operation(tag, method, path, id, summary string, statuses []int) huma.Operation {
	op := huma.Operation{OperationID: id, Method: method, Path: path, Summary: summary, Tags: []string{tag},
		MaxBodyBytes: -1, BodyReadTimeout: -1, // readBody has read it, within our limits
		Errors: []int{400, 401, 403, 404, 422, 429, 503}}
	if len(statuses) > 0 && method != http.MethodGet {
		op.DefaultStatus = statuses[0]
		statuses = statuses[1:]
	}
	for _, s := range statuses {
		if op.Responses == nil {
			op.Responses = map[string]*huma.Response{}
		}
		op.Responses[itoa(s)] = &huma.Response{Description: http.StatusText(s)}
	}
	return op
}

func get[I, O any](a *API, tag, path, id, summary string, h func(context.Context, *I) (*O, error), also ...int) {
	register(a, operation(tag, http.MethodGet, path, id, summary, also), h)
}

// stream adds a route that answers with server-sent events.
func stream[I any](a *API, tag, path, id, summary string, h func(context.Context, *I) (*huma.StreamResponse, error)) {
	a.endless[path] = true
	op := operation(tag, http.MethodGet, path, id, summary, nil)
	op.Errors = append(op.Errors, 410)
	op.Responses = map[string]*huma.Response{"200": {Description: "id: the cursor; event: the new state; data: the transaction, with from, event and at",
		Content: map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}}}}}
	register(a, op, h)
}

func post[I, O any](a *API, tag, path, id, summary string, h func(context.Context, *I) (*O, error), statuses ...int) {
	op := operation(tag, http.MethodPost, path, id, summary, statuses)
	op.Errors = append(op.Errors, 408, 409, 412, 413, 415)
	register(a, op, h)
}

func put[I, O any](a *API, tag, path, id, summary string, h func(context.Context, *I) (*O, error), statuses ...int) {
	op := operation(tag, http.MethodPut, path, id, summary, statuses)
	op.Errors = append(op.Errors, 408, 409, 412, 413, 415)
	register(a, op, h)
}

func patch[I, O any](a *API, tag, path, id, summary string, h func(context.Context, *I) (*O, error)) {
	op := operation(tag, http.MethodPatch, path, id, summary, nil)
	op.Errors = append(op.Errors, 408, 409, 412, 413, 415)
	if path == "/contexts/{name}" {
		op.Errors = append(op.Errors, 428)
	}
	register(a, op, h)
}

func remove[I, O any](a *API, tag, path, id, summary string, h func(context.Context, *I) (*O, error)) {
	op := operation(tag, http.MethodDelete, path, id, summary, []int{204})
	op.Errors = append(op.Errors, 409, 412)
	register(a, op, h)
}

// register adds a route whose handler returns faults.
func register[I, O any](a *API, op huma.Operation, h func(context.Context, *I) (*O, error)) {
	if strings.HasPrefix(op.Path, "/transactions/{id}") || strings.HasSuffix(op.Path, "/feed") {
		op.Errors = append(op.Errors, 410) // retention has dropped it
	}
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*O, error) {
		ctx, t, end := a.try(ctx, in)
		defer end()
		committed := func() bool { return false }
		if op.Method != http.MethodGet && !tellsItself[op.Path] {
			ctx, committed = db.Noting(ctx)
		}
		out, err := h(ctx, in)
		switch {
		case err != nil && committed():
			err = behindCommit(err)
		case err == nil && op.Method != http.MethodGet && !tellsItself[op.Path] && !committed() && !t.DryRun:
			err = a.Store.Durable(ctx) // it answers by what others have committed
		}
		if err != nil {
			return nil, a.problem(ctx, err)
		}
		if l, ok := any(out).(*leverOutput); ok {
			l.Body.DryRun = t.DryRun
		}
		return out, nil
	})
}

// tellsItself are the routes that say of each transaction whether it was stored. They commit names of queues besides.
var tellsItself = map[string]bool{"/transactions": true, batchPath: true}

// behindCommit is the error of a request that has committed something before it failed. Where it says that nothing was
// done, as that of a database which could not be read any more, it is unknown how much was.
func behindCommit(err error) error {
	f := fault.As(err)
	if f.Kind != fault.Retry || f.Code == "commit_unknown" {
		return err
	}
	return fault.New(fault.Retry, "commit_unknown", "it was done, or a part of it, and then could not be read (%s): "+
		"send it again, with the same Idempotency-Key if it has one", f.Detail).
		After(f.RetryAfter).Because(err)
}

// now is the deciding clock, or ours where the database does not answer.
func (a *API) now(ctx context.Context) (time.Time, error) { return a.Store.Now(ctx) }

// schemaOf is the schema of a type in the document.
func schemaOf[T any](r huma.Registry) *huma.Schema {
	return r.Schema(reflect.TypeFor[T](), true, reflect.TypeFor[T]().Name())
}
