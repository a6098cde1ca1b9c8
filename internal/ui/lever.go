package ui

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
	New    bool   // there was none: it makes one only if there still is none
	Key    string // of its Idempotency-Key, where it takes one
	Body   string // members of the body beside the fields, as JSON
	Tries  bool   // it has a dry run
	Open   bool
	Bulk   string // the filter that it is about, as people read it
	Tried  *said  // the try of a bulk, whose things the lever acts on; nil: on what the filter finds
	ID     string // of the form
	Said   *said
	Form   *visit
}

// said is what came of a lever.
type said struct {
	OK, Dry, Pending bool

	Request, Title, Text, Help, Lever string
	Sent                              string `json:",omitempty"` // the request, where it was not that of the form
	Status                            int
	Facts                             []fact
	Refused                           []doc
	Next                              string
	IDs                               string `json:"-"` // of a try of a bulk: what it found
	Most                              string `json:"-"` // its max
	None                              bool   `json:"-"` // it found nothing
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
	if o == nil || !v.allowed(method, path) || v.foreign(path) {
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
		l.see(v, o)
	}
	if _, ok := o.params["Idempotency-Key"]; ok {
		l.Key = rand.Text()
	}
	if hasBlank(path) {
		l.Fields = append(l.Fields, field{Name: blank, Says: "The account that signs.", Required: true})
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
		l.askEach(o, want)
	}
	if _, inQuery := o.params["reason"]; inQuery || o.takes("reason") {
		l.Fields = append(l.Fields, field{Name: "reason", Says: "Kept in the audit.", Required: want["reason"] != nil})
	}
}

// askEach makes a field of each member of a body that a form can say, first those that it has to.
func (l *lever) askEach(o *operation, want doc) {
	rest, fields := doc{}, slices.Clone(o.fields)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		value := want[name]
		switch i := slices.IndexFunc(fields, func(f field) bool { return f.Name == name }); {
		case name == "reason", name == "place" && l.Verb == "move", i >= 0 && value == nil: // fields of their own
		case value == "..." && i < 0:
			l.Fields = append(l.Fields, field{Name: name, Required: true})
		case value == "...":
			fields[i].Required = true
			l.Fields = append(l.Fields, fields[i])
			fields = slices.Delete(fields, i, i+1)
		case i < 0:
			rest[name] = value
		case fields[i].JSON:
			text, _ := json.Marshal(value)
			fields[i].Value = string(text)
		default:
			fields[i].Value = fmt.Sprint(value)
		}
	}
	if len(rest) > 0 {
		text, _ := json.Marshal(rest)
		l.Body = string(text)
	}
	l.Fields = append(l.Fields, slices.DeleteFunc(fields, func(f field) bool { return f.Name == "reason" })...)
}

// retain shows the form that was sent as it was sent, with what came of it.
func (l *lever) retain(v *visit) {
	if v.Said == nil || v.Said.Request != l.Method+" "+l.Path {
		return
	}
	l.Open = true
	l.Said = v.Said
	for i := range l.Fields {
		if value, given := v.Given[l.Fields[i].Name]; given {
			l.Fields[i].Value = value
		}
	}
	if key := v.Given["key"]; key != "" && (v.Said.Dry || !v.Said.OK) {
		l.Key = key
	}
}

