package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/remote"
)

const (
	peerURL    = `{"url": "http://127.0.0.1:1/contexts/default/peers/near"}`
	secretOne  = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	secretTwo  = "whsec_YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODk="
	nearAtFar  = "/contexts/default/peers/near"
	checkedFar = "/peers/far/check"
)

// A peer is made, changed and removed as other named things are, and no answer shows its secret.
func TestAPeerIsANamedThingWithASecret(t *testing.T) {
	d := newDoor(t, callsLoopback(t))
	const url = "http://127.0.0.1:1/contexts/shop/peers/near"
	p := d.want(201, "PUT", "/peers/far", `{"url": "`+url+`/", "secret": "`+secretOne+`"}`)
	if p.str("door") != "/contexts/default/peers/far" || p.str("url") != url || p.body["installation"] != nil ||
		p.body["refuses"] != nil || strings.Contains(p.raw, "whsec") {
		t.Error(p.raw)
	}
	typ := d.want(200, "GET", "/dispatchers/peer.far", "")
	if typ.str("worker_url") != "peer:" || typ.str("posted_by") != "peers" || typ.body["idempotent"] != true {
		t.Error(typ.raw)
	}
	d.want(201, "PUT", "/peers/calls", `{"secret": "`+secretOne+`"}`)
	d.refused(404, "not_found", "GET", "/dispatchers/peer.calls", "")
	d.want(200, "PATCH", "/peers/calls", peerURL)
	d.want(200, "GET", "/dispatchers/peer.calls", "")
	d.want(200, "PUT", "/peers/far", `{}`) // the secret stays
	if list := d.want(200, "GET", "/peers", ""); len(list.items()) != 2 || strings.Contains(list.raw, "whsec") {
		t.Error(list.raw)
	}
	if r := d.want(200, "POST", "/peers/far/rotate-secret", ""); !strings.HasPrefix(r.str("secret"), "whsec_") ||
		r.body["previous_secret_until"] == nil {
		t.Error(r.raw)
	}
	given := `{"secret": "` + secretTwo + `", "overlap": "0s"}`
	r := d.want(200, "POST", "/peers/far/rotate-secret", given)
	if r.str("secret") != "" || r.body["previous_secret_until"] != nil {
		t.Error(r.raw)
	}
	d.refused(412, "precondition_failed", "PUT", "/peers/far", `{}`, `If-Match: "1"`)
	d.want(204, "DELETE", "/peers/far", "")
	d.refused(404, "not_found", "GET", "/peers/far", "")
	d.refused(404, "not_found", "GET", "/dispatchers/peer.far", "")
	d.refused(404, "not_found", "POST", "/peers/far/rotate-secret", "")
	d.refused(422, "invalid", "PUT", "/peers/far", `{}`) // it begins anew: without a secret there is none
}

