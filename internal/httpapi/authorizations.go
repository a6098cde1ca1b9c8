package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/batches"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/processor"
)

func (a *API) authorizationRoutes() {
	const tag = "authorizations"
	get(a, tag, "/authorizations", "list-authorizations", "List authorizations", a.authorizations().list)
	post(a, tag, "/authorizations", "post-authorization", "Create an authorization", a.postAuthorization, 201)
	get(a, tag, "/authorizations/{label}", "get-authorization", "Read one authorization", a.getAuthorization)
	put(a, tag, "/authorizations/{label}", "put-authorization",
		"Create or replace an authorization", a.putAuthorization, 200, 201)
	patch(a, tag, "/authorizations/{label}", "patch-authorization",
		"Change the settings of an authorization", a.patchAuthorization)
	remove(a, tag, "/authorizations/{label}", "delete-authorization",
		"Remove an authorization that has nothing under way", a.deleteAuthorization)
	post(a, tag, "/authorizations/{label}/enable", "enable-authorization",
		"Let batches be sent", a.enableAuthorization, 200)
	post(a, tag, "/authorizations/{label}/disable", "disable-authorization",
		"Let no more batches be sent", a.disableAuthorization, 200)
	post(a, tag, "/authorizations/{label}/send", "send-batch",
		"Send a batch, or hear which rule forbids it", a.sendBatch, 201, 200)
	put(a, tag, "/authorizations/{label}/grants/{actor}", "put-grant", "Give an actor calls", a.putGrant, 200)
}

// authorizationSettings is what people write of an authorization.
type authorizationSettings struct {
	Label         string          `json:"label,omitempty" doc:"Up to 44 characters; if given beside a path, that of the path."`
	Mode          json.RawMessage `json:"mode" doc:"\"permissionless\", or {\"permissioned\": {\"with_call_limit\": {actor: n}}}, or {\"permissioned\": {\"without_call_limit\": [actor]}}."`
	NotBefore     *time.Time      `json:"not_before,omitempty"`
	Duration      json.RawMessage `json:"duration,omitempty" doc:"\"forever\" unless said, {\"seconds\": n} or {\"blocks\": n}, from now on."`
	MaxConcurrent int             `json:"max_concurrent_executions,omitempty" minimum:"1" maximum:"100000" doc:"1 unless said."`
	Priority      string          `json:"priority,omitempty" enum:"High,Med" doc:"Med unless said."`
	Actions       json.RawMessage `json:"actions_config" doc:"As that of a batch."`
}

func (s *authorizationSettings) read() (processor.Authorization, error) {
	v := processor.DefaultAuthorization()
	v.Label, v.NotBefore, v.Priority = s.Label, s.NotBefore, priorityOf(s.Priority)
	if s.MaxConcurrent != 0 {
		v.MaxConcurrent = s.MaxConcurrent
	}
	err := strictly("/mode", s.Mode, &v.Mode)
	if err == nil && s.Duration != nil {
		err = strictly("/duration", s.Duration, &v.Duration)
	}
	if err == nil {
		err = strictly("/actions_config", s.Actions, &v.Actions)
	}
	return v, err
}

// authorizationView is an authorization as clients read it.
type authorizationView struct {
	Label         string          `json:"label"`
	State         string          `json:"state" enum:"Enabled,Disabled"`
	Mode          json.RawMessage `json:"mode"`
	NotBefore     *time.Time      `json:"not_before"`
	Duration      json.RawMessage `json:"duration"`
	EndsAt        *time.Time      `json:"ends_at" doc:"from its duration"`
	EndsAtHeight  *string         `json:"ends_at_height" doc:"digits"`
	MaxConcurrent int             `json:"max_concurrent_executions"`
	Priority      string          `json:"priority" enum:"High,Med"`
	Actions       json.RawMessage `json:"actions_config"`
	Running       int             `json:"running" doc:"batches that have not ended"`
	Spent         int64           `json:"spent" doc:"calls of the one who asks that are held or burned, where calls are limited"`
	Version       int64           `json:"version"`
	CreatedAt     time.Time       `json:"created_at"`
}

