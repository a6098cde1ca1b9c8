package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
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

// An object that has a key twice means different things to different readers. Values within it are not looked into.
func TestAnObjectWithAKeyTwiceIsRefused(t *testing.T) {
	for body, want := range map[string]string{
		`{"done":1,"done":2}`: `the key "done" occurs twice`,
		`{"done":1,"hash":"a\\\":\"b","` + "d\\u006fne" + `":2}`: `the key "done" occurs twice`,
		`{ "a" : {"b":1,"b":2} , "b" : [{"a":1}] }`:              "",
		`{"a":":","b":"{\"a\":1}","":"\\"}`:                      "",
		`{}`:                                                     "",
		`null`:                                                   "",
	} {
		_, err := Object([]byte(body))
		if got := fmt.Sprint(err); err == nil && want != "" || err != nil && got != want {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
}

// Object finds a key that occurs twice wherever Check does at the root.
func FuzzObject(f *testing.F) {
	for _, s := range []string{`{"a":1,"a":2}`, `{"a":"\\","b":{"a":1}}`, `{"\u0061":1,"a":[":",{}]}`, `null`,
		`{"":""}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		_, err := Object(body)
		if checked := judge(body, 64); checked != nil {
			root := strings.Contains(checked.Error(), "occurs twice at the root")
			if root && err == nil {
				t.Errorf("%q is read though %v", body, checked)
			}
		} else if len(body) > 0 && bytes.TrimSpace(body)[0] == '{' && err != nil {
			t.Errorf("%q: %v", body, err)
		}
	})
}
