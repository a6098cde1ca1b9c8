package remote_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/remotetest"
)

// front is what answers a connection instead of the worker; it returns its URL.
func front(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// reads takes the whole request in, and then says something, or nothing.
func reads(text string) func(net.Conn) {
	return func(c net.Conn) {
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(c, text)
	}
}

func tls(url string) string { return "https" + strings.TrimPrefix(url, "http") }

// A call that failed says whether a part of it was written, and whether it is certain that nothing was done. Where that
// is not certain, no other sender may be called under the same token.
func TestWhatIsKnownOfACallThatWasNotCarriedOut(t *testing.T) {
	t.Parallel()
	refusing := remotetest.NewFake(t)
	refusing.Refuse()
	silent := func(net.Conn) { time.Sleep(10 * time.Second) }
	answer := func(status int, body string) string {
		fake := remotetest.NewFake(t)
		fake.Script(remotetest.Match{Op: remotetest.OpDispatch}, remotetest.HTTP(status, body))
		return fake.URL()
	}
	unguarded := remotetest.Client(t)
	for _, tc := range []struct {
		name    string
		url     string
		class   outbox.Class
		unsent  bool
		nothing bool
	}{
		{"no URL", "", outbox.ClassBlocked, true, true},
		{"no such name", "http://worker.invalid", outbox.ClassBlocked, true, true},
		{"refused connection", refusing.URL(), outbox.ClassBlocked, true, true},
		{"TLS to what speaks none", tls(answer(200, `{}`)), outbox.ClassBlocked, true, true},
		{"TLS whose handshake ends", tls(front(t, func(net.Conn) {})), outbox.ClassBlocked, true, true},
		{"TLS whose handshake hangs", tls(front(t, silent)), outbox.ClassBlocked, true, true},

		{"hangs", front(t, silent), outbox.ClassAmbiguous, false, false},
		{"hangs after the request", front(t, func(c net.Conn) { reads("")(c); silent(c) }), outbox.ClassAmbiguous, false, false},
		{"closes after the request", front(t, reads("")), outbox.ClassAmbiguous, false, false},
		{"resets after the request", front(t, func(c net.Conn) { reads("")(c); _ = c.(*net.TCPConn).SetLinger(0) }), outbox.ClassAmbiguous, false, false},
		{"half a header", front(t, reads("HTTP/1.1 200 OK\r\nContent-")), outbox.ClassAmbiguous, false, false},
		{"no HTTP", front(t, reads("SSH-2.0-OpenSSH_9.2\r\n")), outbox.ClassAmbiguous, false, false},
		{"half a body", front(t, reads("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{")), outbox.ClassAmbiguous, false, false},
		{"half a body of HTTP 503", front(t, reads("HTTP/1.1 503 No\r\nContent-Length: 99\r\n\r\n{")), outbox.ClassAmbiguous, false, false},
		{"a body that is too large", answer(200, strings.Repeat("x", 2<<20)), outbox.ClassAmbiguous, false, false},
		{"a page", answer(200, "<html>"), outbox.ClassBlocked, false, false},
		{"HTTP 504", answer(504, ""), outbox.ClassAmbiguous, false, false},
		{"redirect", answer(303, ""), outbox.ClassAmbiguous, false, false},
		{"permanent redirect", answer(308, ""), outbox.ClassAmbiguous, false, false},

		{"HTTP 503", answer(503, ""), outbox.ClassAmbiguous, false, false},
		{"HTTP 404", answer(404, ""), outbox.ClassBlocked, false, false},
		{"HTTP 502 of a gateway that writes JSON", answer(502, `{"error":{"code":502,"message":"upstream"}}`), outbox.ClassAmbiguous, false, false},
		{"HTTP 503 with a body of the contract", answer(503, `{"error":{"code":"BUSY","class":"blocked"}}`), outbox.ClassBlocked, false, true},
		{"HTTP 200 with a class", answer(200, `{"error":{"class":"blocked"}}`), outbox.ClassBlocked, false, true},
		{"HTTP 200 with a code of the reference", answer(200, `{"hash":"","done":null,"error":{"code":502}}`), outbox.ClassBlocked, false, true},
		{"HTTP 200 with a code and no keys of the contract", answer(200, `{"error":{"code":502}}`), outbox.ClassAmbiguous, false, false},
		{"HTTP 200 with another class", answer(200, `{"error":{"code":502,"class":"retry"}}`), outbox.ClassRetry, false, false},
		{"HTTP 429", answer(429, ""), outbox.ClassBlocked, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			call := remotetest.Call(tc.url, 1)
			if strings.Contains(tc.name, "hangs") {
				call.Timeout = 2 * time.Second
			}
			a := unguarded.Dispatch(t.Context(), call)
			if a.Class != tc.class || a.Unsent != tc.unsent || a.NothingDone() != tc.nothing {
				t.Errorf("got class %q code %q, unsent %t, nothing done %t (%s), want %q, %t, %t",
					a.Class, a.Code, a.Unsent, a.NothingDone(), a.Message, tc.class, tc.unsent, tc.nothing)
			}
		})
	}
	guarded := remote.New(remote.Config{})
	defer guarded.Close()
	if a := guarded.Dispatch(t.Context(), remotetest.Call(refusing.URL(), 1)); !a.NothingDone() {
		t.Errorf("a refused address: %+v", a)
	}
}
