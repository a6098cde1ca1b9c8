package ui_test

import (
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
)

// Texts of users that want to be more than text.
const (
	markup = `<script>alert("1")</script><img src=x onerror=alert(2)>`
	turned = "\u202egnp.exe\u202c"
)

// scenario puts something of most nouns into a context: a paused queue with a line, one that waits for what another
// one has, and texts of users that are markup, turn the direction of writing, and do not end.
func (h *house) scenario(context string) (ids map[string]string) {
	h.t.Helper()
	in := "Postern-Context: " + context
	ids = map[string]string{}
	quoted := strings.ReplaceAll(markup, `"`, `\"`)
	h.api("PUT", "/senders/acc-1", `{"pool": "p", "attributes": {"note": "`+quoted+`"}}`, in)
	h.api("PUT", "/dispatchers/PAY", `{"worker_url": "http://127.0.0.1:1/", "pool": "p"}`, in)
	h.api("PUT", "/queues/line", `{"priority": "High"}`, in)
	h.api("POST", "/queues/line/pause", `{"reason": "`+quoted+`"}`, in)
	for i, uid := range []string{"first", "second", "third"} {
		body := fmt.Sprintf(`{"queue": "line", "type": "PAY", "uid": %q, "data": {"text": %q, "turn": %q, "long": %q}}`,
			uid, markup, turned, strings.Repeat("x", 1<<16*min(1, i)))
		ids[uid] = fmt.Sprint(h.api("POST", "/transactions", body, in)["id"])
	}
	ids["waits"] = fmt.Sprint(h.api("POST", "/transactions",
		`{"queue": "other", "type": "PAY", "uid": "waits", "depends_on": ["first"], "data": {}}`, in)["id"])
	ids["gone"] = fmt.Sprint(h.api("POST", "/transactions", `{"queue": "third", "type": "PAY", "data": {}}`, in)["id"])
	h.api("POST", "/transactions/"+ids["gone"]+"/cancel", `{"reason": "`+quoted+`"}`, in)
	for _, name := range []string{"proc", "halted"} {
		h.api("PUT", "/processors/"+name, `{}`, in)
	}
	h.api("POST", "/processors/halted/pause", `{}`, in)
	h.api("PUT", "/subscriptions/hook", `{"kind": "pull", "events": ["transaction.done"]}`, in)
	ids["flow"] = fmt.Sprint(h.api("POST", "/flows", `{"jobs": [{"ref": 1, "script_type": "python", "script": "1"},
		{"ref": 2, "script_type": "python", "script": "2", "dependends": [1]}]}`, in)["id"])
	ids["job"] = fmt.Sprint(h.api("POST", "/jobs", `{"script_type": "python", "script": "`+quoted+`"}`, in)["id"])
	ids["message"] = fmt.Sprint(h.api("POST", "/messages",
		`{"to": {"context": "`+context+`"}, "message_type": "chat", "message": "`+quoted+`"}`, in)["id"])
	h.api("PUT", "/peers/bank", `{"secret": "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="}`, in)
	h.api("PUT", "/domains/notes", `{"types": ["PAY"], "service_url": "http://127.0.0.1:1"}`, in)
	h.api("POST", "/domains/notes/pause", `{"reason": "`+quoted+`"}`, in)
	ids["intent"] = fmt.Sprint(h.api("POST", "/domains/notes/intents",
		`{"party": "ann", "uid": "mint-1", "data": {"note": "`+quoted+`"}}`, in)["id"])
	return ids
}

// screens are all pages of a scenario.
func screens(ids map[string]string) (list []string) {
	for _, p := range strings.Fields(`now transactions transactions?state=WAITING queues queues?prefix=l queues/line
		senders senders/acc-1 pools pools/p dispatchers dispatchers/PAY processors processors/proc processors/halted
		processors/proc/batches authorizations sources events tools channels subscriptions subscriptions/hook deliveries
		flows jobs runners messages peers peers/bank domains domains/notes domains/notes/intents
		machines machines/transaction machines/queue machines/event machines/batch machines/channel_message
		machines/flow machines/job machines/job_try machines/message machines/originator
		machines/originator_transaction machines/coordinator machines/coordinator_transaction`) {
		list = append(list, p)
	}
	list = append(list, "jobs/"+ids["job"]+"/logs")
	for name, id := range ids {
		switch name {
		case "job", "flow", "message":
			list = append(list, name+"s/"+id)
		case "intent":
			list = append(list, "domains/notes/intents/"+id)
		default:
			list = append(list, "transactions/"+id)
		}
	}
	return list
}

