package remotetest

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remote"
)

// Client makes a client that may call this machine; it closes at the end of t.
func Client(t testing.TB) *remote.Client {
	t.Helper()
	return client(t, "")
}

// Client makes a client that calls workers over the node; it may call no address of this machine.
func (n *MyceliumNode) Client(t testing.TB) *remote.Client {
	t.Helper()
	return client(t, n.URL())
}

func client(t testing.TB, node string) *remote.Client {
	c := remote.Config{Mycelium: node}
	if node == "" {
		c.AllowCIDR = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	}
	return closing(t, remote.New(c))
}

func closing(t testing.TB, c *remote.Client) *remote.Client {
	t.Cleanup(c.Close)
	return c
}

// Call is a well-formed first dispatch of transaction seq to the worker at baseURL.
func Call(baseURL string, seq int64) remote.Call {
	return remote.Call{
		BaseURL: baseURL, Type: "SEND_CLAIM_VOTE", ID: outbox.ID{Queue: 7, Seq: seq, Day: 20000},
		Queue: "claim-7", Data: json.RawMessage(`{"claimUid":"7"}`), State: outbox.DISPATCHING,
		PostedAt: time.Date(2026, 11, 20, 14, 2, 7, 0, time.UTC), Account: "B62qfake", SenderState: "BLOCKED",
		Attempt: 1, Fence: 1, Line: outbox.Line{Queue: 7}, Position: seq, Timeout: 20 * time.Second,
	}
}
