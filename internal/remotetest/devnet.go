package remotetest

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/postern-dev/postern/internal/devnet"
	"github.com/postern-dev/postern/internal/devnet/ledger"
)

// Devnet serves a ledger for one test. add has n more events in its log, final, each with the arguments that args makes
// of its number.
func Devnet(t *testing.T, args func(i int) any) (url string, add func(n int)) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	l, err := ledger.Open(ledger.Config{})
	must(err)
	server := httptest.NewServer(l.Handler())
	t.Cleanup(func() { server.Close(); _ = l.Close() })
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	from := devnet.AddressOf(key)
	_, err = l.Grant(from, devnet.MaxAmount)
	must(err)
	i, nonce := 0, uint64(0)
	return server.URL, func(n int) {
		t.Helper()
		tx := devnet.Tx{Chain: l.Health().Chain, From: from, Nonce: nonce, Fee: 1000}
		for range n {
			text, err := json.Marshal(args(i))
			must(err)
			tx.Calls = append(tx.Calls, devnet.Call{To: "log", Method: "request", Args: text})
			i++
		}
		signed, err := devnet.Sign(tx, key)
		must(err)
		_, _, err = l.Submit(signed)
		must(err)
		nonce++
		for range devnet.FinalDepth {
			_, err := l.Block()
			must(err)
		}
		if st := l.Statuses([]string{signed.Hash()})[0]; st.State != devnet.Included {
			must(fmt.Errorf("the ledger says %+v", st))
		}
	}
}
