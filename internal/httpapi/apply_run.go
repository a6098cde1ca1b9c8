package httpapi

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/events"
	"github.com/postern-dev/postern/internal/pg/labels"
)

// applying is an apply that is being made. Each run begins with nothing found, except the /meta of tools.
type applying struct {
	a     *API
	body  ApplyBody
	metas map[string]askedMeta // the answers of tools, by their URLs

	done    []appliedThing
	refused []refusedDocument
	kinds   []fault.Kind // of the refused
	tenants map[string]*pg.Context
	named   map[labels.Thing]int // the document of each thing
	lacks   []string             // URLs of tools whose /meta is to be asked before the next run
}

// appliedThing is one that is done, with the URL that may have to be warned of.
type appliedThing struct {
	AppliedThing
	url string
}

// askedMeta is what GET /meta of a tool brought.
type askedMeta struct {
	raw []byte
	err error
}

// run applies all documents and then removes what the label names no more. It is called with the locks of an apply,
// and returns an error so that nothing is committed: of the database, or for what was refused.
func (r *applying) run(ctx context.Context) error {
	r.done, r.refused, r.kinds, r.lacks = nil, nil, nil, nil
	r.tenants, r.named = map[string]*pg.Context{}, map[labels.Thing]int{}
	order := make([]int, len(r.body.Documents))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		return rankOf(r.body.Documents[i].Kind) - rankOf(r.body.Documents[j].Kind)
	})
	for _, i := range order {
		if err := r.document(ctx, i); err != nil {
			return err
		}
	}
	slices.SortFunc(r.done, func(x, y appliedThing) int { return *x.Index - *y.Index })
	if r.body.Label != "" && len(r.lacks) == 0 {
		if err := r.label(ctx); err != nil {
			return err
		}
	}
	switch {
	case len(r.refused) > 0:
		slices.SortStableFunc(r.refused, func(x, y refusedDocument) int { return indexOf(x) - indexOf(y) })
		r.lacks = nil
		return r.refusal()
	case len(r.lacks) > 0:
		return errLacks
	}
	return nil
}

// errLacks ends a run so that tools are asked and the next one can begin.
var errLacks = fault.New(fault.Retry, "overloaded", "tools are to be asked for their /meta first")

func indexOf(d refusedDocument) int {
	if d.Index == nil {
		return 1 << 30
	}
	return *d.Index
}

// document applies one document, or notes why it is refused. An error is one of the database, which ends the run.
func (r *applying) document(ctx context.Context, i int) error {
	d := r.body.Documents[i]
	at := refusedDocument{Index: &i, Kind: d.Kind, Context: d.Context, Name: d.Name}
	rank := rankOf(d.Kind)
	if rank < 0 {
		return r.refuse(ctx, at, fault.At("/kind", "kind %q: want one of %s", fault.Clip(d.Kind), kindNames()))
	}
	k := appliedKinds[rank]
	if k.kind == "context" && d.Context != "" {
		return r.refuse(ctx, at, fault.At("/context", "context: a context lies in none: leave it out"))
	}
	ruled := k.kind == "tool" || k.kind == "authorization" // their names have rules of their own
	if !ruled && !isName(d.Name) {
		return r.refuse(ctx, at, fault.At("/name", "name %q: want %s", fault.Clip(d.Name), nameIs))
	}
	in, s, err := r.within(ctx, k, d.Context, d.Name, k.put)
	if err != nil {
		return r.refuse(ctx, at, err)
	}
	if at.Context = s.named; k.kind == "context" {
		at.Context = ""
	}
	if len(d.Settings) == 0 || string(d.Settings) == "null" {
		d.Settings = json.RawMessage("{}")
	}
	done, err := r.things(k).applyOne(in, d.Name, d.Settings)
	if err != nil {
		if err == errLacks { //nolint:errorlint // as it was returned
			return nil
		}
		return r.refuse(ctx, at, under("/settings", err))
	}
	thing := labels.Thing{Context: s.Context.ID, Kind: d.Kind, Name: done.name}
	if first, twice := r.named[thing]; twice {
		return r.refuse(ctx, at, fault.At("/name", "documents %d and %d are both about %s %q: want one",
			first, i, d.Kind, fault.Clip(d.Name)))
	}
	r.named[thing] = i
	r.done = append(r.done, appliedThing{
		AppliedThing{
			Index:       &i,
			Kind:        d.Kind,
			Context:     at.Context,
			Name:        done.name,
			Result:      done.result,
			Differences: done.differences,
			Warnings:    done.advice,
		},
		done.url,
	})
	return nil
}

// things are those of a kind; of tools those that say of themselves what they are are asked between two runs.
func (r *applying) things(k appliedKind) appliedThings {
	if k.kind != "tool" {
		return k.of(r.a)
	}
	tools := r.a.ownTools()
	tools.made = r.tool
	return tools
}

