package remote

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/strict"
)

// classify sorts what came of a dispatch into the classes of S2.8. Only a body of the contract is the worker's own
// word, and only the worker's own word ends a transaction: anything else may come from what stands between.
func classify(p reply, now time.Time) outbox.Answer {
	if p.status == 0 {
		return unanswered(p)
	}
	r, readable := readResult(p.body)
	if !told(p, r, readable) {
		return others(p, r, readable, now)
	}
	a := outbox.Answer{Result: r.result, Told: true, Class: r.classOf()}
	if a.Class == outbox.ClassBlocked {
		a.Scope = r.err.blocks()
	}
	r.name(&a, p)
	least := retryAfter(p.header, now)
	if a.Class == outbox.ClassRetry {
		least = max(least, r.err.after)
	}
	wait(&a, least, r.err.until(now), now)
	return a
}

// others sorts an answer that is no body of the contract. It never says that anything is over, it blocks its own queue
// alone, and it may ask for a short wait only.
func others(p reply, r txnResult, readable bool, now time.Time) outbox.Answer {
	a := outbox.Answer{Class: classOfOthers(p)}
	if a.Class == outbox.ClassBlocked {
		a.Scope = outbox.ScopeQueue
	}
	a.Code, a.Message = p.unclear(r, readable)
	wait(&a, min(retryAfter(p.header, now), maxForeignWait), time.Time{}, now)
	return a
}

// wait puts off the next try by a time, or until a moment, whichever a class goes by.
func wait(a *outbox.Answer, least time.Duration, until, now time.Time) {
	switch a.Class {
	case outbox.ClassBlocked, outbox.ClassAmbiguous:
		if a.Until = until; until.IsZero() && least > 0 {
			a.Until = now.Add(least)
		}
		// PostgreSQL would keep an earlier moment
		if whole := a.Until.Truncate(time.Microsecond); whole.Before(a.Until) {
			a.Until = whole.Add(time.Microsecond)
		}
	case outbox.ClassRetry:
		a.After = least
	}
}

// told says whether an answer is a body of the contract, so that its class is the worker's own word: under any status
// an error with a class; of a 2xx, an object that says done, or hash and no error, or has the keys hash, done and error
// of the reference. A gateway in front of the worker writes neither.
func told(p reply, r txnResult, readable bool) bool {
	if r.err.class != "" {
		return true
	}
	if !ok2xx(p.status) || !readable {
		return false
	}
	return r.result.Done != nil || r.coded() || r.result.Hash != "" && !r.err.set
}

// coded says whether an error without a class counts: beside all keys of the reference alone.
func (r txnResult) coded() bool { return r.keys && r.err.set }

// classOf is the class of a body of the contract.
func (r txnResult) classOf() outbox.Class {
	switch e := r.err; {
	case e.class != "":
		return e.class
	case !r.coded():
		return "" // done, or accepted
	case e.kind == codeUnavailable:
		return outbox.ClassBlocked
	case e.kind == codeNever:
		return outbox.ClassRejected
	}
	return outbox.ClassRetry
}

// name gives an error of a body of the contract its code and its message, or makes up those that it does not say.
func (r txnResult) name(a *outbox.Answer, p reply) {
	if a.Class == "" {
		return
	}
	switch a.Code = r.err.code; {
	case a.Code != "":
	case ok2xx(p.status):
		a.Code = "error"
	default:
		a.Code = "http_" + strconv.Itoa(p.status)
	}
	if a.Message = r.err.message; a.Message == "" {
		a.Message = r.err.mute(a, p.status)
	}
}

// mute says in words what an error says that has no message.
func (e workerError) mute(a *outbox.Answer, status int) string {
	s := "the worker answered class " + string(a.Class)
	if e.class == "" {
		s = "the worker answered error.code " + e.code + ", which is class " + string(a.Class)
	}
	if a.Scope != "" {
		s += " with scope " + string(a.Scope)
	}
	if e.class != "" && e.code != "" {
		s += ", code " + e.code + ","
	}
	return fmt.Sprintf("%s and no message (HTTP %d)", s, status)
}

// answered says in words with which status the worker answered.
func answered(status int) string {
	return strings.TrimSpace(fmt.Sprintf("the worker answered HTTP %d %s", status, http.StatusText(status)))
}