// see keeps the ETag of the thing that a lever is about, or that there is none where a PUT makes it.
func (l *lever) see(v *visit, o *operation) {
	about := l.Path
	if o.Method == http.MethodPost {
		about = about[:strings.LastIndexByte(about, '/')]
	}
	_, makes := o.params["If-None-Match"]
	makes = makes && o.Method == http.MethodPut
	if makes && hasBlank(about) {
		l.New = true
		return
	}
	a, err := v.get(about)
	var refused *refusal
	switch {
	case err == nil:
		l.Match = a.header.Get("ETag")
	case errors.As(err, &refused):
		l.New = makes && refused.status == http.StatusNotFound
	}
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
		v.fitting = append(v.fitting, path+"/"+verb)
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
	if err == nil && hasBlank(path) {
		if path, err = fill(path, form); err == nil {
			v.Said.Sent = method + " " + path
		}
	}
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
	if err == nil {
		err = complete(body)
	}
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
	if err := v.Said.take(body, form); err != nil {
		return nil, err
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
	key := form.Get("key")
	if body["uid"] != nil { // which is the key
		key = ""
	}
	return v.call(o.Method, path, raw, "If-Match: "+form.Get("if_match"),
		"If-None-Match: "+form.Get("if_none_match"), "Idempotency-Key: "+key)
}

// bodyOf is the body of a form: what it brought along as JSON, and its fields.
func bodyOf(o *operation, form url.Values) (doc, error) {
	body := doc{}
	if text := form.Get("body"); text != "" {
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		err := d.Decode(&body)
		if err == nil && (body == nil || !json.Valid([]byte(text))) {
			err = errors.New("want one object and nothing behind it")
		}
		if err != nil {
			return nil, fault.New(fault.Invalid, "malformed_json", "what is to be sent is no JSON object: %s", err)
		}
	}
	own := []string{"token", "lever", "if_match", "if_none_match", "key", "body", "do", "reason", "ids", "next", "most"}
	for name, values := range form {
		if slices.Contains(own, name) || values[0] == "" {
			continue
		}
		body[name] = values[0]
		i := slices.IndexFunc(o.fields, func(f field) bool { return f.Name == name })
		switch {
		case i < 0:
		case o.fields[i].Null && values[0] == "null":
			body[name] = nil
		case o.fields[i].Integer:
			if _, err := json.Marshal(json.Number(values[0])); err == nil { // else the API says what it wants
				body[name] = json.Number(values[0])
			}
		case o.fields[i].JSON && !json.Valid([]byte(values[0])):
			return nil, fault.New(fault.Invalid, "malformed_json",
				"%s is to be JSON, where a text is in quotes: %s is none", name, fault.Clip(values[0]))
		case o.fields[i].JSON:
			body[name] = json.RawMessage(values[0])
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
	s.IDs, s.None = strings.Join(texts(a.doc["ids"]), " "), str(a.doc, "matched") == "0"
	changed, known := a.doc["changed"]
	switch {
	case s.Dry && s.Pending:
		s.Title = "Tried: it would take effect later"
	case s.Dry && known && changed == false:
		s.Title = "Tried: nothing would change, it is so already"
	case s.Dry && s.None:
		s.Title = "Tried: it finds nothing"
	case s.Dry:
		s.Title = "Tried, and nothing was changed: it would be done"
	case s.Pending:
		s.Title = "Pending: it takes effect later"
	case known && changed == false:
		s.Title = "Nothing changed: it was so already"
	default:
		s.Title = "Done"
	}
	for _, name := range []string{"matched", "changed", "pending", "cancelled", "more", "at", "id", "state", "status"} {
		if value := str(a.doc, name); value != "" && !(name == "changed" && (value == "true" || value == "false")) {
			s.Facts = append(s.Facts, fact{name, value})
		}
	}
	s.tellCheck(a.doc)
	s.Next = cmp.Or(str(a.doc, "next"), s.Next)
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

// take has a bulk act on exactly what its try found: on these ids, instead of on what the filter finds by now. It is
// refused where the try found nothing. Where somebody has set another max since, it is another bulk.
func (s *said) take(body doc, form url.Values) error {
	s.Most = form.Get("max")
	if s.Dry || !form.Has("ids") || form.Get("most") != s.Most {
		return nil
	}
	ids := strings.Fields(form.Get("ids"))
	if len(ids) == 0 {
		return fault.New(fault.Invalid, "invalid", "its try found nothing, and what the filter finds by now was not "+
			"tried: try it again, or open the page again to do it untried")
	}
	for _, name := range []string{"filter", "max", "after"} {
		delete(body, name)
	}
	body["ids"], s.Next = ids, form.Get("next")
	return nil
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
