package httpapi

import (
	"context"
	"net/http"
	"reflect"

	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// resource answers what is asked of every named thing: list, get, put, patch and delete. S is what people write of it,
// T how the store has it, V how clients read it. A noun says by one such value what is its own, and lists its routes
// in a function next to it; see pools.go for one that needs no more.
type resource[S, T, V any] struct {
	a    *API
	path string // of the list: /pools

	page     func(ctx context.Context, after string, limit int) ([]T, error)
	find     func(ctx context.Context, called string) (T, error)
	view     func(context.Context, T) (V, error)
	head     func(T) (called string, version int64)
	settings func(T) S // as a PUT would send them
	// address is the URL that settings have the thing called at, with the pointer to it, and warnings is where the view
	// of the thing warns of it; both nil for what is not called.
	address  func(S) (pointer, url string)
	warnings func(*V) *[]string
	// advise returns what to warn of in the settings themselves, where that may be; nil for nothing.
	advise func(S) []string
	// there says whether the thing that was found is more than a name. kept takes over what settings for an apply leave
	// out and a PUT would reset. Both are nil for most.
	there func(T) bool
	kept  func(have T, s *S)
	// secret is the part of the thing that no answer shows; that of made is nil where it stays as it is.
	secret func(T) []byte
	// made is the thing that settings come to, with the defaults of what they leave out; 422 for faults that no schema
	// finds.
	made func(ctx context.Context, called string, s S) (T, error)
	// store creates the thing or replaces its settings: those of version, AnyVersion, -1 for none, 0 for whatever
	// there is.
	store  func(ctx context.Context, by db.By, v T, version int64) (created bool, err error)
	remove func(ctx context.Context, by db.By, called string) error
}

// one is the answer about one thing that has a version.
type one[V any] struct {
	Status   int
	ETag     string `header:"ETag"`
	Location string `header:"Location"`
	Body     V
}

// pageOf is the answer to a list.
type pageOf[V any] struct {
	Link string `header:"Link"`
	Body listed[V]
}

// Named is the path of a thing that is called {name}.
type Named struct {
	Name name `path:"name"`
}

type putNamed[S any] struct {
	Named
	Conditions
	Body S
}

type patchNamed struct {
	Named
	Conditions
	RawBody []byte
	Body    patchBody
}

type deleteNamed struct {
	Named
	Conditions
}

// actNamed is what an action on a named thing takes.
type actNamed struct {
	Named
	Trial
	Body *reasonBody
}

// purgeInput is what a purge of a named thing takes.
type purgeInput struct {
	Named
	Purging
}

// list answers a page of the things by their names.
func (r resource[S, T, V]) list(ctx context.Context, in *namedPage) (*pageOf[V], error) {
	var err error
	out := &pageOf[V]{}
	out.Body, out.Link, err = listBy(ctx, r.a, in, []any{r.path[1:]},
		func(after string, limit int) ([]T, error) { return r.page(ctx, after, limit) },
		func(v T) string { called, _ := r.head(v); return called },
		func(v T) (V, error) { return r.view(ctx, v) })
	return out, err
}

// get answers the thing of a path.
func (r resource[S, T, V]) get(ctx context.Context, in *Named) (*one[V], error) {
	return r.read(ctx, string(in.Name))
}

// put creates the thing of a path or replaces its settings: 201, 200; 412 if it is not what If-Match says.
func (r resource[S, T, V]) put(ctx context.Context, in *putNamed[S]) (*one[V], error) {
	return r.replace(ctx, string(in.Name), in.Conditions, in.Body)
}

// patch changes some settings of the thing of a path; 412 if it is not what If-Match says, or is changed meanwhile.
func (r resource[S, T, V]) patch(ctx context.Context, in *patchNamed) (*one[V], error) {
	return r.change(ctx, string(in.Name), in.Conditions, in.RawBody)
}

// delete removes the thing of a path; 409 in_use while something needs it.
func (r resource[S, T, V]) delete(ctx context.Context, in *deleteNamed) (*struct{}, error) {
	return nil, r.remove(ctx, by(ctx, ""), string(in.Name))
}

// read is get for a name that was read already.
func (r resource[S, T, V]) read(ctx context.Context, called string) (*one[V], error) {
	v, err := r.find(ctx, called)
	if err != nil {
		return nil, err
	}
	_, version := r.head(v)
	shown, err := r.view(ctx, v)
	return &one[V]{Status: http.StatusOK, ETag: etag(version), Body: shown}, err
}

// warned is read for the answer to a write: it warns of an address that may not be called, and of settings that will
// not do everywhere.
func (r resource[S, T, V]) warned(ctx context.Context, called string, s S) (*one[V], error) {
	out, err := r.read(ctx, called)
	if err == nil && r.address != nil {
		_, url := r.address(s)
		warnings := r.warnings(&out.Body)
		if *warnings = append(*warnings, r.a.warnOf(ctx, url)...); r.advise != nil {
			*warnings = append(*warnings, r.advise(s)...)
		}
	}
	return out, err
}

// reachable refuses settings with an address that no node may call. One that the thing has already is only warned of: a
// patch of something else goes through while no node lives that would say what it may call.
func (r resource[S, T, V]) reachable(ctx context.Context, s S, have *S) error {
	if r.address == nil {
		return nil
	}
	pointer, url := r.address(s)
	if have != nil {
		if _, before := r.address(*have); before == url {
			return nil
		}
	}
	return r.a.reachable(ctx, pointer, url)
}

// write creates the thing that settings come to, or replaces its settings; version is that of store.
func (r resource[S, T, V]) write(ctx context.Context, called string, s S, version int64) (created bool, err error) {
	v, err := r.made(ctx, called, s)
	if err != nil {
		return false, err
	}
	return r.store(ctx, by(ctx, ""), v, version)
}

// replace is put for a name that was read already.
func (r resource[S, T, V]) replace(ctx context.Context, called string, c Conditions, s S) (*one[V], error) {
	version, err := c.version()
	if err != nil {
		return nil, err
	}
	if err := r.reachable(ctx, s, nil); err != nil {
		return nil, err
	}
	created, err := r.write(ctx, called, s, version)
	if err != nil {
		return nil, err
	}
	return r.written(ctx, called, s, created)
}

// written answers what was written.
func (r resource[S, T, V]) written(ctx context.Context, called string, s S, created bool) (*one[V], error) {
	out, err := r.warned(ctx, called, s)
	if err == nil && created {
		out.Status, out.Location = http.StatusCreated, r.path+"/"+called
	}
	return out, err
}

// change is patch for a name that was read already.
func (r resource[S, T, V]) change(ctx context.Context, called string, c Conditions, patch []byte) (*one[V], error) {
	v, err := r.find(ctx, called)
	if err != nil {
		return nil, err
	}
	called, version := r.head(v)
	if err := c.check(version); err != nil {
		return nil, err
	}
	have := r.settings(v)
	raw, err := merged(have, patch)
	if err != nil {
		return nil, err
	}
	var next S
	if err := r.a.decode(raw, &next, reflect.TypeFor[S]().Name()); err != nil {
		return nil, err
	}
	if err := r.reachable(ctx, next, &have); err != nil {
		return nil, err
	}
	if _, err := r.write(ctx, called, next, version); err != nil {
		return nil, err
	}
	return r.warned(ctx, called, next)
}

// inContext has a function of the store look in the context that the request is about.
func inContext[T any](
	find func(ctx context.Context, contextID int32, called string) (T, error),
) func(context.Context, string) (T, error) {
	return func(ctx context.Context, called string) (T, error) { return find(ctx, contextID(ctx), called) }
}

// pageInContext has a function of the store list what is in the context that the request is about.
func pageInContext[T any](
	page func(ctx context.Context, contextID int32, after string, limit int) ([]T, error),
) func(context.Context, string, int) ([]T, error) {
	return func(ctx context.Context, after string, limit int) ([]T, error) {
		return page(ctx, contextID(ctx), after, limit)
	}
}

// simply is a view that neither fails nor asks.
func simply[T, V any](view func(T) V) func(context.Context, T) (V, error) {
	return func(_ context.Context, v T) (V, error) { return view(v), nil }
}

// onNamed is an action on a named thing.
func onNamed(
	act func(ctx context.Context, by db.By, called string) (pg.LeverResult, error),
) func(context.Context, *actNamed) (*leverOutput, error) {
	return func(ctx context.Context, in *actNamed) (*leverOutput, error) {
		return lever(act(ctx, by(ctx, in.Body.reason()), string(in.Name)))
	}
}

// turned is the action that turns something of a named thing on or off, as pause and resume do.
func turned(
	act func(ctx context.Context, by db.By, called string, on bool) (pg.LeverResult, error), on bool,
) func(context.Context, *actNamed) (*leverOutput, error) {
	return onNamed(func(ctx context.Context, by db.By, called string) (pg.LeverResult, error) {
		return act(ctx, by, called, on)
	})
}

// purged is the purge of what waits of a named thing.
func purged(
	purge func(ctx context.Context, by db.By, called string, most int) (cancelled int, more bool, err error),
) func(context.Context, *purgeInput) (*purgeOutput, error) {
	return func(ctx context.Context, in *purgeInput) (*purgeOutput, error) {
		return in.purge(ctx, string(in.Name), purge)
	}
}
