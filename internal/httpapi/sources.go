package httpapi

import (
	"context"
	"encoding/json"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/events"
)

func (a *API) sourceRoutes() {
	const tag = "leader"
	sources := a.sources()
	get(a, tag, "/sources", "list-sources", "List sources of events", sources.list)
	get(a, tag, "/sources/{name}", "get-source", "Read one source, with its cursor and lag", sources.get)
	get(a, tag, "/sources/{name}/why", "get-source-why", "Why it brings no events", a.whySource)
	put(a, tag, "/sources/{name}", "put-source", "Create or replace a source", sources.put, 200, 201)
	patch(a, tag, "/sources/{name}", "patch-source", "Change a source", sources.patch)
	remove(a, tag, "/sources/{name}", "delete-source", "End a source; its events stay", sources.delete)
	post(a, tag, "/sources/{name}/pause", "pause-source",
		"Stop reading a source", turned(a.Store.Events.PauseSource, true), 200)
	post(a, tag, "/sources/{name}/resume", "resume-source",
		"Go on reading, also after a failure", turned(a.Store.Events.PauseSource, false), 200)
	post(a, tag, "/sources/{name}/rewind", "rewind-source",
		"Read again from a cursor; nothing is stored twice", a.rewindSource, 200)
}

// sourceSettings is what people write of a source.
type sourceSettings struct {
	Name          name                `json:"name,omitempty" doc:"If given, the name in the path."`
	Kind          string              `json:"kind" enum:"sui_graphql,sui,http_json,devnet,push,postgres_table" doc:"sui_graphql: the GraphQL of Sui. sui: its JSON-RPC (suix_queryEvents), which mainnet has switched off. http_json: GET url?cursor=&limit=. devnet: the event log of a devnet. push: POST /events. postgres_table: rows of a table or view."`
	URL           string              `json:"url,omitempty" maxLength:"2000" doc:"Of what is fetched; where workers may live. postgres_table: postgres://user@host:port/database, without a password; none for the database in which Postern is."`
	Filter        json.RawMessage     `json:"filter,omitempty" doc:"sui_graphql and sui: which events to ask for, as an EventFilter of GraphQL or of JSON-RPC. devnet: members that an event must have, others are passed over."`
	Map           leader.SourceMap    `json:"map" doc:"Where things are, as JSON pointers: items, cursor and more from the root of a page, id, digest and fqn from an item. sui_graphql, sui and postgres_table want fqn alone."`
	Table         *leader.SourceTable `json:"table,omitempty" doc:"postgres_table: which rows."`
	Start         string              `json:"start,omitempty" enum:"earliest,latest" doc:"Where a new source begins; earliest unless said."`
	PollEvery     string              `json:"poll_every,omitempty" example:"1s" doc:"After a page with nothing behind it; 1s unless said."`
	PageSize      int                 `json:"page_size,omitempty" minimum:"0" maximum:"1000" doc:"50 unless said."`
	Buffer        *int                `json:"buffer,omitempty" doc:"Its events that may wait for tools at a time; more are stored. 100 unless said."`
	MaxRetries    *int                `json:"max_retries,omitempty" doc:"How often a tool is called again for one event; 10 unless said, within some 13 minutes."`
	StaleAfter    string              `json:"stale_after,omitempty" example:"30m" doc:"A call that has not ended for so long is given up, and the workflow told; 30m unless said."`
	OnUndecodable string              `json:"on_undecodable,omitempty" enum:"halt,dead" doc:"An event that cannot be read: stop before it (default), or store it as Dead and go on."`
}

