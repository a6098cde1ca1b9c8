package ui

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/postern-dev/postern/internal/fault"
)

// lever is a form that makes one request to the API.
type lever struct {
	Method, Path, Verb, Summary string

	Fields []field
	Match  string // the ETag that was seen
	Key    string // of its Idempotency-Key, where it takes one
	Body   string // members of the body beside the fields, as JSON
	Tries  bool   // it has a dry run
	Open   bool
	Bulk   string // the filter that it is about, as people read it
	ID     string // of the form
	Said   *said
	Form   *visit
}

// said is what came of a lever.
type said struct {
	OK, Dry, Pending bool

	Request, Title, Text, Help, Lever string
	Status                            int
	Facts                             []fact
	Refused                           []doc
	Next                              string
}

type fact struct{ Name, Value string }

// leverOf is the form of an operation on a path; nil: the visitor may not, or there is no such operation. want has the
// fields that its body needs at least, as /why says them; "..." is for the visitor to say.
func (v *visit) leverOf(method, path string, want doc) (*lever, error) {
	ops, err := v.ui.operations(v.r)
	if err != nil {
		return nil, err
	}
	o := find(ops, method, path)
	if o == nil || !v.allowed(method, path) {
		return nil, nil
	}
	l := &lever{
		Method:  method,
		Path:    path,
		Verb:    verbOf(o),
		Summary: o.Summary,
		ID:      anchor(path),
		Form:    v,
	}
	_, l.Tries = o.params["dry_run"]
	if _, ok := o.params["If-Match"]; ok {
		l.Match = v.etagOf(o, path)
	}
	if _, ok := o.params["Idempotency-Key"]; ok {
		l.Key = rand.Text()
	}
	l.ask(o, want)
	if l.Verb == "move" { // the contract leaves its form open
		place := field{Name: "place", Says: "head: in front of all that wait. Nothing: at the end.",
			Enum: []string{"head"}}
		if want["filter"] == nil {
			place.Value = "head"
		}
		l.Fields = append(l.Fields, place)
	}
	l.retain(v)
	return l, nil
}

// verbOf is the name of a lever: the last word of its path, or what a PUT or PATCH does.
func verbOf(o *operation) string {
	last := o.segments[len(o.segments)-1]
	switch _, verb, ok := strings.Cut(last, ":"); {
	case ok:
		return verb
	case slices.Contains(whole, o.Path):
		return strings.ToLower(strings.Fields(o.Summary)[0])
	case o.Method == http.MethodPost && !strings.HasPrefix(last, "{"):
		return last
	case o.Method == http.MethodPut:
		return "put"
	case o.Method == http.MethodPatch:
		return "change"
	}
	return strings.ToLower(o.Summary)
}

// whole are the paths to which a POST sends a thing that is written as a whole, as a PUT does.
var whole = []string{"/transactions", "/debug/clock"}

// ask makes the fields of the form. The body of a PUT or PATCH is one field, JSON that may be edited.
func (l *lever) ask(o *operation, want doc) {
	if l.Method == http.MethodPut || l.Method == http.MethodPatch || slices.Contains(whole, l.Path) {
		text, _ := json.MarshalIndent(want, "", "  ")
		l.Fields = append(l.Fields, field{
			Name:     "body",
			Says:     "What is sent, as JSON.",
			Value:    string(text),
			Long:     true,
			Required: true,
		})
	} else {
		rest := doc{}
		for name, value := range want {
			switch {
			case name == "reason":
			case value == "...":
				l.Fields = append(l.Fields, field{Name: name, Required: true})
			case o.takes(name):
			default:
				rest[name] = value
			}
		}
		if len(rest) > 0 {
			text, _ := json.Marshal(rest)
			l.Body = string(text)
		}
		for _, f := range o.fields {
			if f.Name == "reason" || slices.ContainsFunc(l.Fields, func(x field) bool { return x.Name == f.Name }) {
				continue
			}
			if w := want[f.Name]; w != nil {
				f.Value = fmt.Sprint(w)
			}
			l.Fields = append(l.Fields, f)
		}
	}
	if _, inQuery := o.params["reason"]; inQuery || o.takes("reason") {
		l.Fields = append(l.Fields, field{Name: "reason", Says: "Kept in the audit.", Required: want["reason"] != nil})
	}
}

