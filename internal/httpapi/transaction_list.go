package httpapi

import (
	"context"
	"slices"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/reads"
)

type listInput struct {
	Queue          []string  `query:"queue,explode"`
	Type           []string  `query:"type,explode"`
	State          []string  `query:"state,explode"`
	Sender         []string  `query:"sender,explode"`
	UID            []string  `query:"uid,explode" maxItems:"100"`
	ID             []string  `query:"id,explode" maxItems:"100"`
	ErrorClass     []string  `query:"error_class,explode"`
	ErrorCode      []string  `query:"error_code,explode"`
	RedriveOf      string    `query:"redrive_of"`
	Suspended      []string  `query:"suspended,explode" enum:"true,false"`
	Held           []string  `query:"held,explode" enum:"true,false" doc:"An operator has to say what came of it, however old it is."`
	ReceivedAfter  time.Time `query:"received_after" doc:"inclusive"`
	ReceivedBefore time.Time `query:"received_before" doc:"exclusive"`
	DoneAfter      time.Time `query:"done_after" doc:"inclusive"`
	DoneBefore     time.Time `query:"done_before" doc:"exclusive"`
	Include        []string  `query:"include" enum:"data,result,history" doc:"What is heavy: data, result, history."`
	Paging
}

type transactionList struct {
	Link string `header:"Link"`
	Body struct {
		Items  []transactionView `json:"items"`
		Next   *string           `json:"next" doc:"null at the end; a page may be short, even empty, before it"`
		Window *window           `json:"window,omitempty" doc:"the time of receipt that the list covers, where the request named none"`
	}
}

type window struct {
	ReceivedAfter time.Time `json:"received_after"`
}

// page is what a list found, before it is shown.
type page struct {
	list   []*pg.Transaction
	next   *string
	link   string
	window *window
}

// listTransactions lists by time of receipt, one queue by position. Without queue, id, uid or held it shows
// the last 24 hours unless told; filters on the state only thin a page.
func (a *API) listTransactions(ctx context.Context, in *listInput) (*transactionList, error) {
	p, err := a.page(ctx, in)
	if err != nil {
		return nil, err
	}
	out := &transactionList{Link: p.link}
	out.Body.Items, out.Body.Next, out.Body.Window = []transactionView{}, p.next, p.window
	with := include{data: slices.Contains(in.Include, "data"), result: slices.Contains(in.Include, "result"), history: slices.Contains(in.Include, "history")}
	for _, t := range p.list {
		v := viewTransaction(t, with)
		if with.history {
			if v.History, err = a.historyOf(ctx, t.ID); err != nil {
				return nil, err
			}
		}
		out.Body.Items = append(out.Body.Items, v)
	}
	return out, nil
}

// page finds a page of a list.
func (a *API) page(ctx context.Context, in *listInput) (*page, error) {
	f, err := in.filter(a)
	if err != nil {
		return nil, err
	}
	p := &page{}
	filters := []any{in.Queue, in.Type, in.State, in.Sender, in.ErrorClass, in.ErrorCode, in.RedriveOf, in.Suspended,
		in.Held, in.ReceivedAfter, in.ReceivedBefore, in.DoneAfter, in.DoneBefore, f.Ascending}
	if len(in.ID)+len(in.UID) > 0 {
		return a.pageOfNames(ctx, in, f, append(filters, in.ID, in.UID))
	}
	var c transactionCursor
	if err := in.read(filters, &c); err != nil {
		return nil, err
	}
	f.From = c.From
	held := f.Held != nil && *f.Held // they are few, and old ones matter most
	told := held ||
		!in.ReceivedAfter.IsZero() || !in.ReceivedBefore.IsZero() || !in.DoneAfter.IsZero() || !in.DoneBefore.IsZero()
	if !told && len(in.Queue) == 0 {
		if f.ReceivedAfter = c.Window; f.ReceivedAfter.IsZero() {
			now, err := a.now(ctx)
			if err != nil {
				return nil, err
			}
			f.ReceivedAfter = now.Add(-24 * time.Hour)
		}
		p.window = &window{f.ReceivedAfter.UTC()}
		c.Window = f.ReceivedAfter
	}
	if p.list, c.From, err = a.Store.Reads.ListTransactions(ctx, contextID(ctx), f); err == nil && c.From != nil {
		p.next, p.link = in.next(ctx, filters, c)
	}
	return p, err
}

type transactionCursor struct {
	From   *reads.ListCursor `json:"f"`
	Window time.Time         `json:"w,omitzero"`
}

