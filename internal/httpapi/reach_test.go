package httpapi_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"code.dny.dev/ssrf"

	"github.com/postern-dev/postern/internal/httpapi"
	"github.com/postern-dev/postern/internal/remote"
)

// prefixes reads ranges.
func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// allowing is a door whose own process may call some ranges, and that knows a few names.
func allowing(t *testing.T, list ...string) *door {
	return newDoor(t, func(c *httpapi.Config) {
		c.Tools = remote.New(remote.Config{AllowCIDR: prefixes(list...), Lookup: someNames})
	})
}

// someNames knows what three hosts mean.
func someNames(_ context.Context, _, host string) ([]netip.Addr, error) {
	known := map[string]string{
		"worker.internal": "10.9.8.7",
		"worker.example":  "93.184.215.14",
		"loop.internal":   "127.0.0.1",
	}
	if known[host] == "" {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return []netip.Addr{netip.MustParseAddr(known[host])}, nil
}

// works registers a node that may call some ranges.
func (d *door) works(called string, list ...string) {
	d.t.Helper()
	n, err := d.store.Register(d.t.Context(), called, "test", time.Hour)
	if err == nil {
		err = d.store.Allow(d.t.Context(), n, prefixes(list...))
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// doors are all requests by which an address comes in, with the pointer to it; %s is http://host:port.
var doors = []struct{ method, path, body, at string }{
	{"PUT", "/dispatchers/pay", `{"worker_url": "%s/"}`, "/worker_url"},
	{"PATCH", "/dispatchers/base", `{"worker_url": "%s/"}`, "/worker_url"},
	{"PUT", "/senders/acct-1", `{"pool": "p", "worker_url": "%s/"}`, "/worker_url"},
	{"PATCH", "/senders/acct-0", `{"worker_url": "%s/"}`, "/worker_url"},
	{"PUT", "/channels/cap-1", `{"kind": "cap", "cap": "0x1", "worker_url": "%s/"}`, "/worker_url"},
	{"PUT", "/subscriptions/hear", `{"kind": "webhook", "url": "%s/hook"}`, "/url"},
	{"PATCH", "/subscriptions/heard", `{"url": "%s/hook"}`, "/url"},
	{"PUT", "/tools/xyz.labs.one@1", `{"url": "%s", ` + sums + `}`, "/url"},
	{"PUT", "/sources/log", `{"kind": "http_json", "url": "%s/events", "map": {"fqn": "/tool"}}`, "/url"},
	{"POST", "/transactions", `{"type": "base", "uid": "u-%[2]d", "callback": {"url": "%[1]s/hook"}}`, "/callback/url"},
	{"POST", "/transactions:batch",
		`{"atomic": true, "items": [{"type": "base", "uid": "v-%[2]d", "callback": {"url": "%[1]s/hook"}}]}`,
		"/callback/url"},
}

// oddHosts are no hosts, or numbers that one resolver takes for an address and another does not, nearly all private.
var oddHosts = []string{
	"10.1", "127.1", "127.0.1", "127.1:8000", "0", "2130706433", "017700000001", "0x7f000001", "0x7f.1", "0X7F.0.0.1",
	"0177.0.0.1", "127.0.0.01", "010.0.0.1", "127.0.0.1.", "10.20.0.1.", "1.2.3.4.5", "256.1", "300.300.300.300",
	"10.0x", "worker.1", "worker.0x7f", "８.8.8.8", "127。0。0。1", "①②⑦.0.0.1", "bücher.example", "a..b", ".a", ".",
	"[fe80::1%25lo]", "[10.20.0.1]", "[::1", ":80", "[127.1]", "[::g]", "%31%32%37.0.0.1",
	"127.0.0.1%00", "a b", "a,b", "a:x",
}

// furnish makes what is changed by PATCH.
func (d *door) furnish() {
	d.want(201, "PUT", "/dispatchers/base", `{"worker_url": "http://93.184.215.14/"}`)
	d.want(201, "PUT", "/senders/acct-0", `{"pool": "p"}`)
	d.want(201, "PUT", "/subscriptions/heard", `{"kind": "webhook", "url": "http://93.184.215.14/"}`)
}

// filled puts an address into the body of a request.
func filled(body, at string, n int) string {
	if strings.Contains(body, "%[2]d") {
		return fmt.Sprintf(body, at, n)
	}
	return fmt.Sprintf(body, at)
}

func TestAnAddressThatMayNotBeCalledIsRefusedWhereItIsPut(t *testing.T) {
	d := allowing(t, "10.20.0.0/16", "fd00::/8")
	d.furnish()
	for i, host := range []string{
		"127.0.0.1:9", "localhost:9", "LocalHost", "localhost.", "db.localhost:1", "[::1]:9", "[::ffff:127.0.0.1]",
		"[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "169.254.169.254", "10.21.0.1", "0.0.0.0", "[::]",
	} {
		for _, r := range doors {
			a := d.refused(422, "address_refused", r.method, r.path, filled(r.body, "http://"+host, i))
			for _, word := range []string{r.at, "--worker-allow-cidr", "POSTERN_WORKER_ALLOW_CIDR"} {
				if !strings.Contains(a.raw, word) {
					t.Errorf("%s %s with %s does not say %s: %s", r.method, r.path, host, word, a.raw)
				}
			}
		}
	}
	for i, host := range oddHosts {
		for _, r := range doors {
			a := d.call(r.method, r.path, filled(r.body, "http://"+host, 200+i))
			if a.status != 422 || !strings.Contains(a.raw, r.at) {
				t.Errorf("%s %s with %s answers %d: %s", r.method, r.path, host, a.status, a.raw)
			}
		}
	}
	for i, host := range []string{
		"93.184.215.14", "10.20.30.40:8000", "[fd00::7]:1", "nowhere.example", "worker.example",
	} {
		for _, r := range doors {
			a := d.call(r.method, r.path, filled(r.body, "http://"+host, 100+i))
			if a.status >= 300 || len(warnings(a)) != 0 {
				t.Errorf("%s %s with %s answers %d: %s", r.method, r.path, host, a.status, a.raw)
			}
		}
	}
	table := `{"kind": "postgres_table", "url": "postgres://u@%s:5432/app", "map": {"fqn": "/tool"}, ` +
		`"table": {"name": "public.t", "cursor": "id", "key": "id"}}`
	d.refused(422, "address_refused", "PUT", "/sources/rows", fmt.Sprintf(table, "127.0.0.1"))
	d.want(201, "PUT", "/sources/rows", fmt.Sprintf(table, "10.20.0.1"))
	d.want(201, "PUT", "/dispatchers/inside", `{"worker_url": "noop:"}`)
	if a := d.want(200, "PATCH", "/senders/acct-0", `{"attributes": {"a": "b"}}`); len(warnings(a)) != 0 {
		t.Error(a.raw)
	}
}

// warnings are those of an answer about addresses.
func warnings(a answer) (list []string) {
	all, _ := a.body["warnings"].([]any)
	for _, w := range all {
		if s := fmt.Sprint(w); strings.Contains(s, "--worker-allow-cidr") {
			list = append(list, s)
		}
	}
	return list
}

func TestANameWhoseAddressMayNotBeCalledIsWarnedOf(t *testing.T) {
	d := allowing(t)
	d.furnish()
	for i, r := range doors {
		a := d.call(r.method, r.path, filled(r.body, "http://worker.internal:8000", i))
		if a.status >= 300 {
			t.Errorf("%s %s answers %d: %s", r.method, r.path, a.status, a.raw)
		}
		if r.at == "/callback/url" { // a post waits for no look-up
			continue
		}
		if w := warnings(a); len(w) != 1 || !strings.Contains(w[0], "worker.internal leads to 10.9.8.7") {
			t.Errorf("%s %s: %s", r.method, r.path, a.raw)
		}
	}
	if a := d.want(200, "GET", "/senders/acct-1", ""); len(warnings(a)) != 0 {
		t.Errorf("it is looked up where it is read: %s", a.raw)
	}
}

func TestTheNodesSayWhatMayBeCalled(t *testing.T) {
	d := allowing(t, "127.0.0.0/8")
	d.works("a", "10.0.0.0/8")
	const to = `{"worker_url": "http://%s/"}`
	put := func(status int, host string) answer {
		t.Helper()
		return d.want(status, "PUT", "/dispatchers/pay", fmt.Sprintf(to, host))
	}
	if a := put(201, "10.1.1.1"); len(warnings(a)) != 0 {
		t.Error(a.raw)
	}
	put(422, "127.0.0.1") // this process may call it, but it calls no worker
	if a := put(200, "loop.internal"); len(warnings(a)) != 1 {
		t.Error(a.raw)
	}
	d.works("b", "10.0.0.0/16", "127.0.0.0/8")
	if a := put(200, "10.1.1.1"); len(warnings(a)) != 1 || !strings.Contains(warnings(a)[0], "b may not") {
		t.Error(a.raw)
	}
	if a := put(200, "10.0.1.1"); len(warnings(a)) != 0 {
		t.Error(a.raw)
	}
	if a := put(200, "127.0.0.1"); len(warnings(a)) != 1 || !strings.Contains(warnings(a)[0], "a may not") {
		t.Error(a.raw)
	}
	put(422, "192.168.1.1")
	// A patch of something else goes through, whatever may be called by now.
	if _, err := d.store.Pool().Exec(t.Context(), `UPDATE postern.node SET worker_allow_cidr = '{}'`); err != nil {
		t.Fatal(err)
	}
	put(422, "127.0.0.1")
	if a := d.want(200, "PATCH", "/dispatchers/pay", `{"slots": 3}`); len(warnings(a)) != 1 {
		t.Error(a.raw)
	}
	d.refused(422, "address_refused", "PATCH", "/dispatchers/pay", `{"worker_url": "http://127.0.0.2/"}`)
	d.works("c", "10.0.0.0/16", "127.0.0.0/8")
	const told = `"worker_allow_cidr":["10.0.0.0/16","127.0.0.0/8"]`
	if list := d.want(200, "GET", "/nodes", ""); !strings.Contains(list.raw, told) {
		t.Error(list.raw)
	}
}

// The same addresses are public to SQL, which judges callbacks, and to the dialler: at both edges of each range.
func TestSQLKnowsWhatIsPublicAsTheDiallerDoes(t *testing.T) {
	d := newDoor(t)
	addrs := prefixes(
		"64:ff9b::/96", "2001:4860::/32", "2a00::/12", "::/128", "::1/128", "fe80::/10", "8.8.8.0/24", "2000::/3")
	for _, p := range slices.Concat(addrs, ssrf.IPv4DeniedPrefixes, ssrf.IPv6DeniedPrefixes) {
		first, last := p.Masked().Addr(), p.Masked().Addr().AsSlice()
		for bit := p.Bits(); bit < len(last)*8; bit++ {
			last[bit/8] |= 1 << (7 - bit%8)
		}
		end, _ := netip.AddrFromSlice(last)
		for _, addr := range []netip.Addr{first.Prev(), first, end, end.Next()} {
			if !addr.IsValid() {
				continue
			}
			var public bool
			if err := d.store.Pool().QueryRow(t.Context(), `SELECT postern.is_public($1::text::inet)`, addr.String()).
				Scan(&public); err != nil {
				t.Fatal(err)
			}
			host := addr.String()
			if addr.Is6() {
				host = "[" + host + "]"
			}
			if want := remote.Literal("http://" + host).Public(); public != want {
				t.Errorf("%s: SQL says %t, the dialler %t", addr, public, want)
			}
		}
	}
}
