package httpapi

import (
	"context"
	"net/http"

	"github.com/postern-dev/postern/internal/pg/batches"
	"github.com/postern-dev/postern/internal/processor"
)

func (a *API) executionRoutes() {
	const tag = "authorizations"
	get(a, tag, "/authorizations/{label}/executions", "list-executions",
		"List what was sent, and how it ended", a.listExecutions)
	post(a, tag, "/authorizations/{label}/executions/{id}/retry", "retry-execution",
		"Send again what was not delivered in time", a.retryExecution, 200)
}

type listExecutionsInput struct {
	Label  string `path:"label" maxLength:"200"`
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"50"`
	Cursor string `query:"cursor" doc:"next of the page before."`
	Result string `query:"result" enum:"in_process,executed,rejected,partially_executed,removed_by_owner,expired,timeout,unexpected_error"`
}

// executionsOutput is a page of batches.
type executionsOutput struct {
	Link string `header:"Link"`
	Body struct {
		Items []batchView `json:"items"`
		Next  *string     `json:"next" doc:"null at the end; a page may be short, even empty, before it"`
	}
}

// listExecutions lists the batches of an authorization by their ids: 200; 404.
func (a *API) listExecutions(ctx context.Context, in *listExecutionsInput) (*executionsOutput, error) {
	var err error
	out := &executionsOutput{}
	out.Body, out.Link, err = listBy(ctx, a, &namedPage{Limit: in.Limit, Cursor: in.Cursor},
		[]any{"executions", in.Label, in.Result},
		func(after int64, limit int) ([]*batches.Batch, error) {
			return a.Store.Batches.Executions(ctx, contextID(ctx), in.Label,
				batches.BatchFilter{Result: processor.ResultKind(in.Result), After: after, Limit: limit})
		},
		func(b *batches.Batch) int64 { return b.ID }, viewBatch)
	return out, err
}

type retryExecutionInput struct {
	Label string `path:"label" maxLength:"200"`
	ID    string `path:"id" maxLength:"20"`
}

// retryExecution sends a batch that was not delivered to its domain again, under the same id (S4.14): 200, also where
// its ttl is over meanwhile, and it has ended; 404; 409 "Messages are not retriable". Anybody may, as often as tick.
func (a *API) retryExecution(ctx context.Context, in *retryExecutionInput) (*oneBatchOutput, error) {
	id, err := (&oneBatchInput{ID: in.ID}).id()
	if err != nil {
		return nil, err
	}
	who := by(ctx, "")
	if err := a.paced(who); err != nil {
		return nil, err
	}
	b, err := a.Store.Batches.Resend(ctx, who, in.Label, id)
	return a.answerBatch(b, err, http.StatusOK)
}

type grantInput struct {
	Label string `path:"label" maxLength:"200"`
	Actor string `path:"actor" maxLength:"200"`
	Trial
	Body struct {
		Calls int64 `json:"calls" minimum:"0" maximum:"1000000000" doc:"How many the actor may make from now on."`
	}
}

type grantOutput struct {
	Body struct {
		Actor string `json:"actor"`
		Calls int64  `json:"calls" doc:"that are left"`
		Spent int64  `json:"spent" doc:"held by batches that run, or burned"`
	}
}

// putGrant gives an actor calls of an authorization that counts them: 200; 409 for one that does not.
func (a *API) putGrant(ctx context.Context, in *grantInput) (*grantOutput, error) {
	g, err := a.Store.Batches.PutGrant(ctx, by(ctx, ""), in.Label, in.Actor, in.Body.Calls)
	if err != nil {
		return nil, err
	}
	out := &grantOutput{}
	out.Body.Actor, out.Body.Calls, out.Body.Spent = in.Actor, g.Left, g.Spent
	return out, nil
}
