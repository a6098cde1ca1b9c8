package httpapi

import (
	"context"
	"slices"
	"time"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/domains"
)

func (a *API) domainRoutes() {
	const tag = "domains"
	d := a.domains()
	get(a, tag, "/domains", "list-domains", "List domains", d.list)
	get(a, tag, "/domains/{name}", "get-domain", "Read one domain", d.get)
	put(a, tag, "/domains/{name}", "put-domain", "Create a domain or replace its settings", d.put, 200, 201)
	patch(a, tag, "/domains/{name}", "patch-domain", "Change the settings of a domain", d.patch)
	remove(a, tag, "/domains/{name}", "delete-domain", "Remove a domain whose intents have all ended", d.delete)
	get(a, tag, "/domains/{name}/why", "get-domain-why", "What it waits for", a.whyDomain)
	put(a, tag, "/domains/{name}/height", "put-domain-height", "Raise the block height of a domain",
		a.putDomainHeight, 200)
	post(a, tag, "/domains/{name}/pause", "pause-domain",
		"Begin nothing new", turned(a.Store.Domains.SetPaused, true), 200)
	post(a, tag, "/domains/{name}/resume", "resume-domain", "Go on", turned(a.Store.Domains.SetPaused, false), 200)
	post(a, tag, "/domains/{name}/release", "release-domain",
		"Go on though this store may have lost something", a.releaseDomain, 200)
}

type releaseDomainInput struct {
	Named
	Trial
	Body *struct {
		Reason  string `json:"reason,omitempty" maxLength:"1000" doc:"Kept in the audit row."`
		Outcome string `json:"outcome,omitempty" enum:"not_done" doc:"Of all that was posted here in the lost time."`
	}
}

func (a *API) releaseDomain(ctx context.Context, in *releaseDomainInput) (*leverOutput, error) {
	reason, madeGood := "", false
	if in.Body != nil {
		reason, madeGood = in.Body.Reason, in.Body.Outcome == "not_done"
	}
	return lever(a.Store.Domains.ReleaseDomain(ctx, by(ctx, reason), string(in.Name), madeGood))
}

