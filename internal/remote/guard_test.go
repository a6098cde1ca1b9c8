package remote_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/remotetest"
)

// all makes every call that a client has, and returns what each said: the class or state, and a sentence.
func all(t *testing.T, client *remote.Client, url string) map[string][2]string {
	t.Helper()
	call := remotetest.Call(url, 1)
	call.Timeout = 2 * time.Second
	said := map[string][2]string{}
	a := client.Dispatch(t.Context(), call)
	said["dispatch"] = [2]string{string(a.Class), a.Code + ": " + a.Message}
	for name, st := range map[string]outbox.Status{
		"status by token": client.Status(t.Context(), url, call.Type, "t", ""),
		"status by hash":  client.Status(t.Context(), url, call.Type, "", "h"),
		"batch":           client.StatusBatch(t.Context(), url, call.Type, []string{"h"})[0],
	} {
		said[name] = [2]string{string(st.State), st.Message}
	}
	h := client.Hook(t.Context(), call, outbox.OnSuccess, nil, nil, "t")
	said["hook"] = [2]string{fmt.Sprintf("ok %t missing %t", h.OK, h.Missing), h.Message}
	_, err := client.MaxRetries(t.Context(), url, call.Type)
	said["max-retries"] = [2]string{"", fmt.Sprint(err)}
	return said
}

// nothing is what each call says when it could not be made, but for the dispatch, whose class is told apart.
var nothing = map[string]string{
	"status by token": string(outbox.StatusUnreachable), "status by hash": string(outbox.StatusUnreachable), "batch": string(outbox.StatusUnreachable),
	"hook": "ok false missing false", "max-retries": "",
}

func TestEveryCallIsGuardedAndItsErrorNamesTheSetting(t *testing.T) {
	t.Parallel()
	fake := remotetest.NewFake(t)
	port := fake.URL()[strings.LastIndexByte(fake.URL(), ':'):]
	client := remote.New(remote.Config{AllowCIDR: []netip.Prefix{netip.MustParsePrefix("10.20.0.0/16")}}) // another range
	defer client.Close()
	for _, host := range []string{"127.0.0.1", "localhost", "127.1.2.3", "[::ffff:127.0.0.1]"} {
		for call, said := range all(t, client, "http://"+host+port) {
			if want := nothing[call]; call != "dispatch" && said[0] != want || call == "dispatch" && said[0] != string(outbox.ClassBlocked) {
				t.Errorf("%s, %s: %q", host, call, said)
			}
			if !strings.Contains(said[1], "POSTERN_WORKER_ALLOW_CIDR") || !strings.Contains(said[1], "--worker-allow-cidr") {
				t.Errorf("%s, %s: %q does not name the setting", host, call, said[1])
			}
		}
	}
	if n := len(fake.Calls(remotetest.Match{})); n != 0 {
		t.Errorf("%d calls got through", n)
	}
}

func TestTheGuardRefusesWhatIsNotPublicInAnyDisguise(t *testing.T) {
	t.Parallel()
	client := remote.New(remote.Config{})
	defer client.Close()
	for _, host := range []string{
		"0.0.0.0", "10.0.0.1", "100.64.0.1", "127.0.0.1", "169.254.169.254", "172.16.0.1", "192.168.0.1", "192.0.0.1", "198.18.0.1",
		"224.0.0.1", "240.0.0.1", "255.255.255.255", "[::]", "[::1]", "[::ffff:10.0.0.1]", "[::ffff:169.254.169.254]", "[64:ff9b::a00:1]",
		"[2002:a00:1::]", "[2001::1]", "[fc00::1]", "[fd00:ec2::254]", "[fe80::1]", "[ff02::1]",
	} {
		call := remotetest.Call("http://"+host+":1", 1)
		call.Timeout = 5 * time.Second
		if a := client.Dispatch(t.Context(), call); a.Code != "address_refused" {
			t.Errorf("%s: class %q code %q (%s), want address_refused", host, a.Class, a.Code, a.Message)
		}
	}
}

func TestARangeIsOpenedAsItIsWritten(t *testing.T) {
	t.Parallel()
	fake := remotetest.NewFake(t)
	for _, tc := range []struct {
		prefix string
		open   bool
	}{
		{"127.0.0.0/8", true}, {"127.0.0.1/32", true}, {"::ffff:127.0.0.0/104", true}, {"0.0.0.0/0", true},
		{"127.0.0.2/32", false}, {"::1/128", false}, {"::/0", false}, {"10.0.0.0/8", false},
	} {
		client := remote.New(remote.Config{AllowCIDR: []netip.Prefix{netip.MustParsePrefix(tc.prefix)}})
		if a := client.Dispatch(t.Context(), remotetest.Call(fake.URL(), 1)); (a.Class == "") != tc.open {
			t.Errorf("%s: %+v, want open %t", tc.prefix, a, tc.open)
		}
		client.Close()
	}
}

func TestNoCallFollowsARedirect(t *testing.T) {
	t.Parallel()
	target := remotetest.NewFake(t)
	for _, status := range []int{301, 302, 303, 307, 308} {
		s := httptest.NewServer(http.RedirectHandler(target.URL()+"/dispatch/SEND_CLAIM_VOTE", status))
		defer s.Close()
		for call, said := range all(t, remotetest.Client(t), s.URL) {
			if call == "dispatch" && (said[0] != string(outbox.ClassAmbiguous) || !strings.Contains(said[1], "redirects are not followed")) ||
				call != "dispatch" && said[0] != nothing[call] {
				t.Errorf("HTTP %d, %s: %q", status, call, said)
			}
			if !strings.Contains(said[1], fmt.Sprint("HTTP ", status)) {
				t.Errorf("HTTP %d, %s: %q does not say so", status, call, said[1])
			}
		}
	}
	if n := len(target.Calls(remotetest.Match{})); n != 0 {
		t.Errorf("%d redirects were followed", n)
	}
}

