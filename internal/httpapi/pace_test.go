package httpapi_test

import (
	"strconv"
	"testing"

	"github.com/postern-dev/postern/internal/httpapi"
)

func TestAKeyThatAsksTooOftenWaitsAndNobodyElseDoes(t *testing.T) {
	d, root := closedDoor(t, func(c *httpapi.Config) { c.Limits.Requests = 20 })
	till, _, _ := d.key(root, "default", "reader")
	other, _, _ := d.key(root, "default", "reader")
	if l := d.want(200, "GET", "/limits", "", other); l.body["requests_a_second"] != 20.0 {
		t.Error(l.raw)
	}
	for asked := 1; ; asked++ {
		a := d.call("GET", "/queues", "", till)
		if a.status == 200 && asked < 2000 {
			continue
		}
		after, err := strconv.Atoi(a.header.Get("Retry-After"))
		if a.status != 429 || a.str("code") != "rate_limited" || a.body["retryable"] != true || err != nil || after < 1 || asked < 20 {
			t.Errorf("request %d: %d %s, Retry-After %q", asked, a.status, a.raw, a.header.Get("Retry-After"))
		}
		break
	}
	d.want(200, "GET", "/queues", "", other)
}
