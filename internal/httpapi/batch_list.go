package httpapi

import (
	"context"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/batches"
	"github.com/postern-dev/postern/internal/processor"
)

type listBatchesInput struct {
	Name     name   `path:"name"`
	Limit    int    `query:"limit" minimum:"1" maximum:"500" doc:"50 unless said; with priority 250."`
	Cursor   string `query:"cursor" doc:"next of the page before."`
	Priority string `query:"priority" enum:"High,Med" doc:"The batches of this line in its order, from the head, instead of all by their ids."`
	From     int64  `query:"from" doc:"With priority: the first position."`
	To       int64  `query:"to" default:"-1" doc:"With priority: the position after the last; -1 is the end of the line."`
	Order    string `query:"order" enum:"asc,desc" doc:"With priority: from the head (asc) or from the tail."`
	Waiting  string `query:"waiting" enum:"callback" doc:"Those that wait for a callback."`
	Result   string `query:"result" enum:"in_process,executed,rejected,partially_executed,removed_by_owner,expired,timeout,unexpected_error"`
}

type batchesOutput struct {
	Link string `header:"Link"`
	Body struct {
		Items  []batchView `json:"items"`
		Next   *string     `json:"next"`
		Length *int64      `json:"length,omitempty" doc:"with priority: how many stand in the line"`
	}
}

// listBatches lists the batches of a processor by their ids, or those of a line in its order: 200; 422 "Invalid range".
func (a *API) listBatches(ctx context.Context, in *listBatchesInput) (*batchesOutput, error) {
	out := &batchesOutput{}
	out.Body.Items = []batchView{}
	if in.Priority == "" {
		if in.From != 0 || in.To != -1 || in.Order != "" {
			return nil, fault.At("priority", "from, to and order are positions in a line: say which, priority=High or Med")
		}
		return out, a.batchesByID(ctx, in, out)
	}
	if in.Waiting != "" || in.Result != "" || in.Cursor != "" {
		return nil, fault.At("priority", "what stands in a line has no result and waits for no callback: leave priority out, or waiting, result and cursor")
	}
	found, length, err := a.Store.Batches.BatchesInLine(ctx, contextID(ctx), string(in.Name), priorityOf(in.Priority),
		processor.Range{From: in.From, To: in.To, Desc: in.Order == "desc", Limit: int64(in.Limit)})
	if err != nil {
		return nil, err
	}
	out.Body.Length = &length
	return out, out.add(found)
}

func (a *API) batchesByID(ctx context.Context, in *listBatchesInput, out *batchesOutput) error {
	p := Paging{Limit: in.Limit, Cursor: in.Cursor}
	limit, err := p.limit(a)
	if err != nil {
		return err
	}
	filters, after := []any{"batches", in.Name, in.Waiting, in.Result}, int64(0)
	if err := p.read(filters, &after); err != nil {
		return err
	}
	found, err := a.Store.Batches.Batches(ctx, contextID(ctx), string(in.Name),
		batches.BatchFilter{Result: processor.ResultKind(in.Result), Waiting: in.Waiting != "", After: after, Limit: limit + 1})
	if err != nil {
		return err
	}
	if len(found) > limit {
		found = found[:limit]
		out.Body.Next, out.Link = p.next(ctx, filters, found[limit-1].ID)
	}
	return out.add(found)
}

func (o *batchesOutput) add(found []*batches.Batch) error {
	for _, b := range found {
		v, err := viewBatch(b)
		if err != nil {
			return err
		}
		o.Body.Items = append(o.Body.Items, v)
	}
	return nil
}
