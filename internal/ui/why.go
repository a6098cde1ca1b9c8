package ui

import (
	"fmt"
	"slices"
)

// whyPage is the chain of blockers from a thing to the root, each with the forms that end it.
type whyPage struct {
	Summary string
	Moving  bool
	Links   []link
}

// link is one blocker.
type link struct {
	doc

	Levers []*lever
	Looks  []look
	Root   bool
}

// look is a lever that only shows more.
type look struct{ Text, URL string }

// Of is a member of a blocker.
func (l link) Of(name string) any { return l.doc[name] }

// why reads a chain, and makes the forms of those levers that the visitor may pull.
func (v *visit) why(path string) (*whyPage, error) {
	a, err := v.get(path)
	if err != nil {
		return nil, err
	}
	w := &whyPage{Summary: str(a.doc, "summary"), Moving: a.doc["moving"] == true}
	blockers, _ := a.doc["blockers"].([]any)
	done := map[string]bool{}
	for _, b := range blockers {
		d, _ := b.(doc)
		l := link{doc: d}
		if err := v.leversIn(d, &l, done); err != nil {
			return nil, err
		}
		w.Links = append(w.Links, l)
	}
	root := len(w.Links) - 1
	for i, l := range w.Links {
		if l.moves() {
			root = i
		}
	}
	if root >= 0 {
		l := &w.Links[root]
		l.Root = true
		if len(l.Levers) > 0 {
			l.Levers[0].Open = true
		}
	}
	return w, nil
}

// moves says whether a blocker has a lever that changes something, also one that the visitor may not pull. The last
// such blocker is the root, as the API names it on other pages.
func (l link) moves() bool {
	return slices.ContainsFunc(docs(l.doc["levers"]), func(lever doc) bool { return lever["method"] != "GET" })
}

// leversIn makes the forms of one blocker. The same form is there once on a page.
func (v *visit) leversIn(d doc, l *link, done map[string]bool) error {
	list, _ := d["levers"].([]any)
	for _, x := range list {
		want, _ := x.(doc)
		method, path := str(want, "method"), str(want, "path")
		if method == "GET" {
			if page := v.Page(path); page != "" && page != v.r.URL.Path {
				l.Looks = append(l.Looks, look{path, page})
			}
			continue
		}
		if done[method+path] {
			continue
		}
		done[method+path] = true
		body, _ := want["body"].(doc)
		form, err := v.leverOf(method, path, body)
		if err != nil {
			return err
		}
		if form != nil {
			l.Levers = append(l.Levers, form)
		}
	}
	return nil
}

// has says whether the chain has a form for a path.
func (w *whyPage) has(path string) bool {
	if w == nil {
		return false
	}
	for _, l := range w.Links {
		for _, f := range l.Levers {
			if f.Path == path {
				return true
			}
		}
	}
	return false
}

// String is the summary.
func (w *whyPage) String() string { return fmt.Sprint(w.Summary) }