// filter checks what a schema cannot say.
func (in *listInput) filter(a *API) (reads.ListFilter, error) {
	limit, err := in.limit(a)
	if err != nil {
		return reads.ListFilter{}, err
	}
	for _, s := range in.State {
		if outbox.State(s).Code() == 0 {
			return reads.ListFilter{}, fault.At("state", "state %q: want one of %s", fault.Clip(s), stateNames())
		}
	}
	if in.RedriveOf != "" {
		if _, err := outbox.ParseID(in.RedriveOf); err != nil {
			return reads.ListFilter{}, fault.At("redrive_of", "redrive_of: %s", err)
		}
	}
	for name, t := range map[string]time.Time{"received_after": in.ReceivedAfter, "received_before": in.ReceivedBefore, "done_after": in.DoneAfter, "done_before": in.DoneBefore} {
		if !t.IsZero() {
			if err := checkTime(name, t, a.Store.Moment(time.Now())); err != nil {
				return reads.ListFilter{}, err
			}
		}
	}
	return reads.ListFilter{Suspended: oneOf(in.Suspended), Held: oneOf(in.Held), Queues: in.Queue,
		Types: in.Type, States: in.State, Senders: in.Sender, Classes: in.ErrorClass, Codes: in.ErrorCode,
		RedriveOf: in.RedriveOf, ReceivedAfter: in.ReceivedAfter, ReceivedBefore: in.ReceivedBefore, DoneAfter: in.DoneAfter, DoneBefore: in.DoneBefore,
		Ascending: in.Order == "asc", Limit: limit, Examined: a.Limits.Examined, Bodies: slices.Contains(in.Include, "data") || slices.Contains(in.Include, "result")}, nil
}

// oneOf is a filter of true or false; nil for none, and for both.
func oneOf(values []string) *bool {
	if len(values) == 0 || slices.ContainsFunc(values, func(s string) bool { return s != values[0] }) {
		return nil
	}
	is := values[0] == "true"
	return &is
}

// pageOfNames is a page of the transactions that the request names, in the order of lists.
func (a *API) pageOfNames(ctx context.Context, in *listInput, f reads.ListFilter, filters []any) (*page, error) {
	var c transactionCursor
	if err := in.read(filters, &c); err != nil {
		return nil, err
	}
	list, err := a.byNames(ctx, in, f)
	if err != nil {
		return nil, err
	}
	order := older
	if !f.Ascending {
		order = func(x, y *pg.Transaction) int { return older(y, x) }
	}
	slices.SortFunc(list, order)
	if c.From != nil {
		last := &pg.Transaction{ReceivedAt: c.From.At, ID: outbox.ID{Queue: c.From.Queue, Seq: c.From.Seq}}
		list = slices.DeleteFunc(list, func(t *pg.Transaction) bool { return order(t, last) <= 0 })
	}
	p := &page{list: list[:min(len(list), f.Limit)]}
	if len(list) > f.Limit {
		last := list[f.Limit-1]
		c.From = &reads.ListCursor{At: last.ReceivedAt, Queue: last.ID.Queue, Seq: last.ID.Seq}
		p.next, p.link = in.next(ctx, filters, c)
	}
	return p, nil
}

// byNames reads the transactions that the request names by id and uid, each once, and applies the other filters. The id
// that one had before it was moved names it, too.
func (a *API) byNames(ctx context.Context, in *listInput, f reads.ListFilter) (list []*pg.Transaction, err error) {
	var ids []outbox.ID
	for _, s := range in.ID {
		if id, err := outbox.ParseID(s); err == nil {
			ids = append(ids, id)
		}
	}
	named := slices.Clone(ids)
	for _, uid := range in.UID {
		id, err := a.Store.ByUID(ctx, contextID(ctx), uid)
		if fault.KindOf(err) == fault.NotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	found, err := a.Store.Transactions(ctx, contextID(ctx), ids)
	if err != nil {
		return nil, err
	}
	byID := map[outbox.ID]bool{}
	for _, id := range named {
		if t := found[id]; t != nil {
			byID[t.ID] = true
		}
	}
	listed := map[outbox.ID]bool{}
	for _, t := range found {
		if (len(in.ID) == 0 || byID[t.ID]) && !listed[t.ID] && fits(t, in, f) {
			listed[t.ID] = true
			list = append(list, t)
		}
	}
	return list, nil
}

// fits applies the filters, but for ids, to a transaction that was found by name.
func fits(t *pg.Transaction, in *listInput, f reads.ListFilter) bool {
	anyOf := func(list []string, v string) bool { return len(list) == 0 || slices.Contains(list, v) }
	within := func(after, before time.Time, t *time.Time) bool {
		return (after.IsZero() || t != nil && !t.Before(after)) && (before.IsZero() || t != nil && t.Before(before))
	}
	return (f.Suspended == nil || *f.Suspended == t.Suspended) && (f.Held == nil || *f.Held == t.Held) &&
		anyOf(in.UID, t.UID) && anyOf(f.Queues, t.Queue) && anyOf(f.Types, t.Type) &&
		anyOf(f.States, string(t.State)) && anyOf(f.Senders, t.Sender) && anyOf(f.Classes, string(t.Class)) && anyOf(f.Codes, t.Code) &&
		(f.RedriveOf == "" || f.RedriveOf == t.RedriveOf) && within(f.ReceivedAfter, f.ReceivedBefore, &t.ReceivedAt) && within(f.DoneAfter, f.DoneBefore, t.DoneAt)
}
