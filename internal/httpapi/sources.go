package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
)

func (a *API) sourceRoutes() {
	const tag = "leader"
	get(a, tag, "/sources", "list-sources", "List sources of events", a.listSources)
	get(a, tag, "/sources/{name}", "get-source", "Read one source, with its cursor and lag", a.getSource)
	put(a, tag, "/sources/{name}", "put-source", "Create or replace a source", a.putSource, 200, 201)
	patch(a, tag, "/sources/{name}", "patch-source", "Change a source", a.patchSource)
	remove(a, tag, "/sources/{name}", "delete-source", "End a source; its events stay", a.deleteSource)
	post(a, tag, "/sources/{name}/pause", "pause-source", "Stop reading a source", a.pauseSource, 200)
	post(a, tag, "/sources/{name}/resume", "resume-source", "Go on reading, also after a failure", a.resumeSource, 200)
	post(a, tag, "/sources/{name}/rewind", "rewind-source", "Read again from a cursor; nothing is stored twice", a.rewindSource, 200)
}

// sourceSettings is what people write of a source.
type sourceSettings struct {
	Name          name                `json:"name,omitempty" doc:"If given, the name in the path."`
	Kind          string              `json:"kind" enum:"sui,http_json,devnet,push,postgres_table" doc:"sui: JSON-RPC suix_queryEvents. http_json: GET url?cursor=&limit=. devnet: the event log of a devnet. push: POST /events. postgres_table: rows of a table or view."`
	URL           string              `json:"url,omitempty" maxLength:"2000" doc:"Of what is fetched; where workers may live. postgres_table: postgres://user@host:port/database, without a password; none for the database in which Postern is."`
	Filter        json.RawMessage     `json:"filter,omitempty" doc:"sui: which events to ask for. devnet: members that an event must have, others are passed over."`
	Map           leader.SourceMap    `json:"map" doc:"Where things are, as JSON pointers: items, cursor and more from the root of a page, id, digest and fqn from an item. sui and postgres_table want fqn alone."`
	Table         *leader.SourceTable `json:"table,omitempty" doc:"postgres_table: which rows."`
	Start         string              `json:"start,omitempty" enum:"earliest,latest" doc:"Where a new source begins; earliest unless said."`
	PollEvery     string              `json:"poll_every,omitempty" example:"1s" doc:"After a page with nothing behind it; 1s unless said."`
	PageSize      int                 `json:"page_size,omitempty" minimum:"0" maximum:"1000" doc:"50 unless said."`
	Buffer        *int                `json:"buffer,omitempty" doc:"How many of its events are offered to the engine at a time; more are stored, and wait. 100 unless said."`
	MaxRetries    *int                `json:"max_retries,omitempty" doc:"How often a tool is called again for one event; 3 unless said."`
	StaleAfter    string              `json:"stale_after,omitempty" example:"30m" doc:"A call that has not ended for so long is given up, and the workflow told; 30m unless said."`
	OnUndecodable string              `json:"on_undecodable,omitempty" enum:"halt,dead" doc:"An event that cannot be read: stop before it (default), or store it as Dead and go on."`
}

// sourceView is a source as clients read it.
type sourceView struct {
	Name          string              `json:"name"`
	Kind          string              `json:"kind" enum:"sui,http_json,devnet,push,postgres_table"`
	URL           string              `json:"url"`
	Filter        json.RawMessage     `json:"filter,omitempty"`
	Map           leader.SourceMap    `json:"map"`
	Table         *leader.SourceTable `json:"table,omitempty"`
	Start         string              `json:"start" enum:"earliest,latest"`
	PollEvery     string              `json:"poll_every"`
	PageSize      int                 `json:"page_size"`
	Buffer        int                 `json:"buffer"`
	MaxRetries    int                 `json:"max_retries"`
	StaleAfter    string              `json:"stale_after"`
	OnUndecodable string              `json:"on_undecodable" enum:"halt,dead"`
	State         string              `json:"state" enum:"running,paused,failed"`
	Cursor        json.RawMessage     `json:"cursor,omitempty" doc:"after what is stored; missing: from its start"`
	LagSeconds    float64             `json:"lag_seconds" doc:"for how long it has not been read to its end"`
	PolledAt      *time.Time          `json:"polled_at" doc:"when it last answered"`
	NextAt        *time.Time          `json:"next_at" doc:"when it is asked next"`
	Failures      int                 `json:"failures" doc:"since it last answered"`
	LastError     *string             `json:"last_error"`
	Version       int64               `json:"version"`
	CreatedAt     time.Time           `json:"created_at"`
}

