package ui

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/fault"
)

// screen is a page as its template sees it.
type screen struct {
	*visit
	Title  string
	Data   any
	Live   string // the URL of its stream; "" for none
	Bare   bool   // without navigation
	Onward string // the page of ours that this one goes on to by itself; "" for none
	file   string
}

// special is how a page is loaded that is more than a list or the members of one thing; nil: it is no more. Each is in
// the file of its name.
func special(at string) func(*visit) (*screen, error) {
	switch at {
	case "now":
		return now
	case "transactions":
		return transactions
	case "transactions/{id}":
		return transaction
	case "queues/{id}":
		return queue
	case "flows/{id}":
		return flow
	case "jobs/{id}":
		return job
	case "jobs/{id}/logs":
		return output
	case "runners/{id}":
		return runner
	case "domains/{id}":
		return domain
	case "machines":
		return machines
	case "machines/{id}":
		return machineOf
	}
	return nil
}

//go:embed *.html
var files embed.FS

// parse makes the pages, each with what all share. It runs for the first page: each command of postern would else wait
// for it.
func (u *UI) parse() map[string]*template.Template {
	base := template.Must(template.New("").Funcs(u.functions()).Option("missingkey=zero").ParseFS(files,
		"layout.html", "lever.html", "why.html"))
	all := map[string]*template.Template{}
	for _, name := range []string{"now.html", "transactions.html", "transaction.html", "queue.html", "flow.html",
		"job.html", "output.html", "domain.html", "machines.html", "list.html", "thing.html", "refused.html",
		"signin.html", "onward.html"} {
		all[name] = template.Must(template.Must(base.Clone()).ParseFS(files, name))
	}
	return all
}

// page answers every page of a context: it pulls the lever of a form, loads the page, and shows both.
func (u *UI) page(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost {
		w.Header().Set("Allow", "GET, HEAD, POST")
		http.Error(w, "a page is read, or its form is sent", http.StatusMethodNotAllowed)
		return
	}
	v := u.visit(w, r)
	if v == nil {
		return
	}
	v.Context = r.PathValue("context")
	if r.Method == http.MethodGet && r.URL.Query().Has("live") {
		u.live.serve(w, v)
		return
	}
	if err := v.whereabouts(); err != nil {
		u.refuse(w, r, err)
		return
	}
	status := http.StatusOK
	if r.Method == http.MethodPost {
		if err := v.pull(); err != nil {
			u.refuseTo(w, v, err)
			return
		}
		if v.redirect(w) {
			return
		}
		status = v.Said.Status
	} else {
		v.hear(w)
	}
	s, err := v.load()
	if err != nil {
		u.refuseTo(w, v, err)
		return
	}
	u.render(w, status, s.file, s)
}

// load reads what the page of a path shows.
func (v *visit) load() (*screen, error) {
	r := v.r
	noun, name, sub, id := r.PathValue("noun"), r.PathValue("name"), r.PathValue("sub"), r.PathValue("id")
	at := noun
	if name != "" {
		at += "/{id}"
	}
	if sub != "" {
		at += "/" + sub
	}
	if load := special(at); load != nil && id == "" {
		return load(v)
	}
	return v.plain(noun, name, sub, id)
}

// whereabouts finds the first contexts in which the visitor has a role, and the one that is meant where none is named.
func (v *visit) whereabouts() error {
	a, err := v.get("/contexts?limit=100")
	if err != nil {
		return err
	}
	for _, c := range a.items() {
		v.Contexts = append(v.Contexts, str(c, "name"))
	}
	byDefault := slices.Contains(v.Contexts, "default")
	if v.MoreContexts = str(a.doc, "next") != ""; v.MoreContexts && !byDefault {
		_, err := v.get("/contexts/default")
		byDefault = err == nil
	}
	switch {
	case byDefault:
		v.Home = "default"
	case len(v.Contexts) > 0:
		v.Home = v.Contexts[0]
	default:
		return fault.New(fault.NotFound, "not_found", "you have a role in no context")
	}
	return nil
}