// refuse notes why something is refused; an error that is no refusal but trouble of ours ends the run.
func (r *applying) refuse(ctx context.Context, at refusedDocument, err error) error {
	f := fault.As(err)
	if f.Kind == fault.Internal || f.Kind == fault.Retry || f.Code == "precondition_failed" {
		return err
	}
	at.Code, at.Detail, at.Errors = describe(f, "").Code, f.Detail, f.Fields
	for i := range at.Errors {
		if at.Errors[i].Code == "" {
			at.Errors[i].Code = at.Code
		}
	}
	r.refused, r.kinds = append(r.refused, at), append(r.kinds, f.Kind)
	if db.Broken(ctx) { // the database itself refused it, and can look at nothing more
		return r.refusal()
	}
	return nil
}

// under is err with the pointers of its fields below another one.
func under(pointer string, err error) error {
	f := *fault.As(err)
	f.Fields = slices.Clone(f.Fields)
	for i := range f.Fields {
		f.Fields[i].Pointer = pointer + f.Fields[i].Pointer
	}
	return &f
}

// within is the context of a thing, as its own request would have it: in which tenant it lies, and that the caller
// may do this there. A context itself lies in the context system, and may be one that is not yet.
func (r *applying) within(
	ctx context.Context, k appliedKind, tenant, called, operation string,
) (context.Context, *scope, error) {
	s := *scopeOf(ctx)
	s.match = nil
	if tenant == "" {
		tenant = s.Context.Name
	}
	if k.kind == "context" {
		tenant = called
	}
	c, err := r.tenant(ctx, tenant)
	if err != nil {
		return nil, nil, err
	}
	s.Context, s.named = c, tenant
	rule := access[operation]
	if err := r.a.permitted(&s, rule); err != nil {
		return nil, nil, err
	}
	if k.kind == "context" {
		s.Context = r.a.Store.Context(pg.System)
	} else if c == nil {
		return nil, nil, noContext(tenant)
	}
	return context.WithValue(ctx, scopeKey{}, &s), &s, nil
}

// tenant finds a context as the run sees it: one that an earlier document has made is there. nil: there is none.
func (r *applying) tenant(ctx context.Context, name string) (*pg.Context, error) {
	if c := r.tenants[name]; c != nil {
		return c, nil
	}
	t, err := r.a.Store.Tenant(ctx, name)
	if fault.KindOf(err) == fault.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r.tenants[name] = &t.Context
	return &t.Context, nil
}

// label keeps what the label names now and, to prune, removes what it named before, the last kinds first. A thing that
// another label names as well stays, and this label forgets it.
func (r *applying) label(ctx context.Context) error {
	of, label := contextID(ctx), string(r.body.Label)
	var names, gone []labels.Thing
	for thing := range r.named {
		names = append(names, thing)
	}
	before, err := r.a.Store.Labels.Named(ctx, of, label)
	if err != nil {
		return err
	}
	for thing := range before {
		if _, still := r.named[thing]; !still && r.body.Prune {
			gone = append(gone, thing)
		}
	}
	slices.SortFunc(gone, lastKindFirst)
	for _, thing := range gone {
		if err := r.letGo(ctx, thing, before[thing]); err != nil {
			return err
		}
	}
	if len(r.refused) > 0 {
		return nil
	}
	if len(gone) > 0 {
		if err := r.a.Store.Labels.Forget(ctx, of, label, gone); err != nil {
			return err
		}
	}
	if len(names) > 0 {
		return r.a.Store.Labels.Name(ctx, of, label, names)
	}
	return nil
}

func lastKindFirst(x, y labels.Thing) int {
	if by := rankOf(y.Kind) - rankOf(x.Kind); by != 0 {
		return by
	}
	return slices.Compare([]string{itoa(int(x.Context)), x.Name}, []string{itoa(int(y.Context)), y.Name})
}

// letGo removes what the label names no more; shared: another one names it. A thing that is gone already is not
// told of.
func (r *applying) letGo(ctx context.Context, thing labels.Thing, shared bool) error {
	rank := rankOf(thing.Kind)
	if rank < 0 {
		return nil
	}
	tenant, err := r.nameOf(ctx, thing.Context)
	if err != nil || tenant == "" {
		return err
	}
	at := refusedDocument{Kind: thing.Kind, Context: tenant, Name: thing.Name}
	if thing.Kind == "context" {
		at.Context = ""
	}
	done := AppliedThing{Kind: at.Kind, Context: at.Context, Name: at.Name, Result: "kept"}
	if !shared {
		k := appliedKinds[rank]
		in, _, err := r.within(ctx, k, at.Context, thing.Name, k.remove)
		if err == nil {
			err = r.things(k).removeOne(in, thing.Name)
		}
		if fault.KindOf(err) == fault.NotFound {
			return nil
		}
		if err != nil {
			return r.refuse(ctx, at, err)
		}
		done.Result = "removed"
	}
	r.done = append(r.done, appliedThing{AppliedThing: done})
	return nil
}

