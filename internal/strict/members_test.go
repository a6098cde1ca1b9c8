package strict

import (
	"encoding/json"
	"errors"
	"testing"
)

// A member is taken under its exact name alone, as other readers take it.
func TestMembersAreReadByTheirExactNames(t *testing.T) {
	type answer struct {
		Done  json.RawMessage `json:"done"`
		Code  string          `json:"code,omitempty"`
		Named string
	}
	for body, want := range map[string]answer{
		`{"done":{"a":1},"code":"x"}`:                    {Done: json.RawMessage(`{"a":1}`), Code: "x"},
		`{"Done":{},"CODE":"x","Named":"n"}`:             {},
		`{"Done":1,"done":2,"DONE":3}`:                   {Done: json.RawMessage(`2`)},
		`{"done":null,"code":null}`:                      {Done: json.RawMessage(`null`)},
		`{"` + "\u017f" + `":1,"` + "d\u006fne" + `":2}`: {Done: json.RawMessage(`2`)},
		`null`: {},
	} {
		var got answer
		err := Read([]byte(body), &got)
		if err != nil || string(got.Done) != string(want.Done) || got.Code != want.Code || got.Named != "" {
			t.Errorf("%s: %+v, %v", body, got, err)
		}
	}
	var e *json.UnmarshalTypeError
	if err := Read([]byte(`{"code":1}`), &answer{}); !errors.As(err, &e) || e.Field != "code" {
		t.Errorf("%v", err)
	}
	const says = "want an object of JSON, but a value of type array came"
	if _, err := Object([]byte(`[1]`)); err == nil || err.Error() != says {
		t.Error(err)
	}
	for _, body := range []string{`[]`, `"done"`, ``, `{`} {
		if Read([]byte(body), &answer{}) == nil {
			t.Errorf("%s is read as an object", body)
		}
	}
}
