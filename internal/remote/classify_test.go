package remote_test

import (
	"context"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/remotetest"
)

// Each row of S2.8, and each way to answer badly.
func TestAnAnswerFallsIntoTheFirstClassThatItMatches(t *testing.T) {
	t.Parallel()
	fail, http, body := remotetest.Fail, remotetest.HTTP, remotetest.Body
	inError := func(status int, obj string) remotetest.Reply { return http(status, `{"error":`+obj+`}`) }
	deep := `{"done":` + strings.Repeat("[", 65) + strings.Repeat("]", 65) + `}`

	for _, tc := range []struct {
		name  string
		reply remotetest.Reply
		class outbox.Class
		code  string
	}{
		{"accepted", remotetest.Accept("5Jhash"), "", ""},
		{"done", remotetest.Done(map[string]any{"ok": true}), "", ""},
		{"done without object", body(`{"done":true}`), "", ""},
		{"error null or empty counts as none", body(`{"hash":"h","error":{}}`), "", ""},
		{"error empty with a blank", body(`{"hash":"h","error":{ }}`), "", ""},
		{"HTTP 201 with a hash", http(201, `{"hash":"h"}`), "", ""},

		{"done of an empty object, alone", body(`{"done":{}}`), "", ""},
		{"done of an empty object with blanks, alone", body(`{"done":{ }}`), "", ""},
		{"done of false", body(`{"done":false}`), "", ""},
		{"done beside a hash", body(`{"hash":"h","done":true}`), "", ""},
		{"done of an empty object beside a hash", body(`{"hash":"h","done":{}}`), "", ""}, // accepted
		{"done and a page's type", body(`{"done":true}`).With("Content-Type", "text/html"), "", ""},

		{"HTTP 401", http(401, ""), outbox.ClassBlocked, "http_401"},
		{"HTTP 403 of a firewall", http(403, "<html>Forbidden"), outbox.ClassBlocked, "http_403"},
		{"HTTP 404", http(404, "no such type"), outbox.ClassBlocked, "http_404"},
		{"HTTP 404 of an ingress", http(404, "<!DOCTYPE html>default backend"), outbox.ClassBlocked, "http_404"},
		{"HTTP 404 of a gateway that writes JSON", inError(404, `{"code":500}`), outbox.ClassBlocked, "http_404"},
		{"HTTP 405", http(405, ""), outbox.ClassBlocked, "http_405"},
		{"HTTP 410", http(410, ""), outbox.ClassBlocked, "http_410"},
		{"HTTP 429", http(429, ""), outbox.ClassBlocked, "http_429"},
		{"HTTP 501", http(501, ""), outbox.ClassBlocked, "http_501"},
		{"a page with HTTP 200", body("\ufeff \n<HTML><title>Log in"), outbox.ClassBlocked, "answer_html"},
		{"a page with HTTP 413", http(413, "<html>"), outbox.ClassBlocked, "http_413"},
		{"error 502", fail(502, "The required worker is not available."), outbox.ClassBlocked, "502"},
		{"error 502 as a string", fail("502", "no"), outbox.ClassBlocked, "502"},
		{"error 502 by name", fail("NO_FEE_PAYER_AVAILABLE", "no"), outbox.ClassBlocked, "NO_FEE_PAYER_AVAILABLE"},

		{"HTTP 502", http(502, ""), outbox.ClassAmbiguous, "http_502"},
		{"HTTP 503", http(503, "<html>"), outbox.ClassAmbiguous, "http_503"},
		{"HTTP 503 with an error that could never be done", inError(503, `{"code":500}`), outbox.ClassAmbiguous, "http_503"},
		{"HTTP 504", http(504, ""), outbox.ClassAmbiguous, "http_504"},
		{"HTTP 409", http(409, ""), outbox.ClassAmbiguous, "http_409"},
		{"HTTP 500 without a body", http(500, ""), outbox.ClassAmbiguous, "http_500"},
		{"HTTP 500 with a page", http(500, "<html>oops"), outbox.ClassAmbiguous, "http_500"},
		{"HTTP 500 as frameworks answer", http(500, `{"statusCode":500,"error":"Internal Server Error"}`), outbox.ClassAmbiguous, "http_500"},
		{"HTTP 500 with an error of no code", inError(500, `{"message":"boom"}`), outbox.ClassAmbiguous, "http_500"},
		{"HTTP 500 with an error that could never be done", inError(500, `{"code":"500","message":"never"}`), outbox.ClassAmbiguous, "http_500"},
		{"HTTP 500 with any other code", inError(500, `{"code":20203}`), outbox.ClassAmbiguous, "http_500"},
		{"HTTP 500 with done", http(500, `{"done":true}`), outbox.ClassAmbiguous, "http_500"},
		{"HTTP 511", http(511, ""), outbox.ClassAmbiguous, "http_511"},
		{"200 empty", body(""), outbox.ClassAmbiguous, "answer_invalid"},
		{"200 null", body("null"), outbox.ClassAmbiguous, "answer_empty"},
		{"200 list", body("[]"), outbox.ClassAmbiguous, "answer_invalid"},
		{"200 of a framework", body(`{"ok":true}`), outbox.ClassAmbiguous, "answer_empty"},
		{"200 text", body("ok"), outbox.ClassAmbiguous, "answer_invalid"},
		{"200 garbage", remotetest.Garbage(), outbox.ClassAmbiguous, "answer_invalid"},
		{"200 two values", body(`{"hash":"h"}{}`), outbox.ClassAmbiguous, "answer_invalid"},
		{"200 with neither", body(`{"hash":"","done":{},"error":null}`), outbox.ClassAmbiguous, "answer_empty"},
		{"200 with done of blanks beside a hash", body(`{"hash":null,"done":{ }}`), outbox.ClassAmbiguous, "answer_empty"},
		{"200 with an error that is not of the contract", inError(200, `{"code":500}`), outbox.ClassAmbiguous, "answer_invalid"},
		{"200 with an error without a code", body(`{"error":{"message":"boom"}}`), outbox.ClassAmbiguous, "answer_invalid"},
		{"200 with an error beside a hash alone", body(`{"hash":"h","error":{"code":20203}}`), outbox.ClassAmbiguous, "answer_invalid"},
		{"a warning before what a worker says", body(`<br /><b>Notice</b>: unset in pay.php {"done":true}`).With("Content-Type", "text/html"), outbox.ClassAmbiguous, "answer_invalid"},
		{"a page that broke off", body("<html>").With("Content-Type", "text/html").ThenCut(), outbox.ClassAmbiguous, "connection_lost"},
		{"204", http(204, ""), outbox.ClassAmbiguous, "answer_invalid"},
		{"hash is a number", body(`{"hash":7}`), outbox.ClassAmbiguous, "answer_invalid"},
		{"hash holds NUL", body(`{"hash":"a\u0000b"}`), outbox.ClassAmbiguous, "answer_invalid"},
		{"hash is longer than any", body(`{"hash":"` + strings.Repeat("x", 513) + `"}`), outbox.ClassAmbiguous, "answer_invalid"},
		{"error is a string", body(`{"error":"boom"}`), outbox.ClassAmbiguous, "answer_invalid"},
		{"done without bottom", body(deep), outbox.ClassAmbiguous, "answer_invalid"},
		{"1 GiB", remotetest.Huge(), outbox.ClassAmbiguous, "answer_too_large"},
		{"a long answer that is announced", body(`{"hash":"` + strings.Repeat("x", 2<<20) + `"}`), outbox.ClassAmbiguous, "answer_too_large"},
		{"drops the connection", remotetest.Drop(), outbox.ClassAmbiguous, "connection_lost"},
		{"breaks off", remotetest.Accept("h").ThenCut(), outbox.ClassAmbiguous, "connection_lost"},

		{"error 500", fail(500, "ACCOUNT_NOT_FOUND"), outbox.ClassRejected, "500"},
		{"error 500 beside done, without a hash key", body(`{"done":{},"error":{"code":500}}`), "", ""}, // done
		{"error 500 by name", fail("PREPARE_TRANSACTION_FAILED", ""), outbox.ClassRejected, "PREPARE_TRANSACTION_FAILED"},

		{"error 20202", fail(20202, "proving"), outbox.ClassRetry, "20202"},
		{"error 20203", fail(20203, "sending"), outbox.ClassRetry, "20203"},
		{"error 20301", fail("20301", ""), outbox.ClassRetry, "20301"},
		{"error of any other code", fail("ETIMEDOUT", ""), outbox.ClassRetry, "ETIMEDOUT"},
		{"error without a code", body(`{"hash":"","done":null,"error":{"message":"boom"}}`), outbox.ClassRetry, "error"},
		{"error beside a hash and done", body(`{"hash":"h","done":{"x":1},"error":{"code":20203}}`), outbox.ClassRetry, "20203"},
		{"HTTP 400", http(400, ""), outbox.ClassRetry, "http_400"},
		{"HTTP 400 with a code", inError(400, `{"code":500}`), outbox.ClassRetry, "http_400"},
		{"HTTP 408", http(408, ""), outbox.ClassRetry, "http_408"},
		{"HTTP 413", http(413, ""), outbox.ClassRetry, "http_413"},
		{"HTTP 415", http(415, ""), outbox.ClassRetry, "http_415"},
		{"HTTP 422 breaking off", http(422, "0123456789").ThenCut(), outbox.ClassRetry, "http_422"},
		{"HTTP 425", http(425, ""), outbox.ClassRetry, "http_425"},
		{"redirect", remotetest.Redirect("http://169.254.169.254/latest/meta-data"), outbox.ClassAmbiguous, "redirect"},
		{"redirect to nowhere", http(301, ""), outbox.ClassAmbiguous, "redirect"},
		{"redirect to what is no URL", remotetest.Redirect("http://%zz"), outbox.ClassAmbiguous, "redirect"},

		{"class blocked, named", inError(200, `{"code":500,"class":"blocked"}`), outbox.ClassBlocked, "500"},
		{"class ambiguous, named", inError(400, `{"class":"ambiguous"}`), outbox.ClassAmbiguous, "http_400"},
		{"class rejected, named", inError(503, `{"code":"X","class":"rejected"}`), outbox.ClassRejected, "X"},
		{"class rejected, named, in 404", inError(404, `{"code":"X","class":"rejected"}`), outbox.ClassRejected, "X"},
		{"class retry, named", inError(409, `{"code":"Y","class":"retry"}`), outbox.ClassRetry, "Y"},
		{"a class that is none, in a body of the reference", remotetest.FailWith(map[string]any{"code": 500, "class": "maybe"}), outbox.ClassRejected, "500"},
		{"a class that is none", inError(200, `{"code":500,"class":"maybe"}`), outbox.ClassAmbiguous, "answer_invalid"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			classifies(t, tc.reply, tc.class, tc.code)
		})
	}
}

