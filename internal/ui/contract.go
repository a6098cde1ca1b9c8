package ui

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// contract is what the API says of its own operations: the document at /openapi.json, read once. A visitor whom the API
// refuses leaves it unread.
type contract struct {
	mu  sync.Mutex
	ops []operation
}

// operation is one request that the API takes.
type operation struct {
	Method, Path, Summary string

	segments []string
	params   map[string]param // of query and header
	order    []string         // their names
	fields   []field          // of the body, where these are simple
}

type param struct {
	name, in, says string
	enum           []string
	integer        bool
}

// field is one field of a form.
type field struct {
	Name, Says, Value string

	Enum     []string
	Integer  bool
	Null     bool // it may be null, which is written so
	JSON     bool // any JSON
	Long     bool // text of several lines
	Required bool
}

// operations reads the contract.
func (u *UI) operations(r *http.Request) ([]operation, error) {
	c := &u.contract
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ops == nil {
		a, err := u.ask(context.WithoutCancel(r.Context()), r, http.MethodGet, "/openapi.json", nil)
		if err != nil {
			return nil, err
		}
		c.read(a.doc)
	}
	return c.ops, nil
}

func (c *contract) read(all doc) {
	paths, _ := all["paths"].(doc)
	for path, item := range paths {
		for method, op := range item.(doc) {
			o, ok := op.(doc)
			if !ok {
				continue
			}
			x := operation{
				Method:   strings.ToUpper(method),
				Path:     path,
				Summary:  str(o, "summary"),
				segments: strings.Split(path, "/"),
				params:   map[string]param{},
			}
			x.readParams(o)
			x.readBody(all, o)
			c.ops = append(c.ops, x)
		}
	}
	slices.SortFunc(c.ops, func(a, b operation) int { return strings.Compare(a.Path+a.Method, b.Path+b.Method) })
}

func (x *operation) readParams(o doc) {
	list, _ := o["parameters"].([]any)
	for _, p := range list {
		d, _ := p.(doc)
		schema, _ := d["schema"].(doc)
		if items, ok := schema["items"].(doc); ok {
			schema = items
		}
		name := str(d, "name")
		if str(d, "in") == "path" {
			continue
		}
		x.params[name] = param{
			name:    name,
			in:      str(d, "in"),
			says:    str(d, "description"),
			enum:    texts(schema["enum"]),
			integer: str(schema, "type") == "integer",
		}
		x.order = append(x.order, name)
	}
}

// readBody takes the fields of a body that are a text, a number, one of a few values, or any JSON. A place is none of
// them: leverOf says in words what it may be.
func (x *operation) readBody(all, o doc) {
	schema := dig(o, "requestBody", "content", "application/json", "schema")
	if ref := str(schema, "$ref"); ref != "" {
		schema = dig(all, "components", "schemas", ref[strings.LastIndexByte(ref, '/')+1:])
	}
	required := texts(schema["required"])
	properties, _ := schema["properties"].(doc)
	for name, p := range properties {
		d, _ := p.(doc)
		kind, null := str(d, "type"), false
		if list, ok := d["type"].([]any); ok && len(list) > 0 {
			kind = fmt.Sprint(list[0])
			null = slices.Contains(list, any("null"))
		}
		open := kind == "" && d["$ref"] == nil && name != "place"
		if kind != "string" && kind != "integer" && !open {
			continue
		}
		x.fields = append(x.fields, field{
			Name:     name,
			Says:     str(d, "description"),
			Enum:     texts(d["enum"]),
			Integer:  kind == "integer",
			Null:     null,
			JSON:     open,
			Long:     open,
			Required: slices.Contains(required, name),
		})
	}
	slices.SortFunc(x.fields, func(a, b field) int { return strings.Compare(a.Name, b.Name) })
}

// takes says whether the body has a field.
func (x *operation) takes(name string) bool {
	return slices.ContainsFunc(x.fields, func(f field) bool { return f.Name == name })
}

func texts(v any) (out []string) {
	list, _ := v.([]any)
	for _, x := range list {
		out = append(out, fmt.Sprint(x))
	}
	return out
}

func dig(d doc, names ...string) doc {
	for _, n := range names {
		d, _ = d[n].(doc)
	}
	return d
}

// find is the operation of a request; nil: there is none.
func find(ops []operation, method, path string) *operation {
	var best *operation
	have := strings.Split(path, "/")
	for i := range ops {
		o := &ops[i]
		if o.Method != method || len(o.segments) != len(have) {
			continue
		}
		literal := o.Path == path
		if !literal && !fits(o.segments, have) {
			continue
		}
		if best == nil || literal || strings.Count(o.Path, "{") < strings.Count(best.Path, "{") {
			best = o
		}
	}
	return best
}

func fits(template, have []string) bool {
	for i, want := range template {
		if want != have[i] && !strings.HasPrefix(want, "{") {
			return false
		}
	}
	return true
}

// actions are the operations that act on the thing of a path: POST /queues/{name}/pause and its like.
func actions(ops []operation, path string) (list []operation) {
	have := strings.Split(path, "/")
	for _, o := range ops {
		last := o.segments[len(o.segments)-1]
		if o.Method == http.MethodPost && len(o.segments) == len(have)+1 && !strings.HasPrefix(last, "{") &&
			fits(o.segments[:len(have)], have) && o.plain() {
			list = append(list, o)
		}
	}
	return list
}

// plain says whether a form can say all that an action needs. What makes a new thing, hands a secret out or is a call
// of a worker's own kind is for programs: so is what the runner of a job was given (postern job replay).
func (x *operation) plain() bool {
	switch x.segments[len(x.segments)-1] {
	case "rotate", "rotate-secret", "send", "batches", "insert", "messages", "receive", "ack", "evict", "invoke",
		"jobs", "prerequisites", "claim", "register", "renew", "replay", "processed", "reply",
		"reject", "intents", "intents:batch":
		return false
	}
	return true
}
