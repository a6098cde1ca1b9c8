package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
)

type batchInput struct {
	Why
	ContentType string `header:"Content-Type"`
	Key         string `header:"Idempotency-Key" doc:"K gives items without uid the uids K:0, K:1, ..."`
	Traceparent string `header:"traceparent" maxLength:"64"`
	RawBody     []byte
}

// batchBody documents the body; items are validated one by one, so that each gets an answer of its own.
type batchBody struct {
	Atomic bool               `json:"atomic,omitempty" doc:"All are accepted or none."`
	Items  []transactionInput `json:"items" maxItems:"1000"`
}

type batchOutput struct {
	Status int
	Body   struct {
		Items []batchItem `json:"items"`
	}
}

// batchItem is the answer to one item, in the order in which they came.
type batchItem struct {
	Status      int              `json:"status"`
	Transaction *transactionView `json:"transaction,omitempty"`
	Problem     *Problem         `json:"problem,omitempty"`
}

// batchRequest adds the two forms of the body to the document.
func batchRequest(op *huma.Operation, registry huma.Registry) {
	op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/json": {Schema: schemaOf[batchBody](registry)},
		ndjson:             {Schema: &huma.Schema{Type: huma.TypeString, Description: "one transaction per line"}},
	}}
	op.SkipValidateBody = true
}

// postBatch stores many transactions in one commit, each with an answer of its own; atomic: all or none.
func (a *API) postBatch(ctx context.Context, in *batchInput) (*batchOutput, error) {
	if a.drained.Load() {
		return nil, draining()
	}
	key, err := keyOf(in.Key)
	if err != nil {
		return nil, err
	}
	raws, atomic, err := a.splitBatch(in)
	if err != nil {
		return nil, err
	}
	subs, at, errs := make([]*pg.Submission, 0, len(raws)), make([]int, 0, len(raws)), make([]error, len(raws))
	now := a.Store.Moment(time.Now())
	for i, raw := range raws {
		sub, err := a.batchItem(ctx, raw, key, i, now, in.ContentType == ndjson)
		if errs[i] = err; err == nil {
			sub.Traceparent = traced(ctx, in.Traceparent)
			subs, at = append(subs, sub), append(at, i)
		}
	}
	if atomic && len(subs) < len(raws) {
		return nil, together(errs)
	}
	answers := make([]pg.Accepted, len(raws))
	posted := make([]*pg.Submission, len(raws))
	if len(subs) > 0 {
		out, err := a.Ingester.SubmitBatch(ctx, subs, atomic)
		if err != nil {
			return nil, err
		}
		for j, acc := range out {
			i := at[j]
			answers[i], posted[i] = acc, subs[j]
			if acc.Err != nil {
				errs[i] = a.conflict(ctx, subs[j], acc, acc.Err)
			}
		}
	}
	if err := together(errs); atomic && err != nil {
		return nil, err
	}
	return a.batchAnswer(ctx, posted, answers, errs)
}

// splitBatch finds the items in either form of the body.
func (a *API) splitBatch(in *batchInput) (items []json.RawMessage, atomic bool, err error) {
	if in.ContentType == ndjson {
		for line := range bytes.SplitSeq(in.RawBody, []byte("\n")) {
			if line = bytes.TrimSpace(line); len(line) > 0 {
				items = append(items, line)
			}
		}
	} else {
		body := map[string]json.RawMessage{}
		if err := json.Unmarshal(in.RawBody, &body); err != nil {
			return nil, false, fault.At("", `want an object {"atomic": false, "items": [...]}`)
		}
		for k := range body {
			if k != "items" && k != "atomic" {
				return nil, false, fault.At("/"+fault.Clip(k), "unexpected property")
			}
		}
		if raw, ok := body["atomic"]; ok && json.Unmarshal(raw, &atomic) != nil {
			return nil, false, fault.At("/atomic", "atomic: want true or false")
		}
		if err := json.Unmarshal(body["items"], &items); err != nil || items == nil {
			return nil, false, fault.At("/items", "items: want an array of transactions")
		}
	}
	switch {
	case len(items) == 0:
		return nil, false, fault.At("/items", "the batch has no items")
	case len(items) > a.Limits.Items:
		f := fault.At("/items", "the batch has %d items, more than the limit of %d", len(items), a.Limits.Items)
		f.Code = "too_large"
		return nil, false, f
	}
	return items, atomic, nil
}

