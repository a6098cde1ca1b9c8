package httpapi

import (
	"encoding/json"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/events"
	"github.com/postern-dev/postern/internal/pg/flows"
	"github.com/postern-dev/postern/internal/pg/peers"
	"github.com/postern-dev/postern/internal/remote"
)

// DispatcherSettings is what people write of a dispatcher. A field that is left out takes its default (S2.16).
type DispatcherSettings struct {
	Type        name               `json:"type,omitempty" doc:"If given, the type in the path."`
	WorkerURL   string             `json:"worker_url" maxLength:"2000" doc:"Where transactions of the type are executed; mycelium:KEY/PATH is called over a Mycelium network; noop: is built in and does nothing; run: offers jobs to runners, for types that begin with job.; peer: calls a peer, for types that begin with peer."`
	Pool        string             `json:"pool,omitempty" pattern:"^([A-Za-z0-9][A-Za-z0-9._:@-]*)?$" maxLength:"200" doc:"Senders; without it the type needs none."`
	Slots       int                `json:"slots,omitempty" minimum:"1" maximum:"10000" doc:"Calls in flight per node, for types without pool."`
	Exclusive   *exclusiveSetting  `json:"exclusive,omitempty"`
	Timeouts    *timeoutSettings   `json:"timeouts,omitempty"`
	Retry       *retrySettings     `json:"retry,omitempty"`
	Fee         *feeSettings       `json:"fee,omitempty"`
	Inclusion   *inclusionSettings `json:"inclusion,omitempty"`
	Idempotent  *bool              `json:"idempotent,omitempty" doc:"The same token may be sent again unasked."`
	Unknown     string             `json:"unknown,omitempty" enum:"hold,unresolved" doc:"The fate of a transaction that was sent, whose worker cannot say what came of it, and that may not be sent again. hold (the default): it waits for an operator (was-done, was-not-done, abandon). unresolved: it ends UNRESOLVED."`
	Replaceable *bool              `json:"replaceable,omitempty" doc:"A retry may replace what is in the pool."`
	Schema      json.RawMessage    `json:"schema,omitempty" doc:"JSON Schema, draft 2020-12: what data must fit (422 schema_mismatch); not in lists. What waits already is not held against it."`
	Secret      *string            `json:"secret,omitempty" writeOnly:"true" pattern:"^(whsec_[A-Za-z0-9+/]{32,86}={0,2})?$" patternDescription:"whsec_ and the base64 of 24 to 64 bytes, or empty" doc:"Signs what the worker is sent, as Standard Webhooks has it. Left out it stays what it is; empty, nothing is signed."`

	PostedBy string `json:"posted_by,omitempty" enum:"anyone,processors,leader,admin,peers" doc:"who may post"`

	// raw are these settings as JSON, and said what the request said of them: raw itself, or a patch.
	raw, said []byte

	Breaker      *int     `json:"breaker,omitempty" minimum:"0" maximum:"1000" doc:"queues that close its gate"`
	Capabilities []string `json:"capabilities,omitempty" enum:"atomic,no_status" maxItems:"8" doc:"What its worker says of itself besides. atomic: data that is a list of messages is executed all or not at all. no_status: it has no /status, and is never asked what came of a call."`
}

// keep remembers the bytes that settings were read from.
func (s *DispatcherSettings) keep(raw []byte) { s.raw, s.said = raw, raw }

// exclusiveSetting is which transactions exclude each other, as people write it.
type exclusiveSetting struct{ outbox.Exclusive }

