package httpapi_test

import (
	"crypto/ed25519"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/httpapi"
	"github.com/postern-dev/postern/internal/remote"
)

const inShop = "Postern-Context: shop"

// waits begins a request, and returns its answer once it has waited and something has happened.
func (d *door) waits(happen func(), method, path, body string, headers ...string) answer {
	d.t.Helper()
	got := make(chan answer, 1)
	go func() { got <- d.call(method, path, body, headers...) }()
	for begun := time.Now(); d.api.Waiting()+d.api.Held() == 0; time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > patience {
			d.t.Fatalf("%s %s does not wait", method, path)
		}
	}
	happen()
	return <-got
}

// forgotten returns once no process remembers who might do what: it does so for a second.
func forgotten() { time.Sleep(1100 * time.Millisecond) }

// loser is an executor of the context shop: what its requests to a server have as headers, and how it loses what it
// has.
type loser struct {
	headers func(url, method, path, body string) []string
	lose    func()
}

// losers are ways to lose a role, each with how the next request of the loser is refused.
var losers = []struct {
	name, code string
	status     int
	begin      func(d *door, root string) loser
}{
	{"its API key is revoked", "unauthenticated", 401, revoked},
	{"its key is retired", "unauthenticated", 401, func(d *door, root string) loser {
		return d.signing(root, func(ann string, key ed25519.PrivateKey) {
			d.want(204, "DELETE", "/actors/"+ann+"/keys/"+keyID(key), "", root)
		})
	}},
	{"it is removed", "not_found", 404, func(d *door, root string) loser {
		return d.signing(root, func(ann string, _ ed25519.PrivateKey) {
			d.want(204, "DELETE", "/contexts/shop/members/"+ann, "", root)
		})
	}},
	{"it may read alone", "forbidden", 403, func(d *door, root string) loser {
		return d.signing(root, func(ann string, _ ed25519.PrivateKey) {
			d.want(200, "PUT", "/contexts/shop/members/"+ann, `{"roles": ["reader"]}`, root)
		})
	}},
}

func revoked(d *door, root string) loser {
	key, _, id := d.key(root, "shop", "executor")
	return loser{func(string, string, string, string) []string { return []string{key, inShop} },
		func() { d.want(204, "DELETE", "/api-keys/"+id, "", root, inShop) }}
}

// signing is an actor with two keys, which signs with one.
func (d *door) signing(root string, lose func(actor string, key ed25519.PrivateKey)) loser {
	d.t.Helper()
	key := drawn(d.t)
	keys := fmt.Sprintf(`{"public_keys": [%q, %q]}`, public(key), public(drawn(d.t)))
	ann := d.want(201, "POST", "/actors", keys, root).str("id")
	d.want(200, "PUT", "/contexts/shop/members/"+ann, `{"roles": ["executor"]}`, root)
	return loser{func(url, method, path, body string) []string {
		return d.signedAt(time.Now(), url, key, method, path, body, inShop)
	}, func() { lose(ann, key) }}
}

// ourShop is a door with a context, and posts what never goes out.
func ourShop(t *testing.T) (d *door, root string, post func() (id string)) {
	d, root = closedDoor(t)
	d.store.Messages.Open = true
	d.want(201, "PUT", "/contexts/shop", `{}`, root)
	d.want(201, "PUT", "/dispatchers/pay", `{"worker_url": "noop:"}`, root, inShop)
	const late = `{"type": "pay", "not_before": "2100-01-01T00:00:00Z"}`
	return d, root, func() string { return d.want(201, "POST", "/transactions", late, root, inShop).str("id") }
}

const (
	chat   = `{"to": {"context": "shop"}, "message_type": "chat", "message": "x"}`
	script = `{"script": "1", "script_type": "python"`
)

