package remote

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
)

func TestOverTLSWhatWasSentIsKnownToo(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 2 {
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write([]byte(`{"hash":"5J"}`))
	}))
	server.StartTLS()
	defer server.Close()
	c := New(Config{AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	defer c.Close()
	call := Call{BaseURL: server.URL, Type: "T", Attempt: 1}

	if a := c.Dispatch(t.Context(), call); a.Class != outbox.ClassBlocked || a.Code != "tls" || calls.Load() != 0 {
		t.Errorf("a certificate of nobody: class %q code %q (%s), %d calls, want blocked tls", a.Class,
			a.Code, a.Message, calls.Load())
	}
	c.transport.TLSClientConfig.RootCAs = server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	if a := c.Dispatch(t.Context(), call); a.Class != "" {
		t.Errorf("a trusted worker: %+v", a)
	}
	if a := c.Dispatch(t.Context(), call); a.Class != outbox.ClassAmbiguous || calls.Load() != 2 {
		t.Errorf("a connection that broke: class %q code %q, %d calls, want ambiguous after 2",
			a.Class, a.Code, calls.Load())
	}
}

func TestOldTLSIsRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	server.StartTLS()
	defer server.Close()
	c := New(Config{AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	defer c.Close()
	c.transport.TLSClientConfig.RootCAs = server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	if a := c.Dispatch(t.Context(), Call{BaseURL: server.URL, Type: "T", Attempt: 1}); a.Class != outbox.ClassBlocked {
		t.Errorf("got class %q code %q (%s), want blocked", a.Class, a.Code, a.Message)
	}
}
