package httpapi

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// bulkMost is how many transactions one request may change, bulkIDs how many it may name, bulkPage how many of a filter
// are looked for at once. After bulkTime a request answers with what it did, and says where it stopped.
const (
	bulkMost = 10000
	bulkIDs  = 1000
	bulkPage = 200
	bulkTime = 20 * time.Second
)

// oneOrMore is a filter in a body: a value, or a list, where one value of the list must match.
type oneOrMore []string

// UnmarshalJSON reads a string or a list of them.
func (v *oneOrMore) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*v = oneOrMore{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(v))
}

// Schema leaves the form to UnmarshalJSON: generated clients have no type for both.
func (oneOrMore) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Description: "A string, or a list: one of it must hold."}
}

// bulkFilter is what GET /transactions filters by.
type bulkFilter struct {
	Queue          oneOrMore  `json:"queue,omitempty"`
	Type           oneOrMore  `json:"type,omitempty"`
	State          oneOrMore  `json:"state,omitempty"`
	Sender         oneOrMore  `json:"sender,omitempty"`
	UID            oneOrMore  `json:"uid,omitempty"`
	ID             oneOrMore  `json:"id,omitempty"`
	ErrorClass     oneOrMore  `json:"error_class,omitempty"`
	ErrorCode      oneOrMore  `json:"error_code,omitempty"`
	RedriveOf      string     `json:"redrive_of,omitempty"`
	Suspended      *bool      `json:"suspended,omitempty"`
	Held           *bool      `json:"held,omitempty"`
	ReceivedAfter  *time.Time `json:"received_after,omitempty" doc:"inclusive; the last 24 hours without it, queue, id, uid and held"`
	ReceivedBefore *time.Time `json:"received_before,omitempty" doc:"exclusive"`
	DoneAfter      *time.Time `json:"done_after,omitempty" doc:"inclusive"`
	DoneBefore     *time.Time `json:"done_before,omitempty" doc:"exclusive"`
}

// list is the filter as that of a list, oldest first.
func (f *bulkFilter) list(after string) *listInput {
	at := func(t *time.Time) (v time.Time) {
		if t != nil {
			v = *t
		}
		return v
	}
	is := func(v *bool) []string {
		if v == nil {
			return nil
		}
		return []string{strconv.FormatBool(*v)}
	}
	return &listInput{Queue: f.Queue, Type: f.Type, State: f.State, Sender: f.Sender, UID: f.UID, ID: f.ID, ErrorClass: f.ErrorClass,
		ErrorCode: f.ErrorCode, RedriveOf: f.RedriveOf, Suspended: is(f.Suspended), Held: is(f.Held),
		ReceivedAfter: at(f.ReceivedAfter), ReceivedBefore: at(f.ReceivedBefore),
		DoneAfter: at(f.DoneAfter), DoneBefore: at(f.DoneBefore), Paging: Paging{Order: "asc", Cursor: after}}
}

// bulkInputBody says which transactions a bulk is about.
type bulkInputBody struct {
	IDs    []string    `json:"ids,omitempty" maxItems:"1000" doc:"ids, or filter with max."`
	Filter *bulkFilter `json:"filter,omitempty" doc:"As in the list."`
	Max    int         `json:"max,omitempty" minimum:"1" maximum:"10000" doc:"Required with filter: nothing beyond it is touched."`
	After  string      `json:"after,omitempty" doc:"next of the answer before."`
	DryRun bool        `json:"dry_run,omitempty"`
	Reason string      `json:"reason,omitempty" maxLength:"1000"`
}

type bulkInput struct {
	DryRun bool `query:"dry_run" doc:"As dry_run in the body."`
	Body   bulkInputBody
}

