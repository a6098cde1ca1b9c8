package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"net/http"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

type transactionActionInput struct {
	ID string `path:"id"`
	Trial
	Body *reasonBody
}

// idOf reads an id. A text that cannot be one names no transaction: 404.
func idOf(s string) (outbox.ID, error) {
	id, err := outbox.ParseID(s)
	if err != nil {
		return id, fault.New(fault.NotFound, "not_found", "no transaction %q", fault.Clip(s))
	}
	return id, nil
}

// act pulls a lever on one transaction.
func act(ctx context.Context, in *transactionActionInput,
	pull func(context.Context, db.By, outbox.ID) (pg.LeverResult, error)) (*leverOutput, error) {
	id, err := idOf(in.ID)
	if err != nil {
		return nil, err
	}
	return lever(pull(ctx, by(ctx, in.Body.reason()), id))
}

// cancel takes back what has not gone out: 200 at once, 202 once its worker was asked, 409 when it is out.
func (a *API) cancel(ctx context.Context, in *transactionActionInput) (*leverOutput, error) {
	return act(ctx, in, a.Store.Cancel)
}

// retryNow ends a delay before its time.
func (a *API) retryNow(ctx context.Context, in *transactionActionInput) (*leverOutput, error) {
	return act(ctx, in, a.Store.RetryNow)
}

// suspend keeps a transaction from going out: 200 at once, 202 for what is out, before it would be sent again.
func (a *API) suspend(ctx context.Context, in *transactionActionInput) (*leverOutput, error) {
	return act(ctx, in, a.Store.Suspend)
}

// resume ends a suspension.
func (a *API) resume(ctx context.Context, in *transactionActionInput) (*leverOutput, error) {
	return act(ctx, in, a.Store.Resume)
}

// abandon ends, by an operator's word, what an outage made immovable; it wants a reason.
func (a *API) abandon(ctx context.Context, in *transactionActionInput) (*leverOutput, error) {
	return act(ctx, in, a.Store.Abandon)
}

// wasDone ends a transaction that is held DONE, by an operator's word; it wants a reason.
func (a *API) wasDone(ctx context.Context, in *transactionActionInput) (*leverOutput, error) {
	return act(ctx, in, a.Store.WasDone)
}

// wasNotDone lets a transaction that is held go out again, by an operator's word; it wants a reason.
func (a *API) wasNotDone(ctx context.Context, in *transactionActionInput) (*leverOutput, error) {
	return act(ctx, in, a.Store.WasNotDone)
}

// redriveBody may change what is redriven.
type redriveBody struct {
	Queue  optionalQueue   `json:"queue,omitempty" doc:"Another queue; null: unordered. Absent: the same."`
	Data   json.RawMessage `json:"data,omitempty"`
	UID    uidName         `json:"uid,omitempty" doc:"Of the new transaction; the idempotency key."`
	Reason string          `json:"reason,omitempty" maxLength:"1000"`

	DependsOn *[]uidName `json:"depends_on,omitempty" maxItems:"64" doc:"Instead of what it depended on; absent: the same, each as it was redriven last."`
}

type redriveInput struct {
	ID  string `path:"id"`
	Key string `header:"Idempotency-Key"`
	Trial
	Body *redriveBody
}

// redrive posts what ended badly once more: 201 with the new transaction, 200 when the key says that it is
// the same request again, 409 already_redriven.
func (a *API) redrive(ctx context.Context, in *redriveInput) (*transactionOutput, error) {
	if a.drained.Load() {
		return nil, draining()
	}
	id, err := idOf(in.ID)
	if err != nil {
		return nil, err
	}
	key, err := keyOf(in.Key)
	if err != nil {
		return nil, err
	}
	body := in.Body
	if body == nil {
		body = &redriveBody{}
	}
	switch {
	case key != "" && body.UID != "" && key != string(body.UID):
		return nil, fault.New(fault.Invalid, "key_mismatch",
			"Idempotency-Key and uid differ: send one of them, or the same")
	case key == "":
		key = string(body.UID)
	}
	if len(body.Data) > a.Limits.Data {
		f := fault.At("/data", "data has %d bytes, more than the limit of %d", len(body.Data), a.Limits.Data)
		f.Code = "too_large"
		return nil, f
	}
	change := pg.Redrive{Data: body.Data, UID: key, Poster: a.poster(ctx)}
	if body.Queue.given {
		change.Queue = &body.Queue.name
	}
	request := []any{"redrive", id.String(), change.Queue, outbox.Parsed(change.Data)}
	if body.DependsOn != nil {
		list := refs(*body.DependsOn)
		change.DependsOn = &list
		request = append(request, list)
	}
	of, _ := json.Marshal(request)
	sum := sha256.Sum256(of)
	change.Hash = sum[:]
	acc, err := a.Store.Redrive(ctx, by(ctx, body.Reason), id, change)
	if err != nil {
		return nil, err
	}
	t, err := a.Store.Transaction(ctx, contextID(ctx), acc.ID)
	if err != nil {
		return nil, err
	}
	out := showTransaction(t)
	out.Status, out.Location = http.StatusCreated, location(acc.ID)
	if acc.Replay {
		out.Status, out.Replay = http.StatusOK, "true"
	}
	return out, nil
}
