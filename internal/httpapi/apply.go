package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/postern-dev/postern/internal/fault"
)

func (a *API) applyRoutes() {
	post(a, "apply", "/apply", "apply",
		"Make many things what a file says, all of them or none", a.apply, 200)
}

// ApplyDocument is one thing and its settings, as a file for postern apply has it. Its name is that of its path: of
// a sender the account, of a dispatcher the type, of a tool the FQN, of an authorization the label. A setting that
// is left out takes its default, but for a secret, the members of a context and the owner of a processor: they
// stay.
type ApplyDocument struct {
	Kind     string          `json:"kind" example:"pool" doc:"Another word is refused with all of them."`
	Context  string          `json:"context,omitempty" doc:"In which it lies, unless it is that of the request."`
	Name     string          `json:"name" maxLength:"1000" example:"payers" doc:"As in its path."`
	Settings json.RawMessage `json:"settings,omitempty" doc:"The body of its PUT."`
}

// Label is the name under which an apply keeps what it names.
type Label = name

// ApplyBody is what is to be, and under which label.
type ApplyBody struct {
	Documents []ApplyDocument `json:"documents" maxItems:"1000" doc:"In any order."`
	Label     name            `json:"label,omitempty" doc:"Keeps that these documents name these things."`
	Prune     bool            `json:"prune,omitempty" doc:"Remove what the label named before, and no label now."`
}

type applyInput struct {
	Why
	DryRun bool `query:"dry_run" doc:"Answer what would change, and change nothing."`
	Body   ApplyBody
}

// AppliedThing says what happened to one thing.
type AppliedThing struct {
	Index       *int             `json:"index,omitempty" doc:"of its document; missing: none names it"`
	Kind        string           `json:"kind"`
	Context     string           `json:"context,omitempty" doc:"missing for a context"`
	Name        string           `json:"name"`
	Result      string           `json:"result" enum:"created,changed,unchanged,removed,kept"`
	Differences []differenceView `json:"differences,omitempty" doc:"of what is changed"`
	Warnings    []string         `json:"warnings,omitempty" doc:"of an address that nodes may not call"`
}

// Applied is what an apply has done, or would do.
type Applied struct {
	DryRun  bool           `json:"dry_run,omitempty" doc:"true: this is what it would do"`
	Changed int            `json:"changed" doc:"things that are created, changed or removed"`
	Things  []AppliedThing `json:"things" doc:"in the order of the documents, then what is removed or kept"`
}

type applyOutput struct {
	Body Applied
}

// refusedDocument is one document, or one removal, that was refused.
type refusedDocument struct {
	Index   *int          `json:"index,omitempty"` // missing for what the label names no more
	Kind    string        `json:"kind"`
	Context string        `json:"context,omitempty"`
	Name    string        `json:"name"`
	Code    string        `json:"code"`
	Detail  string        `json:"detail"`
	Errors  []fault.Field `json:"errors,omitempty"` // pointers into the document
}

// apply makes many things what the documents say, in one commit: 200 with what happened to each. Each refusal is
// named, all of it at once, in the member refused of the problem; then nothing has changed.
func (a *API) apply(ctx context.Context, in *applyInput) (*applyOutput, error) {
	out, err := a.applied(ctx, in.Body, in.DryRun)
	if err != nil {
		return nil, err
	}
	return &applyOutput{*out}, nil
}

// ApplyFile is apply for a file that the process was started with: as the installation itself, in the context default
// where a document names none.
func (a *API) ApplyFile(ctx context.Context, body ApplyBody) (*Applied, error) {
	s := &scope{
		Context: a.Store.Context("default"),
		Actor:   fileActor,
		who:     &principal{actor: fileActor, roles: map[int32]level{a.system(): admins}},
		named:   "default",
		via:     "file",
		reason:  "at the start of the process",
	}
	return a.applied(context.WithValue(ctx, scopeKey{}, s), body, false)
}

// fileActor is who changes what the configuration file of a process says.
const fileActor = "config-file"

// applied runs an apply until it is committed or refused. The /meta of a tool is asked for between two runs, so that no
// lock is held meanwhile.
func (a *API) applied(ctx context.Context, body ApplyBody, dry bool) (*Applied, error) {
	if body.Prune && body.Label == "" {
		return nil, fault.At("/prune", "prune: want a label: only what was applied under it is removed")
	}
	r := &applying{a: a, body: body, metas: map[string]askedMeta{}}
	for {
		err := r.once(ctx, dry)
		if err == nil && len(r.lacks) == 0 {
			break
		}
		if err != nil && len(r.lacks) == 0 {
			return nil, err
		}
		for _, url := range r.lacks {
			raw, err := a.Tools.Meta(ctx, url)
			r.metas[url] = askedMeta{raw, err}
		}
	}
	a.forget()
	out := &Applied{DryRun: dry, Things: []AppliedThing{}}
	for _, t := range r.done {
		if t.url != "" {
			t.Warnings = append(t.Warnings, a.warnOf(ctx, t.url)...)
		}
		if t.Result != "unchanged" && t.Result != "kept" {
			out.Changed++
		}
		out.Things = append(out.Things, t.AppliedThing)
	}
	return out, nil
}