// unescapedIn is what a page has that a text of a user must not become, or that a template left behind.
func unescapedIn(page string) (bad []string) {
	for _, s := range []string{"<script>alert", "<img", "no value&gt;", "ZgotmplZ", "&lt;nil"} {
		if strings.Contains(page, s) {
			bad = append(bad, s)
		}
	}
	return bad
}

// The check of texts of users finds a template that shows the text of an error as markup, on the page that is tested.
func TestAnErrorThatIsShownAsMarkupIsFound(t *testing.T) {
	source, err := os.ReadFile("job.html")
	if err != nil {
		t.Fatal(err)
	}
	_, live, _ := strings.Cut(string(source), "{{with .J.error}}")
	live, _, _ = strings.Cut(live, "{{end}}")
	const shown = "{{.message}}"
	if strings.Count(live, shown) != 1 {
		t.Fatalf("the page of a job shows no error: %s", live)
	}
	for text, want := range map[string]int{live: 0, strings.Replace(live, shown, "{{markup .message}}", 1): 2} {
		page, err := template.New("").Funcs(template.FuncMap{
			"markup": func(s string) template.HTML { return template.HTML(s) },
		}).Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := page.Execute(&out, map[string]any{"code": "x", "message": markup}); err != nil {
			t.Fatal(err)
		}
		if bad := unescapedIn(out.String()); len(bad) != want {
			t.Errorf("%s: %v", out.String(), bad)
		}
	}
}

func TestEachPageShowsTextsOfUsersAsText(t *testing.T) {
	h := newHouse(t, "none")
	b := h.browser()
	ids := h.scenario("default")
	for _, p := range append(screens(ids), "nodes", "audit", "contexts", "contexts/default") {
		s := b.get("/ui/c/default/" + p)
		if s.status != http.StatusOK {
			t.Errorf("%s: %d %s", p, s.status, s.text)
			continue
		}
		for _, bad := range unescapedIn(s.text) {
			t.Errorf("%s has %s", p, bad)
		}
		policy := s.header.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; script-src 'self'; ") {
			t.Errorf("%s: policy %q", p, policy)
		}
		if bad := tokenless(s.text); len(bad) > 0 {
			t.Errorf("%s has forms without a token: %q", p, bad)
		}
		if strings.Contains(s.text, " style=") || strings.Contains(s.text, " onclick=") {
			t.Errorf("%s has styles or scripts in its markup", p)
		}
		if len(s.text) > 400_000 {
			t.Errorf("%s has %d bytes", p, len(s.text))
		}
	}
	s := b.get("/ui/c/default/transactions/" + ids["first"])
	for _, want := range []string{"&lt;script&gt;alert", "paused by dev", "queue paused", turned, ">PAY<"} {
		if !strings.Contains(s.text, want) {
			t.Errorf("the page of a transaction lacks %q:\n%s", want, s.text)
		}
	}
	for path, status := range map[string]int{
		"/ui/c/default/queues/none":            404,
		"/ui/c/nowhere/now":                    404,
		"/ui/c/default/nonsense":               404,
		"/ui/c/default/transactions?state=MAD": 422,
		"/ui/nothing":                          404,
	} {
		if s := b.get(path); s.status != status || strings.Contains(s.text, "went wrong") {
			t.Errorf("%s: %d", path, s.status)
		}
	}
}

// A stuck head is found on the first page, and moved in three clicks: its transaction, and the button of the lever that
// the chain names.
func TestAStuckHeadIsFoundAndMoved(t *testing.T) {
	h := newHouse(t, "none")
	b := h.browser()
	ids := h.scenario("default")
	if s := b.get("/"); s.header.Get("Location") != "/ui/" {
		t.Errorf("GET / leads to %q", s.header.Get("Location"))
	}
	at := b.get("/ui/").header.Get("Location")
	first := b.get(at)
	page := "/ui/c/default/transactions/" + ids["first"]
	if !strings.Contains(first.text, `href="`+page+`"`) || !strings.Contains(first.text, "queue paused") {
		t.Fatalf("%s does not lead to the head:\n%s", at, first.text)
	}
	s := b.get(page)
	const lever = "POST /queues/line/resume"
	form := s.form(lever)
	if form == nil || !strings.Contains(s.text, ` open><summary><b>resume</b>`) {
		t.Fatalf("the chain has no open form that resumes: %v", s.levers())
	}
	form.Set("reason", markup)
	form.Set("do", "try")
	tried := b.post(page, form)
	if tried.status != 200 || !strings.Contains(tried.text, "Tried, and nothing was changed") {
		t.Errorf("try: %d %s", tried.status, tried.text)
	}
	if h.api("GET", "/queues/line", "")["paused"] != true {
		t.Fatal("a try has resumed the queue")
	}
	form = tried.form(lever)
	if form.Get("reason") != markup {
		t.Errorf("the form has forgotten its reason: %v", form)
	}
	form.Set("do", "do")
	if done := b.post(page, form); done.status != 200 || !strings.Contains(done.text, ">Done<") {
		t.Errorf("do: %d %s", done.status, done.text)
	}
	if h.api("GET", "/queues/line", "")["paused"] != false {
		t.Error("the queue is still paused")
	}
	row := h.api("GET", "/audit?action=resume", "")["items"].([]any)[0].(map[string]any)
	if row["via"] != "ui" || row["actor"] != "dev" || row["reason"] != markup || row["object"] != "/queues/line" {
		t.Errorf("the audit says %v", row)
	}
}

