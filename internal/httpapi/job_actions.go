package httpapi

import (
	"context"
)

type cancelJobInput struct {
	OneJob
	Trial
	Body *reasonBody
}

// cancelJob ends a job that has not started: 200; it has the runner of one that has stop it: 202.
func (a *API) cancelJob(ctx context.Context, in *cancelJobInput) (*leverOutput, error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	return lever(a.Store.Flows.Cancel(ctx, by(ctx, in.Body.reason()), id))
}

type meetInput struct {
	OneJob
	Body struct {
		Met    []string `json:"met" minItems:"1" maxItems:"64" doc:"Names of its prerequisites."`
		Reason string   `json:"reason,omitempty" maxLength:"1000" doc:"Kept in the audit row."`
	}
}

type meetOutput struct {
	Body struct {
		Changed bool `json:"changed" doc:"false: all of them were met before"`
	}
}

// meetPrerequisites says that prerequisites are met: 200; 409 wrong_state where they are not waited for any more.
func (a *API) meetPrerequisites(ctx context.Context, in *meetInput) (*meetOutput, error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	out := &meetOutput{}
	out.Body.Changed, err = a.Store.Flows.Meet(ctx, by(ctx, in.Body.Reason), id, in.Body.Met)
	return out, err
}

// whyJob says what a job waits for.
func (a *API) whyJob(ctx context.Context, in *OneJob) (*whyOutput, error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	w, err := a.Store.Flows.WhyJob(ctx, contextID(ctx), id)
	if err != nil {
		return nil, err
	}
	return &whyOutput{viewWhy(w)}, nil
}

type replayJobInput struct {
	OneJob
	Body *reasonBody
}

type replayJobOutput struct {
	Body heldJob
}

// replayJob answers what the runner of the last try was given, with the values of its environment; the audit says who
// has read them. 409 wrong_state where no runner was given anything.
func (a *API) replayJob(ctx context.Context, in *replayJobInput) (*replayJobOutput, error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	t, err := a.Store.Flows.Replay(ctx, by(ctx, in.Body.reason()), id)
	if err != nil {
		return nil, err
	}
	return &replayJobOutput{viewTaken(t)}, nil
}
