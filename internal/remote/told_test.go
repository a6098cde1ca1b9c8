package remote_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/remotetest"
)

// A gateway before an endpoint says for how long it is away: that many hours hold back no delivery. It is the cap of
// answers that a worker has not given.
func TestAReceiverPutsDeliveriesOffForFiveMinutesAtMost(t *testing.T) {
	t.Parallel()
	for after, want := range map[string]time.Duration{"7": 7 * time.Second, "86400": 5 * time.Minute, "-1": 0} {
		fake := remotetest.NewFake(t)
		fake.Script(remotetest.Match{}, remotetest.HTTP(503, "").With("Retry-After", after))
		call := remotetest.Call(fake.URL(), 1)
		client := remotetest.Client(t)
		r := client.Webhook(t.Context(), remote.Message{URL: fake.URL() + "/on-success/T", ID: "1"})
		if r.After != want {
			t.Errorf("a webhook with Retry-After %s waits for %s, want %s", after, r.After, want)
		}
		if a := client.Hook(t.Context(), call, outbox.OnSuccess, nil, nil, "token"); a.After != want {
			t.Errorf("a hook with Retry-After %s waits for %s, want %s", after, a.After, want)
		}
	}
}
