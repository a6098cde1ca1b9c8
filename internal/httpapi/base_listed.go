package httpapi

import "context"

// namedPage is what a list takes whose things come in the order of their names.
type namedPage struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"50"`
	Cursor string `query:"cursor" doc:"next of the page before."`
}

// listed is one page of a list.
type listed[V any] struct {
	Items []V     `json:"items"`
	Next  *string `json:"next" doc:"null at the end; a page may be short, even empty, before it"`
}

// listBy answers a page of what is listed by its name or id: fetch reads up to limit things that come after one
// (the zero key: from the first on), key is what a thing is listed by, view how it is shown.
func listBy[T, V, K any](ctx context.Context, a *API, in *namedPage, filters []any,
	fetch func(after K, limit int) ([]T, error),
	key func(T) K, view func(T) (V, error)) (body listed[V], link string, err error) {
	p := Paging{Limit: in.Limit, Cursor: in.Cursor}
	limit, err := p.limit(a)
	if err != nil {
		return body, "", err
	}
	var after K
	if err := p.read(filters, &after); err != nil {
		return body, "", err
	}
	found, err := fetch(after, limit+1)
	if err != nil {
		return body, "", err
	}
	return cutTo(ctx, &p, limit, filters, found, key, view)
}

// cutTo answers the first limit of the rows that were found. If one more was found, there is a next page: the answer
// then has the cursor that begins after the last row shown.
func cutTo[T, V, K any](
	ctx context.Context, p *Paging, limit int, filters []any, found []T, key func(T) K, view func(T) (V, error),
) (body listed[V], link string, err error) {
	body.Items = []V{}
	for i, v := range found {
		if i == limit {
			body.Next, link = p.next(ctx, filters, key(found[i-1]))
			break
		}
		shown, err := view(v)
		if err != nil {
			return body, "", err
		}
		body.Items = append(body.Items, shown)
	}
	return body, link, nil
}

// goesOn is cutTo for a list that may have looked at as many rows as it may before it has found as many as it should:
// further is the key of the last that it looked at, nil if it came to the end.
func goesOn[T, V, K any](ctx context.Context, p *Paging, limit int, filters []any, found []T, further *K,
	key func(T) K, view func(T) (V, error)) (body listed[V], link string, err error) {
	body, link, err = cutTo(ctx, p, limit, filters, found, key, view)
	if err == nil && body.Next == nil && further != nil {
		body.Next, link = p.next(ctx, filters, further)
	}
	return body, link, err
}

// plainly is a view that cannot fail.
func plainly[T, V any](view func(T) V) func(T) (V, error) {
	return func(v T) (V, error) { return view(v), nil }
}
