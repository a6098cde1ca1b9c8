package leader_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
)

// The answers of tools and sources are read by the names that are documented, as they are written there.
func TestNamesInAnswersOfToolsAndSourcesAreTakenAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	d, err := leader.ParseMeta(meta(nil))
	if err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]leader.Class{
		`{"error": "no_such_walk", "details": "7"}`:               leader.Fatal,
		`{"Error": "no_such_walk", "details": "7"}`:               leader.Retriable,
		`{"error": "no_such_walk", "Details": "7"}`:               leader.Retriable,
		`{"error": {"Code": "no_such_walk", "message": "7"}}`:     leader.Retriable,
		`{"error": {"code": "no_such_walk", "Message": "7"}}`:     leader.Retriable,
		`{"ERROR": {"code": "no_such_walk", "message": "7"}}`:     leader.Retriable,
		`{"error": "no_such_walk", "details": "7", "ERROR": "x"}`: leader.Fatal,
	} {
		if v := d.Judge(leader.Reply{Status: 404, Body: []byte(body)}); v.Class != want {
			t.Errorf("%s: %+v, want %s", body, v, want)
		}
	}
	for _, name := range []string{"Fqn", "Input_Schema", "OUTPUT_SCHEMA"} {
		members := map[string]json.RawMessage{}
		if err := json.Unmarshal(meta(nil), &members); err != nil {
			t.Fatal(err)
		}
		members[name] = members[strings.ToLower(name)]
		delete(members, strings.ToLower(name))
		raw, err := json.Marshal(members)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := leader.ParseMeta(raw); err == nil {
			t.Errorf("a /meta with %s is read", name)
		}
	}
	wrong := meta(map[string]string{"description": `7`})
	if _, err := leader.ReadMeta(wrong); err == nil || fault.As(err).Fields[0].Pointer != "/description" {
		t.Errorf("%v", err)
	}
	for body, retry := range map[string]bool{
		`{"errors": [{"message": "m", "extensions": {"code": "BAD_USER_INPUT"}}]}`: false,
		`{"errors": [{"message": "m", "Extensions": {"code": "BAD_USER_INPUT"}}]}`: true,
		`{"errors": [{"message": "m", "extensions": {"Code": "BAD_USER_INPUT"}}]}`: true,
	} {
		if _, trouble := read(graphql(), body, nil); trouble == nil || trouble.Retryable != retry {
			t.Errorf("%s: %+v", body, trouble)
		}
	}
	for name, retry := range map[string]bool{"code": false, "Code": true} {
		body := fmt.Sprintf(`{"jsonrpc": "2.0", "id": 1, "error": {%q: -32602, "message": "m"}}`, name)
		if _, trouble := read(sui(), body, nil); trouble == nil || trouble.Retryable != retry {
			t.Errorf("%s: %+v", body, trouble)
		}
	}
}
