package remote_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/remotetest"
)

func TestProbesSayWhatAWorkerOffers(t *testing.T) {
	t.Parallel()
	c := remote.New(remote.Config{AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	defer c.Close()
	three := 3
	for name, x := range map[string]struct {
		set  func(*remotetest.Fake)
		want string
	}{
		"all of it": {func(f *remotetest.Fake) { f.SetMaxRetries(&three) },
			"health ok, status ok, status:batch ok, max-retries ok"},
		"what it must": {func(f *remotetest.Fake) { f.HasStatus(false); f.HasBatch(false) },
			"health ok, status absent, status:batch absent, max-retries absent"},
		"a status that fails": {func(f *remotetest.Fake) { f.StatusDown(true) },
			"health ok, status bad, status:batch bad, max-retries absent"},
		"nothing": {func(f *remotetest.Fake) { f.Refuse() }, "health bad"},
	} {
		t.Run(name, func(t *testing.T) {
			f := remotetest.NewFake(t)
			x.set(f)
			var got []string
			for _, p := range c.Probes(t.Context(), f.URL(), "T") {
				if got = append(got, p.Check+" "+p.State); p.Found == "" {
					t.Errorf("%s says nothing", p.Check)
				}
			}
			if s := strings.Join(got, ", "); s != x.want {
				t.Errorf("%s, want %s", s, x.want)
			}
			for _, seen := range f.Calls(remotetest.Match{}) {
				if seen.Op == remotetest.OpDispatch {
					t.Error("something was dispatched")
				}
			}
		})
	}
}
