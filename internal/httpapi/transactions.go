package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/safe"
	"github.com/postern-dev/postern/internal/twin"
)

func (a *API) transactionRoutes() {
	const tag = "transactions"
	get(a, tag, "/transactions", "list-transactions", "List transactions", a.listTransactions)
	post(a, tag, "/transactions", "post-transaction", "Post one transaction", a.postTransaction, 201, 200)
	op := operation(tag, http.MethodPost, batchPath, "post-transactions",
		"Post up to 1,000 transactions", []int{201, 200, 207})
	batchRequest(&op, a.huma.OpenAPI().Components.Schemas)
	register(a, op, a.postBatch)
	stream(a, tag, "/transactions:stream", "stream-transactions",
		"Acceptances and ends as server-sent events", a.streamTransactions)
	get(a, tag, "/transactions/by-uid/{uid}", "get-transaction-by-uid",
		"Read one transaction by the client's name", a.getByUID, 304)
	get(a, tag, "/transactions/by-uid/{uid}/why", "get-transaction-why-by-uid",
		"What it waits for, by the client's name", a.whyByUID)
	get(a, tag, "/transactions/{id}", "get-transaction", "Read one transaction, or wait for it", a.getTransaction, 304)
	get(a, tag, "/transactions/{id}/history", "get-transaction-history", "Every transition, oldest first", a.getHistory)
	get(a, tag, "/transactions/{id}/attempts", "get-transaction-attempts", "One entry per dispatch", a.getAttempts)
	get(a, tag, "/transactions/{id}/why", "get-transaction-why", "What it waits for", a.whyTransaction)
	post(a, tag, "/transactions/{id}/cancel", "cancel-transaction",
		"Take back what has not gone out", a.cancel, 200, 202)
	post(a, tag, "/transactions/{id}/retry", "retry-transaction", "End a delay now", a.retryNow, 200)
	post(a, tag, "/transactions/{id}/suspend", "suspend-transaction", "Keep it from going out", a.suspend, 200, 202)
	post(a, tag, "/transactions/{id}/resume", "resume-transaction", "Let a suspended one go out", a.resume, 200)
	post(a, tag, "/transactions/{id}/move", "move-transaction",
		"Let it go out earlier or later in its queue", a.move, 200)
	post(a, tag, "/transactions/{id}/was-done", "was-done-transaction",
		"Say of what is held that it was done", a.wasDone, 200)
	post(a, tag, "/transactions/{id}/was-not-done", "was-not-done-transaction",
		"Say of what is held that it was not done", a.wasNotDone, 200)
	post(a, tag, "/transactions/{id}/abandon", "abandon-transaction",
		"End what an outage made immovable", a.abandon, 200)
	post(a, tag, "/transactions/{id}/redrive", "redrive-transaction",
		"Post what ended badly once more", a.redrive, 201, 200)

	post(a, tag, "/transactions:cancel", "cancel-transactions", "Take back many", a.bulk(a.Store.Cancel), 200)
	post(a, tag, "/transactions:retry", "retry-transactions", "End the delays of many", a.bulk(a.Store.RetryNow), 200)
	post(a, tag, "/transactions:suspend", "suspend-transactions",
		"Keep many from going out", a.bulk(a.Store.Suspend), 200)
	post(a, tag, "/transactions:resume", "resume-transactions",
		"Let many suspended ones go out", a.bulk(a.Store.Resume), 200)
	post(a, tag, "/transactions:was-done", "was-done-transactions",
		"Say of many that are held that they were done", a.bulk(a.Store.WasDone), 200)
	post(a, tag, "/transactions:was-not-done", "was-not-done-transactions",
		"Say of many that are held that they were not done", a.bulk(a.Store.WasNotDone), 200)
	post(a, tag, "/transactions:move", "move-transactions", "Move many, which keep their order", a.moveMany, 200)
	post(a, tag, "/transactions:redrive", "redrive-transactions",
		"Post once more many that ended badly", a.bulk(a.redriveAgain), 200)
}

type postInput struct {
	Why
	Key         string `header:"Idempotency-Key" doc:"The uid; bare or quoted."`
	Traceparent string `header:"traceparent" maxLength:"64"`
	Waiting
	Body transactionInput
}