// once is one run, in a commit of its own or in none.
func (r *applying) once(ctx context.Context, dry bool) error {
	if dry {
		var end func()
		ctx, end = r.a.Store.DryRun(ctx)
		defer end()
	}
	return r.a.Store.Labels.Apply(ctx, r.run)
}

// appliedKind is a kind of things that can be applied: the operations whose rules hold for who does it, and how.
type appliedKind struct {
	kind        string
	put, remove string
	of          func(*API) appliedThings
}

// appliedThings applies or removes a thing of one kind by its name, in the context of ctx.
type appliedThings interface {
	applyOne(ctx context.Context, called string, settings json.RawMessage) (appliedResult, error)
	removeOne(ctx context.Context, called string) error
}

// appliedResult is what applying one thing came to.
type appliedResult struct {
	name        string // in its one spelling
	result      string
	differences []differenceView
	url         string // that it is called at, if it was written
	advice      []string
}

// appliedKinds are all of them, in the order in which they refer to each other: a kind names only kinds before it.
var appliedKinds = []appliedKind{
	{"context", "put-context", "delete-context", func(a *API) appliedThings { return a.contexts() }},
	{"pool", "put-pool", "delete-pool", func(a *API) appliedThings { return a.pools() }},
	{"sender", "put-sender", "delete-sender", func(a *API) appliedThings { return a.senders() }},
	{"dispatcher", "put-dispatcher", "delete-dispatcher", func(a *API) appliedThings { return a.dispatchers() }},
	{"queue", "put-queue", "delete-queue", func(a *API) appliedThings { return a.queues() }},
	{"tool", "put-tool", "delete-tool", func(a *API) appliedThings { return a.ownTools() }},
	{"source", "put-source", "delete-source", func(a *API) appliedThings { return a.sources() }},
	{"channel", "put-channel", "delete-channel", func(a *API) appliedThings { return a.channels() }},
	{"processor", "put-processor", "delete-processor", func(a *API) appliedThings { return a.processors() }},
	{"authorization", "put-authorization", "delete-authorization",
		func(a *API) appliedThings { return a.authorizations() }},
	{"peer", "put-context-peer", "delete-context-peer", func(a *API) appliedThings { return a.contextPeers() }},
	{"subscription", "put-subscription", "delete-subscription",
		func(a *API) appliedThings { return a.subscriptions() }},
}

// rankOf is the place of a kind among all, -1 for a word that names none.
func rankOf(kind string) int {
	return slices.IndexFunc(appliedKinds, func(k appliedKind) bool { return k.kind == kind })
}

func kindNames() string {
	var list []string
	for _, k := range appliedKinds {
		list = append(list, k.kind)
	}
	return strings.Join(list, ", ")
}

// refusal is one fault for all documents that were refused: its code is theirs, if they have one in common.
func (r *applying) refusal() error {
	var said []string
	code, kind := r.refused[0].Code, r.kinds[0]
	f := &fault.Error{}
	for _, d := range r.refused {
		if d.Code != code {
			code, kind = "invalid", fault.Invalid
		}
		where := fmt.Sprintf("%s %q", d.Kind, fault.Clip(d.Name))
		if d.Context != "" {
			where += " of context " + fault.Clip(d.Context)
		}
		said = append(said, where+": "+d.Detail)
		if d.Index == nil {
			continue
		}
		at := "/documents/" + itoa(*d.Index)
		if len(d.Errors) == 0 {
			f.Fields = append(f.Fields, fault.Field{Pointer: at, Code: d.Code, Detail: d.Detail})
		}
		for _, e := range d.Errors {
			e.Pointer = at + e.Pointer
			f.Fields = append(f.Fields, e)
		}
	}
	f.Kind, f.Code = kind, code
	f.Detail = fmt.Sprintf("nothing was changed, since %d of the documents are refused: %s",
		len(said), strings.Join(said[:min(4, len(said))], "; "))
	if len(said) == 1 {
		f.Detail = "nothing was changed: " + said[0]
	}
	return f.With("refused", r.refused)
}