// domainSettings is what people write of a domain.
type domainSettings struct {
	Name     name     `json:"name,omitempty" doc:"If given, the name in the path."`
	Self     string   `json:"self,omitempty" maxLength:"100" doc:"The name of this installation among the nodes; self unless said."`
	Nodes    []string `json:"nodes,omitempty" minItems:"1" maxItems:"100" doc:"All nodes, this one among them; this one alone unless said."`
	Mode     string   `json:"mode,omitempty" enum:"SENDER,ENDORSER,STATIC" doc:"Who coordinates: each node its own intents, the nodes by turns, or a certain one. SENDER unless said."`
	Static   string   `json:"static,omitempty" maxLength:"200" doc:"Of STATIC: the node, or name@node."`
	Types    []string `json:"types" minItems:"1" maxItems:"50" doc:"The types that its service may prepare public transactions of."`
	Once     string   `json:"once,omitempty" enum:"hold,ledger" doc:"ledger: the ledger refuses a second public transaction of an intent by itself. hold unless said: where the node with the permit is lost, its intent waits."`
	Rotation string   `json:"rotation,omitempty" enum:"range,failure" doc:"When another node coordinates: at each range of blocks, unless said, or when the present one fails."`

	Finality       *int     `json:"finality,omitempty" minimum:"0" doc:"Types with fewer confirmations are refused."`
	ServiceURL     string   `json:"service_url" maxLength:"2000" doc:"Below it are /assemble, /sign, /endorse and /prepare."`
	ServiceCalls   []string `json:"service_calls,omitempty" maxItems:"3" doc:"What it answers besides: look, settled, height."`
	ServiceTimeout string   `json:"service_timeout,omitempty" example:"10s" doc:"Of a call; 10s unless said, 5m at most."`
	Sign           string   `json:"sign,omitempty" enum:"ed25519" doc:"ed25519: each call is signed with the installation's key (RFC 9421)."`

	Heartbeat       string `json:"heartbeat_interval,omitempty" example:"10s" doc:"10s unless said, 1s at least."`
	RequestTimeout  string `json:"request_timeout,omitempty" example:"3s" doc:"When a request is sent again; 3s unless said, 1s at least."`
	StateTimeout    string `json:"state_timeout,omitempty" example:"10s" doc:"How long an intent may be assembled, endorsed or confirmed; 10s unless said, 1s at least."`
	DelegateTimeout string `json:"delegate_timeout,omitempty" example:"5s" doc:"5s unless said, 100ms at least."`
	FlushGrace      string `json:"flush_grace,omitempty" example:"1m" doc:"1m unless said, 5s at least."`
	InactiveGrace   *int   `json:"inactive_grace,omitempty" doc:"Heartbeats without which a node counts as silent; 2 unless said."`
	ClosingGrace    *int   `json:"closing_grace,omitempty" doc:"2 unless said."`
	FinalGrace      *int   `json:"final_grace,omitempty" doc:"Heartbeats for which an end is told; 2 unless said."`
	MinTenure       *int   `json:"min_tenure,omitempty" doc:"Heartbeats for which a coordinator keeps its seat; 5 unless said."`
	HeightTolerance *int64 `json:"block_height_tolerance,omitempty" doc:"Blocks that heights of nodes may differ by; 5 unless said."`
	BlockRange      *int64 `json:"block_range,omitempty" doc:"Blocks for which one order of nodes holds; 100 unless said, 10 at least."`
	MaxInflight     *int   `json:"max_inflight,omitempty" doc:"Intents that a coordinator has at once, at most; 500 unless said. Half of them are kept for the nodes in equal shares, and of each node no more wait for their first try than it dispatches soon."`
	MaxAhead        *int   `json:"max_dispatch_ahead,omitempty" doc:"Public transactions that the core has at once; 50 unless said."`
	AssembleErrors  *int   `json:"assemble_error_threshold,omitempty" doc:"3 unless said."`
	Rejections      *int   `json:"endorse_reject_threshold,omitempty" doc:"3 unless said."`
	Reverts         *int   `json:"base_ledger_revert_threshold,omitempty" doc:"How often an intent is assembled anew after a revert; 3 unless said."`
}

// domainView is a domain as clients read it.
type domainView struct {
	Warned
	Name            string         `json:"name"`
	Self            string         `json:"self"`
	Nodes           []string       `json:"nodes"`
	Mode            string         `json:"mode" enum:"SENDER,ENDORSER,STATIC"`
	Static          string         `json:"static"`
	Types           []string       `json:"types"`
	Once            string         `json:"once" enum:"hold,ledger"`
	Rotation        string         `json:"rotation" enum:"range,failure"`
	Finality        int            `json:"finality"`
	ServiceURL      string         `json:"service_url"`
	ServiceCalls    []string       `json:"service_calls"`
	ServiceTimeout  string         `json:"service_timeout"`
	Sign            *string        `json:"sign" doc:"how calls are signed: ed25519, or null for not at all"`
	PublicKey       *string        `json:"public_key" doc:"of the installation, where calls are signed: verifies them"`
	Heartbeat       string         `json:"heartbeat_interval"`
	RequestTimeout  string         `json:"request_timeout"`
	StateTimeout    string         `json:"state_timeout"`
	DelegateTimeout string         `json:"delegate_timeout"`
	FlushGrace      string         `json:"flush_grace"`
	InactiveGrace   int            `json:"inactive_grace"`
	ClosingGrace    int            `json:"closing_grace"`
	FinalGrace      int            `json:"final_grace"`
	MinTenure       int            `json:"min_tenure"`
	HeightTolerance int64          `json:"block_height_tolerance"`
	BlockRange      int64          `json:"block_range"`
	MaxInflight     int            `json:"max_inflight"`
	MaxAhead        int            `json:"max_dispatch_ahead"`
	AssembleErrors  int            `json:"assemble_error_threshold"`
	Rejections      int            `json:"endorse_reject_threshold"`
	Reverts         int            `json:"base_ledger_revert_threshold"`
	Clamped         []string       `json:"clamped" doc:"settings that were beyond a bound, and are at it"`
	State           string         `json:"state" enum:"Active,Paused,Quarantined"`
	Height          string         `json:"height" doc:"the block height: digits"`
	Originator      string         `json:"originator" doc:"the state of this node as an originator: see GET /machines"`
	Coordinator     string         `json:"coordinator" doc:"the state of this node as a coordinator: see GET /machines"`
	Others          []domainNode   `json:"others" doc:"the other nodes, as they were heard"`
	Intents         map[string]int `json:"intents" doc:"those that have not ended, by state"`
	Works           map[string]int `json:"works" doc:"what this node coordinates, by state"`
	Version         int64          `json:"version"`
	CreatedAt       time.Time      `json:"created_at"`
}