// postTransaction stores one transaction. 201: it is committed. 200: the key was known with the same
// body, here is the transaction as it is now. 409: the key is known with another body.
func (a *API) postTransaction(ctx context.Context, in *postInput) (*transactionOutput, error) {
	wait, err := a.waitOf(&in.Waiting)
	if err != nil {
		return nil, err
	}
	if a.drained.Load() {
		return nil, draining()
	}
	key, err := keyOf(in.Key)
	if err != nil {
		return nil, err
	}
	sub, err := a.submission(ctx, &in.Body, key, a.Store.Moment(time.Now()))
	if err != nil {
		return nil, err
	}
	sub.Traceparent = traced(ctx, in.Traceparent)
	acc, err := a.submit(ctx, sub)
	if err == nil && acc.Replay {
		err = a.Store.Durable(ctx)
	}
	if err != nil {
		return nil, a.conflict(ctx, sub, acc, err)
	}
	var t *pg.Transaction
	if !acc.Replay && wait.length == 0 && sub.NotBefore.IsZero() && len(sub.DependsOn) == 0 && sub.Insertion == nil {
		t = accepted(sub, acc, scopeOf(ctx).Context.Name)
	}
	t, applied, err := a.wait(ctx, acc.ID, t, wait)
	if err != nil && (acc.Replay || twin.Planted("unread_is_no")) {
		return nil, err
	}
	if err != nil { // it is stored, whether it can be read or not
		a.Log.WarnContext(ctx, "what was posted could not be read back", "tx", acc.ID, "error", err)
		t = accepted(sub, acc, scopeOf(ctx).Context.Name)
	}
	if twin.Planted("goroutine_left") {
		go safe.Run("post", func() { select {} })
	}
	if acc.ID.Seq%8 == 7 && twin.Planted("panic_in_request") {
		panic("planted")
	}
	out := showTransaction(t)
	out.Status, out.Location, out.Applied = 201, location(acc.ID), applied
	if acc.Replay {
		out.Status, out.Replay = 200, "true"
	}
	return out, nil
}

// submit stores one, together with others where nothing speaks against it.
func (a *API) submit(ctx context.Context, sub *pg.Submission) (pg.Accepted, error) {
	if sub.Insertion == nil {
		return a.Ingester.Submit(ctx, sub)
	}
	out, err := a.Ingester.SubmitBatch(ctx, []*pg.Submission{sub}, true)
	if err != nil {
		return pg.Accepted{}, err
	}
	return out[0], out[0].Err
}

func location(id outbox.ID) string { return "/transactions/" + id.String() }

func draining() error {
	return fault.New(fault.Retry, "draining", "this process is shutting down: send it again, another one answers").After(2 * time.Second)
}

// conflict adds to an idempotency conflict what differs, by the names of the fields.
func (a *API) conflict(ctx context.Context, sub *pg.Submission, acc pg.Accepted, err error) error {
	f := fault.As(err)
	if f.Code != "idempotency_conflict" {
		return err
	}
	t, readErr := a.Store.Transaction(ctx, sub.ContextID, acc.ID)
	if readErr != nil {
		return err
	}
	same := *f // faults may be shared by those who wait for one flight
	same.Extra = map[string]any{"existing": map[string]string{"id": t.ID.String(), "uid": t.UID}, "differs": differs(sub, t)}
	return &same
}

func differs(sub *pg.Submission, t *pg.Transaction) []string {
	list := []string{}
	add := func(field string, same bool) {
		if !same {
			list = append(list, field)
		}
	}
	add("queue", sub.Queue == t.Queue)
	add("type", sub.Type == t.Type)
	add("data", equalJSON(outbox.Parsed(sub.Data), outbox.Parsed(t.Data)))
	add("not_before", sub.NotBefore.IsZero() == (t.NotBefore == nil) && (t.NotBefore == nil || t.NotBefore.Equal(sub.NotBefore)))
	add("max_retries", (sub.MaxRetries == nil) == (t.MaxRetries == nil) && (t.MaxRetries == nil || *t.MaxRetries == *sub.MaxRetries))
	add("depends_on", len(sub.DependsOn) == len(t.DependsOn)) // by id there, perhaps by uid here
	add("callback", equalJSON(anyOf(sub.Callback), anyOf(t.Callback)))
	add("tags", equalJSON(tagsOf(sub.Tags), tagsOf(t.Tags)))
	if sub.Insertion != nil {
		list = append(list, "place")
	}
	if sub.Sender != "" && sub.Sender != t.Sender || len(list) == 0 {
		list = append(list, "sender")
	}
	return list
}

