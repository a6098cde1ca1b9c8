package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/batches"
	"github.com/postern-dev/postern/internal/processor"
)

func (a *API) batchRoutes() {
	const tag = "processors"
	get(a, tag, "/processors/{name}/batches", "list-batches",
		"List batches, or those of a line in its order", a.listBatches)
	post(a, tag, "/processors/{name}/batches", "enqueue-batch",
		"Put a batch at the back of its line", a.enqueueBatch, 201, 200)
	post(a, tag, "/processors/{name}/insert", "insert-batch",
		"Put a batch anywhere into its line", a.insertBatch, 201, 200)
	post(a, tag, "/processors/{name}/evict", "evict-batch", "End a batch that is not being executed", a.evictBatch, 200)
	get(a, tag, "/processors/{name}/batches/{id}", "get-batch", "Read one batch", a.getBatch)
	get(a, tag, "/processors/{name}/batches/{id}/history", "get-batch-history",
		"What happened to it, oldest first", a.getBatchHistory)
	get(a, tag, "/processors/{name}/batches/{id}/why", "get-batch-why", "What it waits for", a.whyBatch)
	post(a, tag, "/processors/{name}/callbacks/{id}", "post-callback",
		"Confirm the action that a batch waits for", a.postCallback, 200)
}

// batchMessage is one message of a batch.
type batchMessage struct {
	Type string          `json:"type,omitempty" maxLength:"200" doc:"What its function calls message_type."`
	Msg  json.RawMessage `json:"msg" doc:"An object with one key, the name of what is called, and beneath it the arguments."`
}

func messagesOf(list []batchMessage) (m []processor.Message) {
	for _, v := range list {
		m = append(m, processor.Message{Type: v.Type, Msg: v.Msg})
	}
	return m
}

// newBatch is what an owner puts into a line.
type newBatch struct {
	Actions    json.RawMessage `json:"actions_config" doc:"{\"atomic\": {functions, retry_logic, expiration_time}} or {\"non_atomic\": {functions, expiration_time}}; a function is {domain, message_details: {message_type, message: {name, params_restrictions}}, contract_address, retry_logic, callback_confirmation: {contract_address, callback_message, callback_timeout: seconds, a day unless said}}; retry_logic is {times: \"indefinitely\" or {amount: n}, interval: {seconds: n} or {blocks: n}}."`
	Messages   []batchMessage  `json:"msgs" minItems:"1" maxItems:"100" doc:"One for each function, in their order."`
	Priority   string          `json:"priority,omitempty" enum:"High,Med" doc:"Med unless said."`
	Expiration *time.Time      `json:"expiration_time,omitempty" doc:"Else as many seconds from now as actions_config says; never where that says nothing."`
	Label      string          `json:"label,omitempty" maxLength:"44" doc:"The authorization that it counts for."`
}

// strictly reads a part of a body whose form the document only tells in words.
func strictly(pointer string, raw json.RawMessage, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		if f := fault.As(err); f.Kind == fault.Invalid {
			return f
		}
		return fault.At(pointer, "%s: %s", pointer[1:], fault.Clip(err.Error()))
	}
	return nil
}

func priorityOf(s string) processor.Priority {
	if s == processor.High.String() {
		return processor.High
	}
	return processor.Med
}

func (a *API) readBatch(ctx context.Context, in newBatch) (batches.NewBatch, error) {
	n := batches.NewBatch{Messages: messagesOf(in.Messages), Priority: priorityOf(in.Priority), Expiration: in.Expiration, Label: in.Label}
	if err := a.checkExpiration(ctx, "/expiration_time", in.Expiration); err != nil {
		return n, err
	}
	return n, strictly("/actions_config", in.Actions, &n.Actions)
}

// checkExpiration refuses a time that cannot be kept; nil is none.
func (a *API) checkExpiration(ctx context.Context, pointer string, at *time.Time) error {
	if at == nil {
		return nil
	}
	now, err := a.now(ctx)
	if err != nil {
		return err
	}
	return checkTime(pointer, *at, now)
}

// batchResult is how a batch ended.
type batchResult struct {
	Kind      string `json:"kind" enum:"executed,rejected,partially_executed,removed_by_owner,expired,timeout,unexpected_error"`
	N         int    `json:"n" doc:"of partially_executed and expired: how many actions were executed"`
	Reason    string `json:"reason"`
	Retriable bool   `json:"retriable" doc:"of timeout: it may be sent again, POST /authorizations/{label}/executions/{id}/retry"`
}