// domainNode is another node of a domain.
type domainNode struct {
	Name    string     `json:"name"`
	HeardAt *time.Time `json:"heard_at" doc:"null: never"`
	State   string     `json:"state" doc:"of it as a coordinator: see GET /machines; empty until it has said it"`
	Height  string     `json:"height" doc:"the block height that it has: digits"`
	Agrees  bool       `json:"agrees" doc:"it has the same nodes, mode and block_range, as far as it was heard"`
}

// othersOf lists the other nodes of a domain.
func othersOf(d *domains.Domain) []domainNode {
	others := []domainNode{}
	digest := d.Digest()
	for _, p := range d.Known {
		if p.Node == d.Settings.Self {
			continue
		}
		n := domainNode{Name: p.Node, State: string(p.State), Height: *digits(&p.Height),
			Agrees: p.Digest == "" || p.Digest == digest}
		if !p.HeardAt.IsZero() {
			n.HeardAt = ptr(p.HeardAt.UTC())
		}
		others = append(others, n)
	}
	return others
}

func (a *API) viewDomain(d *domains.Domain) domainView {
	s := d.Settings
	v := domainView{
		Name:            d.Name,
		Self:            s.Self,
		Nodes:           list(s.Nodes),
		Mode:            s.Mode,
		Static:          s.Static,
		Types:           list(s.Types),
		Once:            s.Once,
		Rotation:        s.Rotate,
		Finality:        s.Finality,
		ServiceURL:      s.ServiceURL,
		ServiceCalls:    list(s.ServiceCalls),
		ServiceTimeout:  s.ServiceTimeout.String(),
		Sign:            ptr(s.Sign),
		Heartbeat:       s.Heartbeat.String(),
		RequestTimeout:  s.RequestTimeout.String(),
		StateTimeout:    s.StateTimeout.String(),
		DelegateTimeout: s.DelegateTimeout.String(),
		FlushGrace:      s.FlushGrace.String(),
		InactiveGrace:   s.InactiveGrace,
		ClosingGrace:    s.ClosingGrace,
		FinalGrace:      s.FinalGrace,
		MinTenure:       s.MinTenure,
		HeightTolerance: s.HeightTolerance,
		BlockRange:      s.BlockRange,
		MaxInflight:     s.MaxInflight,
		MaxAhead:        s.MaxAhead,
		AssembleErrors:  s.AssembleErrors,
		Rejections:      s.Rejections,
		Reverts:         s.Reverts,
		Clamped:         list(s.Clamped),
		State:           "Active",
		Height:          *digits(&d.Height),
		Originator:      string(d.Originator),
		Coordinator:     string(d.Coordinator),
		Others:          othersOf(d),
		Intents:         d.Intents,
		Works:           d.Works,
		Version:         d.Version,
		CreatedAt:       d.CreatedAt.UTC(),
	}
	if s.Sign != "" {
		v.PublicKey = ptr(a.PublicKey)
	}
	switch {
	case d.Quarantined:
		v.State = "Quarantined"
	case d.Paused:
		v.State = "Paused"
	}
	return v
}

