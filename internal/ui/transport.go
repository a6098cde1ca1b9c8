package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/postern-dev/postern/internal/pg/actors"
)

// doc is what the API says of a thing: its JSON.
type doc = map[string]any

// answer is what the API answered.
type answer struct {
	status int
	header http.Header
	body   bytes.Buffer
	doc    doc
}

// Header is that of the answer.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader keeps the status.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

// Write keeps a part of the body.
func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

// refusal is a problem of the API, as it was answered.
type refusal struct {
	status  int
	problem doc
}

// Error returns the sentence.
func (r *refusal) Error() string { return fmt.Sprint(r.problem["detail"]) }

// visit is one request of a browser, with its visitor and the answers that were read for it.
type visit struct {
	ui     *UI
	r      *http.Request
	who    *actors.SignedIn // nil in development mode
	cookie string

	Context      string   // that the page is about
	Home         string   // that is meant where none is named
	Contexts     []string // in which one has a role: the first hundred
	MoreContexts bool     // there are more of them
	seen         map[string]*answer
	may          map[string]bool
	fitting      []string          // the levers that fit the things of the page, also those of others
	Said         *said             // what came of a lever that was pulled
	Given        map[string]string // the fields of that form
}

// call makes a request to the API of this process as who is signed in. An error is a refusal.
func (v *visit) call(method, path string, body []byte, headers ...string) (*answer, error) {
	return v.request(false, method, path, body, headers...)
}

func (v *visit) request(ask bool, method, path string, body []byte, headers ...string) (*answer, error) {
	ctx := v.ui.Visiting(v.r.Context(), v.who, ask)
	return v.ui.ask(ctx, v.r, method, path, body, append(headers, "Postern-Context: "+v.Context)...)
}

// ask is a request to the API with the host and the origin that the browser named, so that the API judges them.
func (u *UI) ask(
	ctx context.Context, from *http.Request, method, path string, body []byte, headers ...string,
) (*answer, error) {
	r, err := http.NewRequestWithContext(ctx, method, path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Host, r.RemoteAddr = from.Host, from.RemoteAddr
	if o := from.Header.Get("Origin"); o != "" {
		r.Header.Set("Origin", o)
	}
	if len(body) > 0 {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		if name, value, _ := strings.Cut(h, ": "); value != "" {
			r.Header.Set(name, value)
		}
	}
	a := &answer{header: http.Header{}}
	u.API.ServeHTTP(a, r)
	if strings.Contains(a.header.Get("Content-Type"), "json") {
		d := json.NewDecoder(bytes.NewReader(a.body.Bytes()))
		d.UseNumber()
		_ = d.Decode(&a.doc) // any other JSON stays in the body
	}
	switch {
	case a.status == 0 && method != http.MethodGet:
		return a, &refusal{http.StatusServiceUnavailable, doc{"status": 503, "code": "commit_unknown",
			"title": "It is not known whether it was done", "detail": "the API did not answer in time: it may have " +
				"been done, or be done yet; look before you do it again"}}
	case a.status == 0: // it was given up
		return a, &refusal{http.StatusServiceUnavailable, doc{"status": 503, "code": "overloaded",
			"title": "Overloaded", "detail": "the API did not answer in time"}}
	case a.status >= 400:
		return a, &refusal{a.status, a.doc}
	}
	return a, nil
}

// get reads a path of the API, once for a page.
func (v *visit) get(path string) (*answer, error) {
	if a := v.seen[path]; a != nil {
		return a, nil
	}
	a, err := v.call(http.MethodGet, path, nil)
	if err == nil {
		v.seen[path] = a
	}
	return a, err
}

// allowed says whether the API would let the visitor make a request; nothing is done.
func (v *visit) allowed(method, path string) bool {
	at := method + " " + path
	may, known := v.may[at]
	if !known {
		_, err := v.request(true, method, path, nil)
		may = err == nil
		v.may[at] = may
	}
	return may
}

// pathTo joins names to a path, each escaped.
func pathTo(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("/" + url.PathEscape(p))
	}
	return b.String()
}

// items are the things of a list.
func (a *answer) items() []doc { return docs(a.doc["items"]) }

// docs are the documents of a list.
func docs(v any) (out []doc) {
	list, _ := v.([]any)
	for _, x := range list {
		if d, ok := x.(doc); ok {
			out = append(out, d)
		}
	}
	return out
}

// str is a member of a document as text, "" where it is missing or null.
func str(d doc, name string) string {
	if v := d[name]; v != nil {
		return fmt.Sprint(v)
	}
	return ""
}
