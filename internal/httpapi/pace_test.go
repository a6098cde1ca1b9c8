package httpapi_test

import (
	"strconv"
	"sync"
	"testing"

	"github.com/postern-dev/postern/internal/httpapi"
)

func TestAKeyThatAsksTooOftenWaitsAndNobodyElseDoes(t *testing.T) {
	d, root := closedDoor(t, func(c *httpapi.Config) { c.Limits.Requests = 3 })
	till, _, _ := d.key(root, "default", "reader")
	other, _, _ := d.key(root, "default", "reader")
	if l := d.want(200, "GET", "/limits", "", other); l.body["requests_a_second"] != 3.0 {
		t.Error(l.raw)
	}
	refused := false
	// however slow the machine is, some round is asked within a second or two
	for round := 0; !refused && round < 100; round++ {
		answers := make([]answer, 16)
		var all sync.WaitGroup
		for i := range answers {
			all.Go(func() { answers[i] = d.call("GET", "/queues", "", till) })
		}
		all.Wait()
		for _, a := range answers {
			if a.status == 200 {
				continue
			}
			refused = true
			after, err := strconv.Atoi(a.header.Get("Retry-After"))
			if a.status != 429 || a.str("code") != "rate_limited" ||
				a.body["retryable"] != true || err != nil || after < 1 {
				t.Errorf("%d %s, Retry-After %q", a.status, a.raw, a.header.Get("Retry-After"))
			}
		}
	}
	if !refused {
		t.Error("a key that may ask three times a second was never refused")
	}
	d.want(200, "GET", "/queues", "", other)
}