// domains says what is a domain's own among named things.
func (a *API) domains() resource[domainSettings, *domains.Domain, domainView] {
	return resource[domainSettings, *domains.Domain, domainView]{
		a:        a,
		path:     "/domains",
		page:     pageInContext(a.Store.Domains.Domains),
		find:     inContext(a.Store.Domains.Domain),
		view:     simply(a.viewDomain),
		head:     func(d *domains.Domain) (string, int64) { return d.Name, d.Version },
		settings: settingsOfDomain,
		address:  func(s domainSettings) (string, string) { return "/service_url", s.ServiceURL },
		warnings: func(v *domainView) *[]string { return &v.Warnings },
		made:     madeDomain,
		store: func(ctx context.Context, by db.By, d *domains.Domain, version int64) (bool, error) {
			return a.Store.Domains.Put(ctx, by, d.Name, d.Settings, version)
		},
		remove: a.Store.Domains.Remove,
	}
}

func settingsOfDomain(d *domains.Domain) domainSettings {
	s := d.Settings
	return domainSettings{
		Self:            s.Self,
		Nodes:           s.Nodes,
		Mode:            s.Mode,
		Static:          s.Static,
		Types:           s.Types,
		Once:            s.Once,
		Rotation:        s.Rotate,
		Finality:        &s.Finality,
		ServiceURL:      s.ServiceURL,
		ServiceCalls:    s.ServiceCalls,
		ServiceTimeout:  s.ServiceTimeout.String(),
		Sign:            s.Sign,
		Heartbeat:       s.Heartbeat.String(),
		RequestTimeout:  s.RequestTimeout.String(),
		StateTimeout:    s.StateTimeout.String(),
		DelegateTimeout: s.DelegateTimeout.String(),
		FlushGrace:      s.FlushGrace.String(),
		InactiveGrace:   &s.InactiveGrace,
		ClosingGrace:    &s.ClosingGrace,
		FinalGrace:      &s.FinalGrace,
		MinTenure:       &s.MinTenure,
		HeightTolerance: &s.HeightTolerance,
		BlockRange:      &s.BlockRange,
		MaxInflight:     &s.MaxInflight,
		MaxAhead:        &s.MaxAhead,
		AssembleErrors:  &s.AssembleErrors,
		Rejections:      &s.Rejections,
		Reverts:         &s.Reverts,
	}
}

func madeDomain(_ context.Context, called string, w domainSettings) (*domains.Domain, error) {
	if err := ofPath("name", string(w.Name), called); err != nil {
		return nil, err
	}
	s := domains.Default()
	for _, text := range []struct{ into, from *string }{
		{&s.Self, &w.Self}, {&s.Mode, &w.Mode}, {&s.Static, &w.Static}, {&s.Once, &w.Once}, {&s.Rotate, &w.Rotation},
		{&s.ServiceURL, &w.ServiceURL}, {&s.Sign, &w.Sign},
	} {
		if *text.from != "" {
			*text.into = *text.from
		}
	}
	for _, d := range []struct {
		name, from string
		into       *outbox.Duration
	}{
		{"heartbeat_interval", w.Heartbeat, &s.Heartbeat}, {"request_timeout", w.RequestTimeout, &s.RequestTimeout},
		{"state_timeout", w.StateTimeout, &s.StateTimeout}, {"delegate_timeout", w.DelegateTimeout, &s.DelegateTimeout},
		{"flush_grace", w.FlushGrace, &s.FlushGrace}, {"service_timeout", w.ServiceTimeout, &s.ServiceTimeout},
	} {
		if d.from == "" {
			continue
		}
		v, err := upToADay(d.name, d.from)
		if err != nil {
			return nil, err
		}
		*d.into = outbox.Duration(v)
	}
	for _, n := range []struct{ into, from *int }{
		{&s.InactiveGrace, w.InactiveGrace}, {&s.ClosingGrace, w.ClosingGrace}, {&s.FinalGrace, w.FinalGrace},
		{&s.MinTenure, w.MinTenure}, {&s.MaxInflight, w.MaxInflight}, {&s.MaxAhead, w.MaxAhead},
		{&s.AssembleErrors, w.AssembleErrors}, {&s.Rejections, w.Rejections}, {&s.Reverts, w.Reverts},
		{&s.Finality, w.Finality},
	} {
		if n.from != nil {
			*n.into = *n.from
		}
	}
	for _, n := range []struct{ into, from *int64 }{
		{&s.HeightTolerance, w.HeightTolerance}, {&s.BlockRange, w.BlockRange},
	} {
		if n.from != nil {
			*n.into = *n.from
		}
	}
	s.Types = w.Types
	if len(w.ServiceCalls) > 0 {
		s.ServiceCalls = w.ServiceCalls
	}
	if s.Nodes = w.Nodes; s.Nodes == nil {
		s.Nodes = []string{s.Self}
	}
	return &domains.Domain{Name: called, Settings: s}, checkDomain(&s)
}