// nameOf is the name of a context, "" for one that is gone.
func (r *applying) nameOf(ctx context.Context, id int32) (string, error) {
	all, err := r.a.Store.Contexts(ctx)
	for _, c := range all {
		if c.ID == id {
			return c.Name, nil
		}
	}
	return "", err
}

// applyOne makes a thing what settings say. Nothing is written where they come to what there is.
func (r resource[S, T, V]) applyOne(
	ctx context.Context, called string, raw json.RawMessage,
) (done appliedResult, err error) {
	s, err := r.parse(raw)
	if err != nil {
		return done, err
	}
	have, err := r.find(ctx, called)
	there := err == nil && (r.there == nil || r.there(have))
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return done, err
	}
	var before *S
	version := int64(-1)
	if there {
		if r.kept != nil {
			r.kept(have, &s)
		}
		settings := r.settings(have)
		before = &settings
		_, version = r.head(have)
	}
	next, err := r.made(ctx, called, s)
	if err != nil {
		return done, err
	}
	if done.name, _ = r.head(next); there {
		if done.differences, err = r.differ(have, next); err != nil {
			return done, err
		}
		if len(done.differences) == 0 {
			done.result = "unchanged"
			return done, nil
		}
	}
	if err := r.reachable(ctx, s, before); err != nil {
		return done, err
	}
	if r.address != nil {
		_, done.url = r.address(s)
	}
	if r.advise != nil {
		done.advice = r.advise(s)
	}
	if done.result = "changed"; !there {
		done.result = "created"
	}
	_, err = r.store(ctx, by(ctx, ""), next, version)
	return done, err
}

// parse reads settings as the body of a PUT.
func (r resource[S, T, V]) parse(raw json.RawMessage) (s S, err error) {
	if err := r.a.strict(raw); err != nil {
		return s, err
	}
	if err := r.a.decode(raw, &s, reflect.TypeFor[S]().Name()); err != nil {
		return s, err
	}
	if keep, ok := any(&s).(interface{ keep(raw []byte) }); ok {
		keep.keep(raw)
	}
	return s, nil
}

// differ lists in what two things differ that settings say; of a secret only that it differs.
func (r resource[S, T, V]) differ(have, next T) ([]differenceView, error) {
	list, err := differences(r.settings(have), r.settings(next))
	if err != nil || r.secret == nil {
		return list, err
	}
	was, becomes := r.secret(have), r.secret(next)
	if becomes == nil || string(was) == string(becomes) {
		return list, nil
	}
	shown := func(secret []byte) any {
		if len(secret) == 0 {
			return nil
		}
		return hidden
	}
	return append(list, differenceView{"/secret", shown(was), shown(becomes)}), nil
}

// removeOne removes a thing; 409 in_use while something needs it.
func (r resource[S, T, V]) removeOne(ctx context.Context, called string) error {
	return r.remove(ctx, by(ctx, ""), called)
}

// ownTools are those of the context itself: one that is shared is changed in the context system.
func (a *API) ownTools() resource[toolSettings, *events.Tool, toolView] {
	tools := a.tools()
	tools.find, tools.remove = a.own, a.Store.Events.RemoveTool
	return tools
}

// tool is madeTool for a run. A tool that says of itself what it is is not asked while the run holds locks: one
// that is registered under its URL is what it was when it was asked last, another one is asked before the next run.
func (r *applying) tool(ctx context.Context, called string, s toolSettings) (*events.Tool, error) {
	lacks := false
	v, err := r.a.toolBy(ctx, called, s, func(ctx context.Context, url string) ([]byte, error) {
		if have, err := r.a.own(ctx, called); err == nil && have.Discovered && have.URL == url {
			return json.Marshal(leader.Meta{
				FQN:          have.FQN,
				URL:          have.URL,
				Description:  have.Description,
				Timeout:      have.Timeout.String(),
				MaxAnswer:    have.MaxAnswer,
				Sign:         have.Sign,
				InputSchema:  have.Input.Raw(),
				OutputSchema: have.Output.Raw(),
			})
		}
		if meta, asked := r.metas[url]; asked {
			return meta.raw, meta.err
		}
		if err := r.a.reachable(ctx, "/url", url); err != nil {
			return nil, err
		}
		lacks = true
		return nil, errLacks
	})
	if lacks {
		r.lacks = append(r.lacks, s.URL)
		return nil, errLacks
	}
	return v, err
}
