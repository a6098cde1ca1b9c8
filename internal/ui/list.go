package ui

import (
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/postern-dev/postern/internal/fault"
)

// listPage is a page of a list.
type listPage struct {
	Path, Question string
	Heads          []string
	Rows           [][]cell
	Filters        []filter
	Next           string // the URL of the next page
	First          string // that of the first one, where this is another
	Window         string // since when the list looks, where the URL does not say it
	Bulk           []*lever
	Filter         string // of the bulk, as people read it
}

// filter is a field of the form that thins a list.
type filter struct {
	Name, Says, Type string

	Values []string // that are set, or one that is empty
	Enum   []string
}

// listOf reads a page of a list, with the filters of the URL.
func (v *visit) listOf(path string, columns []column, id string) (*listPage, error) {
	ops, err := v.ui.operations(v.r)
	if err != nil {
		return nil, err
	}
	o := find(ops, http.MethodGet, path)
	if o == nil {
		return nil, fault.New(fault.NotFound, "not_found", "there is no list %s", fault.Clip(path))
	}
	var form []filter
	query := v.filters(o, &form)
	a, err := v.get(with(path, query))
	if err != nil {
		return nil, err
	}
	l := v.rows(path, a, columns, id)
	l.Filters = form
	l.Next, l.First = v.turns(a, query)
	return l, l.offer(v, path, query, a, doc{})
}

// filters are those of the contract that the URL sets, and the form that sets them.
func (v *visit) filters(o *operation, form *[]filter) url.Values {
	query, asked := url.Values{}, v.r.URL.Query()
	for _, name := range o.order {
		p := o.params[name]
		if p.in != "query" {
			continue
		}
		values := slices.DeleteFunc(slices.Clone(asked[name]), func(s string) bool { return s == "" })
		if len(values) > 0 {
			query[name] = values
		}
		if name == "cursor" || name == "limit" || name == "include" {
			continue
		}
		f := filter{Name: name, Says: p.says, Values: values, Enum: p.enum, Type: "text"}
		if len(values) == 0 {
			f.Values = []string{""}
		}
		if p.integer {
			f.Type = "number"
		}
		*form = append(*form, f)
	}
	return query
}

// turns are the URLs of the next page of a list, and of its first one.
func (v *visit) turns(a *answer, query url.Values) (next, first string) {
	q := maps.Clone(query)
	if q.Get("cursor") != "" {
		q.Del("cursor")
		first = with(v.r.URL.Path, q)
	}
	if at := str(a.doc, "next"); at != "" {
		q.Set("cursor", at)
		next = with(v.r.URL.Path, q)
	}
	return next, first
}

// with is a path with a query.
func with(path string, query url.Values) string {
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

// rows are the things of a list in columns.
func (v *visit) rows(path string, a *answer, columns []column, id string) *listPage {
	l := &listPage{Path: path}
	for _, c := range columns {
		l.Heads = append(l.Heads, c.head)
	}
	for _, item := range a.items() {
		var row []cell
		for _, c := range columns {
			row = append(row, v.cell(path, item, c.member, id))
		}
		l.Rows = append(l.Rows, row)
	}
	return l
}