// classifies has a worker answer a dispatch so, and checks what the client makes of it.
func classifies(t *testing.T, reply remotetest.Reply, class outbox.Class, code string) {
	t.Helper()
	fake := remotetest.NewFake(t)
	fake.Script(remotetest.Match{Op: remotetest.OpDispatch}, reply)
	a := remotetest.Client(t).Dispatch(t.Context(), remotetest.Call(fake.URL(), 1))
	if a.Class != class || a.Code != code {
		t.Errorf("got class %q code %q (%s), want %q %q", a.Class, a.Code, a.Message, class, code)
	}
	if class != "" && a.Message == "" {
		t.Error("no message for people")
	}
	if n := len(fake.Calls(remotetest.Match{})); n != 1 {
		t.Errorf("the worker was called %d times for one dispatch", n)
	}
}

// Whose signature the worker does not know sends it later, unless the worker says another class itself.
func TestASignedCallThatIsNotBelievedIsBlocked(t *testing.T) {
	t.Parallel()
	signed := func(ctx context.Context) context.Context {
		return remote.Signed(ctx, []byte("0123456789abcdef01234567"))
	}
	for _, tc := range []struct {
		name  string
		ctx   context.Context
		reply remotetest.Reply
		class outbox.Class
	}{
		{"plain", signed(t.Context()), remotetest.HTTP(401, "who are you?"), outbox.ClassBlocked},
		{"with an error", signed(t.Context()), remotetest.HTTP(401, `{"error": {"code": 500, "message": "bad signature"}}`), outbox.ClassBlocked},
		{"of a class", signed(t.Context()), remotetest.HTTP(401, `{"error": {"class": "rejected"}}`), outbox.ClassRejected},
		{"not signed", t.Context(), remotetest.HTTP(401, ""), outbox.ClassBlocked},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fake := remotetest.NewFake(t)
			fake.Script(remotetest.Match{Op: remotetest.OpDispatch}, tc.reply)
			if a := remotetest.Client(t).Dispatch(tc.ctx, remotetest.Call(fake.URL(), 1)); a.Class != tc.class {
				t.Errorf("got %+v, want class %s", a, tc.class)
			}
		})
	}
}
