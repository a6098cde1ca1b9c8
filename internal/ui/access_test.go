package ui_test

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
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
			case name == "foreign" && p != "machines" && p != "contexts":
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
}

// leastFor is who may pull a lever at least, by its last word; all that are not named are for admins. What an executor
// may do to what it posted itself, an executor may not do to what another has posted.
var leastFor = map[string]string{
	"POST /processors/*/tick":   "reader",
	"POST /transactions":        "executor",
	"POST /processors/*/pause":  "root", // who made it, as the flow
	"POST /processors/*/resume": "root",
	"POST /flows/*/start":       "root",
	"POST /nodes/*/drain":       "root",
	"POST /nodes/*/resume":      "root",
	"POST /nodes/*/bury":        "root",
}

// Each form as each role: a visitor who may pull the lever has the form; one who may not is refused a form that is
// forged, and to one of another context there is no such thing.
func TestEachFormAsEachRole(t *testing.T) {
	h := newHouse(t, "required")
	h.api("PUT", "/contexts/shop", `{}`)
	h.api("PUT", "/contexts/else", `{}`)
	ids := h.scenario("shop")
	if _, err := h.store.Pool().Exec(t.Context(), `INSERT INTO postern.node (name, version, ttl, heartbeat_at, draining)
		VALUES ('live', 'v1', '1 hour', clock_timestamp(), false),
			('drained', 'v1', '1 hour', clock_timestamp(), true)`); err != nil {
		t.Fatal(err)
	}
	ranks := []string{"foreign", "reader", "executor", "admin", "root"}
	who := map[string]*browser{
		"foreign":  h.browser().signIn(h.key("else", "admin")),
		"reader":   h.browser().signIn(h.key("shop", "reader")),
		"executor": h.browser().signIn(h.key("shop", "executor")),
		"admin":    h.browser().signIn(h.key("shop", "admin")),
		"root":     h.browser().signIn(h.root),
	}
	tokens := map[string]string{}
	for name, b := range who {
		home := map[bool]string{true: "else", false: "shop"}[name == "foreign"]
		tokens[name] = b.get("/ui/c/" + home + "/now").input("token")
	}
	tried := map[string]bool{}
	for _, p := range append(screens(ids), "contexts/shop", "nodes/live", "nodes/drained") {
		page := "/ui/c/shop/" + p
		all := who["root"].get(page)
		if strings.HasPrefix(p, "nodes/") && !strings.Contains(all.text, "Queues that it holds") {
			t.Errorf("%s does not say which queues it holds", p)
		}
		for _, lever := range all.levers() {
			kind := kindOf(lever)
			if tried[kind] {
				continue
			}
			tried[kind] = true
			least := slices.Index(ranks, cmp.Or(leastFor[kind], "admin"))
			hidden := 404
			if strings.HasPrefix(p, "nodes/") { // they are of no context
				hidden = 403
			}
			for rank, name := range ranks {
				b := who[name]
				if has := slices.Contains(b.get(page).levers(), lever); has != (rank >= least) {
					t.Errorf("%s on %s as %s: it has the form: %v", lever, p, name, has)
				}
				form := all.form(lever)
				form.Set("token", tokens[name])
				form.Set("do", "try")
				s := b.post(page, form)
				switch refused := s.status == 403 || s.status == 404; {
				case name == "foreign" && s.status != hidden, name != "foreign" && rank < least && s.status != 403,
					rank >= least && refused:
					t.Errorf("%s on %s, sent by %s: %d", lever, p, name, s.status)
				}
			}
		}
	}
	for kind := range leastFor {
		if !tried[kind] {
			t.Errorf("no page of the scenario has the form of %s", kind)
		}
	}
	if len(tried) < 25 {
		t.Errorf("there are %d kinds of forms: %v", len(tried), tried)
	}
	const page, lever = "/ui/c/shop/queues/line", "POST /queues/line/resume"
	form := who["admin"].get(page).form(lever)
	form.Set("do", "do")
	for _, name := range []string{"reader", "executor", "foreign"} {
		form.Set("token", tokens[name])
		who[name].post(page, form)
	}
	if h.api("GET", "/queues/line", "", "Postern-Context: shop")["paused"] != true {
		t.Error("a forged lever has acted")
	}
}