func viewSource(s *pg.Source) sourceView {
	v := sourceView{Name: s.Name, Kind: s.Kind, URL: s.URL, Filter: s.Filter, Map: s.Map, Table: s.Table, Start: s.Start, PollEvery: outbox.Duration(s.PollEvery).String(),
		PageSize: s.PageSize, Buffer: s.Buffer, MaxRetries: s.MaxRetries, StaleAfter: outbox.Duration(s.StaleAfter).String(), OnUndecodable: s.OnUndecodable, State: s.State, Cursor: s.Cursor, LagSeconds: s.Lag.Seconds(), PolledAt: utc(s.PolledAt),
		Failures: s.Failures, LastError: ptr(s.LastError), Version: s.Version, CreatedAt: s.CreatedAt.UTC()}
	if s.Kind != "push" && s.State == "running" {
		v.NextAt = utc(&s.NextAt)
	}
	return v
}

type sourceOutput struct {
	Status   int
	ETag     string `header:"ETag"`
	Location string `header:"Location"`
	Body     sourceView
}

type sourcesOutput struct {
	Link string `header:"Link"`
	Body struct {
		Items []sourceView `json:"items"`
		Next  *string      `json:"next"`
	}
}

func (a *API) listSources(ctx context.Context, in *namedPage) (*sourcesOutput, error) {
	p := Paging{Limit: in.Limit, Cursor: in.Cursor}
	limit, err := p.limit(a)
	if err != nil {
		return nil, err
	}
	filters, after := []any{"sources"}, ""
	if err := p.read(filters, &after); err != nil {
		return nil, err
	}
	found, err := a.Store.Sources(ctx, contextID(ctx), after, limit+1)
	if err != nil {
		return nil, err
	}
	out := &sourcesOutput{}
	out.Body.Items = []sourceView{}
	for i, s := range found {
		if i == limit {
			out.Body.Next, out.Link = p.next(ctx, filters, found[i-1].Name)
			break
		}
		out.Body.Items = append(out.Body.Items, viewSource(s))
	}
	return out, nil
}

type sourceInput struct {
	Name name `path:"name"`
}

func (a *API) getSource(ctx context.Context, in *sourceInput) (*sourceOutput, error) {
	s, err := a.Store.Source(ctx, contextID(ctx), string(in.Name))
	if err != nil {
		return nil, err
	}
	return &sourceOutput{Status: http.StatusOK, ETag: etag(s.Version), Body: viewSource(s)}, nil
}

type putSourceInput struct {
	Name name `path:"name"`
	Conditions
	Body sourceSettings
}

// putSource creates a source or replaces its settings, and leaves its cursor as it is: 201, 200; 412.
func (a *API) putSource(ctx context.Context, in *putSourceInput) (*sourceOutput, error) {
	version, err := in.version()
	if err != nil {
		return nil, err
	}
	return a.writeSource(ctx, string(in.Name), in.Body, version)
}

