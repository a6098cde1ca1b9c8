package pg

import (
	"encoding/json"
	"testing"
)

// A row that was staged past the checks of postern.outbox is refused by the field that is wrong, or its lists are read
// as the API takes them. Either way the columns that are written are JSON.
func FuzzReadLists(f *testing.F) {
	for _, s := range []string{``, `null`, `{}`, `[]`, `"a"`, `["a"]`, `["a",null]`, `[""]`, `[7]`, `["a b"]`,
		`{"a":"b"}`, `{"a":null}`, `{"a":1}`, `{"url":"http://h/"}`, `{"url":""}`, `{"url":7}`,
		`{"url":"http://h/","secret":null}`} {
		f.Add([]byte(s), []byte(s), []byte(s), []byte(s))
	}
	f.Fuzz(func(t *testing.T, data, tags, dependsOn, callback []byte) {
		sub := &Submission{}
		sub.Data, sub.Tags = data, tags
		sub.readLists(dependsOn, callback)
		if !json.Valid(sub.Data) || len(sub.Tags) > 0 && !json.Valid(sub.Tags) {
			t.Errorf("the data %q and the tags %q are written", sub.Data, sub.Tags)
		}
		if sub.unread != nil {
			return
		}
		var of map[string]string
		if len(sub.Tags) > 0 && (json.Unmarshal(sub.Tags, &of) != nil || of == nil) {
			t.Errorf("the tags %q are taken", sub.Tags)
		}
		for _, name := range sub.DependsOn {
			if !wellNamed(name, mostUID) {
				t.Errorf("%q depends on %q", dependsOn, name)
			}
		}
		if len(callback) > 0 && (sub.Callback == nil || sub.Callback.URL == "") {
			t.Errorf("the callback %q is taken without a URL", callback)
		}
	})
}
