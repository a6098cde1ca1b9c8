package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/pgtest"
)

// country is an installation of its own: a database, a process that serves and one that works.
type country struct {
	t            *testing.T
	binary, name string
	db, api      string
	cmds         []*exec.Cmd
}

func newCountry(t *testing.T, binary, name string) *country {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, l.Close())
	p := &country{t: t, binary: binary, name: name, db: pgtest.New(t).URL, api: "http://" + l.Addr().String()}
	t.Cleanup(p.kill)
	p.start()
	return p
}

func (p *country) start() {
	p.t.Helper()
	for _, args := range [][]string{{"serve", "--listen", strings.TrimPrefix(p.api, "http://")}, {"work"}} {
		cmd := exec.Command(p.binary, args...)
		cmd.Env = append(os.Environ(), "DATABASE_URL="+p.db, "POSTERN_AUTH=none", "POSTERN_METRICS_LISTEN=off",
			"POSTERN_WORKER_ALLOW_CIDR=127.0.0.0/8", "POSTERN_LEASE_TTL=2s")
		cmd.SysProcAttr, cmd.Stderr = dieWithParent(), p.t.Output()
		must(p.t, cmd.Start())
		p.cmds = append(p.cmds, cmd)
	}
	eventually(p.t, time.Minute, p.name+" is ready", func() bool {
		status, _ := p.call("GET", "/readyz", "")
		return status == http.StatusOK
	})
}

// kill ends all processes as kill -9 does.
func (p *country) kill() {
	for _, cmd := range p.cmds {
		_ = cmd.Process.Kill()
	}
	for _, cmd := range p.cmds {
		_ = cmd.Wait()
	}
	p.cmds = nil
}

func (p *country) call(method, path, body string) (int, map[string]any) {
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.api+path, strings.NewReader(body))
	must(p.t, err)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil
	}
	defer res.Body.Close()
	said := map[string]any{}
	_ = json.NewDecoder(res.Body).Decode(&said)
	return res.StatusCode, said
}

func (p *country) want(status int, method, path, body string) map[string]any {
	p.t.Helper()
	got, said := p.call(method, path, body)
	if got != status {
		p.t.Fatalf("%s: %s %s answers %d, want %d: %v", p.name, method, path, got, status, said)
	}
	return said
}

// notes is the service of a domain whose intents are entries of the ledger.
func notes(w http.ResponseWriter, r *http.Request) {
	var c struct{ Intent struct{ ID string } }
	_ = json.NewDecoder(r.Body).Decode(&c)
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/assemble":
		fmt.Fprintf(w, `{"result": "OK", "outputs": [{"id": "state.%s"}], "plan": [{"name": "notary", "type": "endorse",
			"parties": ["nan@alice"], "threshold": 1}]}`, c.Intent.ID)
	case "/endorse":
		_, _ = io.WriteString(w, `{"endorsement": "yes"}`)
	case "/prepare":
		fmt.Fprintf(w, `{"type": "NOTE", "data": {"calls": [{"to": "note.intent.%s", "method": "create"}]}}`,
			c.Intent.ID)
	default:
		http.NotFound(w, r)
	}
}

// Two installations agree on who coordinates. All processes of the coordinator are killed at once, with intents in all
// of their states: the other one takes over what the first has no permit for, and the rest is done by the first once it
// is there again. Each intent has one receipt, and its public transaction went out once.
func TestACoordinatorIsKilledAndAnotherTakesOver(t *testing.T) {
	binary, err := postern()
	must(t, err)
	chain := startServer(t, "ledger", "")
	service := httptest.NewServer(http.HandlerFunc(notes))
	t.Cleanup(service.Close)
	// The list of these nodes at height 0 begins with bob.
	alice, bob := newCountry(t, binary, "alice"), newCountry(t, binary, "bob")
	for _, one := range []struct{ me, other *country }{{alice, bob}, {bob, alice}} {
		signer := startServer(t, "worker", chain.url)
		one.me.want(201, "PUT", "/pools/signers", `{}`)
		for n := range 4 {
			one.me.want(201, "PUT", fmt.Sprint("/senders/acct-", one.me.name, n), `{"pool": "signers"}`)
		}
		one.me.want(201, "PUT", "/dispatchers/NOTE", fmt.Sprintf(`{"worker_url": %q, "pool": "signers",
			"inclusion": {"poll_every": "50ms", "confirmations": 1}, "retry": {"on_failed": false}}`, signer.url))
		one.me.want(201, "PUT", "/peers/"+one.other.name, fmt.Sprintf(`{"url": %q,
			"secret": "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="}`,
			one.other.api+"/contexts/default/peers/"+one.me.name))
		one.me.want(201, "PUT", "/domains/note", fmt.Sprintf(`{"types": ["NOTE"], "service_url": %q, "mode": "ENDORSER",
			"self": %q, "nodes": ["alice", "bob"], "heartbeat_interval": "1s", "request_timeout": "1s",
			"state_timeout": "3s", "delegate_timeout": "1s"}`, service.URL, one.me.name))
	}
	post := func(names ...string) {
		var list []string
		for _, name := range names {
			list = append(list, fmt.Sprintf(`{"uid": %q, "party": "ann", "data": {}}`, name))
		}
		alice.want(201, "POST", "/domains/note/intents:batch", `{"intents": [`+strings.Join(list, ", ")+`]}`)
	}
	state := func(name string) string {
		return fmt.Sprint(alice.want(200, "GET", "/domains/note/intents/"+name, "")["state"])
	}
	post("first")
	eventually(t, time.Minute, "bob carries one out", func() bool { return state("first") == "Confirmed" })
	if _, d := bob.call("GET", "/domains/note", ""); d["coordinator"] != "Active" && d["coordinator"] != "Idle" {
		t.Errorf("the coordinator of bob is %v", d["coordinator"])
	}
	var before []string
	for n := range 12 {
		before = append(before, fmt.Sprint("before-", n))
	}
	post(before...)
	eventually(t, time.Minute, "some are carried out", func() bool { return state("before-3") == "Confirmed" })
	bob.kill()
	killed := time.Now()
	eventually(t, time.Minute, "alice coordinates", func() bool {
		return alice.want(200, "GET", "/domains/note", "")["coordinator"] == "Active"
	})
	t.Logf("alice coordinates after %s", time.Since(killed))
	post("alone")
	eventually(t, time.Minute, "alice carries one out alone", func() bool { return state("alone") == "Confirmed" })
	bob.start()
	post("after")
	all := append([]string{"first", "alone", "after"}, before...)
	for _, name := range all {
		eventually(t, time.Minute, name+" is carried out", func() bool { return state(name) == "Confirmed" })
		id := fmt.Sprint(alice.want(200, "GET", "/domains/note/intents/"+name, "")["id"])
		res, err := http.Get(chain.url + "/apps/note.intent." + id)
		must(t, err)
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s is not on the ledger", name)
		}
	}
	done := 0
	for _, p := range []*country{alice, bob} {
		for _, item := range p.want(200, "GET", "/transactions?type=NOTE&limit=200", "")["items"].([]any) {
			if s := item.(map[string]any)["state"]; s == "DONE" {
				done++
			} else if s != "CANCELLED" {
				t.Errorf("%s has a public transaction that is %v", p.name, s)
			}
		}
	}
	if done != len(all) {
		t.Errorf("%d public transactions for %d intents", done, len(all))
	}
}