// kindOf is a lever without the names of things.
func kindOf(lever string) string {
	parts := strings.Split(lever, "/")
	for i := 2; i < len(parts); i += 2 {
		if i < len(parts)-1 || !strings.Contains(parts[i], ":") {
			parts[i] = "*"
		}
	}
	return strings.Join(parts, "/")
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

// The root of a chain is the same for all: the last blocker that a lever would change, whether or not one may pull it.
func TestTheRootIsTheSameForAll(t *testing.T) {
	h := newHouse(t, "required")
	h.api("PUT", "/contexts/shop", `{}`)
	in := "Postern-Context: shop"
	h.api("PUT", "/dispatchers/PAY", `{"worker_url": "noop:"}`, in)
	h.api("PUT", "/queues/line", `{}`, in)
	h.api("POST", "/queues/line/pause", `{}`, in)
	own := h.key("shop", "executor")
	var id any
	for range 2 {
		id = h.api("POST", "/transactions", `{"queue": "line", "type": "PAY", "data": {}}`, in,
			"Authorization: Bearer "+own)["id"]
	}
	root := regexp.MustCompile(`(?s)<li class="root">.*?</li>`)
	for _, secret := range []string{own, h.key("shop", "reader"), h.key("shop", "admin")} {
		text := h.browser().signIn(secret).get(fmt.Sprint("/ui/c/shop/transactions/", id)).text
		if at := root.FindAllString(text, -1); len(at) != 1 || !strings.Contains(at[0], "queue_paused") &&
			!strings.Contains(at[0], "queue paused") {
			t.Errorf("%v", at)
		}
	}
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

// In development mode a page of another name or origin gets nothing, as of the API, and takes nothing from others.
func TestDevelopmentModeAnswersThisMachineAlone(t *testing.T) {
	h := newHouse(t, "none")
	for _, page := range []string{"queues?live=1", "transactions?live=1", "queues"} {
		r, _ := http.NewRequestWithContext(t.Context(), "GET", h.url+"/ui/c/default/"+page, nil)
		r.Header.Set("Origin", "http://127.0.0.1:1")
		if s := h.browser().do(r); s.status != http.StatusForbidden {
			t.Errorf("%s: %d", page, s.status)
		}
		if s := h.browser().get("/ui/c/default/queues"); s.status != http.StatusOK {
			t.Errorf("after a foreign request for %s: %d", page, s.status)
		}
	}
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

// A foreign page learns nothing from, and ends nothing of, a page that somebody looks at.
func TestAForeignPageDoesNotJoinALiveOne(t *testing.T) {
	h := newHouse(t, "none")
	h.scenario("default")
	res := h.browser().stream("/ui/c/default/now")
	defer res.Body.Close()
	read(t, res, 1)
	for _, header := range []string{"Host: evil.example", "Origin: http://127.0.0.1:1"} {
		r, _ := http.NewRequestWithContext(t.Context(), "GET", h.url+"/ui/c/default/now?live=1", nil)
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
		if name == "Host" {
			r.Host = value
		}
		if s := h.browser().do(r); s.status != http.StatusForbidden {
			t.Errorf("%s: %d", header, s.status)
		}
	}
	if text := read(t, res, 2); strings.Count(text, "present") < 2 {
		t.Errorf("the stream of the other one has ended: %s", text)
	}
}

// Where there are more contexts than are listed, the one that is meant is found, and all have a link.
func TestTheContextThatIsMeantIsFoundAmongMany(t *testing.T) {
	h := newHouse(t, "none")
	for n := range 101 {
		h.api("PUT", fmt.Sprintf("/contexts/a%03d", n), `{}`)
	}
	b := h.browser()
	if s := b.get("/ui/"); s.header.Get("Location") != "/ui/c/default/now" {
		t.Errorf("it leads to %s", s.header.Get("Location"))
	}
	all := `<a href="/ui/c/default/contexts">all of them</a>`
	if s := b.get("/ui/c/default/queues"); !strings.Contains(s.text, all) {
		t.Error("the rest has no link")
	}
	if s := b.get("/ui/c/default/contexts/default"); !strings.Contains(s.text, `<a href="/ui/c/default/now">`) {
		t.Error("the page of a context does not lead into it")
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
