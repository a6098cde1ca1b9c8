package httpapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/runner"
)

// The bodies of the calls of runners are written down twice: here for the contract, and in the runner, which is a
// client. Both have the same members, of the same kinds.
func TestTheWireOfRunnersIsOneAtBothEnds(t *testing.T) {
	for _, x := range []struct{ server, client any }{
		{registerRunnerInput{}.Body, runner.RegisterRequest{}},
		{registerRunnerOutput{}.Body, runner.RegisterAnswer{}},
		{claimJobsInput{}.Body, runner.ClaimRequest{}},
		{claimedJobs{}, runner.ClaimAnswer{}},
		{renewRunnerInput{}.Body, runner.RenewRequest{}},
		{renewRunnerOutput{}.Body, runner.RenewAnswer{}},
		{logTryInput{}.Body, runner.LogRequest{}},
		{finishTryInput{}.Body, runner.FinishRequest{}},
		{failTryInput{}.Body, runner.FailRequest{}},
		{endTryOutput{}.Body, runner.EndAnswer{}},
	} {
		server, client := shapeOf(reflect.TypeOf(x.server)), shapeOf(reflect.TypeOf(x.client))
		if server != client {
			t.Errorf("%T:\nserver %s\nclient %s", x.client, server, client)
		}
	}
	text, err := json.Marshal(runner.Hold{Try: "2c6f0f6e-6d5f-4e9e-8f4a-0d7a5b6f9a01", Fence: 7})
	var hold tryHold
	if err != nil || json.Unmarshal(text, &hold) != nil {
		t.Fatal(string(text), err)
	}
	if back, err := json.Marshal(hold); err != nil || string(back) != string(text) {
		t.Errorf("%s came back as %s: %v", text, back, err)
	}
}

// shapeOf is what JSON makes of a type: its members by their names, with their kinds.
func shapeOf(typ reflect.Type) string {
	switch {
	case typ.Kind() == reflect.Pointer:
		return shapeOf(typ.Elem())
	case typ == reflect.TypeFor[json.RawMessage]():
		return "object" // of strings by the check of both ends
	case typ.Implements(reflect.TypeFor[json.Marshaler]()):
		return "pair"
	case typ.Kind() == reflect.Slice:
		return "[" + shapeOf(typ.Elem()) + "]"
	case typ.Kind() == reflect.Map:
		return "object"
	case typ.Kind() == reflect.Int64:
		return "int"
	case typ.Kind() != reflect.Struct:
		return typ.Kind().String()
	}
	var members []string
	for _, f := range reflect.VisibleFields(typ) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		members = append(members, fmt.Sprint(cmp.Or(name, f.Name), ":", shapeOf(f.Type)))
	}
	slices.Sort(members)
	return "{" + strings.Join(members, " ") + "}"
}