// render answers with a page. It is made before the first byte is sent, so that a page is whole or not there.
func (u *UI) render(w http.ResponseWriter, status int, file string, s *screen) {
	text, err := u.execute(file, "layout", s)
	if err != nil {
		u.Log.Error("a page failed", "page", file, "error", err)
		http.Error(w, "something went wrong on our side; the log says what", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

func (u *UI) execute(file, part string, s *screen) ([]byte, error) {
	var b bytes.Buffer
	err := u.templates()[file].ExecuteTemplate(&b, part, s)
	return b.Bytes(), err
}

// refused is what the page of a refusal shows.
type refusedPage struct {
	Status              int
	Title, Detail, Help string
}

// refuse answers a browser with what was refused, without navigation.
func (u *UI) refuse(w http.ResponseWriter, _ *http.Request, err error) {
	p := problemOf(err)
	u.render(w, p.Status, "refused.html", &screen{Title: p.Title, Data: p, Bare: true})
}

// refuseTo is refuse for a visitor, who can go on from there.
func (u *UI) refuseTo(w http.ResponseWriter, v *visit, err error) {
	p := problemOf(err)
	u.render(w, p.Status, "refused.html", &screen{visit: v, Title: p.Title, Data: p})
}

func problemOf(err error) refusedPage {
	var r *refusal
	if errors.As(err, &r) {
		return refusedPage{r.status, str(r.problem, "title"), str(r.problem, "detail"), str(r.problem, "help")}
	}
	f := fault.As(err)
	switch f.Kind {
	case fault.NotFound:
		return refusedPage{http.StatusNotFound, "Not found", f.Detail, ""}
	case fault.Forbidden:
		return refusedPage{http.StatusForbidden, "Not allowed", f.Detail, ""}
	case fault.Invalid, fault.Conflict:
		return refusedPage{http.StatusUnprocessableEntity, "Invalid request", f.Detail, ""}
	case fault.Retry:
		return refusedPage{http.StatusServiceUnavailable, "Not possible now", f.Detail, ""}
	}
	return refusedPage{http.StatusInternalServerError, "Internal error",
		"something went wrong on our side; the log says what", ""}
}

// At is the URL of a page of the context.
func (v *visit) At(parts ...any) string {
	path := []string{"ui", "c", v.Context}
	for _, p := range parts {
		path = append(path, fmt.Sprint(p))
	}
	return pathTo(path...)
}

// In is the first page of another context.
func (v *visit) In(context string) string { return pathTo("ui", "c", context, "now") }

// Page is the URL of the page that shows what a path of the API names; "" where there is none.
func (v *visit) Page(path any) string {
	parts := strings.Split(strings.TrimPrefix(fmt.Sprint(path), "/"), "/")
	if len(parts) > 1 && parts[len(parts)-1] == "why" {
		parts = parts[:len(parts)-1]
	}
	if len(parts) == 0 || nounOf(parts[0]) == nil && special(parts[0]) == nil {
		return ""
	}
	at := []any{}
	for _, p := range parts[:min(len(parts), 4)] {
		if name, err := url.PathUnescape(p); err == nil {
			p = name
		}
		at = append(at, p)
	}
	return v.At(at...)
}

// place is an entry of the navigation.
type place struct {
	Name, URL string
	Here      bool
}

// Places are the pages that the visitor may open.
func (v *visit) Places() (list []place) {
	here := v.r.PathValue("noun")
	add := func(name, ask string) {
		if v.allowed(http.MethodGet, ask) {
			list = append(list, place{name, v.At(name), here == name})
		}
	}
	add("now", "/now")
	add("transactions", "/transactions")
	for _, n := range nouns {
		add(n.name, "/"+n.name)
	}
	add("machines", "/machines")
	return list
}

// Actor is who is signed in.
func (v *visit) Actor() string {
	switch {
	case v.who == nil:
		return "dev (no sign-in)"
	case v.who.Key != nil:
		return v.who.Key.Name + " (" + v.who.Key.Role + ")"
	}
	return v.who.Subject
}

// SignedIn says whether there is a session to end.
func (v *visit) SignedIn() bool { return v.who != nil }

// Path is that of the page, to which its forms post.
func (v *visit) Path() string { return v.r.URL.RequestURI() }

// functions are what templates may call.
func (u *UI) functions() template.FuncMap {
	return template.FuncMap{
		"when":   u.when,
		"clock":  clock,
		"clip":   clip,
		"pretty": pretty,
		"title":  title,
		"list":   func(v ...any) []any { return v },
		"add":    func(a, b int) int { return a + b },
		"empty":  func(v any) bool { return v == nil || v == "" },
		"words":  func(s string) string { return strings.NewReplacer("_", " ", "-", " ").Replace(s) },
	}
}

// title is a text that begins a line.
func title(s string) string { return strings.ToUpper(s[:min(1, len(s))]) + s[min(1, len(s)):] }

// when shows a time to the second, in UTC, with how long ago it was.
func (u *UI) when(v any) template.HTML {
	t, ok := v.(time.Time)
	if !ok {
		var err error
		if t, err = time.Parse(time.RFC3339Nano, fmt.Sprint(v)); err != nil {
			return template.HTML(template.HTMLEscapeString(clip(v)))
		}
	}
	if t.IsZero() {
		return ""
	}
	d, word := u.Now().Sub(t), " ago"
	if d < 0 {
		d, word = -d, ""
	}
	text := span(d) + word
	if word == "" {
		text = "in " + text
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s">%s</time>`, //nolint:gosec // only numbers
		t.UTC().Format(time.RFC3339), t.UTC().Format("2006-01-02 15:04:05.000 UTC"), text))
}

// clock shows a time of today, in UTC: it stays true where a page stands for long.
func clock(v any) template.HTML {
	t, err := time.Parse(time.RFC3339Nano, fmt.Sprint(v))
	if err != nil {
		return template.HTML(template.HTMLEscapeString(clip(v)))
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s">%s</time>`, //nolint:gosec // only numbers
		t.UTC().Format(time.RFC3339), t.UTC().Format("2006-01-02 15:04:05 UTC")))
}

// span is a length of time in its largest unit.
func span(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// clip shows the beginning of what may be long.
func clip(v any) string {
	const most = 160
	if v == nil {
		return ""
	}
	s := []rune(fmt.Sprint(v))
	if len(s) > most {
		return string(s[:most]) + "…"
	}
	return string(s)
}

// pretty is JSON for people.
func pretty(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // the template escapes it
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSpace(b.String())
}