// anyOf is a value as it reads in JSON.
func anyOf(v any) any {
	b, _ := json.Marshal(v)
	return outbox.Parsed(b)
}

func tagsOf(raw json.RawMessage) any {
	if v, ok := outbox.Parsed(raw).(map[string]any); ok {
		return v
	}
	return map[string]any{}
}

type getInput struct {
	ID          string `path:"id" doc:"The id of a transaction."`
	IfNoneMatch string `header:"If-None-Match" doc:"With until=change: what the client has."`
	Waiting
}

// getTransaction reads one transaction. With wait it answers when the state asked for is reached, or
// with the present one when time runs out; until=change answers 304 then.
func (a *API) getTransaction(ctx context.Context, in *getInput) (*transactionOutput, error) {
	id, err := outbox.ParseID(in.ID)
	if err != nil {
		return nil, fault.New(fault.NotFound, "not_found", "no transaction %q", fault.Clip(in.ID))
	}
	return a.readTransaction(ctx, id, in.IfNoneMatch, &in.Waiting)
}

type byUIDInput struct {
	UID         uidName `path:"uid" doc:"The client's own name."`
	IfNoneMatch string  `header:"If-None-Match"`
	Waiting
}

// getByUID reads what a client named uid, also while it is only staged by SQL. With wait it waits for the
// drain, and then as getTransaction does.
func (a *API) getByUID(ctx context.Context, in *byUIDInput) (*transactionOutput, error) {
	wait, err := a.waitOf(&in.Waiting)
	if err != nil {
		return nil, err
	}
	id, staged, err := a.find(ctx, string(in.UID))
	if staged != nil && wait.length > 0 {
		if wait.seen = in.IfNoneMatch; wait.seen == "" {
			wait.seen = etagOf(staged)
		}
		begun := time.Now()
		if refused := a.waitOften(ctx, wait.length, func() bool {
			id, staged, err = a.find(ctx, string(in.UID))
			return err != nil || staged == nil || wait.reached(staged)
		}); refused != nil {
			return nil, refused
		}
		if in.Wait = max(0, wait.length-time.Since(begun)).String(); wait.change { // that was one
			in.Wait = "0s"
		}
	}
	if err != nil {
		return nil, err
	}
	if staged == nil {
		return a.readTransaction(ctx, id, in.IfNoneMatch, &in.Waiting)
	}
	out := showTransaction(staged)
	if in.IfNoneMatch != "" && matches(in.IfNoneMatch, out.ETag) {
		out.Status, out.Body = 304, nil
	}
	return out, nil
}

// find returns the id of what a client named uid, or what is staged under that name. Between the first two
// looks it may have been drained.
func (a *API) find(ctx context.Context, uid string) (id outbox.ID, staged *pg.Transaction, err error) {
	for range 2 {
		if id, err = a.Store.ByUID(ctx, contextID(ctx), uid); fault.CodeOf(err) != "not_found" {
			return id, nil, err
		}
		if staged, err = a.Store.Staged(ctx, contextID(ctx), uid); fault.CodeOf(err) != "not_found" {
			return id, staged, err
		}
	}
	return id, nil, err
}

func (a *API) readTransaction(ctx context.Context, id outbox.ID, seen string, w *Waiting) (*transactionOutput, error) {
	wait, err := a.waitOf(w)
	if err != nil {
		return nil, err
	}
	var t *pg.Transaction
	if wait.seen = seen; wait.change && seen == "" {
		if t, err = a.Store.Transaction(ctx, contextID(ctx), id); err != nil {
			return nil, err
		}
		wait.seen = etagOf(t)
	}
	t, applied, err := a.wait(ctx, id, t, wait)
	if err != nil {
		return nil, err
	}
	out := showTransaction(t)
	out.Applied = applied
	if seen != "" && matches(seen, out.ETag) {
		out.Status, out.Body = 304, nil
	}
	return out, nil
}
