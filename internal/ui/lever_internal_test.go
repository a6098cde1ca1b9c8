package ui

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// What /why leaves to the visitor keeps what the contract says of it: the payload of a callback is JSON.
func TestAWantedFieldKeepsItsKind(t *testing.T) {
	var all doc
	if err := json.Unmarshal([]byte(`{"paths": {"/callbacks/{id}": {"post": {"requestBody": {"content": {
		"application/json": {"schema": {"required": ["payload"], "properties": {
			"payload": {"description": "any"}, "of": {"$ref": "#/x"}, "outcome": {"type": "string"}}}}}}}}}}`),
		&all); err != nil {
		t.Fatal(err)
	}
	var c contract
	c.read(all)
	o := find(c.ops, "POST", "/callbacks/1")
	l := &lever{Method: "POST", Path: "/callbacks/1"}
	l.ask(o, doc{"payload": "...", "outcome": "done", "of": doc{"a": 1}, "other": "..."})
	want := []field{
		{Name: "other", Required: true},
		{Name: "payload", Says: "any", JSON: true, Long: true, Required: true},
		{Name: "outcome", Value: "done"},
	}
	have, _ := json.Marshal(l.Fields)
	if text, _ := json.Marshal(want); string(have) != string(text) || l.Body != `{"of":{"a":1}}` {
		t.Errorf("%s\n%s", have, l.Body)
	}
	body, err := bodyOf(o, url.Values{"payload": {`{"n": 1.50}`}, "outcome": {"7"}})
	if text, _ := json.Marshal(body); err != nil || string(text) != `{"outcome":"7","payload":{"n":1.50}}` {
		t.Errorf("%s %v", text, err)
	}
}

// A choice that has to be made is made by the visitor: no form has made it.
func TestAChoiceThatIsNeededIsNotMadeByTheForm(t *testing.T) {
	u := New(Config{API: http.NotFoundHandler(), Auth: "none"})
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "/ui/c/default/intents/1", nil)
	l := &lever{Form: &visit{ui: u, r: r}, Verb: "release",
		Fields: []field{{Name: "outcome", Enum: []string{"done", "not_done"}, Required: true}}}
	var b strings.Builder
	if err := u.templates()["now.html"].ExecuteTemplate(&b, "lever", l); err != nil {
		t.Fatal(err)
	}
	want := `<select name="outcome" required><option value=""></option><option>done</option>`
	if !strings.Contains(b.String(), want) {
		t.Errorf("%s is not there: %s", want, b.String())
	}
}