func TestNoProxyOfTheEnvironmentIsUsed(t *testing.T) {
	proxy := remotetest.NewFake(t)
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
		t.Setenv(name, proxy.URL())
	}
	t.Setenv("NO_PROXY", "")
	t.Setenv("no_proxy", "")
	client := remote.New(remote.Config{})
	defer client.Close()
	for _, url := range []string{"http://10.0.0.1:1", "https://10.0.0.1:1"} {
		if a := client.Dispatch(t.Context(), remotetest.Call(url, 1)); a.Code != "address_refused" {
			t.Errorf("%s: %+v, want it refused rather than handed to a proxy", url, a)
		}
	}
	if n := len(proxy.Calls(remotetest.Match{})); n != 0 {
		t.Errorf("the proxy of the environment got %d calls", n)
	}
}

// raw serves bytes as they are, once per connection, and then goes on with more until the caller leaves.
func raw(t *testing.T, head, more string) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				conn.Read(make([]byte, 4096))
				io.WriteString(conn, head)
				for more != "" {
					if _, err := io.WriteString(conn, more); err != nil {
						return
					}
				}
				io.Copy(io.Discard, conn)
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// An answer without end, in whatever part of it, ends by a cap or by the timeout; the request was sent, so
// the dispatch is ambiguous, and no question says anything.
func TestAnAnswerWithoutEndIsCapped(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, head, more string }{
		{"header lines", "HTTP/1.1 200 OK\r\n", "X-More: " + strings.Repeat("x", 1000) + "\r\n"},
		{"one header line", "HTTP/1.1 200 OK\r\nX-More: ", strings.Repeat("x", 1000)},
		{"a status line", "HTTP/1.1 200 ", strings.Repeat("x", 1000)},
		{"interim answers", "", "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"},
		{"a body of no length", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{", strings.Repeat(" ", 1000)},
		{"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "3e8\r\n" + strings.Repeat(" ", 1000) + "\r\n"},
		{"a length beyond the cap", "HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n{", strings.Repeat(" ", 1000)},
		{"trailers", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n0\r\n", "X: " + strings.Repeat("x", 1000) + "\r\n"},
		{"silence", "", ""},
		{"half an answer", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			call := remotetest.Call(raw(t, tc.head, tc.more), 1)
			call.Timeout = 2 * time.Minute
			if tc.more == "" { // no cap ends these
				call.Timeout = 3 * time.Second
			}
			a := remotetest.Client(t).Dispatch(t.Context(), call)
			if a.Class != outbox.ClassAmbiguous || tc.more != "" && a.Elapsed >= call.Timeout {
				t.Errorf("class %q code %q (%s) after %s, want ambiguous, and not by the timeout where there is a cap", a.Class, a.Code, a.Message, a.Elapsed)
			}
		})
	}
}

// A worker that packs its answer must not make us unpack it: 1 MiB of zeros takes 1 KiB.
func TestAnAnswerIsAsLongAsItLooks(t *testing.T) {
	t.Parallel()
	var asked string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header.Get("Accept-Encoding")
		w.Header().Set("Content-Encoding", "gzip")
		io.WriteString(w, "\x1f\x8b\x08")
	}))
	defer s.Close()
	if a := remotetest.Client(t).Dispatch(t.Context(), remotetest.Call(s.URL, 1)); a.Class != outbox.ClassAmbiguous || asked != "" {
		t.Errorf("asked for %q, got %+v", asked, a)
	}
}

// A call finds the same as a reach has said in advance.
func TestAReachSaysInAdvanceWhatTheGuardRefuses(t *testing.T) {
	t.Parallel()
	client := remote.New(remote.Config{AllowCIDR: []netip.Prefix{
		netip.MustParsePrefix("10.20.0.0/16"),
		netip.MustParsePrefix("::ffff:172.16.0.0/108"),
	}})
	defer client.Close()
	for _, c := range []struct {
		host    string
		literal bool
		may     bool
	}{
		{"127.0.0.1", true, false},
		{"[::1]:8000", true, false},
		{"localhost:80", true, false},
		{"LOCALHOST", true, false},
		{"[::ffff:10.0.0.1]", true, false},
		{"[64:ff9b::a00:1]", true, false},
		{"[fe80::1%25eth0]", true, false},
		{"169.254.169.254", true, false},
		{"10.20.1.1", true, true},
		{"[::ffff:10.20.1.1]:80", true, true},
		{"172.17.0.1", true, true},
		{"93.184.215.14", true, true},
		{"[2606:2800:21f:cb07:6820:80da:af6b:8b2c]", true, true},
		{"worker.invalid", false, true},
	} {
		p := client.Reach().Find(t.Context(), "http://"+c.host+"/below")
		if p.Literal != c.literal || client.Reach().May(p) != c.may {
			t.Errorf("%s leads to %+v, which may be called: %t", c.host, p, client.Reach().May(p))
		}
		if c.may { // a call would go out
			continue
		}
		call := remotetest.Call("http://"+c.host+"/below", 1)
		call.Timeout = 5 * time.Second
		if a := client.Dispatch(t.Context(), call); a.Code != "address_refused" {
			t.Errorf("%s: a call finds %q: %s", c.host, a.Code, a.Message)
		}
	}
}
