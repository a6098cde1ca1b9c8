package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
)

// A URL over a Mycelium network is taken wherever workers and peers are named, whatever private addresses may be
// called; one without a key of 64 hex digits, or with a path that is none, is refused where it stands.
func TestWorkersAndPeersMayBeOverMycelium(t *testing.T) {
	d := newDoor(t)
	key := strings.Repeat("0a", 32)
	const door = "/contexts/shop/peers/near"
	for _, c := range []struct{ path, field, more string }{
		{"/dispatchers/pay", "worker_url", ""},
		{"/senders/acme", "worker_url", `, "pool": "p"`},
		{"/peers/far", "url", `, "secret": "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="`},
	} {
		put := func(url string) string { return fmt.Sprintf(`{%q: %q%s}`, c.field, url, c.more) }
		a := d.want(201, "PUT", c.path, put("mycelium:"+key+door))
		if a.body[c.field] != "mycelium:"+key+door || strings.Contains(a.raw, "may not call") {
			t.Error(a.raw)
		}
		for url, says := range map[string]string{
			"mycelium:" + key[1:] + door:      "64 hex digits",
			"mycelium:" + door:                "64 hex digits",
			"mycelium:" + key + "/a b" + door: "path",
			"mycelium:" + key + door + "?a=b": "neither query",
		} {
			bad := d.refused(422, "invalid", "PUT", c.path, put(url))
			if !strings.Contains(bad.raw, says) || !strings.Contains(bad.raw, `"/`+c.field+`"`) {
				t.Errorf("%s %s: %s", c.path, url, bad.raw)
			}
		}
	}
	d.refused(422, "invalid", "PUT", "/peers/far", fmt.Sprintf(`{"url": "mycelium:%s/worker"}`, key))
}
