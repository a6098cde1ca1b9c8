package httpapi

import (
	"context"
	"encoding/json"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/deliveries"
)

func (a *API) deliveryRoutes() {
	const tag = "subscriptions"
	get(a, tag, "/deliveries", "list-deliveries", "List deliveries", a.listDeliveries)
	get(a, tag, "/deliveries/{id}", "get-delivery", "Read one delivery, with its attempts", a.getDelivery)
	post(a, tag, "/deliveries/{id}/retry", "retry-delivery", "Deliver now, or once more", a.retryDelivery, 200, 202)
}

// deliveryView is one delivery as clients read it.
type deliveryView struct {
	ID           string     `json:"id"`
	Subscription *string    `json:"subscription" doc:"null for a worker's hook or a callback"`
	Transaction  *string    `json:"transaction" doc:"null for what is told of anything else"`
	Batch        *int64     `json:"batch" doc:"of batch.result and batch.timeout"`
	Job          *string    `json:"job" doc:"the id, of job.finished and job.error"`
	Flow         *string    `json:"flow" doc:"the id, of flow.finished and flow.error"`
	Message      *string    `json:"message" doc:"the id, of message.received"`
	Intent       *string    `json:"intent" doc:"the id, of intent.confirmed, intent.reverted and intent.parked"`
	Domain       *string    `json:"domain" doc:"the name, of coordinator.changed"`
	Event        string     `json:"event" doc:"transaction.done, ..., or on-success, on-failure"`
	URL          *string    `json:"url" doc:"null for what is pulled, and for hooks"`
	Cursor       *string    `json:"cursor"`
	State        string     `json:"state" enum:"pending,delivered,failed"`
	At           time.Time  `json:"at" doc:"when it happened"`
	NextAt       *time.Time `json:"next_at" doc:"of the next try; null also while others of its queue stand before it"`
	Tries        int        `json:"tries"`
	Error        *string    `json:"error" doc:"of the last try"`
	CreatedAt    time.Time  `json:"created_at"`
	EndedAt      *time.Time `json:"ended_at"`
	Attempts     []tryView  `json:"attempts,omitempty" doc:"the last 20, oldest first; of one delivery only"`
}

// tryView is one call.
type tryView struct {
	At     time.Time `json:"at"`
	Status int       `json:"status" doc:"0 without an answer"`
	Answer string    `json:"answer" doc:"its first 1 KiB"`
	Error  string    `json:"error"`
	MS     int64     `json:"ms"`
}

func viewDelivery(d *deliveries.DeliveryRow, whole bool) deliveryView {
	v := deliveryView{ID: d.String(), Subscription: ptr(d.Subscription), Event: d.Event, URL: ptr(d.URL), State: d.State, At: d.At.UTC(), NextAt: utc(d.NextAt),
		Tries: d.Attempts, Error: ptr(d.Error), CreatedAt: d.CreatedAt.UTC(), EndedAt: utc(d.EndedAt)}
	if d.Track != deliveries.HookTrack {
		v.Event = outbox.Event(d.Event).Name()
	}
	switch outbox.Event(d.Event) {
	case outbox.EventTest:
	case outbox.EventResult, outbox.EventTimeout:
		v.Batch = ptr(d.Batch)
	case outbox.EventJobFinished, outbox.EventJobError:
		v.Job = ptr(d.Of)
	case outbox.EventFlowFinished, outbox.EventFlowError:
		v.Flow = ptr(d.Of)
	case outbox.EventMessageReceived:
		v.Message = ptr(d.Of)
	case outbox.EventIntentConfirmed, outbox.EventIntentReverted, outbox.EventIntentParked:
		v.Intent = ptr(d.Of)
	case outbox.EventCoordinatorChanged:
		v.Domain = ptr(d.Of)
	default:
		v.Transaction = ptr(d.ID.String())
	}
	if d.Position > 0 {
		v.Cursor = ptr(deliveries.Cursor{Subscription: d.Track, Position: d.Position}.String())
	}
	if whole {
		v.Attempts = []tryView{}
		_ = json.Unmarshal(d.Tries, &v.Attempts)
	}
	return v
}

type listDeliveriesInput struct {
	Subscription  []string  `query:"subscription,explode"`
	Transaction   string    `query:"transaction" doc:"Shows the hooks of its worker too; without it, hooks are listed only once they failed."`
	State         []string  `query:"state,explode" enum:"pending,delivered,failed"`
	CreatedAfter  time.Time `query:"created_after"`
	CreatedBefore time.Time `query:"created_before"`
	Paging
}

