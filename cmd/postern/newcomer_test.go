package main

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/pgtest"
)

// The commands answer what a newcomer tries or mistypes with the right word, or with the next step.
func TestWhatIsTriedOrMistypedHasANextStep(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"sned", exitUsage, "did you mean `postern post`?"},
		{"statsu", exitUsage, "did you mean `postern ls` or `postern doctor`?"},
		{"status", exitUsage, "did you mean `postern ls` or `postern doctor`?"},
		{"--version", exitUsage, "did you mean `postern version`?"},
		{"ls --staet=FAIL", exitUsage, "did you mean `postern ls state=VALUE`?"},
		{"queues --staet=FREE", exitUsage, "did you mean `postern queues state=VALUE`?"},
		{"post PAY --qeueu a", exitUsage, "did you mean `--queue`?"},
		{"apply -f nofile", exitUsage, "next: see `postern apply -h`"},
		{"verify-worker http://127.0.0.1:1", exitUnreachable, "next: start the worker, or correct its address"},
	} {
		postern(t, nil, strings.Fields(c.args)...).want(t, c.code, c.says)
	}
}

// A server that was reached says what it refuses, and each refusal has its own next step: to start it helps none.
func TestADatabaseThatRefusesSaysWhatIsToBeDone(t *testing.T) {
	t.Parallel()
	at := pgtest.New(t).URL
	for _, c := range []struct {
		why, next string
		change    func(*url.URL)
	}{
		{"refuses the password", "correct user and password in DATABASE_URL",
			func(u *url.URL) { u.User = url.UserPassword(u.User.Username(), "wrong") }},
		{"does not exist", "createdb nodb makes it", func(u *url.URL) { u.Path = "/nodb" }},
		{"does not answer", "start it, or say with DATABASE_URL where it is",
			func(u *url.URL) { u.Host = "127.0.0.1:1" }},
	} {
		u, err := url.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		c.change(u)
		r := postern(t, database(u.String()), "migrate", "status")
		if r.code == 0 {
			t.Log("this server asks for no password")
			continue
		}
		r.want(t, exitUnreachable, c.why, "next: "+c.next)
		postern(t, database(u.String()), "work", "--metrics-listen", "off").want(t, exitUnreachable, "next: "+c.next)
		postern(t, database(u.String()), "doctor").want(t, exitUnreachable, c.why, "→ "+c.next)
	}
}

// Lists and doctor name the type that is paused, or the nodes that are drained, for which a transaction waits. A worker
// without /health is no fault.
func TestWhatWaitsForItsTypeOrANodeIsTold(t *testing.T) {
	t.Parallel()
	bare := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotImplemented)
	}))
	t.Cleanup(bare.Close)
	env := append(database(pgtest.New(t).URL), "POSTERN_AUTH=none", "POSTERN_NODE_NAME=n1")
	_, at := serving(t, env, "serve", "--work", "--worker-allow-cidr", "127.0.0.0/8")
	api := []string{at, "POSTERN_OUTPUT=table"}
	postern(t, api, "api", "PUT", "/dispatchers/HI", "-d", `{"worker_url": "noop:"}`).want(t, 0)
	postern(t, api, "api", "PUT", "/dispatchers/BARE", "-d", `{"worker_url": "`+bare.URL+`"}`).want(t, 0)
	postern(t, api, "pause", "dispatchers/HI").want(t, 0)
	postern(t, api, "post", "HI", "-q", "a", "--uid", "h-1").want(t, 0, "WAITING")
	postern(t, api, "queues").want(t, 0, "WAITS FOR", "type HI is paused")
	postern(t, api, "drain", "nodes/n1").want(t, 0)
	postern(t, api, "doctor").want(t, exitBad, "nothing goes out: each node that lives is drained (n1)",
		"→ postern resume nodes/n1", bare.URL+" answers\n")

	for _, c := range []struct{ args, next string }{
		{"show dispatchers/NONE", "`postern ls dispatchers` lists"},
		{"pause nodes/none", "see `postern pause -h`"},
		{"drain nodes/none", "`postern ls nodes` lists"},
		{"job logs none", "`postern ls jobs` lists"},
		{"flow start none", "`postern ls flows` lists"},
		{"why none", "`postern ls` lists"},
	} {
		r := postern(t, api, strings.Fields(c.args)...)
		r.want(t, r.code, "next: "+c.next)
	}
	postern(t, api, "ls", "state=FAIL").want(t, exitUsage, "next: see `postern ls -h`")
	secret := []string{strings.Replace(at, "http:", "https:", 1)}
	r := postern(t, secret, "post", "HI")
	r.want(t, exitUnreachable, "next: there is no TLS at that port")
	if strings.Contains(r.stderr, "may have been posted") {
		t.Error(r.stderr)
	}
	other := []string{"POSTERN_URL=" + bare.URL}
	postern(t, other, "ls").want(t, exitBad, "next: say with --url or POSTERN_URL where the API is")
}