func viewResult(r *processor.Result) *batchResult {
	if r == nil {
		return nil
	}
	return &batchResult{string(r.Kind), r.N, r.Reason, r.Retriable}
}

// batchView is a batch, and the record of its execution.
type batchView struct {
	ID             int64           `json:"id" doc:"the execution_id: unique, and rising, over the whole installation"`
	Processor      string          `json:"processor"`
	State          string          `json:"state" enum:"Queued,Executing,Timed_Out,Waiting_Callback,Done"`
	Priority       string          `json:"priority" enum:"High,Med"`
	Label          *string         `json:"label"`
	Initiator      string          `json:"initiator" doc:"the actor"`
	By             string          `json:"by" enum:"Owner,User"`
	Actions        json.RawMessage `json:"actions_config"`
	Messages       []batchMessage  `json:"msgs"`
	Index          int             `json:"index" doc:"the action that is next, counted from 0"`
	Retries        int             `json:"retries" doc:"of that action"`
	Runs           int             `json:"runs" doc:"executions that have begun"`
	CooldownUntil  *time.Time      `json:"cooldown_until"`
	CooldownHeight *string         `json:"cooldown_height" doc:"digits"`
	Expiration     *time.Time      `json:"expiration_time"`
	TTL            *time.Time      `json:"ttl" doc:"until when it may be sent again, if it is not delivered in time"`
	Result         *batchResult    `json:"result" doc:"null while it is in process"`
	CreatedAt      time.Time       `json:"created_at"`
	UpdatedAt      time.Time       `json:"last_updated_at"`
}

func viewBatch(b *batches.Batch) (batchView, error) {
	v := batchView{ID: b.ID, Processor: b.Processor, State: string(b.State), Priority: b.Priority.String(), Label: ptr(b.Label), Initiator: b.Initiator, By: "User",
		Messages: []batchMessage{}, Index: b.Index, Retries: b.Retries, Runs: b.Runs, CooldownUntil: utc(b.CooldownUntil), CooldownHeight: digits(b.CooldownHeight),
		Expiration: utc(b.Expiration), TTL: utc(b.TTL), CreatedAt: b.CreatedAt.UTC(), UpdatedAt: b.UpdatedAt.UTC()}
	if b.ByOwner {
		v.By = "Owner"
	}
	for _, m := range b.Messages {
		v.Messages = append(v.Messages, batchMessage{m.Type, m.Msg})
	}
	v.Result = viewResult(b.Result)
	var err error
	v.Actions, err = json.Marshal(b.Actions)
	return v, err
}

type oneBatchOutput struct {
	Status   int
	Location string `header:"Location"`
	Replay   string `header:"Idempotent-Replay" doc:"true when the key was known already"`
	Body     batchView
}

func (a *API) answerBatch(b *batches.Batch, err error, status int) (*oneBatchOutput, error) {
	if err != nil {
		return nil, err
	}
	out := &oneBatchOutput{Status: status}
	if status == http.StatusCreated {
		if b.Result != nil {
			out.Status = http.StatusOK // it has expired already, and is not queued
		}
		if b.Replay {
			out.Status, out.Replay = http.StatusOK, "true"
		}
		out.Location = "/processors/" + b.Processor + "/batches/" + strconv.FormatInt(b.ID, 10)
	}
	out.Body, err = viewBatch(b)
	return out, err
}

type postBatchInput struct {
	Name name   `path:"name"`
	Key  string `header:"Idempotency-Key" doc:"The same key and body again: the same batch."`
	Trial
	Body newBatch
}

// enqueueBatch puts an owner's batch at the back of its line: 201; 200 if it has expired already.
func (a *API) enqueueBatch(ctx context.Context, in *postBatchInput) (*oneBatchOutput, error) {
	n, err := a.readBatch(ctx, in.Body)
	if err != nil {
		return nil, err
	}
	if n.Once, err = onceOf(in.Key, []any{in.Name, in.Body}); err != nil {
		return nil, err
	}
	b, err := a.Store.Batches.Enqueue(ctx, by(ctx, ""), string(in.Name), n)
	return a.answerBatch(b, err, http.StatusCreated)
}

type insertBatchInput struct {
	Name name   `path:"name"`
	Key  string `header:"Idempotency-Key" doc:"The same key and body again: the same batch."`
	Trial
	Body struct {
		Position int64    `json:"position,omitempty" doc:"0 is the head, the length of the line its end."`
		Before   int64    `json:"before,omitempty" minimum:"1" doc:"Instead of a position: directly before this batch."`
		After    int64    `json:"after,omitempty" minimum:"1" doc:"Instead of a position: directly after this batch."`
		Priority string   `json:"priority,omitempty" enum:"High,Med" doc:"The line; else that of the batch."`
		Batch    newBatch `json:"batch"`
	}
}

