package strict

import (
	"encoding/json"
	"testing"
	"time"
)

// A member is taken under one spelling alone, however deep in what is read.
func TestAMemberIsWrittenInOneWay(t *testing.T) {
	type inner struct {
		Key string    `json:"key_id,omitempty"`
		At  time.Time `json:"at"`
	}
	type outer struct {
		One  inner           `json:"one"`
		Many []*inner        `json:"many"`
		Raw  json.RawMessage `json:"raw"`
		Sum  []byte          `json:"sum"`
	}
	for body, want := range map[string]string{
		`{"one": {"key_id": "a", "at": "2026-01-01T00:00:00Z"}, "many": [{}, null], "raw": {"One": 1}}`: "",
		`{"sum": "AA==", "other": {"KEY_ID": 1}, "many": 1, "one": 2}`:                                  "",
		`null`:                              "",
		`{"One": {}}`:                       `the member "One" at /: write it "one"`,
		`{"one": {"key_ID": ""}}`:           `the member "key_ID" at /one/: write it "key_id"`,
		`{"many": [{}, {"\u212Aey_id":1}]}`: "the member \"\u212aey_id\" at /many/1/: write it \"key_id\"",
	} {
		err := Spelled([]byte(body), &outer{})
		if err == nil && want != "" || err != nil && err.Error() != want {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
}