// Bad settings of a peer are refused with their field, and nothing is stored.
func TestBadSettingsOfAPeer(t *testing.T) {
	d := newDoor(t, callsLoopback(t))
	const secret = `{"secret": "` + secretOne + `", `
	for _, c := range []struct{ body, pointer, text string }{
		{`{}`, "/secret", "openssl"},
		{`{"secret": "whsec_short"}`, "/secret", "base64"},
		{secret + `"url": "ftp://far.example/contexts/a/peers/b"}`, "/url", "https"},
		{secret + `"url": "http://far.example/contexts/a/peers/b"}`, "/url", "insecure"},
		{secret + `"url": "https://far.example/"}`, "/url", "/contexts/NAME/peers/NAME"},
		{secret + `"url": "https://far.example/contexts/a"}`, "/url", "/contexts/NAME/peers/NAME"},
		{secret + `"url": "https://far.example/contexts/a/processors/p/peers/b"}`, "/url", "door"},
		{secret + `"url": "https://u:p@far.example/contexts/a/peers/b"}`, "/url", "credentials"},
		{secret + `"url": "https://far.example/contexts/a/peers/b?x=1"}`, "/url", "query"},
		{secret + `"name": "other"}`, "/name", "path"},
	} {
		a := d.refused(422, "invalid", "PUT", "/peers/far", c.body)
		if !strings.Contains(a.raw, `"pointer":"`+c.pointer+`"`) || !strings.Contains(a.raw, c.text) ||
			strings.Contains(a.raw, secretOne) {
			t.Errorf("%s: %s, want %q and %q", c.body, a.raw, c.pointer, c.text)
		}
	}
	d.refused(422, "address_refused", "PUT", "/peers/far", `{"secret": "`+secretOne+`", "insecure": true,
		"url": "http://10.1.2.3/contexts/a/peers/b"}`)
	d.refused(422, "invalid", "PUT", "/peers/"+strings.Repeat("x", 101), `{"secret": "`+secretOne+`"}`)
	d.want(201, "PUT", "/peers/open", `{"secret": "`+secretOne+`", "insecure": true,
		"url": "http://far.example/contexts/a/peers/b"}`)
	if list := d.want(200, "GET", "/peers", ""); len(list.items()) != 1 {
		t.Error(list.raw)
	}
	for _, overlap := range []string{"soon", "-1s", "721h"} {
		a := d.refused(422, "invalid", "POST", "/peers/open/rotate-secret", `{"overlap": "`+overlap+`"}`)
		if !strings.Contains(a.raw, `"pointer":"/overlap"`) {
			t.Error(a.raw)
		}
	}
	d.refused(422, "invalid", "PUT", "/dispatchers/peer.far", `{"worker_url": "http://127.0.0.1:1/"}`)
	d.refused(422, "invalid", "PUT", "/dispatchers/T", `{"worker_url": "peer:"}`)
	d.refused(422, "invalid", "PUT", "/dispatchers/peer.far", `{"worker_url": "peer:", "posted_by": "anyone"}`)
}