// A thing that comes while a request waits is not handed to one that has lost its role meanwhile: it is refused as the
// same request is from now on, and the next one is handed the thing.
func TestAWaitHandsNothingToWhoLostItsRoleMeanwhile(t *testing.T) {
	d, root, _ := ourShop(t)
	d.want(201, "PUT", "/channels/c", `{"kind": "integrity", "capacity": 10}`, root, inShop)
	d.want(201, "PUT", "/runners/r", `{"type": "python", "slots": 10}`, root, inShop)
	const able = `{"instance": "i", "script_types": ["python"], "slots": 10}`
	epoch, _ := d.want(200, "POST", "/runners/r/register", able, root, inShop).body["epoch"].(float64)
	node, n := d.node(), 0
	for _, of := range []struct {
		path, body string
		happen     func()
	}{
		{"/messages:receive", "", func() {
			d.want(201, "POST", "/messages", chat, root, inShop)
			if _, err := d.store.Messages.Route(t.Context()); err != nil {
				t.Error(err)
			}
		}},
		{"/runners/r/claim", fmt.Sprintf(`{"epoch": %.0f, "max": 1, "holds": []}`, epoch), func() {
			d.want(201, "POST", "/jobs", script+`}`, root, inShop)
			if l := d.claimOne(node); l != nil {
				d.store.Flows.Offer(t.Context(), l, fmt.Sprint("token", n))
			}
		}},
		{"/channels/c/receive", "", func() {
			d.want(201, "POST", "/channels/c/messages", fmt.Sprintf(`{"id": "%d", "payload": 1}`, n), root, inShop)
		}},
	} {
		for _, w := range losers {
			n++
			l, path := w.begin(d, root), of.path+"?wait=30s"
			got := d.waits(func() {
				l.lose()
				forgotten()
				of.happen()
			}, "POST", path, of.body, l.headers(d.url, "POST", path, of.body)...)
			if got.status != w.status || got.str("code") != w.code {
				t.Errorf("%s, and %s: %d %s", path, w.name, got.status, got.raw)
			}
			d.want(200, "POST", of.path, of.body, root, inShop)
		}
	}
}

// A request that waits shows nothing, either, to one that has lost its role meanwhile.
func TestAWaitShowsNothingToWhoLostItsRoleMeanwhile(t *testing.T) {
	d, root, post := ourShop(t)
	d.want(201, "PUT", "/subscriptions/p", `{"kind": "pull"}`, root, inShop)
	tx := post()
	job := d.want(201, "POST", "/jobs", script+`, "prerequisites": ["ok"]}`, root, inShop).str("id")
	message := d.want(201, "POST", "/messages", chat, root, inShop).str("id")
	cancel := func(path string) func() {
		return func() { d.want(200, "POST", path+"/cancel", "", root, inShop) }
	}
	for path, happen := range map[string]func(){
		"/subscriptions/p/feed": func() { post(); d.number() },
		"/transactions/" + tx:   cancel("/transactions/" + tx),
		"/jobs/" + job:          cancel("/jobs/" + job),
		"/messages/" + message:  cancel("/messages/" + message),
	} {
		l := revoked(d, root)
		lose := func() { l.lose(); forgotten(); happen() }
		got := d.waits(lose, "GET", path+"?wait=30s", "", l.headers("", "", "", "")...)
		if got.status != 401 || got.str("code") != "unauthenticated" {
			t.Errorf("%s: %d %s", path, got.status, got.raw)
		}
	}
}

// A stream ends soon after the credential that opened it, in every process and without an event; in the process that
// takes it back no event comes after that.
func TestAStreamEndsWithItsCredential(t *testing.T) {
	p := newProvider(t)
	d, root, post := ourShop(t)
	client := remote.Guarded([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, time.Second)
	second := doorTo(t, d.store, func(c *httpapi.Config) {
		c.Auth = "required"
		c.OIDC = httpapi.OIDC{Issuers: []string{p.url}, Audiences: []string{"postern"}, Client: client}
	})
	const path = "/transactions:stream"
	ends := func(name string, events <-chan [3]string) {
		t.Helper()
		select {
		case e, open := <-events:
			if open {
				t.Errorf("%s: an event came: %s", name, e)
			}
		case <-time.After(patience):
			t.Errorf("%s: the stream goes on", name)
		}
	}
	for _, w := range losers {
		if w.status == 403 { // a reader may
			continue
		}
		for at, happen := range map[*door]func(){d: func() { post(); d.number() }, second: func() {}} {
			l := w.begin(d, root)
			events, _ := at.listen(path, "", l.headers(at.url, "GET", path, "")...)
			l.lose()
			happen()
			ends(w.name, events)
		}
	}
	ann := fmt.Sprintf(`{"oidc": {"issuer": %q, "subject": "ann"}}`, p.url)
	ann = d.want(201, "POST", "/actors", ann, root).str("id")
	d.want(200, "PUT", "/contexts/shop/members/"+ann, `{"roles": ["reader"]}`, root)
	events, _ := second.listen(path, "", token(p.key, "ES256", p.url, `"postern"`, "ann", 4*time.Second), inShop)
	ends("its token expires", events)
}
