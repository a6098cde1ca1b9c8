package httpapi

import (
	"context"
	"encoding/json"
	"time"

	"github.com/postern-dev/postern/internal/pg/flows"
)

type jobStepView struct {
	At     time.Time `json:"at"`
	Event  string    `json:"event"`
	From   string    `json:"from" doc:"empty: there was nothing yet"`
	To     string    `json:"to"`
	By     string    `json:"by" doc:"the actor or the runner; empty: it happened by itself"`
	Detail string    `json:"detail"`
}

type jobHistoryOutput struct {
	Body listed[jobStepView]
}

func (a *API) getJobHistory(ctx context.Context, in *OneJob) (*jobHistoryOutput, error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	steps, err := a.Store.Flows.History(ctx, contextID(ctx), id)
	if err != nil {
		return nil, err
	}
	return viewSteps(steps), nil
}

func viewSteps(steps []flows.Step) *jobHistoryOutput {
	out := &jobHistoryOutput{}
	out.Body.Items = []jobStepView{}
	for _, s := range steps {
		out.Body.Items = append(out.Body.Items, jobStepView{s.At.UTC(), s.Event, s.Was, s.Status, s.By, s.Text})
	}
	return out
}

// jobTryView is a try as clients read it.
type jobTryView struct {
	ID        string          `json:"id"`
	Attempt   int             `json:"attempt"`
	Token     string          `json:"token"`
	State     string          `json:"state" enum:"Offered,Held,Finished,Failed,Withdrawn,Sent"`
	Runner    *string         `json:"runner"`
	Lapses    int             `json:"lapses" doc:"how often a runner was lost that held it"`
	OfferedAt time.Time       `json:"offered_at"`
	HeldAt    *time.Time      `json:"held_at"`
	EndedAt   *time.Time      `json:"ended_at"`
	Result    json.RawMessage `json:"result"`
	ExitCode  *int            `json:"exit_code"`
	Error     *jobError       `json:"error"`
	Final     bool            `json:"final" doc:"no other try follows"`
	Isolation string          `json:"isolation"`
	Usage     json.RawMessage `json:"usage"`
}

type jobTriesOutput struct {
	Body listed[jobTryView]
}

func (a *API) getJobTries(ctx context.Context, in *OneJob) (*jobTriesOutput, error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	tries, runners, err := a.Store.Flows.Tries(ctx, contextID(ctx), id)
	if err != nil {
		return nil, err
	}
	null := func(raw json.RawMessage) json.RawMessage {
		if raw == nil {
			return json.RawMessage("null")
		}
		return raw
	}
	out := &jobTriesOutput{}
	out.Body.Items = []jobTryView{}
	for _, t := range tries {
		v := jobTryView{
			ID:        t.ID.String(),
			Attempt:   t.Attempt,
			Token:     t.Token,
			State:     string(t.State),
			Runner:    ptr(runners[t.Runner]),
			Lapses:    t.Lapses,
			OfferedAt: t.OfferedAt.UTC(),
			HeldAt:    utc(t.HeldAt),
			EndedAt:   utc(t.EndedAt),
			Result:    null(t.Result),
			ExitCode:  t.ExitCode,
			Final:     t.Final,
			Isolation: t.Isolation,
			Usage:     null(t.Usage),
		}
		if t.Code != "" {
			v.Error = &jobError{Code: t.Code, Message: t.Error}
		}
		out.Body.Items = append(out.Body.Items, v)
	}
	return out, nil
}

type jobInputsOutput struct {
	Body json.RawMessage
}

func (a *API) getJobInputs(ctx context.Context, in *OneJob) (*jobInputsOutput, error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	inputs, err := a.Store.Flows.Inputs(ctx, contextID(ctx), id)
	return &jobInputsOutput{Body: inputs}, err
}

// logView is a piece of output.
type logView struct {
	N       int       `json:"n"`
	Stream  string    `json:"stream" enum:"stdout,stderr,runner"`
	Text    string    `json:"text"`
	At      time.Time `json:"at"`
	Try     string    `json:"try"`
	Attempt int       `json:"attempt"`
}

type jobLogsInput struct {
	OneJob
	After string `query:"after" doc:"after of the answer before: what came since."`
	Last  int    `query:"last" minimum:"1" maximum:"500" doc:"The last so many pieces, in place of after."`
	Limit int    `query:"limit" minimum:"1" maximum:"500" default:"500"`
}

type jobLogsOutput struct {
	Body struct {
		Items []logView `json:"items"`
		After string    `json:"after" doc:"where the next look begins, also while there is nothing more"`
	}
}

func (a *API) getJobLogs(ctx context.Context, in *jobLogsInput) (*jobLogsOutput, error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	p := Paging{Cursor: in.After}
	var place flows.LogPlace
	if err := p.read([]any{"logs", in.ID}, &place); err != nil {
		return nil, err
	}
	or(&in.Limit, 500)
	var lines []*flows.Logged
	if in.Last > 0 {
		lines, err = a.Store.Flows.LastLogs(ctx, contextID(ctx), id, in.Last)
	} else {
		lines, err = a.Store.Flows.Logs(ctx, contextID(ctx), id, place, in.Limit)
	}
	if err != nil {
		return nil, err
	}
	out := &jobLogsOutput{}
	out.Body.Items = []logView{}
	for _, l := range lines {
		out.Body.Items = append(out.Body.Items, logView{l.N, l.Stream, l.Text, l.At.UTC(), l.Try.String(), l.Attempt})
		place = flows.LogPlace{Attempt: l.Attempt, Fence: l.Fence, N: l.N}
	}
	if after, _ := p.next(ctx, []any{"logs", in.ID}, place); after != nil {
		out.Body.After = *after
	}
	return out, nil
}