// classOfOthers is the class of an answer that is no body of the contract. It never says that anything is over.
func classOfOthers(p reply) outbox.Class {
	switch s := p.status; {
	case s >= 300 && s < 400: // also with a page: a redirect is what follows an effect, too (303 See Other)
		return outbox.ClassAmbiguous
	case s < 500 && strict.HTML(p.body): // of a proxy, a firewall or a login
		return outbox.ClassBlocked
	case s == http.StatusNotImplemented:
		return outbox.ClassBlocked
	case s < 300, s >= 500, s == http.StatusConflict: // it is unknown how far it came
		return outbox.ClassAmbiguous
	case aboutTheRequest[s]:
		return outbox.ClassRetry
	}
	return outbox.ClassBlocked // nothing was done, and it cannot be now: 401, 403, 404, 405, 429 ...
}

// aboutTheRequest holds the statuses that speak of one request and not of whether the worker can be called.
var aboutTheRequest = map[int]bool{
	http.StatusBadRequest:                  true,
	http.StatusRequestTimeout:              true,
	http.StatusRequestEntityTooLarge:       true,
	http.StatusRequestURITooLong:           true,
	http.StatusUnsupportedMediaType:        true,
	http.StatusUnprocessableEntity:         true,
	http.StatusTooEarly:                    true,
	http.StatusRequestHeaderFieldsTooLarge: true,
}

// redirected says in words that there is a redirect.
func redirected(whom string, status int) string {
	return fmt.Sprintf("the %s answered HTTP %d, a redirect: redirects are not followed, so give its final URL",
		whom, status)
}

// unanswered sorts a call to which there was no answer. Nothing sent means that nothing happened.
func unanswered(p reply) outbox.Answer {
	switch {
	case p.never: // the same request would be refused for ever
		return outbox.Answer{Class: outbox.ClassRejected, Code: p.code, Message: p.message}
	case p.sent:
		return outbox.Answer{Class: outbox.ClassAmbiguous, Code: p.code, Message: p.message}
	}
	return outbox.Answer{
		Class:   outbox.ClassBlocked,
		Scope:   outbox.ScopeWorker, // no other call would get through either
		Code:    p.code,
		Message: p.message,
		Unsent:  true,
	}
}

// unbelieved says whether the worker did nothing since it does not know our signature: so it is while both ends change
// to another secret.
func (p reply) unbelieved() bool { return p.signed && p.status == http.StatusUnauthorized }

// wanted is what an answer to a dispatch has to be.
const wanted = "want {hash, done, error}"

// unclear says of an answer that is no body of the contract what is wrong with it, and what the worker should say.
func (p reply) unclear(r txnResult, readable bool) (code, message string) {
	if p.status >= 300 && p.status < 400 {
		return "redirect", redirected("worker", p.status)
	}
	if !ok2xx(p.status) {
		code, message = "http_"+strconv.Itoa(p.status), answered(p.status)
		switch {
		case p.unbelieved():
			message += " to a signed call: have both ends the same secret?"
		case strict.HTML(p.body):
			message += " with an HTML page: is that the worker, or what stands before it?"
		case r.err.noClass != "":
			message += fmt.Sprintf(" and error.class %q: want rejected, retry, blocked or ambiguous", r.err.noClass)
		case p.status < 500:
			message += " and no error.class: a worker says by {\"error\": {\"class\": ...}} what that means: rejected, retry, blocked or ambiguous"
		}
		return code, message
	}
	switch {
	case strict.HTML(p.body):
		return "answer_html", "the worker answered with an HTML page: is that the worker, or what stands before it? " +
			wanted
	case p.unread == "answer_too_large":
		return p.unread, "the worker's answer is longer than 1 MiB: " + wanted
	case p.unread != "":
		return p.unread, "the worker's answer broke off: " + wanted
	case !readable:
		return "answer_invalid", "the worker's answer is no TxnResult (" + r.reason + "): " + wanted
	case r.err.noClass != "":
		return "answer_invalid", fmt.Sprintf(
			"the worker's answer has error.class %q: want rejected, retry, blocked or ambiguous", r.err.noClass)
	case r.err.set:
		return "answer_invalid", "the worker's answer has an error without class, and not the keys hash, done and error that let a code count: name error.class"
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