func (a *API) batchItem(ctx context.Context, raw []byte, key string, i int, now time.Time, check bool) (*pg.Submission, error) {
	if check {
		if err := a.strict(raw); err != nil {
			return nil, err
		}
	}
	in, err := a.decodeTransaction(raw)
	if err != nil {
		return nil, err
	}
	if key != "" && in.UID == "" {
		uid := fmt.Sprintf("%s:%d", key, i)
		if !isUID(uid) {
			return nil, fault.At("Idempotency-Key", "the uid %q made of Idempotency-Key is too long: want %s", fault.Clip(uid), uidIs)
		}
		if err := outbox.Reserved(outbox.Anyone, "", uid, ""); err != nil {
			f := fault.As(err)
			why, _, _ := strings.Cut(f.Detail, ": use one of your own")
			return nil, fault.New(f.Kind, f.Code,
				"Idempotency-Key %s gives this item, which has no uid, the uid %s, and %s: send another key, or a uid "+
					"with each item", fault.Clip(key), fault.Clip(uid), why).About("Idempotency-Key")
		}
		in.UID = uidName(uid)
	}
	return a.submission(ctx, in, "", now)
}

// together is the problem of an atomic batch: that of the first refused item, with the fields of all,
// their pointers below /items.
func together(errs []error) error {
	var all *fault.Error
	for i, err := range errs {
		if err == nil {
			continue
		}
		f := fault.As(err)
		if all == nil {
			all = &fault.Error{Kind: f.Kind, Code: f.Code, Detail: fmt.Sprintf("item %d: %s; nothing of the batch was accepted", i, f.Detail),
				RetryAfter: f.RetryAfter, Extra: f.Extra, Err: f.Err}
		}
		fields := f.Fields
		if len(fields) == 0 {
			fields = []fault.Field{{Code: f.Code, Detail: f.Detail}}
		}
		for _, field := range fields {
			if field.Pointer == "" || field.Pointer[0] == '/' { // else it names a header
				field.Pointer = fmt.Sprintf("/items/%d%s", i, field.Pointer)
			}
			all.Fields = append(all.Fields, field)
		}
	}
	if all == nil {
		return nil
	}
	return all
}

// batchAnswer shows what became of each item.
func (a *API) batchAnswer(ctx context.Context, subs []*pg.Submission, answers []pg.Accepted, errs []error) (*batchOutput, error) {
	var again []outbox.ID
	for i, acc := range answers {
		if errs[i] == nil && acc.Replay {
			again = append(again, acc.ID)
		}
	}
	var known map[outbox.ID]*pg.Transaction
	if len(again) > 0 {
		err := a.Store.Durable(ctx)
		if err == nil {
			known, err = a.Store.Transactions(ctx, contextID(ctx), again)
		}
		for i, acc := range answers { // others are stored, whether these can be read or not
			if errs[i] == nil && acc.Replay {
				errs[i] = err
			}
		}
	}
	out := &batchOutput{Status: http.StatusCreated}
	if len(again) > 0 {
		out.Status = http.StatusOK
	}
	context := scopeOf(ctx).Context.Name
	for i, acc := range answers {
		item := batchItem{Status: http.StatusCreated}
		switch {
		case errs[i] != nil:
			item.Problem = a.problem(ctx, errs[i])
			item.Status = item.Problem.Status
			out.Status = http.StatusMultiStatus
		case acc.Replay && known[acc.ID] != nil:
			v := viewTransaction(known[acc.ID], include{data: true, result: true})
			item.Status, item.Transaction = http.StatusOK, &v
		default:
			v := viewTransaction(accepted(subs[i], acc, context), include{data: true, result: true})
			item.Transaction = &v
		}
		out.Body.Items = append(out.Body.Items, item)
	}
	return out, nil
}
