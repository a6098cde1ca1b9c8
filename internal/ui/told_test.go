package ui_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/pgtest"
)

// A lever whose form would pull it again is answered with a redirect, so that a reload reads a page. The page says once
// what came of the lever.
func TestAReloadPullsNothing(t *testing.T) {
	h := newHouse(t, "none")
	b := h.browser()
	h.scenario("default")
	const page, lever = "/ui/c/default/subscriptions/hook", "POST /subscriptions/hook/redeliver"
	form := b.get(page).form(lever)
	if form == nil {
		t.Fatal("there is no such form")
	}
	form.Set("do", "do")
	form.Set("since", "2026-01-01T00:00:00Z")
	form.Set("reason", "once")
	done := b.send(page, form)
	if done.status != http.StatusSeeOther || done.header.Get("Location") != page {
		t.Fatalf("a form that would act again is answered %d %s", done.status, done.text)
	}
	const said = "<code>" + lever + "</code></p>\n"
	if s := b.get("/ui/c/default/now"); strings.Contains(s.text, said) {
		t.Error("another page says what came of it")
	}
	s := b.get(page)
	if s.status != 200 || !strings.Contains(s.text, `class="said `) || !strings.Contains(s.text, said) {
		t.Errorf("the page does not say what came of the lever: %d %s", s.status, s.text)
	}
	if s := b.get(page); strings.Contains(s.text, `class="said `) {
		t.Error("a reload says it again")
	}
	if rows := h.api("GET", "/audit?action=redeliver", "")["items"].([]any); len(rows) != 1 {
		t.Errorf("it was done %d times", len(rows))
	}
}

// However much is to be said of a lever, its page says that it was done, and goes on behind the last part.
func TestWhatCameOfABulkIsSaidHoweverLongItIs(t *testing.T) {
	h := newHouse(t, "none")
	b := h.browser()
	h.api("PUT", "/dispatchers/PAY", `{"worker_url": "noop:"}`)
	h.api("PUT", "/queues/line", `{}`)
	var items []string
	for n := range 24 {
		items = append(items, fmt.Sprintf(`{"queue": "line", "type": "PAY", "uid": "%d", "data": {}}`, n))
	}
	h.api("POST", "/transactions:batch", `{"items": [`+strings.Join(items, ",")+`]}`)
	h.api("POST", "/transactions:cancel", `{"filter": {"queue": ["line"]}, "max": 24}`)
	const page, lever = "/ui/c/default/transactions?queue=line", "POST /transactions:retry"
	for _, reason := range []string{"", strings.Repeat("r", 900), strings.Repeat("ü", 450), strings.Repeat("<", 900)} {
		for _, most := range []string{"1", "8", "12", "14", "15", "16", "17", "20"} {
			form := b.get(page).form(lever)
			form.Set("do", "do")
			form.Set("max", most)
			form.Set("reason", reason)
			s := b.post(page, form)
			if !strings.Contains(s.text, ">Done<") || !strings.Contains(s.text, "<dt>refused</dt><dd><bdi>"+most+"<") {
				t.Errorf("%s with a reason of %d: nothing is said", most, len(reason))
			}
			body := s.form(lever).Get("body")
			if !strings.Contains(s.text, "There are more: do it again") || !strings.Contains(body, `"after"`) {
				t.Errorf("%s with a reason of %d: the next part does not follow", most, len(reason))
			}
		}
	}
}

// What came of a lever is believed of a process of ours alone: a cookie that another page of this site has planted is
// not shown, and changes no form. Where there is a session, each process shows it, to that session.
func TestAPlantedCookieIsNotBelieved(t *testing.T) {
	for _, auth := range []string{"none", "required"} {
		t.Run(auth, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			h := houseOn(t, db, auth, time.Second)
			b, other := h.browser(), h.browser()
			if auth == "required" {
				b.signIn(h.root)
				other.signIn(h.root)
			}
			const page, lever = "/ui/c/default/transactions?queue=line", "POST /transactions:suspend"
			h.api("PUT", "/queues/line", `{}`)
			form := b.get(page).form(lever)
			form.Set("do", "do")
			if s := b.send(page, form); s.status != http.StatusSeeOther {
				t.Fatalf("do: %d %s", s.status, s.text)
			}
			kept := b.client.Jar.(*jar).cookies
			told := *kept["postern_ui_told"]
			shows := func(by *browser, value string, want bool) {
				t.Helper()
				planted := told
				planted.Value = value
				by.client.Jar.(*jar).cookies[told.Name] = &planted
				s := by.get(page)
				if is := strings.Contains(s.text, `class="said `); s.status != 200 || is != want {
					t.Errorf("%d, and it says what came of it: %v, want %v", s.status, is, want)
				}
				if body := s.form(lever).Get("body"); !strings.Contains(body, `["line"]`) {
					t.Errorf("the form would act on %s", body)
				}
			}
			text, err := base64.RawURLEncoding.DecodeString(told.Value)
			if err != nil {
				t.Fatal(err)
			}
			at := bytes.Index(text, []byte(`{"URL"`))
			foreign := bytes.Replace(text, []byte(`[\"line\"]`), []byte(`[\"else\"]`), 1)
			if at < 0 || bytes.Equal(foreign, text) {
				t.Fatalf("%s has no filter", text)
			}
			shows(b, base64.RawURLEncoding.EncodeToString(foreign), false)
			shows(b, base64.RawURLEncoding.EncodeToString(foreign[at:]), false)
			shows(b, "", false)
			shows(other, told.Value, auth == "none")
			shows(&browser{houseOn(t, db, auth, time.Second), b.client}, told.Value, auth == "required")
			shows(b, told.Value, true)
		})
	}
}

// The form that redrives a flow has a key: sent twice, it makes one flow.
func TestAFlowIsRedrivenOnceByOneForm(t *testing.T) {
	h := newHouse(t, "none")
	b := h.browser()
	flow := h.scenario("default")["flow"]
	h.api("POST", "/flows/"+flow+"/cancel", "")
	page, lever := "/ui/c/default/flows/"+flow, "POST /flows/"+flow+"/redrive"
	form := b.get(page).form(lever)
	if form == nil {
		t.Fatal("there is no such form")
	}
	form.Set("do", "do")
	for range 2 {
		if s := b.post(page, form); s.status != http.StatusOK || !strings.Contains(s.text, ">Done<") {
			t.Errorf("%d %s", s.status, s.text)
		}
	}
	if list := h.api("GET", "/flows", "")["items"].([]any); len(list) != 2 {
		t.Errorf("there are %d flows, want the first one and one that was redriven", len(list))
	}
	if s := b.get(page); s.form(lever).Get("key") == form.Get("key") {
		t.Error("the next page has the key of the one before")
	}
}
