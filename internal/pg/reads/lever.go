package reads

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"github.com/postern-dev/postern/internal/outbox"
)

// AnyAccount and AnyWorker stand in a lever for what only the caller knows: an account that signs, as the last segment
// of a path; the address of a worker, in a body.
const (
	AnyAccount = "ACCOUNT"
	AnyWorker  = "http://WORKER"
)

// Lever is a request that would change something, as the API takes it: the path is escaped, and the body has the fields
// that it needs at least. A value that only the caller can give is "..." there, AnyAccount or AnyWorker.
type Lever struct {
	Method, Path, Role string
	Body               map[string]any
}

// NewLever makes a lever about what the parts of its path name, however they are spelled.
func NewLever(method, role string, parts ...string) Lever {
	return Lever{Method: method, Role: role, Path: pathOf(parts...)}
}

// With is the lever with one more member of its body.
func (l Lever) With(name string, value any) Lever {
	body := map[string]any{name: value}
	maps.Copy(body, l.Body)
	l.Body = body
	return l
}

// String is the request in one line.
func (l Lever) String() string {
	if len(l.Body) == 0 {
		return l.Method + " " + l.Path
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // an address may have a &, which people copy
	if err := e.Encode(l.Body); err != nil {
		return l.Method + " " + l.Path
	}
	return l.Method + " " + l.Path + " " + strings.TrimSpace(b.String())
}

// looks says whether the lever only shows more.
func (l Lever) looks() bool { return l.Method == http.MethodGet }

// pathOf joins names to a path of the API. A name is one segment, whatever it is made of.
func pathOf(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("/" + url.PathEscape(p))
	}
	return b.String()
}

// leverOf is one of a transaction, with what its body has to say.
func leverOf(id outbox.ID, verb, role string) Lever {
	l := NewLever(http.MethodPost, role, "transactions", id.String(), verb)
	switch verb {
	case "abandon", "was-done", "was-not-done":
		return l.With("reason", "...")
	case "move":
		return l.With("place", "head")
	}
	return l
}

// lookAt is where more is said of what a transaction waits for.
func lookAt(id outbox.ID) Lever {
	return NewLever(http.MethodGet, "reader", "transactions", id.String(), "why")
}
