package ui_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// led is a request that a link of another site makes: no cookie of ours goes along.
func (h *house) led(path string) seen {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), "GET", h.url+path, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	r.Header.Set("Sec-Fetch-Mode", "navigate")
	return h.browser().do(r)
}

// A link of another site leads to the page, with the session that there is, and ends none.
func TestALinkOfAnotherSiteEndsNoSession(t *testing.T) {
	for _, auth := range []string{"none", "required"} {
		t.Run(auth, func(t *testing.T) { linked(t, newHouse(t, auth)) })
	}
}

func linked(t *testing.T, h *house) {
	const page = "/ui/c/default/queues?prefix=a&limit=2"
	s := h.led(page)
	if s.status != 200 || !strings.Contains(s.text, `content="0; url=`+strings.ReplaceAll(page, "&", "&amp;")+`"`) {
		t.Errorf("%d %s", s.status, s.text)
	}
	for _, path := range []string{page, "/ui/", "/ui/sign-in", "/ui/oidc/callback?code=a&state=b"} {
		for _, cookie := range h.led(path).header.Values("Set-Cookie") {
			if strings.HasPrefix(cookie, "postern_ui=") {
				t.Errorf("a link to %s sets %s", path, cookie)
			}
		}
	}
}

// A tab whose session has ended is told so, and gets no other page in the place of what it shows.
func TestAStreamWithoutASessionIsRefused(t *testing.T) {
	h := newHouse(t, "required")
	if s := h.browser().get("/ui/c/default/now?live=1"); s.status != http.StatusUnauthorized {
		t.Errorf("%d %v", s.status, s.header)
	}
}

// A viewer whose role has changed is no more read for by those who look at the same page.
func TestALivePageIsReadByNobodyWhoSeesMore(t *testing.T) {
	p := newIDP(t)
	h := newHouse(t, "required", p)
	h.api("PUT", "/contexts/shop", `{}`)
	if _, err := h.store.Pool().Exec(t.Context(), `INSERT INTO postern.node (name, version, ttl, heartbeat_at)
		VALUES ('hidden-node', 'v1', '1 hour', clock_timestamp())`); err != nil {
		t.Fatal(err)
	}
	rising := ""
	var streams []*http.Response
	for _, name := range []string{"rising", "reader"} {
		id := h.actor(p, name, "shop", "reader")
		if name == "rising" {
			rising = id
		}
		p.set(name, nil)
		b := h.browser()
		b.get(b.away("/ui/"))
		r, _ := http.NewRequestWithContext(t.Context(), "GET", h.url+"/ui/c/shop/now?live=1", nil)
		res, err := b.client.Do(r)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatal(err, res)
		}
		defer res.Body.Close()
		streams = append(streams, res)
	}
	read(t, streams[1], 2)
	h.api("PUT", "/contexts/system/members/"+rising, `{"roles": ["admin"]}`)
	until(t, func() bool { // its own stream ends, so that its browser comes again
		_, err := streams[0].Body.Read(make([]byte, 1<<16))
		return err != nil
	})
	if text := read(t, streams[1], 6); strings.Contains(text, "hidden-node") {
		t.Error("a reader is sent what an admin of system sees")
	}
}

// A bulk of more than fit one part goes on, part by part, to its end, and begins anew behind that.
func TestABulkGoesOnWithTheNextPart(t *testing.T) {
	h := newHouse(t, "none")
	b := h.browser()
	h.api("PUT", "/dispatchers/PAY", `{"worker_url": "noop:"}`)
	h.api("PUT", "/queues/line", `{}`)
	h.api("POST", "/queues/line/pause", `{}`)
	for n := range 5 {
		h.api("POST", "/transactions", fmt.Sprintf(`{"queue": "line", "type": "PAY", "uid": "n%d", "data": {}}`, n))
	}
	const page, lever = "/ui/c/default/transactions?queue=line", "POST /transactions:suspend"
	form := b.get(page).form(lever)
	suspended := func() (n int) {
		for _, x := range h.api("GET", "/transactions?suspended=true", "")["items"].([]any) {
			if _, is := x.(map[string]any); is {
				n++
			}
		}
		return n
	}
	for part, want := range []int{2, 4, 5} {
		var body map[string]any
		if err := json.Unmarshal([]byte(form.Get("body")), &body); err != nil {
			t.Fatal(err)
		}
		if _, onward := body["after"]; onward != (part > 0) {
			t.Errorf("part %d: %v", part, body)
		}
		form.Set("max", "2")
		for _, do := range []string{"try", "do"} {
			form.Set("do", do)
			s := b.post(page, form)
			if form = s.form(lever); s.status != 200 || form == nil {
				t.Fatalf("part %d: %d %s", part, s.status, s.text)
			}
		}
		if n := suspended(); n != want {
			t.Errorf("behind part %d there are %d suspended, want %d", part, n, want)
		}
	}
	if strings.Contains(form.Get("body"), `"after"`) {
		t.Error("behind the last part it does not begin anew")
	}
}

// What a check finds is shown, and one that finds something bad is no success.
func TestACheckSaysWhatItFound(t *testing.T) {
	h := newHouse(t, "none")
	b := h.browser()
	h.api("PUT", "/dispatchers/GOOD", `{"worker_url": "noop:"}`)
	h.api("PUT", "/dispatchers/BAD", `{"worker_url": "http://127.0.0.1:1/"}`)
	for typ, want := range map[string][]string{
		"GOOD": {`class="said done"`, "Checked: nothing is bad", "<dt>health</dt>", "it is built in"},
		"BAD":  {`class="said refused"`, "Checked: something is bad", "<dt>health</dt>", "bad: "},
	} {
		page := "/ui/c/default/dispatchers/" + typ
		form := b.get(page).form("POST /dispatchers/" + typ + "/check")
		if form == nil {
			t.Fatal("there is no check")
		}
		form.Set("do", "do")
		s := b.post(page, form)
		if i := slices.IndexFunc(want, func(w string) bool { return !strings.Contains(s.text, w) }); i >= 0 {
			_, said, _ := strings.Cut(s.text, `<section class="said`)
			t.Errorf("%s: there is no %q in %.600s", typ, want[i], said)
		}
	}
}

// The line of a queue is shown as it goes out, also once somebody has moved something.
func TestALineIsShownAsItGoesOut(t *testing.T) {
	h := newHouse(t, "none")
	b := h.browser()
	h.api("PUT", "/dispatchers/PAY", `{"worker_url": "http://127.0.0.1:1/", "pool": "none"}`)
	ids := map[string]string{}
	for _, uid := range []string{"first", "second", "third"} {
		x := h.api("POST", "/transactions", `{"queue": "line", "type": "PAY", "uid": "`+uid+`", "data": {}}`)
		ids[uid] = x["id"].(string)
	}
	h.api("POST", "/transactions/"+ids["third"]+"/move", `{"place": "head"}`)
	page := b.get("/ui/c/default/queues/line").text
	_, page, _ = strings.Cut(page, "The line from its head on")
	last := 0
	for _, uid := range []string{"third", "first", "second"} {
		at := strings.Index(page, ">"+uid+"<")
		if at < last {
			t.Fatalf("%s is at %d, behind %d: %s", uid, at, last, page)
		}
		last = at
	}
}
