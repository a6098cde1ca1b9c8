package ui_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
)

// Each page as each role, and as one of another context: a reader sees no lever and is refused one that is forged, and
// others are told that there is no such context.
func TestEachPageAsEachRole(t *testing.T) {
	h := newHouse(t, "required")
	h.api("PUT", "/contexts/shop", `{}`)
	h.api("PUT", "/contexts/else", `{}`)
	ids := h.scenario("shop")
	who := map[string]*browser{
		"reader":   h.browser().signIn(h.key("shop", "reader")),
		"executor": h.browser().signIn(h.key("shop", "executor")),
		"admin":    h.browser().signIn(h.key("shop", "admin")),
		"foreign":  h.browser().signIn(h.key("else", "admin")),
		"root":     h.browser().signIn(h.root),
	}
	pages := append(screens(ids), "nodes", "audit", "contexts", "contexts/shop")
	for name, b := range who {
		for _, p := range pages {
			want := http.StatusOK
			switch {
			case name == "foreign" && !strings.HasPrefix(p, "machines") && p != "contexts",
				name == "foreign" && (p == "machines/transaction" || p == "machines/queue"):
				want = http.StatusNotFound
			case p == "nodes" && name != "root", p == "audit" && name != "root" && name != "admin":
				want = http.StatusForbidden
			}
			if name == "foreign" && p == "nodes" {
				want = http.StatusForbidden
			}
			s := b.get("/ui/c/shop/" + p)
			if s.status != want {
				t.Errorf("%s as %s: %d, want %d: %.300s", p, name, s.status, want, s.text)
			}
			if l := s.levers(); len(l) > 0 && (name == "reader" || name == "foreign") && !onlyForAnyone(l) {
				t.Errorf("%s as %s has %v", p, name, l)
			}
		}
	}
	page := "/ui/c/shop/queues/line"
	const lever = "POST /queues/line/resume"
	for name, want := range map[string]bool{"admin": true, "root": true, "executor": false, "reader": false} {
		if has := slices.Contains(who[name].get(page).levers(), lever); has != want {
			t.Errorf("a lever for admins, seen by %s: %v", name, has)
		}
	}
	form := who["admin"].get(page).form(lever)
	for _, name := range []string{"reader", "executor", "foreign"} {
		b := who[name]
		home := map[bool]string{true: "else", false: "shop"}[name == "foreign"]
		form.Set("token", b.get("/ui/c/"+home+"/now").input("token"))
		form.Set("do", "do")
		want := http.StatusForbidden
		if name == "foreign" {
			want = http.StatusNotFound
		}
		if s := b.post(page, form); s.status != want {
			t.Errorf("%s forged a lever: %d, want %d", name, s.status, want)
		}
	}
	if h.api("GET", "/queues/line", "", "Postern-Context: shop")["paused"] != true {
		t.Error("a forged lever has acted")
	}
}

// onlyForAnyone says whether levers are those that the API lets every reader pull.
func onlyForAnyone(levers []string) bool {
	return !slices.ContainsFunc(levers, func(l string) bool { return !strings.HasSuffix(l, "/tick") })
}

func TestAKeyIsExchangedForASession(t *testing.T) {
	h := newHouse(t, "required")
	h.api("PUT", "/contexts/shop", `{}`)
	made := h.api("POST", "/api-keys", `{"name": "ann", "role": "reader"}`, "Postern-Context: shop")
	key := made["secret"].(string)
	b := h.browser()
	s := b.get("/ui/c/shop/now")
	if s.status != http.StatusSeeOther || s.header.Get("Location") != "/ui/sign-in?next=%2Fui%2Fc%2Fshop%2Fnow" {
		t.Fatalf("without a session: %d %v", s.status, s.header)
	}
	p := b.get(s.header.Get("Location"))
	token := p.input("token")
	for name, form := range map[string]url.Values{
		"a wrong key":     {"token": {token}, "key": {key[:len(key)-1] + "x"}},
		"no key":          {"token": {token}},
		"without a token": {"key": {key}},
	} {
		if s := b.post("/ui/sign-in", form); s.status != 401 && s.status != 403 || strings.Contains(s.text, key) {
			t.Errorf("%s: %d", name, s.status)
		}
	}
	s = b.post("/ui/sign-in", url.Values{"token": {token}, "key": {key}, "next": {"/ui/c/shop/queues"}})
	cookie := s.header.Get("Set-Cookie")
	if s.status != 303 || s.header.Get("Location") != "/ui/c/shop/queues" || strings.Contains(cookie, "Secure") ||
		!strings.Contains(cookie, "Path=/ui; Max-Age=28800; HttpOnly; SameSite=Strict") {
		t.Fatalf("%d %v", s.status, s.header)
	}
	for _, next := range []string{"https://evil.example/ui/", "//evil.example/ui/", `/ui/\evil.example`, "/queues"} {
		other := h.browser()
		token := other.get("/ui/sign-in").input("token")
		s := other.post("/ui/sign-in", url.Values{"token": {token}, "key": {key}, "next": {next}})
		if to := s.header.Get("Location"); to != "/ui/" {
			t.Errorf("a sign-in leads to %q", to)
		}
	}
	if s := b.get("/ui/c/shop/now"); s.status != 200 || !strings.Contains(s.text, "ann (reader)") {
		t.Errorf("signed in: %d", s.status)
	}

	value, _, _ := strings.Cut(strings.TrimPrefix(cookie, "postern_ui="), ";")
	r, _ := http.NewRequestWithContext(t.Context(), "GET", h.url+"/queues", nil)
	r.Header.Set("Cookie", "postern_ui="+value)
	if res, err := http.DefaultClient.Do(r); err != nil || res.StatusCode != 401 {
		t.Errorf("the API takes the cookie: %v", res.Status)
	}
	var stored int
	if err := h.store.Pool().QueryRow(t.Context(), `SELECT count(*)
		FROM postern.ui_session
		WHERE encode(hash, 'escape') LIKE '%' || $1 || '%'`, value).Scan(&stored); err != nil || stored != 0 {
		t.Errorf("the cookie is stored as it is: %d, %v", stored, err)
	}

	out := h.browser().signIn(key)
	form := out.get("/ui/c/shop/now").form("")
	if form == nil {
		t.Fatal("there is no way to sign out")
	}
	if s := out.post("/ui/sign-out", form); s.status != 303 {
		t.Errorf("sign out: %d", s.status)
	}
	if s := out.get("/ui/c/shop/now"); s.status != 303 {
		t.Errorf("signed out: %d", s.status)
	}

	audited := map[string]int{}
	for _, x := range h.api("GET", "/audit", "", "Postern-Context: shop")["items"].([]any) {
		row := x.(map[string]any)
		if row["object"] == "/api-keys/"+made["id"].(string) && row["via"] == "ui" {
			audited[row["action"].(string)+" by "+row["actor"].(string)]++
		}
	}
	by := " by key:" + strings.Split(key, "_")[1]
	if audited["sign_in"+by] != 6 || audited["sign_out"+by] != 1 {
		t.Errorf("the audit has %v, want 6 times sign_in%s and once sign_out%s", audited, by, by)
	}

	h.api("DELETE", "/api-keys/"+made["id"].(string), "", "Postern-Context: shop")
	until(t, func() bool { return b.get("/ui/c/shop/now").status == 303 })
}