// sourceView is a source as clients read it.
type sourceView struct {
	Warned
	Name          string              `json:"name"`
	Kind          string              `json:"kind" enum:"sui_graphql,sui,http_json,devnet,push,postgres_table"`
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

func viewSource(s *events.Source) sourceView {
	v := sourceView{Name: s.Name, Kind: s.Kind, URL: s.URL, Filter: s.Filter, Map: s.Map, Table: s.Table, Start: s.Start, PollEvery: outbox.Duration(s.PollEvery).String(),
		PageSize: s.PageSize, Buffer: s.Buffer, MaxRetries: s.MaxRetries, StaleAfter: outbox.Duration(s.StaleAfter).String(), OnUndecodable: s.OnUndecodable, State: s.State, Cursor: s.Cursor, LagSeconds: s.Lag.Seconds(), PolledAt: utc(s.PolledAt),
		Failures: s.Failures, LastError: ptr(s.LastError), Version: s.Version, CreatedAt: s.CreatedAt.UTC()}
	if s.Kind != "push" && s.State == "running" {
		v.NextAt = utc(&s.NextAt)
	}
	return v
}

// sources says what is a source's own among named things. To put one leaves its cursor as it is, to remove it its
// events.
func (a *API) sources() resource[sourceSettings, *events.Source, sourceView] {
	return resource[sourceSettings, *events.Source, sourceView]{
		a:        a,
		path:     "/sources",
		page:     pageInContext(a.Store.Events.Sources),
		find:     inContext(a.Store.Events.Source),
		view:     simply(viewSource),
		head:     func(s *events.Source) (string, int64) { return s.Name, s.Version },
		address:  func(s sourceSettings) (string, string) { return "/url", s.URL },
		warnings: func(v *sourceView) *[]string { return &v.Warnings },
		advise:   adviseSource,
		settings: func(s *events.Source) sourceSettings {
			return sourceSettings{
				Kind:          s.Kind,
				URL:           s.URL,
				Filter:        s.Filter,
				Map:           s.Map,
				Table:         s.Table,
				Start:         s.Start,
				PollEvery:     outbox.Duration(s.PollEvery).String(),
				PageSize:      s.PageSize,
				Buffer:        &s.Buffer,
				MaxRetries:    &s.MaxRetries,
				StaleAfter:    outbox.Duration(s.StaleAfter).String(),
				OnUndecodable: s.OnUndecodable,
			}
		},
		made: madeSource,
		store: func(ctx context.Context, by db.By, s *events.Source, version int64) (bool, error) {
			return a.Store.Events.PutSource(ctx, by, s.Source, version)
		},
		remove: a.Store.Events.RemoveSource,
	}
}

// adviseSource warns of a kind that most nodes have switched off.
func adviseSource(s sourceSettings) []string {
	if s.Kind != "sui" {
		return nil
	}
	return []string{"kind sui asks by JSON-RPC, which the nodes of Sui's mainnet have switched off: " +
		"it is for nodes that still answer; sui_graphql asks by GraphQL"}
}

// whySource says why a source brings no events.
func (a *API) whySource(ctx context.Context, in *Named) (*whyOutput, error) {
	w, err := a.Store.Events.WhySource(ctx, contextID(ctx), string(in.Name))
	if err != nil {
		return nil, err
	}
	return &whyOutput{viewWhy(w)}, nil
}

func madeSource(_ context.Context, called string, s sourceSettings) (*events.Source, error) {
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
			return nil, fault.At("/poll_every",
				"poll_every %q: want a duration such as \"1s\"", fault.Clip(s.PollEvery))
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
			return nil, fault.At("/stale_after",
				"stale_after %q: want a duration such as \"30m\"", fault.Clip(s.StaleAfter))
		}
		v.StaleAfter = d
	}
	return &events.Source{Source: v.WithDefaults()}, nil
}

type rewindInput struct {
	Name name `path:"name"`
	Trial
	Body struct {
		Cursor json.RawMessage `json:"cursor,omitempty" doc:"of the source, as it gave it; missing or null: its start"`
		Reason string          `json:"reason,omitempty" maxLength:"1000" doc:"Kept in the audit row."`
	}
}

// rewindSource reads a source again from a cursor. An event that is stored already is not stored twice.
func (a *API) rewindSource(ctx context.Context, in *rewindInput) (*leverOutput, error) {
	cursor := in.Body.Cursor
	if string(cursor) == "null" {
		cursor = nil
	}
	return lever(a.Store.Events.RewindSource(ctx, by(ctx, in.Body.Reason), string(in.Name), cursor))
}
