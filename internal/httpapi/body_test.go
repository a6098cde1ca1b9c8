package httpapi

import (
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
)

func TestNumbersAreComparedAsTheDatabaseDoes(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`1`, `1.0`, true}, {`1e2`, `100`, true}, {`12345678901234567890`, `12345678901234567891`, false},
		{`{"a":[1,{"b":null}]}`, `{"a":[1.00,{"b":null}]}`, true}, {`{"a":1}`, `{"a":1,"b":2}`, false},
		{`"1"`, `1`, false}, {`1e999999999`, `1`, false},
	} {
		if got := equalJSON(outbox.Parsed([]byte(c.a)), outbox.Parsed([]byte(c.b))); got != c.same {
			t.Errorf("%s and %s: %v", c.a, c.b, got)
		}
	}
}

func TestPointersOfFields(t *testing.T) {
	for in, want := range map[string]string{
		"body": "", "body.queue": "/queue", "body.items[3].tags": "/items/3/tags", "body[2].a": "/2/a",
		"query.limit": "limit", "path.name": "name", "header.Idempotency-Key": "Idempotency-Key",
	} {
		if got := pointerOf(in); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}