// A session ends with the secret that opened it.
func TestASessionEndsWithItsSecret(t *testing.T) {
	h := newHouse(t, "required")
	made := h.api("POST", "/api-keys", `{"name": "ann", "role": "reader"}`, "Postern-Context: default")
	b := h.browser().signIn(made["secret"].(string))
	h.api("POST", "/api-keys/"+made["id"].(string)+"/rotate", `{}`, "Postern-Context: default")
	until(t, func() bool { return b.get("/ui/c/default/now").status == 303 })
}

// The cookie is for secure connections wherever the address is not one of this machine.
func TestTheCookieIsSecureBeyondThisMachine(t *testing.T) {
	h := newHouse(t, "required")
	r, _ := http.NewRequestWithContext(t.Context(), "GET", h.url+"/ui/sign-in", nil)
	r.Host = "postern.example"
	if s := h.browser().do(r); !strings.Contains(s.header.Get("Set-Cookie"), "; Secure;") {
		t.Errorf("%q", s.header.Get("Set-Cookie"))
	}
}

// In development mode a page of another name or origin gets nothing, as of the API.
func TestDevelopmentModeAnswersThisMachineAlone(t *testing.T) {
	h := newHouse(t, "none")
	for _, header := range []string{"Host: evil.example", "Origin: https://evil.example"} {
		r, _ := http.NewRequestWithContext(t.Context(), "GET", h.url+"/ui/c/default/now", nil)
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
		if name == "Host" {
			r.Host = value
		}
		if s := h.browser().do(r); s.status != http.StatusForbidden {
			t.Errorf("%s: %d", header, s.status)
		}
	}
}

// TestVendoredFiles compares the files of others with the files that they published.
func TestVendoredFiles(t *testing.T) {
	for file, want := range map[string]string{ // of the npm package htmx.org 4.0.1
		"assets/htmx.min.js":   "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130",
		"assets/hx-sse.min.js": "18ef2761356ec1fe0bb6d92612315b37517a7c1e9856b661c5ae81fef239d103",
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s is not what htmx.org 4.0.1 has", file)
		}
	}
}

// Of those who look at one page, each is sent what it may see: a reader does not see the nodes that an admin of system
// sees on the first page.
func TestALivePageShowsEachWhatItMaySee(t *testing.T) {
	h := newHouse(t, "required")
	if _, err := h.store.Pool().Exec(t.Context(), `INSERT INTO postern.node (name, version, ttl, heartbeat_at)
		VALUES ('hidden-node', 'v1', '1 hour', clock_timestamp())`); err != nil {
		t.Fatal(err)
	}
	streams := map[string]*http.Response{}
	for name, key := range map[string]string{"root": h.root, "reader": h.key("default", "reader")} {
		r, _ := http.NewRequestWithContext(t.Context(), "GET", h.url+"/ui/c/default/now?live=1", nil)
		res, err := h.browser().signIn(key).client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		streams[name] = res
	}
	for name, res := range streams {
		text := read(t, res, 6)
		if sees := strings.Contains(text, "hidden-node"); sees != (name == "root") {
			t.Errorf("%s sees the node: %v", name, sees)
		}
	}
}