// checkDomain refuses what no schema finds.
func checkDomain(s *domains.Settings) error {
	if len(s.Self) == 0 || len(s.Self) > 100 || !nodeName(s.Self) {
		return fault.At("/self", "self %q: want a name of letters, digits, ., _ and -", fault.Clip(s.Self))
	}
	for i, n := range s.Nodes {
		at := "/nodes/" + itoa(i)
		switch {
		case !nodeName(n):
			return fault.At(at, "node %q: want a name of letters, digits, ., _ and -", fault.Clip(n))
		case slices.Contains(s.Nodes[:i], n):
			return fault.At(at, "node %q stands there twice", fault.Clip(n))
		}
	}
	if !slices.Contains(s.Nodes, s.Self) {
		return fault.At("/nodes", "nodes lack %q, which is this installation (self)", s.Self)
	}
	for i, c := range s.ServiceCalls {
		if !slices.Contains(domains.OptionalCalls, c) || slices.Contains(s.ServiceCalls[:i], c) {
			return fault.At("/service_calls/"+itoa(i), "call %q: want look, settled or height, each once",
				fault.Clip(c))
		}
	}
	for i, typ := range s.Types {
		if slices.Contains(s.Types[:i], typ) {
			return fault.At("/types/"+itoa(i), "type %q stands there twice", fault.Clip(typ))
		}
	}
	if d := time.Duration(s.ServiceTimeout); d < 100*time.Millisecond || d > 5*time.Minute {
		return fault.At("/service_timeout", "service_timeout %q: want 100ms to 5m", s.ServiceTimeout)
	}
	if coord.Mode(s.Mode) == coord.Static {
		image := coord.New("", s.Self, coord.Defaults(s.Nodes...), 1)
		if !slices.Contains(s.Nodes, s.Static) && image.CheckParty(s.Static) != nil {
			return fault.At("/static", "static %q: want one of the nodes, or name@node", fault.Clip(s.Static))
		}
	}
	return nil
}

func nodeName(s string) bool {
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-' {
			return false
		}
	}
	return s != ""
}

type domainHeightInput struct {
	Named
	Trial
	Body struct {
		Height height `json:"height"`
		Force  bool   `json:"force,omitempty" doc:"Also where it rises by more than ten ranges of blocks, or falls."`
	}
}

// putDomainHeight raises the block height; 422 for one that is over, unless it is lowered by force.
func (a *API) putDomainHeight(ctx context.Context, in *domainHeightInput) (*one[domainView], error) {
	err := a.Store.Domains.SetHeight(ctx, by(ctx, ""), string(in.Name), int64(in.Body.Height), in.Body.Force)
	if err != nil {
		return nil, err
	}
	return a.domains().get(ctx, &in.Named)
}