// insertBatch puts an owner's batch anywhere into its line: 201; 422 "Index out of bounds".
func (a *API) insertBatch(ctx context.Context, in *insertBatchInput) (*oneBatchOutput, error) {
	if in.Body.Before != 0 && (in.Body.After != 0 || in.Body.Position != 0) || in.Body.After != 0 && in.Body.Position != 0 {
		return nil, fault.At("/position", "want one of position, before and after")
	}
	if p, q := in.Body.Priority, in.Body.Batch.Priority; p != "" && q != "" && p != q {
		return nil, fault.At("/batch/priority", "priority %q is not %q of the line: leave one out", q, p)
	}
	or(&in.Body.Batch.Priority, in.Body.Priority)
	n, err := a.readBatch(ctx, in.Body.Batch)
	if err != nil {
		return nil, err
	}
	if n.Once, err = onceOf(in.Key, []any{in.Name, in.Body}); err != nil {
		return nil, err
	}
	b, err := a.Store.Batches.Insert(ctx, by(ctx, ""), string(in.Name), n, processor.Spot{Position: in.Body.Position, Before: in.Body.Before, After: in.Body.After})
	return a.answerBatch(b, err, http.StatusCreated)
}

type evictBatchInput struct {
	Name name `path:"name"`
	Trial
	Body struct {
		ID       int64  `json:"id,omitempty" minimum:"1" doc:"Of the batch, also one that waits for a callback."`
		Priority string `json:"priority,omitempty" enum:"High,Med" doc:"Instead of an id: its line, Med unless said,"`
		Position *int64 `json:"position,omitempty" doc:"and its position there."`
		Reason   string `json:"reason,omitempty" maxLength:"1000"`
	}
}

// evictBatch ends a batch as RemovedByOwner: 200; 409 while it is executed; 422 "Index out of bounds".
func (a *API) evictBatch(ctx context.Context, in *evictBatchInput) (*oneBatchOutput, error) {
	if (in.Body.ID != 0) == (in.Body.Position != nil) {
		return nil, fault.At("/position", "want either an id, or a position, from 0 at the head on")
	}
	e := batches.Eviction{ID: in.Body.ID, Priority: priorityOf(in.Body.Priority)}
	if in.Body.Position != nil {
		e.Position = *in.Body.Position
	}
	b, err := a.Store.Batches.Evict(ctx, by(ctx, in.Body.Reason), string(in.Name), e)
	return a.answerBatch(b, err, http.StatusOK)
}

type oneBatchInput struct {
	Name name   `path:"name"`
	ID   string `path:"id" maxLength:"20"`
}

// id returns the id of the batch in the path. A text that is no number names no batch: 404.
func (in *oneBatchInput) id() (int64, error) {
	id, err := strconv.ParseInt(in.ID, 10, 64)
	if err != nil {
		return 0, fault.New(fault.NotFound, "not_found", "no batch %q", fault.Clip(in.ID))
	}
	return id, nil
}

func (a *API) getBatch(ctx context.Context, in *oneBatchInput) (*oneBatchOutput, error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	b, err := a.Store.Batches.Batch(ctx, contextID(ctx), string(in.Name), id)
	return a.answerBatch(b, err, http.StatusOK)
}

type batchHistoryOutput struct {
	Body struct {
		Items []batchStepView `json:"items"`
		Next  *string         `json:"next"`
	}
}

type batchStepView struct {
	At     time.Time `json:"at"`
	Event  string    `json:"event"`
	From   string    `json:"from" doc:"empty: there was nothing yet"`
	To     string    `json:"to"`
	Actor  string    `json:"actor" doc:"empty: it happened by itself"`
	Reason string    `json:"reason"`
}

func (a *API) getBatchHistory(ctx context.Context, in *oneBatchInput) (*batchHistoryOutput, error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	steps, err := a.Store.Batches.BatchHistory(ctx, contextID(ctx), string(in.Name), id)
	if err != nil {
		return nil, err
	}
	out := &batchHistoryOutput{}
	out.Body.Items = []batchStepView{}
	for _, s := range steps {
		out.Body.Items = append(out.Body.Items, batchStepView{s.At.UTC(), string(s.Event), string(s.From), string(s.To), s.Actor, s.Reason})
	}
	return out, nil
}
