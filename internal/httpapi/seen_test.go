package httpapi_test

import (
	"strings"
	"testing"
)

// A lever on a job, a flow, a message, a delivery and an event is pulled on what was seen: with the ETag of another
// moment it is 412, and nothing is done. A dry run says which state it would go to, and keeps the old one.
func TestALeverOnWhatChangedMeanwhileIsRefused(t *testing.T) {
	l := newLevers(t)
	for path, c := range map[string]struct {
		arrange func() string
		state   string // that it goes to
		after   int    // how it is answered once more with the first ETag
	}{
		"/start":   {l.aFlow, "dispatched", 412},
		"/cancel":  {l.aFlow, "error", 412},
		" /cancel": {l.aJob, "error", 412},
		"/cancel ": {l.aMessage, "error", 412},
		"/retry": {func() string {
			at := l.ofSubscriptionsAndProcessors()["POST /deliveries/{id}/retry"].arrange()
			l.plant(`UPDATE postern.delivery
				SET state = 'failed', attempts = 3, next_at = NULL, ended_at = clock_timestamp()`)
			return at
		}, "pending", 412},
		"/redrive": {l.aDeadEvent, "", 409},
	} {
		at, verb := c.arrange(), strings.TrimSpace(path)
		seen := l.want(200, "GET", at, "")
		etag := "If-Match: " + seen.header.Get("ETag")
		before := l.rows()
		l.refused(412, "precondition_failed", "POST", at+verb, "", `If-Match: "of-another-moment"`)
		tried := l.call("POST", at+verb+"?dry_run=true", "", etag)
		if tried.status >= 300 || tried.str("state") != c.state || l.rows() != before {
			t.Errorf("%s%s tried: %d %s; rows are the same: %v", at, verb, tried.status, tried.raw, l.rows() == before)
		}
		if done := l.call("POST", at+verb, "", etag); done.status >= 300 || done.str("state") != c.state {
			t.Errorf("%s%s: %d %s", at, verb, done.status, done.raw)
		}
		if again := l.call("POST", at+verb, "", etag); again.status != c.after {
			t.Errorf("%s%s with the ETag of before: %d %s", at, verb, again.status, again.raw)
		}
	}
}

// The redrive of a flow can be tried, and is of the flow that was seen.
func TestARedriveOfAFlowCanBeTried(t *testing.T) {
	l := newLevers(t)
	at := l.aFlow()
	seen := l.want(200, "GET", at, "").header.Get("ETag")
	l.want(200, "POST", at+"/cancel", "")
	before := l.rows()
	l.refused(412, "precondition_failed", "POST", at+"/redrive", "", "If-Match: "+seen)
	a := l.want(201, "POST", at+"/redrive?dry_run=true", "")
	if "/flows/"+a.str("redrive_of") != at || l.rows() != before {
		t.Errorf("%s; rows are the same: %v", a.raw, l.rows() == before)
	}
	l.want(201, "POST", at+"/redrive", "", "If-Match: "+l.want(200, "GET", at, "").header.Get("ETag"))
}