// retain shows the form that was sent as it was sent, with what came of it.
func (l *lever) retain(v *visit) {
	if v.Said == nil || v.Said.Request != l.Method+" "+l.Path {
		return
	}
	l.Open = true
	l.Said = v.Said
	for i := range l.Fields {
		l.Fields[i].Value = v.Given[l.Fields[i].Name]
	}
	if key := v.Given["key"]; key != "" && (v.Said.Dry || !v.Said.OK) {
		l.Key = key
	}
}

// etagOf is the ETag of the thing that a lever is about.
func (v *visit) etagOf(o *operation, path string) string {
	about := path
	if o.Method == http.MethodPost {
		about = path[:strings.LastIndexByte(path, '/')]
	}
	a, err := v.get(about)
	if err != nil {
		return ""
	}
	return a.header.Get("ETag")
}

// leversOf are all forms that act on the thing of a path, but those in skip.
func (v *visit) leversOf(path string, skip func(verb string) bool) (list []*lever, err error) {
	ops, err := v.ui.operations(v.r)
	if err != nil {
		return nil, err
	}
	for _, o := range actions(ops, path) {
		verb := o.segments[len(o.segments)-1]
		if skip != nil && skip(verb) {
			continue
		}
		l, err := v.leverOf(o.Method, path+"/"+verb, nil)
		if err != nil {
			return nil, err
		}
		if l != nil {
			list = append(list, l)
		}
	}
	return list, nil
}

// pull does what a form asks for, and keeps what came of it for the page. An error says that it was no form of ours.
func (v *visit) pull() error {
	if err := checkForm(v.r, v.cookie); err != nil {
		return err
	}
	form := v.r.PostForm
	method, path, _ := strings.Cut(form.Get("lever"), " ")
	v.Said = &said{Request: method + " " + path, Dry: form.Get("do") != "do"}
	v.Given = map[string]string{}
	for name, values := range form {
		v.Given[name] = strings.Join(values, "\n")
	}
	ops, err := v.ui.operations(v.r)
	if err != nil {
		return err
	}
	o := find(ops, method, path)
	if o == nil || method != http.MethodPost && method != http.MethodPut && method != http.MethodPatch {
		return fault.New(fault.Invalid, "invalid", "lever %q: no page has such a form", fault.Clip(form.Get("lever")))
	}
	_, err = v.request(true, method, path, nil) // a visitor who may not pull it hears that first
	var a *answer
	if err == nil {
		a, err = v.send(o, path, form)
	}
	v.Said.tell(a, err)
	v.seen, v.may = map[string]*answer{}, map[string]bool{}
	return nil
}

// send makes the request of a form.
func (v *visit) send(o *operation, path string, form url.Values) (*answer, error) {
	body, err := bodyOf(o, form)
	if err != nil {
		return nil, err
	}
	query := url.Values{}
	if reason := form.Get("reason"); reason != "" {
		if o.takes("reason") {
			body["reason"] = reason
		} else if _, ok := o.params["reason"]; ok {
			query.Set("reason", reason)
		}
	}
	if _, ok := o.params["dry_run"]; ok && v.Said.Dry {
		query.Set("dry_run", "true")
	} else if v.Said.Dry {
		return nil, fault.New(fault.Invalid, "invalid", "%s %s cannot be tried: it has no dry run", o.Method, path)
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		raw = nil
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return v.call(o.Method, path, raw, "If-Match: "+form.Get("if_match"), "Idempotency-Key: "+form.Get("key"))
}

// bodyOf is the body of a form: what it brought along as JSON, and its fields.
func bodyOf(o *operation, form url.Values) (doc, error) {
	body := doc{}
	if text := form.Get("body"); text != "" {
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&body); err != nil {
			return nil, fault.New(fault.Invalid, "malformed_json", "what is to be sent is no JSON object: %s", err)
		}
	}
	own := []string{"token", "lever", "if_match", "key", "body", "do", "reason"}
	for name, values := range form {
		if slices.Contains(own, name) || values[0] == "" {
			continue
		}
		body[name] = values[0]
		if slices.ContainsFunc(o.fields, func(f field) bool { return f.Name == name && f.Integer }) {
			body[name] = json.Number(values[0])
		}
	}
	return body, nil
}

