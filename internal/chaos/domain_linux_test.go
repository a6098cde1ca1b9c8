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
	"github.com/postern-dev/postern/internal/pgtest/cut"
)

// country is an installation of its own: a database, a process that serves and one that works. Each comes to the
// database through a cutter.
type country struct {
	t            *testing.T
	binary, name string
	db, api      string
	cutters      []*cut.Cutter
	cmds         []*exec.Cmd
}

// commands are those of the processes of a country.
var commands = []string{"serve", "work"}

func newCountry(t *testing.T, binary, name string) *country {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, l.Close())
	p := &country{t: t, binary: binary, name: name, db: pgtest.New(t).URL, api: "http://" + l.Addr().String(),
		cmds: make([]*exec.Cmd, len(commands))}
	for range commands {
		p.cutters = append(p.cutters, cut.New(t, p.db))
	}
	t.Cleanup(p.kill)
	p.start()
	return p
}

func (p *country) start() {
	p.t.Helper()
	for n := range commands {
		p.startOne(n)
	}
	p.awaitReady()
}

func (p *country) startOne(n int) {
	p.t.Helper()
	cmd := exec.Command(p.binary, commands[n])
	if commands[n] == "serve" {
		cmd.Args = append(cmd.Args, "--listen", strings.TrimPrefix(p.api, "http://"))
	}
	cmd.Env = append(os.Environ(), "DATABASE_URL="+p.cutters[n].URL(p.db), "POSTERN_AUTH=none",
		"POSTERN_METRICS_LISTEN=off", "POSTERN_WORKER_ALLOW_CIDR=127.0.0.0/8", "POSTERN_LEASE_TTL=2s")
	cmd.SysProcAttr, cmd.Stderr = dieWithParent(), p.t.Output()
	must(p.t, cmd.Start())
	p.cmds[n] = cmd
}

func (p *country) awaitReady() {
	p.t.Helper()
	eventually(p.t, time.Minute, p.name+" is ready", func() bool {
		status, _ := p.call("GET", "/readyz", "")
		return status == http.StatusOK
	})
}

// kill ends all processes as kill -9 does.
func (p *country) kill() {
	for _, cmd := range p.cmds {
		if cmd != nil {
			_ = cmd.Process.Kill()
		}
	}
	for n, cmd := range p.cmds {
		if cmd != nil {
			_ = cmd.Wait()
		}
		p.cmds[n] = nil
	}
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

// landOf starts two installations that share the domain note, whose intents are entries of a ledger. Bob coordinates:
// by mode STATIC, or since the list of these nodes at height 0 begins with it.
func landOf(t *testing.T, mode string) (chain *server, alice, bob *country) {
	t.Helper()
	binary, err := postern()
	must(t, err)
	chain = startServer(t, "ledger", "")
	service := httptest.NewServer(http.HandlerFunc(notes))
	t.Cleanup(service.Close)
	alice, bob = newCountry(t, binary, "alice"), newCountry(t, binary, "bob")
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
		one.me.want(201, "PUT", "/domains/note", fmt.Sprintf(`{"types": ["NOTE"], "service_url": %q, %s,
			"self": %q, "nodes": ["alice", "bob"], "heartbeat_interval": "1s", "request_timeout": "1s",
			"state_timeout": "3s", "delegate_timeout": "1s"}`, service.URL, mode, one.me.name))
	}
	for _, p := range []*country{alice, bob} {
		eventually(t, time.Minute, p.name+" has heard the other", p.hasHeard)
	}
	return chain, alice, bob
}

// hasHeard says whether a country has heard the other one of its domain.
func (p *country) hasHeard() bool {
	_, d := p.call("GET", "/domains/note", "")
	others, _ := d["others"].([]any)
	return len(others) == 1 && others[0].(map[string]any)["heard_at"] != nil
}

// Two installations agree on who coordinates. All processes of the coordinator are killed at once, with intents in all
// of their states: the other one takes over what the first has no permit for, and the rest is done by the first once it
// is there again. Each intent has one receipt, and its public transaction went out once.
func TestACoordinatorIsKilledAndAnotherTakesOver(t *testing.T) {
	chain, alice, bob := landOf(t, `"mode": "ENDORSER"`)
	post := func(names ...string) {
		var list []string
		for _, name := range names {
			list = append(list, fmt.Sprintf(`{"uid": %q, "party": "ann", "data": {}}`, name))
		}
		alice.want(201, "POST", "/domains/note/intents:batch", `{"intents": [`+strings.Join(list, ", ")+`]}`)
	}
	post("first")
	eventually(t, time.Minute, "bob carries one out", func() bool { return alice.intent("first") == "Confirmed" })
	if _, d := bob.call("GET", "/domains/note", ""); d["coordinator"] != "Active" && d["coordinator"] != "Idle" {
		t.Errorf("the coordinator of bob is %v", d["coordinator"])
	}
	var before []string
	for n := range 12 {
		before = append(before, fmt.Sprint("before-", n))
	}
	post(before...)
	eventually(t, time.Minute, "some are carried out", func() bool { return alice.intent("before-3") == "Confirmed" })
	bob.kill()
	killed := time.Now()
	post("alone") // of the others bob may hold every permit, so that nothing is left to coordinate
	eventually(t, time.Minute, "alice carries one out alone", func() bool {
		return alice.intent("alone") == "Confirmed"
	})
	t.Logf("alice carries one out after %s", time.Since(killed))
	bob.start()
	post("after")
	all := append([]string{"first", "alone", "after"}, before...)
	for _, name := range all {
		eventually(t, time.Minute, name+" is carried out", func() bool { return alice.intent(name) == "Confirmed" })
		alice.carriedOut(chain, name)
	}
	if n := done(t, alice, bob); n != len(all) {
		t.Errorf("%d public transactions for %d intents", n, len(all))
	}
}

