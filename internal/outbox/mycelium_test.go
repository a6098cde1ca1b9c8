package outbox_test

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
)

func TestAMyceliumURLIsAKeyAndAPath(t *testing.T) {
	t.Parallel()
	key := strings.Repeat("0aF9", 16)
	for raw, path := range map[string]string{
		"mycelium:" + key:                           "",
		"mycelium:" + key + "/":                     "/",
		"mycelium:" + key + "/a/b%2Fc/d@e":          "/a/b%2Fc/d@e",
		"mycelium:" + key + "/contexts/c/peers/p:1": "/contexts/c/peers/p:1",
	} {
		u, err := outbox.ParseMycelium(raw)
		if err != nil || u.Path != path || u.Key != strings.ToLower(key) {
			t.Errorf("%s: %+v %v", raw, u, err)
		}
	}
	for raw, says := range map[string]string{
		"mycelium:":                       "64 hex digits",
		"mycelium:" + key[1:]:             "64 hex digits",
		"mycelium:" + key + "0":           "64 hex digits",
		"mycelium:g" + key[1:]:            "64 hex digits",
		"mycelium://" + key + "/a":        "64 hex digits",
		"mycelium:" + key + "/a?b=c":      "neither query",
		"mycelium:" + key + "#a":          "neither query",
		"mycelium:" + key + "/a b":        "path",
		"mycelium:" + key + "/a%2":        "path",
		"mycelium:" + key + "/\u00e4":     "path",
		"http://" + key:                   "mycelium:",
		"mycelium:" + key + "/a\x00":      "path",
		"mycelium:u@" + key + "/contexts": "64 hex digits",
	} {
		if err := outbox.CheckMycelium("/worker_url", raw); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q in it", raw, err, says)
		}
	}
}

func TestAPeerMayBeOverMycelium(t *testing.T) {
	t.Parallel()
	key := strings.Repeat("0", 64)
	const door = "/contexts/shop/peers/near"
	if err := outbox.CheckPeerURL("/url", "mycelium:"+key+door, false); err != nil {
		t.Error(err)
	}
	want := outbox.Door{Context: "shop", Peer: "near"}
	if d, ok := outbox.DoorOf("mycelium:" + key + "/below" + door); !ok || d != want {
		t.Errorf("%+v %v", d, ok)
	}
	for raw, says := range map[string]string{
		"mycelium:" + key + "/contexts/shop": "/contexts/NAME/peers/NAME",
		"mycelium:" + key:                    "/contexts/NAME/peers/NAME",
		"mycelium:" + key[1:] + door:         "64 hex digits",
		"mycelium:" + key + door + "?a":      "neither query",
		"other:" + key + door:                "https",
	} {
		if err := outbox.CheckPeerURL("/url", raw, true); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q in it", raw, err, says)
		}
	}
}