func (a *API) writeSource(ctx context.Context, called string, s sourceSettings, version int64) (*sourceOutput, error) {
	if err := ofPath("name", string(s.Name), called); err != nil {
		return nil, err
	}
	v := leader.Source{Name: called, Kind: s.Kind, URL: s.URL, Filter: s.Filter, Map: s.Map, Table: s.Table, Start: s.Start, PageSize: s.PageSize, OnUndecodable: s.OnUndecodable}
	if string(v.Filter) == "null" {
		v.Filter = nil
	}
	if s.PollEvery != "" {
		d, err := time.ParseDuration(s.PollEvery)
		if err != nil || d <= 0 {
			return nil, fault.At("/poll_every", "poll_every %q: want a duration such as \"1s\"", fault.Clip(s.PollEvery))
		}
		v.PollEvery = d
	}
	if v.MaxRetries = leader.DefaultMaxRetries; s.MaxRetries != nil {
		v.MaxRetries = *s.MaxRetries
	}
	if s.Buffer != nil {
		if v.Buffer = *s.Buffer; v.Buffer == 0 {
			v.Buffer = -1 // which is refused, as 0 is
		}
	}
	if s.StaleAfter != "" {
		d, err := time.ParseDuration(s.StaleAfter)
		if err != nil || d <= 0 {
			return nil, fault.At("/stale_after", "stale_after %q: want a duration such as \"30m\"", fault.Clip(s.StaleAfter))
		}
		v.StaleAfter = d
	}
	created, err := a.Store.PutSource(ctx, by(ctx, ""), v.WithDefaults(), version)
	if err != nil {
		return nil, err
	}
	out, err := a.getSource(ctx, &sourceInput{name(called)})
	if err == nil && created {
		out.Status, out.Location = http.StatusCreated, "/sources/"+called
	}
	return out, err
}

type patchSourceInput struct {
	Name name `path:"name"`
	Conditions
	RawBody []byte
	Body    patchBody
}

func (a *API) patchSource(ctx context.Context, in *patchSourceInput) (*sourceOutput, error) {
	s, err := a.Store.Source(ctx, contextID(ctx), string(in.Name))
	if err != nil {
		return nil, err
	}
	if err := in.check(s.Version); err != nil {
		return nil, err
	}
	raw, err := merged(sourceSettings{Kind: s.Kind, URL: s.URL, Filter: s.Filter, Map: s.Map, Table: s.Table, Start: s.Start, PollEvery: outbox.Duration(s.PollEvery).String(),
		PageSize: s.PageSize, Buffer: &s.Buffer, MaxRetries: &s.MaxRetries, StaleAfter: outbox.Duration(s.StaleAfter).String(), OnUndecodable: s.OnUndecodable}, in.RawBody)
	if err != nil {
		return nil, err
	}
	var next sourceSettings
	if err := a.decode(raw, &next, "sourceSettings"); err != nil {
		return nil, err
	}
	return a.writeSource(ctx, s.Name, next, s.Version)
}

type deleteSourceInput struct {
	Name name `path:"name"`
	Conditions
}

// deleteSource ends a source; its events stay.
func (a *API) deleteSource(ctx context.Context, in *deleteSourceInput) (*struct{}, error) {
	return nil, a.Store.RemoveSource(ctx, by(ctx, ""), string(in.Name))
}

type sourceActionInput struct {
	Name name `path:"name"`
	Trial
	Body *reasonBody
}

func (a *API) pauseSource(ctx context.Context, in *sourceActionInput) (*leverOutput, error) {
	return lever(a.Store.PauseSource(ctx, by(ctx, in.Body.reason()), string(in.Name), true))
}

func (a *API) resumeSource(ctx context.Context, in *sourceActionInput) (*leverOutput, error) {
	return lever(a.Store.PauseSource(ctx, by(ctx, in.Body.reason()), string(in.Name), false))
}

type rewindInput struct {
	Name name `path:"name"`
	Trial
	Body struct {
		Cursor json.RawMessage `json:"cursor,omitempty" doc:"of the source, as it gave it; missing or null: its start"`
		Reason string          `json:"reason,omitempty" maxLength:"1000" doc:"Kept in the audit row."`
	}
}

// rewindSource reads a source again from a cursor; what is stored is not stored twice.
func (a *API) rewindSource(ctx context.Context, in *rewindInput) (*leverOutput, error) {
	cursor := in.Body.Cursor
	if string(cursor) == "null" {
		cursor = nil
	}
	return lever(a.Store.RewindSource(ctx, by(ctx, in.Body.Reason), string(in.Name), cursor))
}
