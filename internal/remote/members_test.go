package remote_test

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remotetest"
)

// Members that Postern has no name for are kept as they are; those that cannot be stored are left out, and change
// nothing.
func TestOtherMembersOfAnAnswerAreKept(t *testing.T) {
	large := `"` + strings.Repeat("x", 256<<10) + `"`
	deep := strings.Repeat("[", 70) + strings.Repeat("]", 70)
	for body, want := range map[string]string{
		`{"hash":"h","x":{"n":1.50},"big":12345678901234567890}`: `{"big":12345678901234567890,"x":{"n":1.50}}`,

		`{"hash":"h"}`: ``,
		`{"hash":"h","done":{},"error":null,"data":1,"nonce":"1","fee":2}`: ``,
		`{"hash":"","done":null,"error":{"code":20203,"s":3}}`:             `{"error":{"code":20203,"s":3}}`,
		`{"hash":"h","deep":` + deep + `,"a":1}`:                           `{"a":1}`,
		`{"hash":"h","` + "\\u0000" + `x":1,"a":"x"}`:                      `{"a":"x"}`,
		`{"hash":"","done":null,"error":{"code":1},"x":` + large + `}`:     `{"error":{"code":1}}`,
		`{"hash":"","done":null,"error":{"x":` + large + `}}`:              ``,
		`{"hash":"h","error":{}}`:                                          ``,
	} {
		f := remotetest.NewFake(t)
		f.Script(remotetest.Match{}, remotetest.Body(body))
		a := remotetest.Client(t).Dispatch(t.Context(), remotetest.Call(f.URL(), 1))
		if string(a.Result.Members) != want {
			t.Errorf("%.90s: %s, want %s", body, a.Result.Members, want)
		}
	}
}

// An answer that has a key twice ends nothing: it is none of the contract, whichever of the two values would count, in
// the answer itself and in its error. What the worker says of a result is its own, and is kept as JSON readers take it.
func TestAnAnswerWithAKeyTwiceEndsNothing(t *testing.T) {
	f := remotetest.NewFake(t)
	c := remotetest.Client(t)
	for body, says := range map[string]string{
		`{"done":{"a":1},"done":null}`:                                               `the key "done" occurs twice`,
		`{"hash":"h","hash":"i"}`:                                                    `the key "hash" occurs twice`,
		`{"error":{"class":"rejected","class":"retry","code":"x"}}`:                  `the key "class" occurs twice`,
		`{"hash":"","done":null,"error":{"code":500,"code":502,"message":"no way"}}`: `the key "code" occurs twice`,
	} {
		f.Script(remotetest.Match{}, remotetest.Body(body))
		a := c.Dispatch(t.Context(), remotetest.Call(f.URL(), 1))
		if a.Class != outbox.ClassAmbiguous || a.Told || a.Code != "answer_invalid" ||
			!strings.Contains(a.Message, says) {
			t.Errorf("%s: %+v", body, a)
		}
	}
	f.Script(remotetest.Match{}, remotetest.Body(`{"done":{"a":1,"a":2}}`))
	if a := c.Dispatch(t.Context(), remotetest.Call(f.URL(), 1)); a.Class != "" || a.Result.Done == nil {
		t.Errorf("%+v", a)
	}
}
