package remote

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
)

// classify sorts what came of a dispatch into the classes of S2.8. The order of the cases is that of its
// rows: blocked, ambiguous, rejected, retry; a class that the worker names itself goes before all.
func classify(p reply, now time.Time) outbox.Answer {
	if p.status == 0 {
		return unanswered(p)
	}
	if p.status >= 300 && p.status < 400 {
		// The call was written, and a redirect is also what follows an effect (303 See Other).
		return outbox.Answer{Class: outbox.ClassAmbiguous, Code: "redirect", Message: redirected("worker", p.status)}
	}
	r, readable := readResult(p.body)
	a := outbox.Answer{Result: r.result, Code: r.err.code, Message: r.err.message}
	if a.Code == "" && (r.err.set || !ok2xx(p.status)) {
		a.Code = "http_" + strconv.Itoa(p.status)
		if r.err.set && ok2xx(p.status) {
			a.Code = "error"
		}
	}
	if a.Message == "" && (r.err.set || !ok2xx(p.status)) {
		a.Message = fmt.Sprintf("the worker answered HTTP %d %s", p.status, http.StatusText(p.status))
		if p.unbelieved() {
			a.Message += " to a signed call: have both ends the same secret?"
		}
	}
	a.Class = classOf(p, r, readable)
	a.Told = told(p, r)

	switch a.Class {
	case "":
	case outbox.ClassAmbiguous:
		if ok2xx(p.status) && !r.err.set {
			a.Code, a.Message = unclear(p, r, readable)
		}
	case outbox.ClassBlocked:
		a.Until = r.err.until(now)
		if d := retryAfter(p.header, now); a.Until.IsZero() && d > 0 {
			a.Until = now.Add(d)
		}
	case outbox.ClassRetry:
		a.After = max(r.err.after, retryAfter(p.header, now))
	}
	return a
}

// told says whether an answer is a body of the contract, so that its class is the worker's own word: under any status
// an error with a class; of a 2xx, an object with the keys hash, done and error, or with done. A gateway in front of
// the worker writes neither.
func told(p reply, r txnResult) bool {
	return r.err.class != "" || ok2xx(p.status) && (r.keys || r.result.Done != nil)
}

// redirected says in words that there is a redirect.
func redirected(whom string, status int) string {
	return fmt.Sprintf("the %s answered HTTP %d, a redirect: redirects are not followed, so give its final URL",
		whom, status)
}

// unanswered sorts a call to which there was no answer. Nothing sent means that nothing happened.
func unanswered(p reply) outbox.Answer {
	a := outbox.Answer{Class: outbox.ClassBlocked, Code: p.code, Message: p.message, Unsent: !p.sent}
	switch {
	case p.refused:
		a.Class = outbox.ClassRetry
	case p.sent:
		a.Class = outbox.ClassAmbiguous
	}
	return a
}

// classOf finds the class of an answer by the first row of S2.8 that it matches.
func classOf(p reply, r txnResult, readable bool) outbox.Class {
	s, e := p.status, r.err
	switch {
	case e.set && e.class != "":
		return e.class

	case s == http.StatusBadGateway, s == http.StatusServiceUnavailable, e.kind == codeUnavailable, p.unbelieved():
		return outbox.ClassBlocked

	case s == http.StatusGatewayTimeout, s == http.StatusConflict:
		return outbox.ClassAmbiguous
	case s >= 500 && !e.coded, s < 200: // without a word from the worker: who knows how far it came
		return outbox.ClassAmbiguous
	case ok2xx(s) && !readable:
		return outbox.ClassAmbiguous
	case ok2xx(s) && !e.set && r.result.Hash == "" && r.result.Done == nil:
		return outbox.ClassAmbiguous

	case e.kind == codeNever:
		return outbox.ClassRejected
	case s >= 400 && s < 500 && s != http.StatusRequestTimeout && s != http.StatusTooEarly && s != http.StatusTooManyRequests:
		return outbox.ClassRejected

	case e.set, !ok2xx(s):
		return outbox.ClassRetry
	}
	return ""
}

// unbelieved says whether the worker did nothing since it does not know our signature: so it is while both ends change
// to another secret, and whatever is sent meanwhile can still be done.
func (p reply) unbelieved() bool { return p.signed && p.status == http.StatusUnauthorized }

// unclear says why a 2xx answer tells us nothing.
func unclear(p reply, r txnResult, readable bool) (code, message string) {
	switch {
	case p.unread == "answer_too_large":
		return p.unread, "the worker's answer is longer than 1 MiB: want {hash, done, error}"
	case p.unread != "":
		return p.unread, "the worker's answer broke off: want {hash, done, error}"
	case !readable:
		return "answer_invalid", "the worker's answer is no TxnResult (" + r.reason + "): want {hash, done, error}"
	}
	return "answer_empty", "the worker's answer has neither hash, done nor error: want one of them"
}

func ok2xx(status int) bool { return status >= 200 && status < 300 }

// retryAfter reads the header of that name, seconds or a date; 0 without one.
func retryAfter(h http.Header, now time.Time) time.Duration {
	v := h.Get("Retry-After")
	if v == "" {
		return 0
	}
	if n, err := strconv.ParseInt(v, 10, 64); err == nil {
		return clampWait(float64(n))
	}
	if at, err := http.ParseTime(v); err == nil {
		return clampWait(at.Sub(now).Seconds())
	}
	return 0
}

// clampWait turns seconds into a wait within [0, maxWait]. It takes a float, since a worker may say 1e99.
func clampWait(seconds float64) time.Duration {
	if !(seconds > 0) { // NaN too
		return 0
	}
	return time.Duration(min(seconds, maxWait.Seconds()) * float64(time.Second))
}
