package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
)

type testOutput struct {
	Status   int
	Location string `header:"Location"`
	Body     struct {
		Result   string `json:"result" enum:"pending"`
		Delivery string `json:"delivery" doc:"GET /deliveries/{id} says what came of it"`
		DryRun   bool   `json:"dry_run,omitempty" doc:"true: this is what it would do"`
	}
}

// testSubscription makes an event that only this subscription gets, by the way of all others.
func (a *API) testSubscription(ctx context.Context, in *actNamed) (*testOutput, error) {
	id, err := a.Store.Deliveries.TestSubscription(ctx, by(ctx, in.Body.reason()), string(in.Name))
	if err != nil {
		return nil, err
	}
	out := &testOutput{Status: http.StatusAccepted, Location: "/deliveries/" + id}
	out.Body.Result, out.Body.Delivery, out.Body.DryRun = "pending", id, in.DryRun
	return out, nil
}

type secretOutput struct {
	Body struct {
		Secret string     `json:"secret" doc:"Shown once; signs from now on."`
		Until  *time.Time `json:"previous_secret_until" doc:"the secret before signs too until then"`
	}
}

// rotateSecret draws a new secret; for a day both sign, so that receivers can change over.
func (a *API) rotateSecret(ctx context.Context, in *actNamed) (*secretOutput, error) {
	secret := newSecret()
	if err := a.Store.Deliveries.RotateSecret(ctx, by(ctx, in.Body.reason()), string(in.Name), secret); err != nil {
		return nil, err
	}
	s, err := a.Store.Deliveries.Subscription(ctx, contextID(ctx), string(in.Name))
	if err != nil {
		return nil, err
	}
	out := &secretOutput{}
	out.Body.Until = utc(s.SecretUntil)
	if !in.DryRun {
		out.Body.Secret = showSecret(secret)
	}
	return out, nil
}

type redeliverBody struct {
	Since  time.Time  `json:"since" doc:"Events from then on."`
	Until  *time.Time `json:"until,omitempty" doc:"And before then; now unless said."`
	Only   string     `json:"only,omitempty" enum:"failed,all" doc:"What was given up (default), or everything. What is pulled goes back as a whole."`
	Reason string     `json:"reason,omitempty" maxLength:"1000"`
}

type redeliverInput struct {
	Name name `path:"name"`
	Trial
	Body redeliverBody
}

type redeliverOutput struct {
	Status int
	Body   struct {
		Result  string `json:"result" enum:"pending"`
		Matched int64  `json:"matched" doc:"how many go out once more, under their old ids"`
		DryRun  bool   `json:"dry_run,omitempty" doc:"true: this is what it would do"`
	}
}

// redeliver sends the events of a span of time once more. The feed of a pull subscription is rewound to the begin of
// the span.
func (a *API) redeliver(ctx context.Context, in *redeliverInput) (*redeliverOutput, error) {
	now, err := a.now(ctx)
	if err != nil {
		return nil, err
	}
	s, err := a.Store.Deliveries.Subscription(ctx, contextID(ctx), string(in.Name))
	if err != nil {
		return nil, err
	}
	until := now
	if in.Body.Until != nil {
		until = *in.Body.Until
	}
	out := &redeliverOutput{Status: http.StatusAccepted}
	out.Body.Result, out.Body.DryRun = "pending", in.DryRun
	switch {
	case !until.After(in.Body.Since):
		return nil, fault.At("/until", "until %q: want a time after since", until.UTC().Format(time.RFC3339))
	case s.Kind == "pull" && (in.Body.Until != nil || in.Body.Only != ""):
		return nil, fault.At("", "until and only are for webhooks: what is pulled goes back to since as a whole")
	case s.Kind == "pull":
		out.Body.Matched, err = a.Store.Deliveries.RewindFeed(ctx, by(ctx, in.Body.Reason), s.Name, in.Body.Since)
	default:
		out.Body.Matched, err = a.Store.Deliveries.Redeliver(ctx, by(ctx, in.Body.Reason), s.Name,
			in.Body.Since, until, in.Body.Only == "all")
	}
	return out, err
}

type ackInput struct {
	Name name `path:"name"`
	Trial
	Body struct {
		Cursor string `json:"cursor" maxLength:"64" doc:"of the last event that is done with"`
	}
}

// ack acknowledges everything up to and with a cursor. An older one changes nothing.
func (a *API) ack(ctx context.Context, in *ackInput) (*leverOutput, error) {
	changed, err := a.Store.Deliveries.AckFeed(ctx, contextID(ctx), string(in.Name), in.Body.Cursor)
	return lever(pg.LeverResult{Changed: changed}, err)
}
