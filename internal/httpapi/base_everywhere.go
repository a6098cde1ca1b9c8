package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
)

// everyContext in the header Postern-Context asks for all contexts: a read of an admin of the context system.
const everyContext = "*"

// mostContexts is how many contexts one page of a list looks into.
const mostContexts = 100

// everywhere answers a read in all contexts, each as if it had been named. A page of a list is of one context, which
// the header Postern-Context of the answer names; its next leads on, also into the next context. One thing is that of
// the only context that has it.
func (a *API) everywhere(ctx huma.Context, next func(huma.Context)) {
	r, w := humachi.Unwrap(ctx)
	op, who := ctx.Operation(), scopeOf(ctx.Context()).who
	contexts, err := a.Store.Contexts(ctx.Context())
	switch {
	case who.in(nil, a.system()) < systemAdmins:
		err = noContext(everyContext)
	case op.Method != http.MethodGet:
		err = fault.At("Postern-Context", "Postern-Context: * is for reads: a write names its context")
	case a.endless[op.Path]:
		err = fault.At("Postern-Context", "Postern-Context: * has no streams: name a context")
	case err == nil:
		err = who.narrowed(access[op.OperationID], op.Method)
	}
	switch {
	case err != nil:
	case strings.Contains(op.Path, "{"):
		err = a.oneOf(ctx, next, contexts)
	default:
		err = a.pageOf(ctx, next, contexts)
	}
	if err != nil {
		a.refuse(w, r, err)
	}
}

// oneOf answers with what one context has. Ids are of one context alone; a name may be of several.
func (a *API) oneOf(ctx huma.Context, next func(huma.Context), contexts []*pg.Context) error {
	var found, refused *answered
	for _, c := range contexts {
		got := a.within(ctx, next, c, nil)
		switch {
		case got.status >= http.StatusBadRequest:
			if refused == nil || refused.status == http.StatusNotFound {
				refused = got
			}
			continue
		case found != nil:
			return fault.At("Postern-Context", "the contexts %q and %q have it: name one", found.context, c.Name)
		}
		if found = got; strings.Contains(ctx.Operation().Path, "{id}") {
			break
		}
	}
	_, w := humachi.Unwrap(ctx)
	if found == nil {
		refused.header.Del("Postern-Context")
		found = refused
	}
	found.send(w)
	return nil
}

// everyCursor is where a list of all contexts goes on.
type everyCursor struct {
	Context string `json:"context"`
	Cursor  string `json:"cursor,omitempty"` // of the list within the context
}

// pageOf answers with a page of the first context, from the cursor on, that has any.
func (a *API) pageOf(ctx huma.Context, next func(huma.Context), contexts []*pg.Context) error {
	r, w := humachi.Unwrap(ctx)
	query := r.URL.Query()
	p, from := Paging{Cursor: query.Get("cursor")}, everyCursor{}
	query.Del("cursor")
	filters := []any{everyContext, r.URL.Path, query.Encode()}
	if err := p.read(filters, &from); err != nil {
		return err
	}
	contexts = slices.DeleteFunc(contexts, func(c *pg.Context) bool { return c.Name < from.Context })
	for i, c := range contexts {
		inner := ""
		if c.Name == from.Context {
			inner = from.Cursor
		}
		got := a.within(ctx, next, c, &inner)
		var page struct {
			Items *[]json.RawMessage `json:"items"`
			Next  *string            `json:"next"`
		}
		if got.status != http.StatusOK || json.Unmarshal(got.body.Bytes(), &page) != nil || page.Items == nil {
			got.send(w)
			return nil
		}
		var on *everyCursor
		switch {
		case page.Next != nil:
			on = &everyCursor{c.Name, *page.Next}
		case i+1 < len(contexts):
			on = &everyCursor{Context: contexts[i+1].Name}
		}
		if len(*page.Items) > 0 || on == nil || i+1 == mostContexts {
			return got.goOn(ctx.Context(), w, &p, filters, on)
		}
	}
	return fault.New(fault.Invalid, "bad_cursor", "the context %q is gone: begin without a cursor", from.Context)
}

// within answers a request as if it had named a context; cursor is that of a list there.
func (a *API) within(ctx huma.Context, next func(huma.Context), c *pg.Context, cursor *string) *answered {
	r, w := humachi.Unwrap(ctx)
	s := *scopeOf(ctx.Context())
	s.Context, s.named, s.query = c, c.Name, maps.Clone(s.query)
	inner := r.Clone(context.WithValue(ctx.Context(), scopeKey{}, &s))
	if cursor != nil {
		query := inner.URL.Query()
		if query.Del("cursor"); *cursor != "" {
			query.Set("cursor", *cursor)
		}
		inner.URL.RawQuery = query.Encode()
	}
	got := &answered{context: c.Name, header: w.Header().Clone()}
	got.header.Set("Postern-Context", c.Name)
	next(humachi.NewContext(ctx.Operation(), inner, got))
	return got
}

// answered keeps an answer until it is known whether it counts.
type answered struct {
	context string
	header  http.Header
	status  int
	body    bytes.Buffer
}

// Header is that of the answer.
func (g *answered) Header() http.Header { return g.header }

// WriteHeader keeps the status.
func (g *answered) WriteHeader(status int) {
	if g.status == 0 {
		g.status = status
	}
}

// Write keeps a part of the body.
func (g *answered) Write(b []byte) (int, error) {
	g.WriteHeader(http.StatusOK)
	return g.body.Write(b)
}

// send answers with what was kept.
func (g *answered) send(w http.ResponseWriter) {
	g.header.Del("Content-Length")
	maps.Copy(w.Header(), g.header)
	w.WriteHeader(g.status)
	_, _ = w.Write(g.body.Bytes())
}

// goOn answers with a page whose next leads on in all contexts.
func (g *answered) goOn(ctx context.Context, w http.ResponseWriter, p *Paging, filters []any, on *everyCursor) error {
	var page map[string]json.RawMessage
	if err := json.Unmarshal(g.body.Bytes(), &page); err != nil {
		return fmt.Errorf("a page of context %s: %w", g.context, err)
	}
	page["next"] = json.RawMessage("null")
	g.header.Del("Link")
	if on != nil {
		next, link := p.next(ctx, filters, on)
		page["next"], _ = json.Marshal(next)
		g.header.Set("Link", link)
	}
	body, err := json.Marshal(page)
	if err != nil {
		return err
	}
	g.body.Reset()
	g.body.Write(body)
	g.send(w)
	return nil
}
