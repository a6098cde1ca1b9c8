package httpapi_test

import (
	"strings"
	"testing"
)

func TestACallbackIsCheckedShownAndPartOfTheRequest(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	post := func(callback string) string {
		return `{"queue": "q", "type": "pay", "uid": "u", "data": {}, "callback": ` + callback + `}`
	}
	for bad, says := range map[string]string{
		`{"url": "ftp://x/"}`:            "/callback/url",
		`{"url": "http://me:secret@x/"}`: "credentials",
		`{}`:                             "url",
		`{"url": "http://x/", "on": ["WAITING"]}`:        `/callback/on/0`,
		`{"url": "http://x/", "on": ["DONE", "SOLVED"]}`: `UNRESOLVED`,
		`{"url": "http://x/", "when": []}`:               "/callback",
	} {
		if a := d.refused(422, "invalid", "POST", "/transactions", post(bad)); !strings.Contains(a.raw, says) ||
			strings.Contains(a.raw, "secret") {
			t.Errorf("%s: %s", bad, a.raw)
		}
	}
	const good = `{"url": "https://example.com/told?x=1", "on": ["DONE", "FAILED"]}`
	shown := `"callback":{"url":"https://example.com/told?x=1","on":["DONE","FAILED"]}`
	a := d.want(201, "POST", "/transactions", post(good))
	if b := d.want(200, "GET", "/transactions/"+a.str("id"), ""); !strings.Contains(a.raw, shown) ||
		!strings.Contains(b.raw, shown) {
		t.Errorf("%s\n%s", a.raw, b.raw)
	}
	d.want(200, "POST", "/transactions", post(good))
	c := d.refused(409, "idempotency_conflict", "POST", "/transactions",
		post(`{"url": "https://example.com/told?x=2"}`))
	if !strings.Contains(c.raw, `"differs":["callback"]`) {
		t.Error(c.raw)
	}
}