// apart gives the database of a door an installation id of its own: those of tests are copies of one.
func (d *door) apart() *door {
	d.t.Helper()
	pgtest.Apart(d.t, d.store.Pool())
	if err := d.store.Refresh(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
	return d
}

// pair is two installations with a database each, which know each other under one secret.
type pair struct{ near, far *door }

func newPair(t *testing.T) *pair {
	near := newDoor(t, callsLoopback(t))
	p := &pair{near.apart(), openDoor(t, callsLoopback(t)).apart()}
	p.far.want(201, "PUT", "/peers/near", `{"secret": "`+secretOne+`"}`)
	p.near.want(201, "PUT", "/peers/far", `{"url": "`+p.far.url+nearAtFar+`", "secret": "`+secretOne+`"}`)
	return p
}

// says checks the peer from near, and fails the test unless that comes to a code, "" for ok.
func (p *pair) says(code string) answer {
	p.near.t.Helper()
	a := p.near.want(200, "POST", checkedFar, "")
	if a.str("code") != code || (code == "") != (a.body["ok"] == true) {
		p.near.t.Errorf("the check says %s, want code %q", a.raw, code)
	}
	g := p.near.want(200, "GET", "/peers/far", "")
	refuses, _ := g.body["refuses"].(map[string]any)
	if got := fmt.Sprint(refuses["code"]); code != "" && got != code || code == "" && refuses != nil {
		p.near.t.Errorf("the peer shows %s, want code %q", g.raw, code)
	}
	return a
}

// A peer is met by the first answer that it signs. A secret that is changed at one end makes it refuse, until both ends
// have it; after a rotation it refuses at no time.
func TestASecretIsChangedAtOneEndAndThenAtTheOther(t *testing.T) {
	p := newPair(t)
	health := p.far.want(200, "GET", nearAtFar+"/health", "").str("installation")
	if a := p.says(""); a.str("installation") != health || health == "" {
		t.Errorf("%s, and its health says %q", a.raw, health)
	}
	if g := p.near.want(200, "GET", "/peers/far", ""); g.str("installation") != health || g.body["met_at"] == nil {
		t.Error(g.raw)
	}
	p.near.want(200, "PATCH", "/peers/far", `{"secret": "`+secretTwo+`"}`)
	p.says("peer_unauthenticated")
	p.far.want(200, "PATCH", "/peers/near", `{"secret": "`+secretTwo+`"}`)
	p.says("")

	rotate := func(d *door, name, secret, overlap string) {
		d.want(200, "POST", "/peers/"+name+"/rotate-secret", `{"secret": "`+secret+`", "overlap": "`+overlap+`"}`)
	}
	rotate(p.near, "far", secretOne, "24h")
	p.says("")
	rotate(p.far, "near", secretOne, "24h")
	p.says("")
	rotate(p.near, "far", secretOne, "0s")
	p.says("")
	rotate(p.far, "near", secretTwo, "24h")
	p.says("") // the other end first
	rotate(p.far, "near", secretTwo, "0s")
	p.says("peer_unauthenticated")
	rotate(p.near, "far", secretTwo, "24h")
	p.says("")

	p.far.want(204, "DELETE", "/peers/near", "")
	if a := p.says("peer_unauthenticated"); !strings.Contains(a.raw, "no such peer") {
		t.Error(a.raw)
	}
	p.far.want(201, "PUT", "/peers/near", `{"secret": "`+secretTwo+`"}`)
	p.says("")
}

// A rotation that is made again, as after an answer that was lost, takes no secret from the other end: neither with the
// same one, nor with others that are drawn. One with no overlap ends all before.
func TestARotationThatIsRepeatedKeepsWhatTheOtherEndHas(t *testing.T) {
	p := newPair(t)
	until := ""
	for _, overlap := range []string{"1h", "2h", "30m"} {
		r := p.near.want(200, "POST", "/peers/far/rotate-secret",
			`{"secret": "`+secretTwo+`", "overlap": "`+overlap+`"}`).str("previous_secret_until")
		if r == "" || r < until || overlap == "2h" && r == until {
			t.Errorf("overlap %s: the one before is good until %q, and was until %q", overlap, r, until)
		}
		until = r
		p.says("")
	}
	last := ""
	for range 4 {
		last = p.near.want(200, "POST", "/peers/far/rotate-secret", "").str("secret")
		p.says("")
	}
	p.far.want(200, "PATCH", "/peers/near", `{"secret": "`+last+`"}`)
	for range 3 { // far has one of those before
		p.near.want(200, "POST", "/peers/far/rotate-secret", "")
		p.says("")
	}
	p.near.want(200, "POST", "/peers/far/rotate-secret", `{"overlap": "0s"}`)
	p.says("peer_unauthenticated")
	p.near.want(200, "POST", "/peers/far/rotate-secret", `{"secret": "`+last+`", "overlap": "0s"}`)
	p.near.want(200, "POST", "/peers/far/rotate-secret", `{"secret": "`+last+`"}`)
	if g := p.near.want(200, "GET", "/peers/far", ""); g.body["previous_secret_until"] != nil {
		t.Errorf("the same secret is one before: %s", g.raw)
	}
}

// A peer that is put with the secret that it has keeps those before it: the other end may have one of them. One that
// was removed begins anew, with the same secret, too.
func TestAPeerThatIsPutWithTheSecretThatItHasKeepsThoseBefore(t *testing.T) {
	p := newPair(t)
	rotate := func(body string) { p.near.want(200, "POST", "/peers/far/rotate-secret", body) }
	settings := `{"url": "` + p.far.url + nearAtFar + `/", "secret": "` + secretTwo + `"}`
	put := func(status int) { p.near.want(status, "PUT", "/peers/far", settings) }
	rotate(`{"secret": "` + secretTwo + `"}`)
	until := p.near.want(200, "GET", "/peers/far", "").str("previous_secret_until")
	put(200)
	p.near.want(200, "PATCH", "/peers/far", `{"secret": "`+secretTwo+`"}`)
	p.says("")
	if g := p.near.want(200, "GET", "/peers/far", ""); g.str("previous_secret_until") != until || until == "" {
		t.Errorf("the secret before was good until %q: %s", until, g.raw)
	}
	rotate("")
	rotate(`{"secret": "` + secretTwo + `"}`)
	put(200)
	p.says("") // far has one that is older
	p.near.want(204, "DELETE", "/peers/far", "")
	put(201)
	p.says("peer_unauthenticated")
}

// The secret before is good until its time, and no longer.
func TestTheSecretBeforeHasAnEnd(t *testing.T) {
	p := newPair(t)
	p.far.want(200, "POST", "/peers/near/rotate-secret", `{"secret": "`+secretTwo+`", "overlap": "1h"}`)
	p.says("")
	_, err := p.far.store.Pool().Exec(t.Context(), `UPDATE postern.peer_secret SET secret_until = clock_timestamp()`)
	if err != nil {
		t.Fatal(err)
	}
	p.says("peer_unauthenticated")
}

// Another installation at the URL of a peer that was met is not taken for it, even with its secret, until somebody says
// that it is.
func TestAnotherInstallationAtTheURLIsNotTheOneThatWasMet(t *testing.T) {
	p := newPair(t)
	p.says("")
	other := openDoor(t, callsLoopback(t)).apart()
	other.want(201, "PUT", "/peers/near", `{"secret": "`+secretOne+`"}`)
	moved := `UPDATE postern.peer SET url = $1 WHERE name = 'far'`
	if _, err := p.near.store.Pool().Exec(t.Context(), moved, other.url+nearAtFar); err != nil {
		t.Fatal(err)
	}
	if a := p.says("wrong_installation"); !strings.Contains(a.raw, "secret anew") {
		t.Error(a.raw)
	}
	p.near.want(200, "PATCH", "/peers/far", `{"secret": "`+secretOne+`"}`)
	p.says("")
}

// What answers at the URL of a peer and does not know the secret ends nothing: neither by yes nor by no.
func TestAnAnswerThatIsNotSignedEndsNothing(t *testing.T) {
	d := newDoor(t, callsLoopback(t))
	var status int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		if strings.HasSuffix(r.URL.Path, "/health") {
			fmt.Fprint(w, `{"installation": "0123"}`)
			return
		}
		fmt.Fprint(w, `{"ok": true, "error": {"class": "rejected", "code": "gone", "message": "give up"}}`)
	}))
	t.Cleanup(server.Close)
	impostor := server.URL
	d.want(201, "PUT", "/peers/far", `{"url": "`+impostor+nearAtFar+`", "secret": "`+secretOne+`"}`)
	secret, err := remote.ParseSecret(secretOne)
	if err != nil {
		t.Fatal(err)
	}
	client := remote.New(remote.Config{AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	defer client.Close()
	for status = range 600 {
		if status < 200 {
			continue
		}
		a := client.CallPeer(t.Context(), remote.PeerCall{URL: impostor + nearAtFar, Installation: "0123",
			Verb: "messages", Body: []byte(`{}`), Secrets: [][]byte{secret}, Timeout: time.Second})
		if a.Class != "blocked" && a.Class != "ambiguous" || a.Installation != "" {
			t.Errorf("HTTP %d of an impostor is %q %q", status, a.Class, a.Code)
		}
	}
	status = 200
	if a := d.want(200, "POST", checkedFar, ""); a.str("code") != "unsigned_answer" {
		t.Error(a.raw)
	}
	if g := d.want(200, "GET", "/peers/far", ""); g.body["installation"] != nil {
		t.Error(g.raw)
	}
}

// A call that was overheard is no other call: not at another installation, context, peer or verb, and neither is its
// answer.
func TestACallThatWasOverheardIsNoOtherCall(t *testing.T) {
	p := newPair(t)
	p.far.want(201, "PUT", "/peers/other", `{"secret": "`+secretOne+`"}`)
	p.far.want(201, "PUT", "/contexts/shop", `{}`)
	p.far.want(201, "PUT", "/peers/near", `{"secret": "`+secretOne+`"}`, "Postern-Context: shop")
	id := p.far.store.Installation()
	calls := func(path, below string, body string) int {
		secret, _ := remote.ParseSecret(secretOne)
		return p.far.call("POST", path, body, headersOf(remote.Message{ID: below + "/x", Body: []byte(body),
			Secrets: [][]byte{secret}}.Header(time.Now()))...).status
	}
	own := id + "/default/near/hello"
	for path, want := range map[string]int{
		"/contexts/default/peers/near/hello":  200,
		"/contexts/default/peers/other/hello": 401,
		"/contexts/shop/peers/near/hello":     401,
	} {
		if got := calls(path, own, `{}`); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
	for below, want := range map[string]int{
		id + "/default/near/messages":                401,
		"0123456789ab/default/near/hello":            409,
		"answer/" + own:                              401,
		id + "/default/near/hello/" + own:            200,
		"postern/contexts/default/peers/near/hello/": 401,
		strings.ToUpper(id) + "/default/near/hello":  409,
		"":                    401,
		"/default/near/hello": 409,
		id + "/default/ne":    401,
		"dispatch/peer.near":  401,
	} {
		if got := calls("/contexts/default/peers/near/hello", below, `{}`); got != want {
			t.Errorf("webhook-id %q: %d, want %d", below, got, want)
		}
	}
	if a := p.far.call("POST", "/contexts/default/peers/near/hello", `{}`); a.status != 401 {
		t.Error(a.raw)
	}
}

// A stranger at the doors is told the same wherever it knocks, signed or not: neither which contexts there are, nor
// which peers these have.
func TestAStrangerLearnsNothingAtADoor(t *testing.T) {
	d := openDoor(t, callsLoopback(t))
	d.want(201, "PUT", "/peers/near", `{"secret": "`+secretOne+`"}`)
	stranger, err := remote.ParseSecret(secretTwo)
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]bool{}
	for _, path := range []string{
		"default/peers/near/hello", "default/peers/none/hello", "none/peers/near/hello",
	} {
		part := strings.Split(path, "/")
		below := remote.PeerPath(d.store.Installation(), part[0], part[2], "hello")
		signed := headersOf(remote.Message{ID: below + "/x", Body: []byte(`{}`), Secrets: [][]byte{stranger}}.
			Header(time.Now()))
		for _, headers := range [][]string{nil, signed} {
			a := d.call("POST", "/contexts/"+path, `{}`, headers...)
			if a.status != 401 || a.str("code") != "unauthenticated" {
				t.Errorf("%s: %d %s", path, a.status, a.raw)
			}
			said[fmt.Sprint(headers != nil, strings.Replace(a.raw, a.str("request_id"), "", 1))] = true
		}
	}
	if len(said) != 2 {
		t.Errorf("it is told %v, want the same at each door", said)
	}
}

// headersOf are headers as tests give them.
func headersOf(h http.Header) (list []string) {
	for name := range h {
		list = append(list, name+": "+h.Get(name))
	}
	return list
}

// A door needs no key, and a server that wants keys has it all the same.
func TestTheDoorOfAPeerNeedsNoKey(t *testing.T) {
	far, root := closedDoor(t, callsLoopback(t))
	near := openDoor(t, callsLoopback(t))
	const in = "Postern-Context: default"
	far.want(201, "PUT", "/peers/near", `{"secret": "`+secretOne+`"}`, root, in)
	near.want(201, "PUT", "/peers/far", `{"url": "`+far.url+nearAtFar+`", "secret": "`+secretOne+`"}`)
	if a := near.want(200, "POST", checkedFar, ""); a.body["ok"] != true {
		t.Error(a.raw)
	}
	far.refused(401, "unauthenticated", "GET", "/peers/near", "")
	_, err := far.store.Installations.Peer(context.WithoutCancel(t.Context()), far.id, "near")
	if err != nil {
		t.Error(err)
	}
}