// Schema is a string, or an object for a group.
func (exclusiveSetting) Schema(huma.Registry) *huma.Schema {
	text := &huma.Schema{Type: huma.TypeString, MaxLength: ptr(200)}
	return &huma.Schema{
		Extensions: map[string]any{"x-go-type": "json.RawMessage", "x-go-type-skip-optional-pointer": true},
		Description: "none, type, or field:<JSON pointer into data>: over all queues one at a time is out, " +
			`of the type or per value. {"group": name, "by": pointer}: per value over all types that name the group. ` +
			"Equal numbers are one value, as 1 and 1.0; all that lack the field are one, too, and so go one at a time.",
		OneOf: []*huma.Schema{text, {
			Type:                 huma.TypeObject,
			AdditionalProperties: false,
			Required:             []string{"group", "by"},
			Properties:           map[string]*huma.Schema{"group": text, "by": text},
		}},
	}
}

type timeoutSettings struct {
	Dispatch string `json:"dispatch,omitempty" example:"10m"`
}

type retrySettings struct {
	MaxRetries *int    `json:"max_retries,omitempty" minimum:"0" maximum:"10000" doc:"Else the worker's, else 10 or, with a pool, 5."`
	Kind       string  `json:"kind,omitempty" enum:"exponential,fixed"`
	Initial    string  `json:"initial,omitempty" example:"15s" doc:"The first delay, or each fixed one."`
	Factor     float64 `json:"factor,omitempty" minimum:"1" maximum:"100"`
	Cap        string  `json:"cap,omitempty" example:"20m" doc:"20m, with a pool 1m, at least initial; not of fixed"`
	OnFailed   *bool   `json:"on_failed,omitempty" doc:"Retry what failed in a block."`
}

type feeSettings struct {
	Kind        string `json:"kind,omitempty" enum:"percent,step,none"`
	Initial     string `json:"initial,omitempty" pattern:"^[0-9]{0,78}$" doc:"digits; empty: the worker's own"`
	BumpPercent *int   `json:"bump_percent,omitempty" minimum:"0" maximum:"1000"`
	Step        string `json:"step,omitempty" pattern:"^[0-9]{0,78}$" doc:"digits"`
	CapPercent  *int   `json:"cap_percent,omitempty" minimum:"100" maximum:"1000000" doc:"of the first fee"`
}

type inclusionSettings struct {
	PollEvery     string `json:"poll_every,omitempty" example:"10s"`
	Deadline      string `json:"deadline,omitempty" example:"10000s"`
	UnknownGrace  string `json:"unknown_grace,omitempty" example:"5m"`
	Confirmations *int   `json:"confirmations,omitempty" minimum:"1" maximum:"1000000"`
}

// settingsOf reads settings, already validated against their schema, over the defaults. said is what the request says
// of them: all, or the patch that raw came from.
func settingsOf(typ string, raw, said []byte) (d outbox.Dispatcher, err error) {
	d = outbox.DefaultDispatcher()
	switch typ { // those of the leader are built in (S1.5, S1.12)
	case leader.TypeTool:
		d = events.ToolDispatcher()
	case leader.TypeResult:
		d.Pool, d.Unknown = leader.PoolOfResults, outbox.UnknownUnresolved
	}
	d.PostedBy = outbox.SystemOf(typ)
	if strings.HasPrefix(typ, flow.TypePrefix) { // so are those of jobs
		d = flows.Dispatcher(typ)
	}
	if _, ok := outbox.PeerOf(typ); ok { // and those of peers
		d = peers.Dispatcher(typ)
	}
	if err := readSettings(&d, raw, said); err != nil {
		return d, err
	}
	if err := ofPath("type", d.Type, typ); err != nil {
		return d, err
	}
	d.Type = typ
	if string(d.Schema) == "null" {
		d.Schema = nil
	}
	if d.Secret, err = secretOf(raw); err != nil {
		return d, err
	}
	if typ == leader.TypeTool && (d.WorkerURL != leader.ToolURL || d.Pool != "" || d.Retry.MaxRetries == nil || *d.Retry.MaxRetries != 0) {
		return d, fault.At("/worker_url", "%s is built in: want worker_url %q, no pool, and max_retries 0, since its events have their own", typ, leader.ToolURL)
	}
	if (typ == leader.TypeTool || typ == leader.TypeResult) && d.Unknown != outbox.UnknownUnresolved {
		return d, fault.At("/unknown", "unknown %q: %s wants unresolved, since its events tell the end themselves", fault.Clip(string(d.Unknown)), typ)
	}
	return d, checkDispatcher(&d)
}