// victim is a process of a country, by its command.
type victim struct {
	country string
	command int
}

// Each of the processes of two nodes is killed at each end of an SQL transaction in the life of an intent, one by one,
// before it hears of that end, and started anew: the intent has one receipt, and its public transaction went out once.
// POSTERN_CHAOS=1 tries every end, with two nodes for each of the four processes; else a few are.
func TestEachProcessOfADomainIsKilledAtEachCommit(t *testing.T) {
	var all []victim
	for _, name := range []string{"alice", "bob"} {
		for n := range commands {
			all = append(all, victim{name, n})
		}
	}
	if os.Getenv("POSTERN_CHAOS") == "" {
		killAtCommits(t, false, all...)
		return
	}
	for _, v := range all {
		t.Run(v.country+" "+commands[v.command], func(t *testing.T) {
			t.Parallel()
			killAtCommits(t, true, v)
		})
	}
}

// killAtCommits kills some processes of two nodes, and wants each intent to be carried out once.
func killAtCommits(t *testing.T, every bool, victims ...victim) {
	chain, alice, bob := landOf(t, `"mode": "STATIC", "static": "bob"`)
	countries := map[string]*country{"alice": alice, "bob": bob}
	var lives []string
	for _, v := range victims {
		for k, step := 1, 1; every || k <= 300; k += step {
			uid := fmt.Sprint(v.country, "-", commands[v.command], "-", k)
			if !every {
				step = k // 1, 2, 4, 8, ...
				if k > 1 && !pgtest.Turn(uid) {
					continue
				}
			}
			lives = append(lives, uid)
			if !live(t, alice, countries[v.country], v.command, k, uid) {
				break
			}
			if k%20 == 0 {
				t.Logf("killed at %d ends", k)
			}
		}
	}
	for _, uid := range lives {
		alice.carriedOut(chain, uid)
	}
	if n := done(t, alice, bob); n != len(lives) {
		t.Errorf("%d public transactions for %d intents", n, len(lives))
	}
	t.Logf("%d lives", len(lives))
}

// live has alice post an intent, kills the nth process of a country at its kth end of a transaction since, and starts
// it again. It returns whether there were so many before the intent was carried out.
func live(t *testing.T, alice, victim *country, n, k int, uid string) (killed bool) {
	t.Helper()
	ends, dead, cmd := 0, make(chan struct{}), victim.cmds[n]
	victim.cutters[n].Arm(nil, func(bool, int) {
		if ends++; ends == k {
			_ = cmd.Process.Kill()
			close(dead)
		}
	})
	defer victim.cutters[n].Disarm()
	revive := func() {
		select {
		case <-dead:
			if !killed {
				killed = true
				_ = cmd.Wait()
				victim.startOne(n)
				victim.awaitReady()
			}
		default:
		}
	}
	eventually(t, time.Minute, uid+" is carried out", func() bool {
		revive()
		if status, _ := alice.call("GET", "/domains/note/intents/"+uid, ""); status == http.StatusNotFound {
			alice.call("POST", "/domains/note/intents", fmt.Sprintf(`{"uid": %q, "party": "ann", "data": {}}`, uid))
		}
		return alice.intent(uid) == "Confirmed"
	})
	victim.cutters[n].Disarm()
	revive()
	return killed
}

// intent is the state of an intent.
func (p *country) intent(uid string) string {
	_, said := p.call("GET", "/domains/note/intents/"+uid, "")
	return fmt.Sprint(said["state"])
}

// carriedOut wants an intent to be on the ledger, and to have the receipt of a success.
func (p *country) carriedOut(chain *server, uid string) {
	p.t.Helper()
	i := p.want(200, "GET", "/domains/note/intents/"+uid, "")
	res, err := http.Get(chain.url + "/apps/note.intent." + fmt.Sprint(i["id"]))
	must(p.t, err)
	res.Body.Close()
	receipt, _ := i["receipt"].(map[string]any)
	if res.StatusCode != http.StatusOK || receipt["outcome"] != "success" {
		p.t.Errorf("%s has the receipt %v, and the ledger answers %d", uid, i["receipt"], res.StatusCode)
	}
}

// done counts the public transactions that are DONE, and wants the others to be CANCELLED.
func done(t *testing.T, all ...*country) (n int) {
	t.Helper()
	for _, p := range all {
		for cursor := ""; ; {
			page := p.want(200, "GET", "/transactions?type=NOTE&limit=200"+cursor, "")
			for _, item := range page["items"].([]any) {
				if s := item.(map[string]any)["state"]; s == "DONE" {
					n++
				} else if s != "CANCELLED" {
					t.Errorf("%s has a public transaction that is %v", p.name, s)
				}
			}
			next, more := page["next"].(string)
			if !more {
				break
			}
			cursor = "&cursor=" + next
		}
	}
	return n
}