// tell keeps what the API answered, in its words.
func (s *said) tell(a *answer, err error) {
	var r *refusal
	if errors.As(err, &r) {
		s.Status, s.Title, s.Text = r.status, str(r.problem, "title"), str(r.problem, "detail")
		s.Help, s.Lever = str(r.problem, "help"), str(r.problem, "lever")
		return
	}
	if err != nil {
		f := fault.As(err)
		s.Status, s.Title, s.Text = http.StatusUnprocessableEntity, "Invalid request", f.Detail
		return
	}
	s.OK, s.Status = true, http.StatusOK
	s.Pending = a.status == http.StatusAccepted
	changed, known := a.doc["changed"]
	switch {
	case s.Dry && s.Pending:
		s.Title = "Tried: it would take effect later"
	case s.Dry && known && changed == false:
		s.Title = "Tried: nothing would change, it is so already"
	case s.Dry:
		s.Title = "Tried, and nothing was changed: it would be done"
	case s.Pending:
		s.Title = "Pending: it takes effect later"
	case known && changed == false:
		s.Title = "Nothing changed: it was so already"
	default:
		s.Title = "Done"
	}
	for _, name := range []string{"matched", "changed", "pending", "cancelled", "more", "at", "id", "state"} {
		if value := str(a.doc, name); value != "" && !(name == "changed" && (value == "true" || value == "false")) {
			s.Facts = append(s.Facts, fact{name, value})
		}
	}
	s.tellCheck(a.doc)
	s.Next = str(a.doc, "next")
	list, _ := a.doc["refused"].([]any)
	for _, x := range list[:min(len(list), 20)] {
		if d, ok := x.(doc); ok {
			s.Refused = append(s.Refused, d)
		}
	}
	if len(list) > 0 {
		s.Facts = append(s.Facts, fact{"refused", fmt.Sprint(len(list))})
	}
}

// tellCheck keeps what a check found. One that found something bad is no success.
func (s *said) tellCheck(d doc) {
	ok, is := d["ok"].(bool)
	if !is {
		return
	}
	s.OK, s.Title = ok, "Checked: nothing is bad"
	if !ok {
		s.Title, s.Text = "Checked: something is bad", str(d, "message")
	}
	if code := str(d, "code"); code != "" {
		s.Facts = append(s.Facts, fact{"code", code})
	}
	checks, _ := d["checks"].([]any)
	for _, x := range checks {
		if c, is := x.(doc); is {
			s.Facts = append(s.Facts, fact{str(c, "check"), str(c, "state") + ": " + str(c, "found")})
		}
	}
}

// onward is the body of the next part of a bulk behind one of it that was done; of one that was only tried, or was the
// last, it begins where the form began.
func (s *said) onward(body string) string {
	if s.Dry || !s.OK {
		return body
	}
	var d doc
	if json.Unmarshal([]byte(body), &d) != nil || d == nil {
		return body
	}
	delete(d, "after")
	if s.Next != "" {
		d["after"] = s.Next
	}
	text, err := json.Marshal(d)
	if err != nil {
		return body
	}
	return string(text)
}

// Anchor is the id of the form of the lever that would work, on the page of the same thing.
func (s *said) Anchor() string {
	_, path, _ := strings.Cut(s.Request, " ")
	at := path[:max(0, strings.LastIndexByte(path, '/'))]
	return anchor(at + "/" + cmp.Or(s.Lever, "none"))
}

// anchor is the id of the form of a path.
func anchor(path string) string {
	return "lever" + strings.NewReplacer("/", "-", ":", "-", "@", "-", ".", "-").Replace(path)
}