// readSettings reads settings into d, which has the defaults. A cap of retry is kept only where somebody has said one,
// and one that an earlier request said is no less than the first delay.
func readSettings(d *outbox.Dispatcher, raw, said []byte) error {
	if err := json.Unmarshal(raw, d); err != nil {
		return fault.At("", "%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	var named struct{ Retry struct{ Cap *string } }
	names := json.Unmarshal(said, &named) == nil && named.Retry.Cap != nil
	switch {
	case d.Retry.Kind == "fixed": // which looks at neither
		d.Retry.Cap, d.Retry.Factor = 0, 0
	case names && d.Retry.Cap == 0 && d.Retry.Initial > 0:
		return fault.At("/retry/cap", "retry/cap %q: want at least initial, %s", "0s", d.Retry.Initial)
	case !names && d.Retry.Cap > 0:
		d.Retry.Cap = max(d.Retry.Cap, d.Retry.Initial)
	}
	return nil
}

// secretOf reads the secret in settings: nil where they say nothing of it, empty where it is taken away.
func secretOf(raw []byte) ([]byte, error) {
	var s struct{ Secret *string }
	if err := json.Unmarshal(raw, &s); err != nil || s.Secret == nil {
		return nil, nil // other words are wrong in it, or none is there
	}
	if *s.Secret == "" {
		return []byte{}, nil
	}
	key, err := remote.ParseSecret(*s.Secret)
	if err != nil {
		return nil, fault.At("/secret", "secret: %s", err)
	}
	return key, nil
}

var exclusivePattern = regexp.MustCompile(`^(none|type|field:(/[^/]*)+|group:[A-Za-z0-9][A-Za-z0-9._@-]*:(/[^/]*)+)$`)

// checkDispatcher refuses settings that no schema can.
func checkDispatcher(d *outbox.Dispatcher) error {
	if err := checkJobs(d); err != nil {
		return err
	}
	if err := checkPeers(d); err != nil {
		return err
	}
	builtIn := d.Type == leader.TypeTool || d.WorkerURL == flow.WorkerURL || d.WorkerURL == outbox.PeerURL
	if err := checkWorkerURL("/worker_url", d.WorkerURL, true); err != nil && !builtIn {
		return err
	}
	if d.Exclusive != "" && !exclusivePattern.MatchString(string(d.Exclusive)) || len(d.Exclusive) > 200 {
		return fault.At("/exclusive", "exclusive %q: want none, type, field: with a JSON pointer, such as "+
			`field:/zkAppAddress, or {"group": "zkapp", "by": "/zkAppAddress"}`, fault.Clip(string(d.Exclusive)))
	}
	if err := d.Exclusive.Check(); err != nil {
		return fault.At("/exclusive", "exclusive %q: %s", fault.Clip(string(d.Exclusive)), err)
	}
	system := outbox.SystemOf(d.Type)
	if (d.PostedBy == outbox.ByLeader || system != outbox.Anyone) && d.PostedBy != system {
		return fault.At("/posted_by", "posted_by %q: want %s for type %s, and leader for leader.* alone",
			fault.Clip(string(d.PostedBy)), system, d.Type)
	}
	if len(d.Schema) > 0 {
		if _, err := leader.NewSchema("/schema", d.Schema); err != nil {
			return err
		}
	}
	leastCap := time.Duration(d.Retry.Initial)
	if d.Retry.Cap == 0 { // none was said, or looked at
		leastCap = 0
	}
	for _, c := range []struct {
		pointer    string
		value      outbox.Duration
		least, max time.Duration
	}{
		{"/timeouts/dispatch", d.Timeouts.Dispatch, time.Millisecond, 24 * time.Hour},
		{"/retry/initial", d.Retry.Initial, 0, 30 * 24 * time.Hour},
		{"/retry/cap", d.Retry.Cap, leastCap, 30 * 24 * time.Hour},
		{"/inclusion/poll_every", d.Inclusion.PollEvery, time.Millisecond, 24 * time.Hour},
		{"/inclusion/deadline", d.Inclusion.Deadline, 0, 365 * 24 * time.Hour},
		{"/inclusion/unknown_grace", d.Inclusion.UnknownGrace, 0, 365 * 24 * time.Hour},
	} {
		if v := time.Duration(c.value); v < c.least || v > c.max {
			return fault.At(c.pointer, "%s %q: want %s to %s", strings.TrimPrefix(c.pointer, "/"), c.value, outbox.Duration(c.least), outbox.Duration(c.max))
		}
	}
	if d.Fee.Kind == "step" && d.Fee.Step == "" {
		return fault.At("/fee/step", "a fee of kind step wants step, in digits")
	}
	return nil
}

// checkJobs refuses settings under which jobs would not be executed. The types of jobs and their worker go together:
// the name of a type says which actors may post it.
func checkJobs(d *outbox.Dispatcher) error {
	isJob, runs := strings.HasPrefix(d.Type, flow.TypePrefix), d.WorkerURL == flow.WorkerURL
	switch {
	case isJob && !runs:
		return fault.At("/worker_url",
			"worker_url %q: the types that begin with %s are those of jobs, and have the worker %q",
			fault.Clip(d.WorkerURL), flow.TypePrefix, flow.WorkerURL)
	case runs && !isJob:
		return fault.At("/worker_url", "worker_url %q executes jobs: only types that begin with %s have it",
			flow.WorkerURL, flow.TypePrefix)
	case isJob && d.PostedBy != outbox.ByAdmin:
		return fault.At("/posted_by", "posted_by %q: want %s for type %s, since it has scripts executed",
			fault.Clip(string(d.PostedBy)), outbox.ByAdmin, d.Type)
	case isJob && d.Inclusion.Deadline != 0:
		return fault.At("/inclusion/deadline",
			"inclusion/deadline %q: want \"0s\", since a job waits for a runner for as long as it takes; "+
				"its timeout limits each try", d.Inclusion.Deadline)
	}
	return nil
}

// checkPeers refuses settings under which messages would not go to a peer, or another type would.
func checkPeers(d *outbox.Dispatcher) error {
	_, isPeer := outbox.PeerOf(d.Type)
	switch {
	case isPeer && d.WorkerURL != outbox.PeerURL:
		return fault.At("/worker_url", "worker_url %q: the types that begin with %s go to peers, and have the "+
			"worker %q", fault.Clip(d.WorkerURL), outbox.PeerType(""), outbox.PeerURL)
	case !isPeer && d.WorkerURL == outbox.PeerURL:
		return fault.At("/worker_url", "worker_url %q calls a peer: only types that begin with %s have it, and PUT "+
			"/peers/NAME makes that of a peer", outbox.PeerURL, outbox.PeerType(""))
	case isPeer && (!d.Idempotent || d.Pool != ""):
		return fault.At("/idempotent", "type %s: want idempotent, and no pool: a peer knows what it has", d.Type)
	}
	return nil
}

// checkWorkerURL wants an absolute http or https URL without credentials or fragment, or one over a Mycelium network;
// or noop:, where a worker is wanted at all.
func checkWorkerURL(pointer, raw string, required bool) error {
	if raw == "" && !required || strings.HasPrefix(raw, "noop:") && required {
		return nil
	}
	if outbox.IsMycelium(raw) {
		return outbox.CheckMycelium(pointer, raw)
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return fault.At(pointer, "worker_url %q: want an absolute http or https URL", fault.Clip(raw))
	case u.User != nil, u.Fragment != "", u.RawQuery != "":
		return fault.At(pointer, "worker_url: want neither credentials nor query nor fragment in it")
	}
	return nil
}
