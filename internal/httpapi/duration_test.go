package httpapi_test

import (
	"strings"
	"testing"
)

// A configuration that is applied again, with another setting, prolongs no right whose duration it does not change.
func TestAnApplyOfTheSameDurationProlongsNothing(t *testing.T) {
	d := newPlant(t)
	pay := func(change ...string) answer {
		t.Helper()
		settings := strings.NewReplacer(append(change, `"label": "pay", `, "")...).Replace(payOnce)
		d.applied("", these("", `{"kind": "authorization", "name": "pay", "settings": `+settings+`}`))
		return d.want(200, "GET", "/authorizations/pay", "")
	}
	pay()
	d.want(200, "PUT", "/processors/main/height", `{"height": 3}`)
	a := pay(`"max_concurrent_executions": 2`, `"max_concurrent_executions": 3`)
	if a.str("ends_at_height") != "5" || a.body["max_concurrent_executions"] != 3.0 {
		t.Errorf("the same duration: %s", a.raw)
	}
	if a := pay(`"blocks": 5`, `"blocks": 6`); a.str("ends_at_height") != "9" {
		t.Errorf("another duration: %s", a.raw)
	}
}
