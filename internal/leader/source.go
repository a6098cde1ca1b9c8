package leader

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strconv"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
)

// Source is where events come from (S1.1).
type Source struct {
	Name          string
	Kind          string          // sui_graphql, sui, http_json, devnet, push, postgres_table
	URL           string          // "" for push, and for a table of the database in which we are
	Filter        json.RawMessage // of Sui: which events it is asked for; devnet: members that an event must have
	Map           SourceMap
	Table         *SourceTable // of postgres_table
	Start         string       // earliest, latest
	PollEvery     time.Duration
	PageSize      int
	Buffer        int           // events that are offered to the engine at a time; more are stored, and wait
	MaxRetries    int           // of the calls for one event
	StaleAfter    time.Duration // a call that has not ended for so long is given up
	OnUndecodable string        // halt, dead
}

// SourceMap says where things are, as JSON pointers: Items, Cursor and More from the root of a page, ID,
// Digest and FQN from an item. sui_graphql and sui have their own for all but FQN.
type SourceMap struct {
	Items  string `json:"items,omitempty" maxLength:"200" doc:"/events unless said."`
	ID     string `json:"id,omitempty" maxLength:"200" doc:"/id unless said."`
	Cursor string `json:"cursor,omitempty" maxLength:"200" doc:"/next_cursor unless said."`
	More   string `json:"more,omitempty" maxLength:"200" doc:"/has_more unless said."`
	Digest string `json:"digest,omitempty" maxLength:"200"`
	FQN    string `json:"fqn" maxLength:"200" example:"/parsedJson/tool_fqn" doc:"The name of the tool that an event calls."`
	Input  string `json:"input,omitempty" maxLength:"2000" example:"/parsedJson/input" doc:"What the tool is given: a pointer, or a URL to GET in which {/pointer} stands for a value of the event. Without it, the event as a whole."`
}

// WithDefaults fills in what was not said.
func (s Source) WithDefaults() Source {
	set := func(v *string, d string) {
		if *v == "" {
			*v = d
		}
	}
	if s.Buffer == 0 {
		s.Buffer = DefaultBuffer
	}
	set(&s.Start, "earliest")
	set(&s.OnUndecodable, "halt")
	if s.PollEvery == 0 {
		s.PollEvery = time.Second
	}
	if s.PageSize == 0 {
		s.PageSize = 50
	}
	if s.StaleAfter == 0 {
		s.StaleAfter = 30 * time.Minute
	}
	if s.Kind == "http_json" || s.Kind == "devnet" {
		set(&s.Map.Items, "/events")
		set(&s.Map.ID, "/id")
		set(&s.Map.Cursor, "/next_cursor")
		set(&s.Map.More, "/has_more")
	}
	if s.Kind == "devnet" {
		set(&s.Map.Digest, "/digest")
		set(&s.Map.FQN, "/args/tool")
		set(&s.Map.Input, "/args/input")
	}
	if s.Table != nil {
		table := *s.Table
		set(&table.Settle, DefaultSettle)
		s.Table = &table
	}
	return s
}