func TestALeverActsOnWhatWasSeen(t *testing.T) {
	h := newHouse(t, "none")
	b := h.browser()
	h.scenario("default")
	const page, lever = "/ui/c/default/queues/line", "POST /queues/line/resume"
	form := b.get(page).form(lever)
	form.Set("do", "do")
	h.api("PATCH", "/queues/line", `{"max_depth": 7}`)
	s := b.post(page, form)
	if s.status != http.StatusPreconditionFailed || !strings.Contains(s.text, ">7<") ||
		!strings.Contains(s.text, "The page shows it as it is now") {
		t.Errorf("%d %s", s.status, s.text)
	}
	if h.api("GET", "/queues/line", "")["paused"] != true {
		t.Error("a lever acted on what was not seen")
	}
	form = s.form(lever)
	form.Set("do", "do")
	if s := b.post(page, form); s.status != 200 {
		t.Errorf("%d %s", s.status, s.text)
	}
}

func TestNothingIsPulledFromElsewhere(t *testing.T) {
	h := newHouse(t, "none")
	b := h.browser()
	h.scenario("default")
	const page, lever = "/ui/c/default/queues/line", "POST /queues/line/resume"
	form := b.get(page).form(lever)
	form.Set("do", "do")
	without := url.Values{"lever": {lever}, "do": {"do"}}
	for name, s := range map[string]seen{
		"without a token":        b.post(page, without),
		"of another browser":     h.browser().post(page, form),
		"of another origin":      b.post(page, form, "Origin: https://evil.example"),
		"from another site":      b.post(page, form, "Sec-Fetch-Site: cross-site"),
		"with a host of another": b.post(page, form, "Origin: null"),
	} {
		if s.status != http.StatusForbidden {
			t.Errorf("a form %s: %d %s", name, s.status, s.text)
		}
	}
	form.Set("lever", "DELETE /queues/line")
	if s := b.post(page, form); s.status != http.StatusUnprocessableEntity {
		t.Errorf("a DELETE: %d", s.status)
	}
	if h.api("GET", "/queues/line", "")["paused"] != true {
		t.Error("the queue was resumed")
	}
}

// tokenless are the forms of a page that post without the token of its browser.
func tokenless(page string) (bad []string) {
	for _, text := range forms.FindAllString(page, -1) {
		if len((seen{text: text}).input("token")) != 64 {
			bad = append(bad, text)
		}
	}
	return bad
}

// The checks of tokens find a lever whose form has none, and a dashboard that does not ask for it.
func TestALeverWithoutATokenIsFound(t *testing.T) {
	h := newHouse(t, "none")
	b := h.browser()
	h.scenario("default")
	const page, lever = "/ui/c/default/queues/line", "POST /queues/line/resume"
	s := b.get(page)
	form := s.form(lever)
	if bad := tokenless(s.text); len(bad) > 0 || form == nil {
		t.Fatalf("%v %v", bad, form)
	}
	without := strings.ReplaceAll(s.text, `name="token"`, `name="taken"`)
	if bad := tokenless(without); len(bad) != len(forms.FindAllString(s.text, -1)) {
		t.Errorf("of the forms without a token %d are found", len(bad))
	}
	form.Set("do", "do")
	form.Del("token")
	if acts := h.acts(b, page, form); acts {
		t.Error("a lever acts without a token")
	}
	token := s.form(lever).Get("token")
	h.mu.Lock()
	h.plant = func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodPost && r.FormValue("token") == "" { // the same as to check none
			r.PostForm.Set("token", token)
		}
		next.ServeHTTP(w, r)
	}
	h.mu.Unlock()
	if acts := h.acts(b, page, form); !acts {
		t.Error("a lever that acts without a token is not found")
	}
}

