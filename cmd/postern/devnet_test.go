package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/devnet"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/remotetest"
)

// freeAddress returns an address at which no process listens. Two processes of a test take it one after the other, so
// its port lies below the range from which the kernel gives a port to a process that asks for any.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprint("127.0.0.1:", 12000+rand.IntN(18000))
		if l, err := net.Listen("tcp", address); err == nil {
			l.Close()
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}

// Both processes are killed with -9 in the middle. Their answers still hold afterwards.
func TestDevnetAndItsWorkerSurviveKillNine(t *testing.T) {
	t.Parallel()
	dir, at := t.TempDir(), freeAddress(t)
	ledger := []string{"devnet", "--listen", at, "--data", dir + "/ledger", "--block-every", "0"}
	worker := []string{"worker", "devnet", "--ledger", "http://" + at, "--keys", dir + "/keys", "--data", dir + "/worker"}
	l := start(t, nil, ledger...)
	if url := l.line(); url != "http://"+at {
		t.Fatalf("the devnet printed %q", url)
	}
	keys := postern(t, nil, "devnet", "keys", "alice", "bob", "--keys", dir+"/keys", "--fund", "1000000", "--ledger", "http://"+at, "-o", "json")
	keys.want(t, 0, `"account":"alice","address":"dn`)
	w := start(t, nil, worker...)
	url, client := w.line(), remotetest.Client(t)
	c := remotetest.Call(url, 1)
	c.Type, c.Account, c.Data = "TRANSFER", "alice", json.RawMessage(`{"to":"bob","amount":"10"}`)
	first := client.Dispatch(t.Context(), c)
	if first.Class != "" {
		t.Fatalf("dispatch: %+v", first)
	}

	l.cmd.Process.Kill()
	w.cmd.Process.Kill()
	<-l.ended
	<-w.ended
	start(t, nil, ledger...).line()
	w = start(t, nil, worker...)
	c.BaseURL = w.line()
	if again := client.Dispatch(t.Context(), c); again.Result.Hash != first.Result.Hash {
		t.Errorf("before the kill %+v, after it %+v", first, again)
	}
	chain := devnet.NewClient("http://"+at, 5*time.Second)
	defer chain.Close()
	if _, err := chain.MakeBlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st := client.Status(t.Context(), c.BaseURL, c.Type, c.Token(), ""); st.State != outbox.StatusIncluded || st.Hash != first.Result.Hash {
		t.Errorf("status %+v", st)
	}
	postern(t, nil, "worker", "devnet", "--data", dir+"/worker", "--keys", dir+"/keys").want(t, exitBad, "another process holds it")
}

func TestDevnetSaysWhatIsWrongWithItsFlags(t *testing.T) {
	t.Parallel()
	for want, args := range map[string]string{
		"want a duration, or 0":        "devnet --ephemeral --block-every -1s",
		"drop is 2: want a chance":     "devnet --ephemeral --drop 2",
		"want 1 to 128 letters":        "devnet keys a/b --keys " + t.TempDir(),
		"does not answer":              "devnet keys a --fund 1 --ledger http://127.0.0.1:1 --keys " + t.TempDir(),
		"which worker? want devnet":    "worker",
		"next: start one: `postern de": "devnet keys b --fund 1 --ledger http://127.0.0.1:1 --keys " + t.TempDir(),
	} {
		if r := postern(t, nil, strings.Fields(args)...); r.code == 0 || !strings.Contains(r.stderr, want) {
			t.Errorf("postern %s: exit code %d, %s; want %q in it", args, r.code, r.stderr, want)
		}
	}
}

func TestDevRunsADevnetToo(t *testing.T) {
	t.Parallel()
	p := start(t, []string{"POSTERN_LISTEN=127.0.0.1:0", "XDG_STATE_HOME=" + t.TempDir()}, "dev", "--devnet", "-o", "json",
		"--database-url", pgtest.New(t).URL)
	var d struct{ API, Devnet, Worker string }
	if err := json.Unmarshal([]byte(strings.Replace(p.line(), "devnet_worker", "worker", 1)), &d); err != nil || d.Worker == "" {
		t.Fatalf("dev says %+v, %v", d, err)
	}
	await(t, p, d.API)
	call(t, http.MethodPut, d.API+"/dispatchers/TRANSFER", `{"worker_url": "`+d.Worker+`", "pool": "p", "inclusion": {"poll_every": "100ms", "confirmations": 3}}`, 201, nil)
	call(t, http.MethodPut, d.API+"/senders/alice", `{"pool": "p"}`, 201, nil)
	var tx struct{ State, Hash string }
	call(t, http.MethodPost, d.API+"/transactions?wait=30s", `{"queue": "q", "type": "TRANSFER", "data": {"to": "alice", "amount": "5"}}`, 201, &tx)
	var on struct{ State string }
	call(t, http.MethodGet, d.Devnet+"/transactions/"+tx.Hash, "", 200, &on)
	if tx.State != "DONE" || on.State != "included" {
		t.Errorf("the transfer is %s, on the ledger %s", tx.State, on.State)
	}
	call(t, http.MethodPost, d.API+"/debug/clock", `{"advance": "1h"}`, 200, nil) // the dashboard has a form for it
	p.signal(os.Interrupt)
	if code := p.wait(); code != 0 {
		t.Errorf("Ctrl-C ended dev with %d", code)
	}
}