func viewAuthorization(a *batches.Authorization) (authorizationView, error) {
	v := authorizationView{Label: a.Label, State: "Disabled", NotBefore: utc(a.NotBefore), EndsAt: utc(a.EndsAt), EndsAtHeight: digits(a.EndsAtHeight),
		MaxConcurrent: a.MaxConcurrent, Priority: a.Priority.String(), Running: a.Running, Spent: a.Spent, Version: a.Version, CreatedAt: a.CreatedAt.UTC()}
	if a.Enabled {
		v.State = "Enabled"
	}
	for _, part := range []struct {
		into *json.RawMessage
		of   any
	}{{&v.Mode, a.Mode}, {&v.Duration, a.Duration}, {&v.Actions, a.Actions}} {
		text, err := json.Marshal(part.of)
		if err != nil {
			return v, err
		}
		*part.into = text
	}
	return v, nil
}

// authorizations says what is an authorization's own among named things. Its label may be changed by no write, and a
// POST makes one, too; see writeAuthorization. How long it holds begins anew where a write replaces it, and where
// a change of it changes its duration.
func (a *API) authorizations() resource[authorizationSettings, *batches.Authorization, authorizationView] {
	return resource[authorizationSettings, *batches.Authorization, authorizationView]{
		a:    a,
		path: "/authorizations",
		page: func(ctx context.Context, after string, limit int) ([]*batches.Authorization, error) {
			return a.Store.Batches.Authorizations(ctx, contextID(ctx), by(ctx, "").Actor, after, limit)
		},
		find: func(ctx context.Context, label string) (*batches.Authorization, error) {
			return a.Store.Batches.Authorization(ctx, contextID(ctx), label, by(ctx, "").Actor)
		},
		view: func(_ context.Context, v *batches.Authorization) (authorizationView, error) {
			return viewAuthorization(v)
		},
		head:     func(v *batches.Authorization) (string, int64) { return v.Label, v.Version },
		settings: settingsOfAuthorization,
		made: func(_ context.Context, label string, s authorizationSettings) (*batches.Authorization, error) {
			if err := ofPath("label", s.Label, label); err != nil {
				return nil, err
			}
			s.Label = label
			v, err := s.read()
			return &batches.Authorization{Authorization: v}, err
		},
		store:  a.storeAuthorization,
		remove: a.Store.Batches.RemoveAuthorization,
	}
}

func settingsOfAuthorization(v *batches.Authorization) authorizationSettings {
	have, _ := viewAuthorization(v) // it was read, so it can be written
	return authorizationSettings{
		Mode:          have.Mode,
		NotBefore:     have.NotBefore,
		Duration:      have.Duration,
		MaxConcurrent: have.MaxConcurrent,
		Priority:      have.Priority,
		Actions:       have.Actions,
	}
}

// storeAuthorization creates an authorization, or changes the one of that version: how long it holds begins anew if its
// duration is another one.
func (a *API) storeAuthorization(
	ctx context.Context, by db.By, v *batches.Authorization, version int64,
) (bool, error) {
	if version > 0 {
		have, err := a.Store.Batches.Authorization(ctx, by.Context, v.Label, by.Actor)
		if err != nil {
			return false, err
		}
		if have.Duration.Is(v.Duration) {
			return false, a.Store.Batches.ReviseAuthorization(ctx, by, v.Authorization, version)
		}
	}
	return a.Store.Batches.PutAuthorization(ctx, by, v.Authorization, version)
}

type authorizationInput struct {
	Label string `path:"label" maxLength:"200"`
}

func (a *API) getAuthorization(ctx context.Context, in *authorizationInput) (*one[authorizationView], error) {
	return a.authorizations().read(ctx, in.Label)
}

type putAuthorizationInput struct {
	Label string `path:"label" maxLength:"200"`
	Conditions
	Body authorizationSettings
}

// putAuthorization creates an authorization, or replaces the one of that version: 201, 200; 409 without a version if
// there is one.
func (a *API) putAuthorization(ctx context.Context, in *putAuthorizationInput) (*one[authorizationView], error) {
	version, err := in.version()
	if err != nil {
		return nil, err
	}
	if err := ofPath("label", in.Body.Label, in.Label); err != nil {
		return nil, err
	}
	in.Body.Label = in.Label
	return a.writeAuthorization(ctx, in.Body, version)
}

type postAuthorizationInput struct {
	Attempt
	Body authorizationSettings
}

// postAuthorization creates an authorization: 201; 409 if there is one of its label.
func (a *API) postAuthorization(ctx context.Context, in *postAuthorizationInput) (*one[authorizationView], error) {
	return a.writeAuthorization(ctx, in.Body, 0)
}