type deliveriesOutput struct {
	Link string `header:"Link"`
	Body struct {
		Items []deliveryView `json:"items"`
		Next  *string        `json:"next" doc:"null at the end; a page may be short, even empty, before it"`
	}
}

// deliveryCursor is the last delivery of a page, none for the first of its days, and the days in which the list goes
// on, none for all.
type deliveryCursor struct {
	At    time.Time  `json:"a,omitzero"`
	Queue int64      `json:"q,omitempty"`
	Seq   int64      `json:"s,omitempty"`
	Track string     `json:"l,omitempty"`
	Event string     `json:"e,omitempty"`
	Days  *db.Window `json:"d,omitempty"`
}

func (a *API) listDeliveries(ctx context.Context, in *listDeliveriesInput) (*deliveriesOutput, error) {
	limit, err := in.limit(a)
	if err != nil {
		return nil, err
	}
	f := deliveries.DeliveryFilter{Subscription: in.Subscription, State: in.State, After: in.CreatedAfter, Before: in.CreatedBefore, Ascending: in.Order == "asc", Limit: limit + 1}
	if in.Transaction != "" {
		id, err := outbox.ParseID(in.Transaction)
		if err != nil {
			return nil, fault.At("transaction", "transaction: %s", err)
		}
		f.Transaction = &id
	}
	filters := []any{"deliveries", in.Subscription, in.Transaction, in.State, in.CreatedAfter, in.CreatedBefore, f.Ascending}
	var c deliveryCursor
	if err := in.read(filters, &c); err != nil {
		return nil, err
	}
	if c.Days != nil && !a.Store.Fits(*c.Days) {
		return nil, badCursor(in.Cursor)
	}
	f.AfterAt, f.AfterQueue, f.AfterSeq, f.AfterTrack, f.AfterEvent = c.At, c.Queue, c.Seq, c.Track, c.Event
	found, following, err := a.Store.Deliveries.Page(ctx, contextID(ctx), &f, c.Days)
	if err != nil {
		return nil, err
	}
	page, link, err := cutTo(ctx, &in.Paging, limit, filters, found, cursorOfDelivery(f.Days),
		plainly(func(d *deliveries.DeliveryRow) deliveryView { return viewDelivery(d, false) }))
	out := &deliveriesOutput{Link: link}
	out.Body.Items, out.Body.Next = page.Items, page.Next
	if out.Body.Next == nil && following != nil {
		out.Body.Next, out.Link = in.next(ctx, filters, deliveryCursor{Days: following})
	}
	return out, err
}

// cursorOfDelivery makes cursors of a list that goes on in these days.
func cursorOfDelivery(days db.Window) func(*deliveries.DeliveryRow) deliveryCursor {
	var within *db.Window
	if days != (db.Window{}) {
		within = &days
	}
	return func(d *deliveries.DeliveryRow) deliveryCursor {
		return deliveryCursor{
			At:    d.CreatedAt,
			Queue: d.ID.Queue,
			Seq:   d.ID.Seq,
			Track: itoa(int(d.Track)),
			Event: d.Event,
			Days:  within,
		}
	}
}

type deliveryInput struct {
	ID string `path:"id" maxLength:"100"`
}

type deliveryOutput struct {
	ETag string `header:"ETag"`
	Body deliveryView
}

func (a *API) getDelivery(ctx context.Context, in *deliveryInput) (*deliveryOutput, error) {
	id, err := deliveries.ParseDeliveryID(in.ID)
	if err != nil {
		return nil, err
	}
	d, err := a.Store.Deliveries.Delivery(ctx, contextID(ctx), id)
	if err != nil {
		return nil, err
	}
	return &deliveryOutput{`"` + d.Tag() + `"`, viewDelivery(d, true)}, nil
}

type retryDeliveryInput struct {
	ID string `path:"id" maxLength:"100"`
	Trial
	Body *reasonBody
}

// retryDelivery makes one delivery due now, also one that has ended. 202: it stands behind others of its
// queue.
func (a *API) retryDelivery(ctx context.Context, in *retryDeliveryInput) (*leverOutput, error) {
	id, err := deliveries.ParseDeliveryID(in.ID)
	if err != nil {
		return nil, err
	}
	return lever(a.Store.Deliveries.RetryDelivery(ctx, by(ctx, in.Body.reason()), id))
}