// acts says whether a form has an effect: it resumes the queue of the scenario.
func (h *house) acts(b *browser, page string, form url.Values) bool {
	b.post(page, form)
	return h.api("GET", "/queues/line", "")["paused"] == false
}

// A bulk does exactly what its try said, also where something has come in the meantime.
func TestABulkDoesWhatItsTrySaid(t *testing.T) {
	h := newHouse(t, "none")
	b := h.browser()
	h.scenario("default")
	const page, lever = "/ui/c/default/transactions?queue=line&limit=1", "POST /transactions:cancel"
	form := b.get(page).form(lever)
	if form == nil {
		t.Fatal("there is no bulk")
	}
	form.Set("reason", "a mistake")
	form.Set("do", "try")
	tried := b.post(page, form)
	const three = "</dt><dd><bdi>3</bdi>"
	if !strings.Contains(tried.text, "<dt>matched"+three) || !strings.Contains(tried.text, "<dt>changed"+three) {
		t.Fatalf("try: %s", tried.text)
	}
	h.api("POST", "/transactions", `{"queue": "line", "type": "PAY", "uid": "fourth", "data": {}}`)
	form = tried.form(lever)
	form.Set("do", "do")
	done := b.post(page, form)
	if done.status != 200 || !strings.Contains(done.text, "<dt>changed"+three) {
		t.Errorf("do: %d %s", done.status, done.text)
	}
	for uid, state := range map[string]string{"first": "CANCELLED", "third": "CANCELLED", "fourth": "WAITING"} {
		if have := h.api("GET", "/transactions/by-uid/"+uid, "")["state"]; have != state {
			t.Errorf("%s is %v, want %s", uid, have, state)
		}
	}
}

// A page that ten browsers look at is read once for all of them, and not at all when none looks.
func TestALivePageIsReadOnceForAll(t *testing.T) {
	h := newHouse(t, "none")
	h.scenario("default")
	b := h.browser()
	const page = "/ui/c/default/queues/line"
	b.get(page)
	var streams []*http.Response
	for range 10 {
		r, _ := http.NewRequestWithContext(t.Context(), "GET", h.url+page+"?live=1", nil)
		res, err := b.client.Do(r)
		if err != nil || res.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatal(err, res)
		}
		streams = append(streams, res)
	}
	before := h.called("GET /queues/line")
	for _, res := range streams {
		read(t, res, 3)
	}
	if n := h.called("GET /queues/line") - before; n > 12 { // three events, and what was read while ten were read from
		t.Errorf("ten who saw three events had the queue read %d times", n)
	}
	for _, res := range streams[1:] {
		res.Body.Close()
	}
	if text := read(t, streams[0], 1); !strings.Contains(text, "first") {
		t.Errorf("an event: %s", text)
	}
	close(h.stop) // the process leaves
	until(t, func() bool { _, err := streams[0].Body.Read(make([]byte, 1<<16)); return err != nil })
	until(t, func() bool {
		n := h.called("GET /queues/line")
		time.Sleep(300 * time.Millisecond)
		return h.called("GET /queues/line") == n
	})
}

// read takes some events of a stream.
func read(t *testing.T, res *http.Response, events int) string {
	t.Helper()
	var all strings.Builder
	b := make([]byte, 1<<16)
	for strings.Count(all.String(), "\n\n") < events+1 && all.Len() < 1<<22 {
		n, err := res.Body.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b[:n])
	}
	return all.String()
}

func until(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatal("it did not come to that")
		}
	}
}

// In development a transaction is posted by a form; the same form sent twice posts it once.
func TestAFormPostsInDevelopment(t *testing.T) {
	h := newHouse(t, "none")
	b := h.browser()
	h.api("PUT", "/dispatchers/HELLO", `{"worker_url": "noop:"}`)
	const page, lever = "/ui/c/default/transactions", "POST /transactions"
	form := b.get(page).form(lever)
	if form == nil {
		t.Fatal("there is no form that posts")
	}
	form.Set("body", `{"queue": "greetings", "type": "HELLO", "data": {"n": 12345678901234567890}}`)
	form.Set("do", "do")
	for range 2 {
		if s := b.post(page, form); s.status != http.StatusOK || !strings.Contains(s.text, ">Done<") {
			t.Errorf("%d %s", s.status, s.text)
		}
	}
	list := h.api("GET", "/transactions?queue=greetings&include=data", "")["items"].([]any)
	if len(list) != 1 {
		t.Fatalf("two clicks posted %d transactions", len(list))
	}
	form.Set("body", `{"queue": `)
	if s := b.post(page, form); s.status != 422 || !strings.Contains(s.text, "no JSON object") {
		t.Errorf("%d %s", s.status, s.text)
	}
}