func (a *API) writeAuthorization(
	ctx context.Context, s authorizationSettings, version int64,
) (*one[authorizationView], error) {
	v, err := s.read()
	if err != nil {
		return nil, err
	}
	created, err := a.Store.Batches.PutAuthorization(ctx, by(ctx, ""), v, version)
	if err != nil {
		return nil, err
	}
	return a.authorizations().written(ctx, v.Label, s, created)
}

type patchAuthorizationInput struct {
	Label string `path:"label" maxLength:"200"`
	Conditions
	RawBody []byte
	Body    patchBody
}

// patchAuthorization changes some settings: 200. How long it holds begins anew if its duration is changed.
func (a *API) patchAuthorization(ctx context.Context, in *patchAuthorizationInput) (*one[authorizationView], error) {
	v, err := a.getAuthorization(ctx, &authorizationInput{in.Label})
	if err != nil {
		return nil, err
	}
	have := v.Body
	if err := in.check(have.Version); err != nil {
		return nil, err
	}
	raw, err := merged(authorizationSettings{Mode: have.Mode, NotBefore: have.NotBefore, Duration: have.Duration, MaxConcurrent: have.MaxConcurrent,
		Priority: have.Priority, Actions: have.Actions}, in.RawBody)
	if err != nil {
		return nil, err
	}
	var next authorizationSettings
	if err := a.decode(raw, &next, "authorizationSettings"); err != nil {
		return nil, err
	}
	if next.Label != "" && next.Label != in.Label {
		return nil, fault.At("/label", "label %q is not %q of the path: a label does not change", fault.Clip(next.Label), in.Label)
	}
	next.Label = in.Label
	if next.Duration != nil && !processor.Same(have.Duration, next.Duration) || next.Duration == nil && string(have.Duration) != `"forever"` {
		return a.writeAuthorization(ctx, next, have.Version)
	}
	settings, err := next.read()
	if err != nil {
		return nil, err
	}
	if err := a.Store.Batches.ReviseAuthorization(ctx, by(ctx, ""), settings, have.Version); err != nil {
		return nil, err
	}
	return a.getAuthorization(ctx, &authorizationInput{in.Label})
}

type deleteAuthorizationInput struct {
	Label string `path:"label" maxLength:"200"`
	Conditions
}

// deleteAuthorization removes an authorization. 409 in_use: an execution of it has not ended.
func (a *API) deleteAuthorization(ctx context.Context, in *deleteAuthorizationInput) (*struct{}, error) {
	return nil, a.Store.Batches.RemoveAuthorization(ctx, by(ctx, ""), in.Label)
}

type authorizationActionInput struct {
	Label string `path:"label" maxLength:"200"`
	Trial
	Body *reasonBody
}

func (a *API) enableAuthorization(ctx context.Context, in *authorizationActionInput) (*leverOutput, error) {
	return lever(a.Store.Batches.EnableAuthorization(ctx, by(ctx, in.Body.reason()), in.Label, true))
}

func (a *API) disableAuthorization(ctx context.Context, in *authorizationActionInput) (*leverOutput, error) {
	return lever(a.Store.Batches.EnableAuthorization(ctx, by(ctx, in.Body.reason()), in.Label, false))
}

type sendInput struct {
	Label string `path:"label" maxLength:"200"`
	Key   string `header:"Idempotency-Key" doc:"The same key and body again: the same batch."`
	Trial
	Body struct {
		Messages []batchMessage `json:"messages" maxItems:"100" doc:"One for each function, in their order."`
		TTL      int64          `json:"ttl,omitempty" minimum:"1" maximum:"3162240000" doc:"Seconds. Not delivered to its domain in time, it may be sent again for so long."`
	}
}

// sendBatch sends a batch through an authorization: 201; else the rule that forbids it (S4.12).
func (a *API) sendBatch(ctx context.Context, in *sendInput) (*oneBatchOutput, error) {
	once, err := onceOf(in.Key, []any{in.Label, in.Body})
	if err != nil {
		return nil, err
	}
	b, err := a.Store.Batches.Send(ctx, by(ctx, ""), in.Label, messagesOf(in.Body.Messages), time.Duration(in.Body.TTL)*time.Second, once)
	return a.answerBatch(b, err, http.StatusCreated)
}