// refusedView is one transaction that was left as it is.
type refusedView struct {
	ID     string `json:"id"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

type bulkOutput struct {
	Body struct {
		Matched int           `json:"matched" doc:"transactions that were looked at"`
		Changed int           `json:"changed" doc:"pending ones included"`
		Pending int           `json:"pending" doc:"these take effect later"`
		Refused []refusedView `json:"refused"`
		Next    *string       `json:"next" doc:"send it back as after, to go on behind max; null at the end"`
		DryRun  bool          `json:"dry_run,omitempty" doc:"true: this is what it would do"`
		IDs     []string      `json:"ids,omitempty" doc:"of a dry run with filter: what it looked at, up to 1000"`
	}
}

// tell has a dry run of a filter name what it has looked at.
func (o *bulkOutput) tell(id string) {
	if b := &o.Body; b.DryRun && b.Matched <= bulkIDs {
		b.IDs = append(b.IDs, id)
	} else {
		b.IDs = nil
	}
}

// bulk makes the handler of a lever on many transactions: by id, or by filter up to max, oldest first.
func (a *API) bulk(pull pg.Pull) func(context.Context, *bulkInput) (*bulkOutput, error) {
	return func(ctx context.Context, in *bulkInput) (*bulkOutput, error) {
		return a.newBulk(ctx, pull, in).run(ctx)
	}
}

// bulkRun is one request of a bulk.
type bulkRun struct {
	a       *API
	in      *bulkInput
	pull    pg.Pull
	apart   bool // each in a commit of its own
	by      db.By
	out     *bulkOutput
	carried func() string // what a cursor carries besides where the list goes on
}

func (a *API) newBulk(ctx context.Context, pull pg.Pull, in *bulkInput) *bulkRun {
	return &bulkRun{a: a, in: in, pull: pull, by: by(ctx, in.Body.Reason), out: &bulkOutput{},
		carried: func() string { return "" }}
}

func (r *bulkRun) run(ctx context.Context) (*bulkOutput, error) {
	b := &r.in.Body
	r.in.DryRun = r.in.DryRun || b.DryRun
	r.out.Body.Refused, r.out.Body.DryRun = []refusedView{}, r.in.DryRun
	switch {
	case len(b.IDs) > 0 == (b.Filter != nil):
		return nil, fault.At("/filter", "want either ids or filter")
	case b.Filter == nil && (b.Max != 0 || b.After != ""):
		return nil, fault.At("/max", "max and after go with filter, not with ids")
	case b.Filter == nil:
		return r.out, r.byIDs(ctx)
	case b.Max == 0:
		return nil, fault.At("/max", "max is required with filter: 1 to %d", bulkMost)
	}
	return r.out, r.byFilter(ctx)
}

func (r *bulkRun) refuse(id, code, detail string) {
	r.out.Body.Refused = append(r.out.Body.Refused, refusedView{id, code, detail})
}

// do pulls the lever on some transactions and counts.
func (r *bulkRun) do(ctx context.Context, ids []outbox.ID) error {
	bulk := r.a.Store.Bulk
	if r.apart {
		bulk = r.a.Store.BulkApart
	}
	done, err := bulk(ctx, r.by, ids, r.in.DryRun, r.pull)
	for _, p := range done {
		if r.out.Body.Matched++; r.in.Body.Filter != nil {
			r.out.tell(p.ID.String())
		}
		switch {
		case p.Refused != nil:
			r.refuse(p.ID.String(), p.Refused.Code, p.Refused.Detail)
			continue
		case p.Changed:
			r.out.Body.Changed++
		}
		if p.Pending {
			r.out.Body.Pending++
		}
	}
	return err
}

// byIDs does those that the request names, oldest first. Nothing of it is done twice when it is repeated.
func (r *bulkRun) byIDs(ctx context.Context) error {
	var ids []outbox.ID
	for _, s := range r.in.Body.IDs {
		id, err := outbox.ParseID(s)
		if err != nil {
			r.refuse(fault.Clip(s), "not_found", "this is no id of a transaction")
		} else if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	found, err := r.a.Store.Transactions(ctx, contextID(ctx), ids)
	if err != nil {
		return err
	}
	ids = slices.DeleteFunc(ids, func(id outbox.ID) bool {
		if found[id] == nil {
			r.refuse(id.String(), "not_found", "no transaction "+id.String())
		}
		return found[id] == nil
	})
	for i, id := range ids {
		ids[i] = found[id].ID // it may have been moved
		found[ids[i]] = found[id]
	}
	slices.SortStableFunc(ids, func(x, y outbox.ID) int { return older(found[x], found[y]) })
	return r.do(ctx, ids)
}

// older orders transactions as lists do: by time of receipt, queue and position.
func older(x, y *pg.Transaction) int {
	if c := x.ReceivedAt.Compare(y.ReceivedAt); c != 0 {
		return c
	}
	return slices.Compare([]int64{x.ID.Queue, x.ID.Seq}, []int64{y.ID.Queue, y.ID.Seq})
}

// byFilter goes through the list, page by page, until max, the end, or the time that one request may take. An
// error after something was done is kept for the log: the answer says what was done, and where to go on.
func (r *bulkRun) byFilter(ctx context.Context) error {
	begun, body, carried := time.Now(), &r.out.Body, r.carried()
	for after := r.in.Body.After; ; {
		in := r.in.Body.Filter.list(after)
		in.Limit = min(bulkPage, r.in.Body.Max-body.Matched)
		page, err := r.a.page(ctx, in)
		if err != nil {
			return err
		}
		ids := make([]outbox.ID, len(page.list))
		for i, t := range page.list {
			ids[i] = t.ID
		}
		if err := r.do(ctx, ids); err != nil {
			if body.Matched == 0 || after == "" { // the client sends the same again, and this part stays done
				return err
			}
			r.a.Log.WarnContext(ctx, "a bulk broke off", "request", scopeOf(ctx).RequestID, "error", err)
			if r.apart { // those that this page has moved are not in it any more
				carried = r.carried()
			}
			after += carried
			body.Next = &after
			return nil
		}
		if page.next == nil {
			body.Next = nil
			return nil
		}
		after, carried = *page.next, r.carried()
		next := after + carried
		if body.Next = &next; body.Matched >= r.in.Body.Max || time.Since(begun) > bulkTime {
			return nil
		}
	}
}

// redriveAgain posts a transaction once more, as it was.
func (a *API) redriveAgain(ctx context.Context, by db.By, id outbox.ID) (pg.LeverResult, error) {
	_, err := a.Store.Redrive(ctx, by, id, pg.Redrive{Poster: a.poster(ctx)})
	return pg.LeverResult{Changed: err == nil}, err
}
