package httpapi

import (
	"context"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/reads"
)

// historyView is one transition.
type historyView struct {
	At      time.Time `json:"at"`
	Machine string    `json:"machine" doc:"transaction; lever where a person's action is no event of the machine"`
	From    string    `json:"from" doc:"empty: there was nothing yet"`
	Event   string    `json:"event" doc:"as GET /machines lists them"`
	To      string    `json:"to"`
	By      string    `json:"by" doc:"an actor, or the node that did it"`
	Attempt int       `json:"attempt"`
	Detail  string    `json:"detail"`
}

type historyOutput struct {
	Body struct {
		Items []historyView `json:"items"`
		Next  *string       `json:"next"`
	}
}

type idInput struct {
	ID string `path:"id"`
}

// getHistory lists every transition, oldest first, people's actions included.
func (a *API) getHistory(ctx context.Context, in *idInput) (*historyOutput, error) {
	id, err := idOf(in.ID)
	if err != nil {
		return nil, err
	}
	out := &historyOutput{}
	out.Body.Items, err = a.historyOf(ctx, id)
	return out, err
}

func (a *API) historyOf(ctx context.Context, id outbox.ID) ([]historyView, error) {
	found, err := a.Store.Reads.History(ctx, contextID(ctx), id)
	list := []historyView{}
	for _, t := range found {
		list = append(list, historyView{t.At.UTC(), t.Machine, t.From, t.Event, t.To, t.By, t.Attempt, t.Detail})
	}
	return list, err
}

// attemptView is one dispatch.
type attemptView struct {
	Attempt    int        `json:"attempt"`
	Sender     *string    `json:"sender"`
	Node       *string    `json:"node"`
	Fence      int64      `json:"fence"`
	Token      string     `json:"token" doc:"by which the worker recognises it"`
	Fee        *string    `json:"fee"`
	Nonce      *string    `json:"nonce"`
	Hash       *string    `json:"hash"`
	StartedAt  *time.Time `json:"started_at"`
	AnsweredAt *time.Time `json:"answered_at" doc:"null while it is in flight"`
	WorkerMS   *int64     `json:"worker_ms"`
	Class      *string    `json:"class" doc:"null: nothing went wrong"`
	Error      *errorView `json:"error"`
	Late       bool       `json:"late" doc:"came when another process had the queue; changed nothing"`
}

type attemptsInput struct {
	ID     string `path:"id"`
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"50"`
	Cursor string `query:"cursor" doc:"next of the page before."`
	Last   bool   `query:"last" doc:"The last ones of all, without next."`
}

type attemptsOutput struct {
	Link string `header:"Link"`
	Body listed[attemptView]
}

// getAttempts lists a page of the dispatches, oldest first, the one in flight and the last one included. Its cursor is
// how many were shown before: none is ever taken away from before another. With last it is the end of the list.
func (a *API) getAttempts(ctx context.Context, in *attemptsInput) (*attemptsOutput, error) {
	id, err := idOf(in.ID)
	if err != nil {
		return nil, err
	}
	if in.Last && in.Cursor != "" {
		return nil, fault.New(fault.Invalid, "invalid", "last begins at the end: it takes no cursor")
	}
	p := Paging{Limit: in.Limit, Cursor: in.Cursor}
	limit, err := p.limit(a)
	if err != nil {
		return nil, err
	}
	shown, filters := 0, []any{"attempts", contextID(ctx), id.String()}
	if err := p.read(filters, &shown); err != nil {
		return nil, err
	}
	if shown = max(shown, 0); in.Last {
		shown = -1
	}
	found, err := a.Store.Reads.Attempts(ctx, contextID(ctx), id, shown, limit)
	if err != nil {
		return nil, err
	}
	out := &attemptsOutput{}
	out.Body, out.Link, err = cutTo(ctx, &p, limit, filters, found,
		func(reads.Dispatch) int { return shown + limit }, plainly(attemptOf))
	return out, err
}

// attemptOf is one dispatch as it is shown.
func attemptOf(d reads.Dispatch) attemptView {
	v := attemptView{
		Attempt:    d.Attempt.Attempt,
		Sender:     ptr(d.Sender),
		Node:       ptr(d.Node),
		Fence:      d.Fence,
		Token:      d.Token,
		Fee:        ptr(d.Fee),
		Nonce:      ptr(d.Nonce),
		Hash:       ptr(d.Hash),
		StartedAt:  utc(d.StartedAt),
		AnsweredAt: utc(d.Answered),
		Class:      ptr(string(d.Class)),
		Late:       d.Late,
	}
	if d.Class != "" || d.Code != "" || d.Error != "" {
		v.Error = &errorView{ptr(string(d.Class)), d.Code, d.Error}
	}
	if d.StartedAt != nil && d.Answered != nil {
		v.WorkerMS = new(d.Answered.Sub(*d.StartedAt).Milliseconds())
	}
	return v
}
