package remote_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remotetest"
)

// The values of the three members of an answer; absent leaves one out.
const absent = "absent"

var (
	someHashes = []string{absent, `null`, `""`, `"0xab"`}
	someDones  = []string{absent, `null`, `{}`, `{ }`, `{"x":1}`, `false`}
	someErrors = []string{
		absent, `null`, `{}`, `{"message":"m"}`,
		`{"code":500}`, `{"code":502}`, `{"code":20203}`, `{"code":404,"class":"none of ours"}`,
		`{"class":"rejected"}`, `{"class":"retry"}`, `{"class":"blocked"}`, `{"class":"ambiguous"}`,
		`{"class":"rejected","code":20203}`, `{"class":"retry","code":500}`, `{"class":"blocked","code":500}`,
		`{"class":"ambiguous","code":500}`,
	}
	someStatuses = []int{200, 201, 302, 400, 404, 500, 503}
)

// meaning is what paragraph 5 of the page makes of an answer.
type meaning struct {
	class outbox.Class
	told  bool
	done  bool
	hash  bool
}

// meant reads paragraph 5 as a person would: 5.1 first, then the tables 5.3 and 5.4 from the top.
func meant(status int, hash, done, errorIs string) meaning {
	for _, class := range []outbox.Class{"rejected", "retry", "blocked", "ambiguous"} {
		if strings.Contains(errorIs, `"class":"`+string(class)+`"`) {
			return meaning{class: class, told: true, done: isDone(hash, done), hash: hash == `"0xab"`}
		}
	}
	if status >= 300 {
		return meaning{class: map[int]outbox.Class{
			302: "ambiguous", 400: "retry", 404: "blocked", 500: "ambiguous", 503: "ambiguous",
		}[status]}
	}
	keys := hash != absent && done != absent && errorIs != absent
	wrong := errorIs != absent && errorIs != `null` && errorIs != `{}`
	m := meaning{told: true, done: isDone(hash, done), hash: hash == `"0xab"`}
	switch {
	case keys && strings.Contains(errorIs, "500"):
		m.class = "rejected"
	case keys && strings.Contains(errorIs, "502"):
		m.class = "blocked"
	case keys && wrong:
		m.class = "retry"
	case m.done:
	case m.hash && !wrong:
	default:
		return meaning{class: "ambiguous"}
	}
	return m
}

func isDone(hash, done string) bool {
	empty := done == `{}` || done == `{ }`
	return done != absent && done != `null` && (!empty || hash == absent)
}

// TestEachAnswerMeansWhatThePageSays tries all combinations of the members, under statuses of each kind.
func TestEachAnswerMeansWhatThePageSays(t *testing.T) {
	t.Parallel()
	client, fake := remotetest.Client(t), remotetest.NewFake(t)
	for _, status := range someStatuses {
		for _, hash := range someHashes {
			for _, done := range someDones {
				for _, errorIs := range someErrors {
					var members []string
					for i, v := range []string{hash, done, errorIs} {
						if v != absent {
							members = append(members, fmt.Sprintf(`%q:%s`, []string{"hash", "done", "error"}[i], v))
						}
					}
					body := "{" + strings.Join(members, ",") + "}"
					fake.Script(remotetest.Match{}, remotetest.HTTP(status, body))
					a := client.Dispatch(t.Context(), remotetest.Call(fake.URL(), 1))
					want := meant(status, hash, done, errorIs)
					got := meaning{a.Class, a.Told, a.Result.Done != nil, a.Result.Hash != ""}
					if got != want {
						t.Errorf("HTTP %d %s: %+v, want %+v", status, body, got, want)
					}
					if well := a.Class == ""; well != (a.Code == "" && a.Message == "") {
						t.Errorf("HTTP %d %s: %+v", status, body, a)
					}
				}
			}
		}
	}
}

// TestAnErrorWithoutAMessageIsToldByWhatItSays: a person reads what the worker said, and not that HTTP went well.
func TestAnErrorWithoutAMessageIsToldByWhatItSays(t *testing.T) {
	t.Parallel()
	client, fake := remotetest.Client(t), remotetest.NewFake(t)
	for _, c := range []struct {
		status int
		body   string
		says   []string
	}{
		{200, `{"error":{"class":"blocked"}}`, []string{"blocked", "scope queue"}},
		{503, `{"error":{"class":"blocked","scope":"worker"}}`, []string{"blocked", "scope worker", "HTTP 503"}},
		{200, `{"error":{"class":"blocked","scope":"sender","code":"LOCKED"}}`,
			[]string{"blocked", "scope sender", "LOCKED"}},
		{200, `{"error":{"class":"rejected"}}`, []string{"rejected"}},
		{200, `{"error":{"class":"retry","code":"BUSY"}}`, []string{"retry", "BUSY"}},
		{500, `{"error":{"class":"ambiguous"}}`, []string{"ambiguous", "HTTP 500"}},
		{200, `{"hash":"","done":null,"error":{"code":502}}`, []string{"502", "blocked", "scope worker"}},
		{200, `{"hash":"","done":null,"error":{"code":"NO_FEE_PAYER_AVAILABLE"}}`,
			[]string{"NO_FEE_PAYER_AVAILABLE", "scope sender"}},
		{200, `{"hash":"","done":null,"error":{"code":500}}`, []string{"500", "rejected"}},
		{200, `{"hash":"","done":null,"error":{"code":7}}`, []string{"7", "retry"}},
	} {
		fake.Script(remotetest.Match{}, remotetest.HTTP(c.status, c.body))
		a := client.Dispatch(t.Context(), remotetest.Call(fake.URL(), 1))
		for _, part := range c.says {
			if !strings.Contains(a.Message, part) {
				t.Errorf("HTTP %d %s: %q, want %q in it", c.status, c.body, a.Message, part)
			}
		}
		if strings.Contains(a.Message, "OK") {
			t.Errorf("HTTP %d %s: %q", c.status, c.body, a.Message)
		}
	}
}
