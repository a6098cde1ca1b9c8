package httpapi

import (
	"context"
	"encoding/json"
	"time"

	"github.com/postern-dev/postern/internal/pg/db"
)

func (a *API) auditRoutes() {
	const tag = "access"
	get(a, tag, "/audit", "list-audit", "Who did what, newest first unless said", a.listAudit)
}

// auditView is one lever that was pulled, or one change of configuration.
type auditView struct {
	At        time.Time       `json:"at"`
	Actor     string          `json:"actor"`
	Via       string          `json:"via" doc:"the door: http, sql, ..."`
	Action    string          `json:"action"`
	Object    string          `json:"object"`
	Reason    string          `json:"reason"`
	RequestID string          `json:"request_id"`
	Before    json.RawMessage `json:"before,omitempty" doc:"what was configured, where that is known"`
	After     json.RawMessage `json:"after,omitempty"`
}

type listAuditInput struct {
	Actor    string    `query:"actor"`
	Action   string    `query:"action" example:"pause"`
	Object   string    `query:"object" example:"/queues/claim-7f3"`
	AtAfter  time.Time `query:"at_after" doc:"half-open: from then on"`
	AtBefore time.Time `query:"at_before"`
	Paging
}

type auditOutput struct {
	Link string `header:"Link"`
	Body struct {
		Items []auditView `json:"items"`
		Next  *string     `json:"next" doc:"null at the end; a page may be short, even empty, before it"`
	}
}

// auditCursor is where a page of audit rows ended.
type auditCursor struct {
	At time.Time `json:"at"`
	ID int64     `json:"id"`
}

// listAudit lists who did what in the context, newest first unless said.
func (a *API) listAudit(ctx context.Context, in *listAuditInput) (*auditOutput, error) {
	p := in.Paging
	limit, err := p.limit(a)
	if err != nil {
		return nil, err
	}
	from := auditCursor{}
	filters := []any{"audit", contextID(ctx), in.Actor, in.Action, in.Object, in.AtAfter, in.AtBefore, in.Order}
	if err := p.read(filters, &from); err != nil {
		return nil, err
	}
	found, last, err := a.Store.Audit(ctx, contextID(ctx), db.AuditFilter{
		Actor:     in.Actor,
		Action:    in.Action,
		Object:    in.Object,
		After:     in.AtAfter,
		Before:    in.AtBefore,
		FromAt:    from.At,
		FromID:    from.ID,
		Ascending: in.Order == "asc",
		Limit:     limit + 1,
	})
	if err != nil {
		return nil, err
	}
	place := func(r *db.AuditRow) auditCursor { return auditCursor{r.At, r.ID} }
	var further *auditCursor
	if last != nil {
		at := place(last)
		further = &at
	}
	out := &auditOutput{}
	out.Body, out.Link, err = goesOn(ctx, &p, limit, filters, found, further, place,
		plainly(func(r *db.AuditRow) auditView {
			return auditView{r.At.UTC(), r.Actor, r.Via, r.Action, r.Object, r.Reason, r.RequestID, r.Before, r.After}
		}))
	return out, err
}