// Validate refuses settings that cannot work, with the field.
func (s Source) Validate() error {
	for _, check := range []func() error{
		s.checkSettings,
		s.checkKind,
		s.checkURL,
		s.Map.check,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// pulled says whether we ask a service for its events.
func (s Source) pulled() bool { return s.ofSui() || s.Kind == "http_json" || s.Kind == "devnet" }

// checkSettings refuses values that no kind takes, and a start or a table that this kind does not have.
func (s Source) checkSettings() error {
	switch {
	case !s.pulled() && s.Kind != "push" && s.Kind != "postgres_table":
		return fault.At("/kind", "kind %q: want sui_graphql, sui, http_json, devnet, push or postgres_table",
			fault.Clip(s.Kind))
	case (s.Kind == "postgres_table") != (s.Table != nil):
		return fault.At("/table", "table: a source of kind postgres_table names its table, and no other does")
	case s.Start != "earliest" && s.Start != "latest":
		return fault.At("/start", "start %q: want earliest or latest", fault.Clip(s.Start))
	case s.Start == "latest" && !s.ofSui():
		return fault.At("/start", "start latest: a source of kind %s cannot be asked for its end; begin with earliest, or rewind it to a cursor that you know", s.Kind)
	case s.OnUndecodable != "halt" && s.OnUndecodable != "dead":
		return fault.At("/on_undecodable", "on_undecodable %q: want halt or dead", fault.Clip(s.OnUndecodable))
	case s.PollEvery < 100*time.Millisecond || s.PollEvery > 24*time.Hour:
		return fault.At("/poll_every", "poll_every %s: want 100ms to 24h", s.PollEvery)
	case s.Buffer <= 0:
		return fault.At("/buffer", "channel capacity must be greater than zero")
	case s.Buffer > 100_000:
		return fault.At("/buffer", "buffer %d: want at most 100000", s.Buffer)
	case s.MaxRetries < 0 || s.MaxRetries > 100:
		return fault.At("/max_retries", "max_retries %d: want 0 to 100", s.MaxRetries)
	case s.StaleAfter < time.Second || s.StaleAfter > 365*24*time.Hour:
		return fault.At("/stale_after", "stale_after %s: want 1s to 8760h", s.StaleAfter)
	case s.PageSize < 1 || s.PageSize > 1000:
		return fault.At("/page_size", "page_size %d: want 1 to 1000", s.PageSize)
	}
	return nil
}

// checkKind refuses a filter or a page size that this kind does not take.
func (s Source) checkKind() error {
	switch {
	case s.Kind == "push" && s.URL != "":
		return fault.At("/url", "url: what is pushed is not fetched; leave it out")
	case !s.ofSui() && s.Kind != "devnet" && len(s.Filter) > 0:
		return fault.At("/filter", "filter: only sources of kind sui_graphql, sui and devnet take one")
	case s.Kind == "devnet" && len(s.Filter) > 0 && s.Filter[0] != '{':
		return fault.At("/filter", "filter: want an object whose members an event must have, such as {\"type\": \"request\"}")
	case s.Kind == "devnet" && s.PageSize < 2:
		return fault.At("/page_size", "page_size %d: a page of a devnet begins with the event of its cursor, so want 2 or more", s.PageSize)
	case s.Kind == "sui" && len(s.Filter) == 0:
		return fault.At("/filter", "filter is required: which events to ask for, such as {\"MoveEventModule\": ...}")
	case s.Kind == "sui_graphql" && len(s.Filter) == 0:
		return fault.At("/filter", `filter is required: which events to ask for, such as {"module": "0x2::workflow"}`)
	}
	if s.Kind == "sui_graphql" {
		return checkSuiFilter(s.Filter)
	}
	return nil
}

// checkURL refuses an address from which this kind cannot be read, and a table that cannot be one.
func (s Source) checkURL() error {
	if s.pulled() {
		u, err := url.Parse(s.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Fragment != "" {
			return fault.At("/url", "url %q: want an absolute http or https URL", fault.Clip(s.URL))
		}
	}
	if s.Table != nil {
		if err := s.Table.validate(); err != nil {
			return err
		}
		return checkDatabase(s.URL)
	}
	return nil
}

// check refuses a map without a tool, and one whose places are no JSON pointers.
func (m SourceMap) check() error {
	if err := m.checkInput(); err != nil {
		return err
	}
	if m.FQN == "" {
		return fault.At("/map/fqn", "map.fqn is required: an event without the name of a tool means nothing")
	}
	for field, p := range map[string]string{
		"items":  m.Items,
		"id":     m.ID,
		"cursor": m.Cursor,
		"more":   m.More,
		"digest": m.Digest,
		"fqn":    m.FQN,
	} {
		if err := outbox.Pointer(p).Check(); err != nil {
			return fault.At("/map/"+field, "map.%s %q: %s", field, fault.Clip(p), err)
		}
	}
	return nil
}

// Ask is the request for a page.
type Ask struct {
	Method, URL string
	Body        []byte
}

// Page asks for what comes after a cursor, nil for the beginning. Of a source of Sui that is to start at its
// end, and has no cursor yet, it asks for the last event.
func (s Source) Page(cursor json.RawMessage) Ask {
	if s.Kind == "sui_graphql" {
		return s.askGraphQL(cursor)
	}
	if s.Kind == "sui" {
		filter, last, limit := s.Filter, s.seeksEnd(cursor), s.PageSize
		if len(cursor) == 0 {
			cursor = json.RawMessage("null")
		}
		if last {
			limit = 1
		}
		body, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "suix_queryEvents", "params": []any{filter, cursor, limit, last}})
		return Ask{Method: "POST", URL: s.URL, Body: body}
	}
	u, _ := url.Parse(s.URL)
	if s.Kind == "devnet" {
		u = u.JoinPath("events")
	}
	q := u.Query()
	q.Set("limit", strconv.Itoa(s.PageSize))
	if text, ok := scalar(cursor); ok {
		q.Set("cursor", text)
	}
	u.RawQuery = q.Encode()
	return Ask{Method: "GET", URL: u.String()}
}

// ofSui says whether a source reads the events of Sui, by GraphQL or by JSON-RPC. Both have ends that can be asked for.
func (s Source) ofSui() bool { return s.Kind == "sui_graphql" || s.Kind == "sui" }

func (s Source) seeksEnd(cursor json.RawMessage) bool {
	return s.ofSui() && s.Start == "latest" && len(cursor) == 0
}

// scalar is a JSON string without its quotes, or a number; false for anything else.
func scalar(raw json.RawMessage) (string, bool) {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0:
		return "", false
	case raw[0] == '"':
		var text string
		err := json.Unmarshal(raw, &text)
		return text, err == nil
	case raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9':
		return string(raw), true
	}
	return "", false
}

// at follows a JSON pointer (RFC 6901) and returns what it finds, nil for nothing.
func at(raw json.RawMessage, pointer string) json.RawMessage {
	for _, step := range outbox.Pointer(pointer).Steps() {
		switch raw = bytes.TrimSpace(raw); {
		case len(raw) > 0 && raw[0] == '{':
			var object map[string]json.RawMessage
			if json.Unmarshal(raw, &object) != nil {
				return nil
			}
			raw = object[step]
		case len(raw) > 0 && raw[0] == '[':
			var list []json.RawMessage
			i, err := strconv.Atoi(step)
			if json.Unmarshal(raw, &list) != nil || err != nil || i < 0 || i >= len(list) {
				return nil
			}
			raw = list[i]
		default:
			return nil
		}
	}
	return raw
}
