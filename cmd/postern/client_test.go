package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/remotetest"
)

// developing starts postern dev on a database that is migrated already, and waits until it is ready.
func developing(t *testing.T) (p *process, database, api string) {
	t.Helper()
	db := pgtest.New(t)
	few := pgtest.Few(db.URL)
	p = start(t, nil, "dev", "--database-url", few, "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0")
	if l := p.line(); l != "DATABASE_URL="+few {
		t.Fatalf("the first line is %q", l)
	}
	api = p.line()
	await(t, p, api)
	return p, db.URL, api
}

// installation is a postern dev that runs; it returns the environment in which clients find it and its database.
func installation(t *testing.T) []string {
	t.Helper()
	_, database, api := developing(t)
	return []string{"DATABASE_URL=" + database, "POSTERN_URL=" + api}
}

func TestAnOperatorPostsLooksAsksWhyAndPullsLevers(t *testing.T) {
	t.Parallel()
	at := installation(t)
	worker := remotetest.NewFake(t)
	table := append(at, "POSTERN_OUTPUT=table")
	do := func(code int, args ...string) result {
		t.Helper()
		r := postern(t, at, args...)
		r.want(t, code)
		return r
	}
	do(0, "api", "PUT", "/dispatchers/HELLO", "-d", `{"worker_url": "noop:"}`)
	file := filepath.Join(t.TempDir(), "d.json")
	if err := os.WriteFile(file, []byte(`{"worker_url": "`+worker.URL()+`", "retry": {"initial": "1h", "cap": "1h", "max_retries": 1}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	do(0, "api", "put", "dispatchers/PAY", "-f", file)

	// a transaction that ends well
	posted := do(0, "post", "HELLO", "-q", "greet", "-d", `{"amount": 12345678901234567890.10}`, "--uid", "h-1",
		"--wait", "30s", "--tag", "team=blue", "-o", "json")
	var tx struct {
		ID, State string
		Tags      map[string]string
		Data      json.RawMessage
	}
	if err := json.Unmarshal([]byte(posted.stdout), &tx); err != nil || tx.State != "DONE" || tx.Tags["team"] != "blue" || !strings.Contains(string(tx.Data), "12345678901234567890.10") {
		t.Errorf("%v: %s", err, posted.stdout)
	}
	postern(t, table, "post", "HELLO", "-q", "greet", "-d", `{"amount": 12345678901234567890.10}`, "--uid", "h-1", "--tag", "team=blue").want(t, 0, tx.ID+" DONE (known already)")
	postern(t, table, "post", "HELLO", "-q", "greet", "--uid", "h-1").want(t, 1, "next: `postern show UID`")
	postern(t, table, "show", "h-1").want(t, 0, tx.ID, "Completed", "DONE")
	do(0, "show", tx.ID)
	do(0, "show", "transactions/"+tx.ID)

	// a transaction that does not move: why says the reason, and the lever that moves it
	worker.Script(remotetest.Match{Op: "dispatch"}, remotetest.Fail(20203, "not now"))
	postern(t, table, "post", "PAY", "-q", "ada", "-d", "{}", "--uid", "p-1", "--wait", "1s").want(t, 4, "next: postern why")
	do(0, "post", "PAY", "-q", "ada", "--uid", "p-2")
	postern(t, table, "why", "p-2").want(t, 0, "head_of_line", "retry_delay", "lever postern retry ")
	postern(t, at, "attempts", "p-1").want(t, 0, "STARTED", "not now")
	postern(t, at, "attempts", "p-2").want(t, 0, "no attempts", "postern why p-2")
	postern(t, at, "attempts", "queues/ada").want(t, 2, "is no transaction")
	postern(t, table, "why", "queues/ada").want(t, 0, "retry_delay")
	postern(t, table, "ls", "queues").want(t, 0, "ada", "DELAY")
	postern(t, table, "pause", "queue/ada", "--reason", "a look at it").want(t, 0, "queue/ada  done")
	postern(t, table, "pause", "queues/ada").want(t, 0, "it was so already")
	postern(t, table, "ls", "queues").want(t, 0, "paused")
	do(0, "resume", "queues/ada")
	worker.Unscript()
	worker.Script(remotetest.Match{Op: "dispatch"}, remotetest.Done(true))
	do(0, "retry", "p-1")
	postern(t, at, "api", "GET", "/transactions/by-uid/p-2?wait=30s").want(t, 0, `"DONE"`)

	// levers that the API refuses
	postern(t, table, "cancel", "p-1").want(t, 1, "DONE already")
	r := postern(t, at, "cancel", "p-1", "nobody", "-o", "json")
	r.want(t, 1, "2 of 2 refused", `"code":"wrong_state"`, `"code":"not_found"`)
	postern(t, at, "redrive", "p-1").want(t, 1)
	postern(t, at, "abandon", "p-1").want(t, 2, "reason")
	postern(t, at, "pause", "p-1").want(t, 2, "there is no pause of transactions")
	postern(t, at, "show", "queues/nowhere").want(t, 1, "next: ")
	postern(t, at, "post", "NOBODY").want(t, 1, "next: postern api PUT /dispatchers/")
	postern(t, at, "post", "HELLO", "--data", "{").want(t, 2, "no JSON")
	postern(t, at, "post", "HELLO", "--not-before", "soon").want(t, 2, "2026-")
	postern(t, at, "post", "HELLO", "--tag", "x").want(t, 2, "K=V")
	if r := postern(t, at, "api", "GET", "/nothing"); strings.Count(r.stderr, "there is nothing") != 1 || r.code != 1 {
		t.Errorf("a refusal is told once: %d %s", r.code, r.stderr)
	}

	// lists
	var page struct{ Items []struct{ UID string } }
	if err := json.Unmarshal([]byte(do(0, "ls", "state=DONE", "order=asc", "-o", "json").stdout),
		&page); err != nil || len(page.Items) != 3 || page.Items[0].UID != "h-1" {
		t.Errorf("%+v, %v", page, err)
	}
	postern(t, table, "ls", "transactions", "state=DONE", "limit=1").want(t, 0, "p-2", "more: postern ls transactions limit=1 state=DONE cursor=")
	postern(t, table, "ls", "state=FAILED").want(t, 0, "no transactions since")
	postern(t, table, "ls", "senders").want(t, 0, "no senders")
	postern(t, at, "ls", "colour=red").want(t, 2, "want queue, type, state")
	postern(t, at, "ls", "things").want(t, 2, "dispatchers, ")

	// names that were mistyped
	postern(t, at, "list", "quues").want(t, 2, "did you mean queues?")
	postern(t, at, "ls", "qeue=ada").want(t, 2, "did you mean queue?")
	postern(t, at, "queues").want(t, 0, "ada")
	postern(t, at, "transactions", "state=DONE").want(t, 0, "h-1")
	postern(t, at, "get", "h-1").want(t, 0, "DONE")
	postern(t, at, "submit", "HELLO", "--uid", "h-2").want(t, 0)
	postern(t, at, "submit", "HELO").want(t, 1, "did you mean `HELLO`?")
	postern(t, at, "show", "queues/adda").want(t, 1, "did you mean `queues/ada`?")
	postern(t, at, "pause", "types/HELLO", "--reason", "a look at it").want(t, 0, "types/HELLO  done")
	postern(t, at, "shwo", "h-1").want(t, 2, "did you mean `postern show`?")
	postern(t, at, "ls", "--uri", "x").want(t, 2, "did you mean `--url`?")
	postern(t, at, "ls", "--limit", "5").want(t, 2, "did you mean `postern ls limit=VALUE`?")
	postern(t, at, "show").want(t, 2, "postern show wants ID|UID|NOUN/NAME")
	postern(t, at, "post", "HELLO", "--wait", "10").want(t, 2, `--wait is "10": want a duration with its unit`)
	postern(t, at, "block", "senders/x", "--for", "10").want(t, 2, `--for is "10"`)
	postern(t, at, "api", "GTE", "/limits").want(t, 2, "did you mean GET?")

	// the shell
	postern(t, at, "__complete", "show", "queues/").want(t, 0, "queues/ada")
	postern(t, at, "__complete", "ls", "").want(t, 0, "senders", "state=")
	postern(t, at, "__complete", "post", "").want(t, 0, "HELLO")
	for _, shell := range []string{"bash", "zsh", "fish"} {
		postern(t, nil, "completion", shell).want(t, 0, "postern")
	}
}

func TestWhoWatchesSeesWhatChanges(t *testing.T) {
	t.Parallel()
	at := installation(t)
	p := start(t, append(at, "POSTERN_OUTPUT=json"), "ls", "queues", "--watch", "--every", "100ms")
	if l := p.line(); !strings.Contains(l, `"items":[]`) {
		t.Errorf("at first there is %s", l)
	}
	postern(t, at, "api", "PUT", "/queues/ada", "-d", "{}").want(t, 0)
	if l := p.line(); !strings.Contains(l, `"ada"`) {
		t.Errorf("then there is %s", l)
	}
	p.signal(syscall.SIGINT)
	if code := p.wait(); code != 0 {
		t.Errorf("Ctrl-C ends it with %d", code)
	}
}

func TestAClientSaysWhereItLookedAndAsWhom(t *testing.T) {
	t.Parallel()
	postern(t, nil, "ls", "--url", "http://127.0.0.1:1").want(t, 3, "127.0.0.1:1", "next: start `postern serve`")
	postern(t, nil, "post", "X", "--url", "http://127.0.0.1:1").want(t, 3, "next: start `postern serve`")
	postern(t, nil, "ls", "--url", "localhost").want(t, 2, "want http://host:port")
	postern(t, nil, "ls", "--api-key-file", "/nowhere").want(t, 2, "API key")

	asked := make(chan http.Header, 4)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Header
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusServiceUnavailable)
		w.Write([]byte(`{"code": "database_unavailable", "status": 503, "retryable": true, "retry_after": 2, "detail": "the database does not answer", "title": "", "type": ""}`))
	}))
	defer s.Close()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("postern_a_b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env, args     []string
		key, context_ string
	}{
		{[]string{"POSTERN_API_KEY=postern_c_d", "POSTERN_CONTEXT=shop"}, nil, "Bearer postern_c_d", "shop"},
		{[]string{"POSTERN_API_KEY=postern_c_d"}, []string{"--api-key-file", key, "--context", "other"}, "Bearer postern_a_b", "other"},
		{[]string{"POSTERN_API_KEY_FILE=" + key}, nil, "Bearer postern_a_b", ""},
		{nil, nil, "", ""},
	} {
		postern(t, append(c.env, "POSTERN_URL="+s.URL), append([]string{"ls"}, c.args...)...).want(t, 3, "the database does not answer", "next: run it again in 2 s")
		if h := <-asked; h.Get("Authorization") != c.key || h.Get("Postern-Context") != c.context_ || !strings.HasPrefix(h.Get("User-Agent"), "postern-cli/") {
			t.Errorf("%v %v: %v", c.env, c.args, h)
		}
	}
}

func TestTablesFit80Columns(t *testing.T) {
	long := strings.Repeat("abcdefghij", 20)
	rows := map[string]record{
		"transactions": {"uid": "0193f0e1-7a2b-8c3d-9e4f-123456789012", "queue": long, "type": long, "state": "DISPATCHING", "attempt": json.Number("12"),
			"received_at": "2020-01-01T00:00:00Z", "next_at": "2050-01-01T00:00:00Z", "error": map[string]any{"code": long, "message": long + "\x1b[2J"}},
		"queues": {"name": long, "state": "WAITING_INCLUSION", "paused": true, "draining": true, "depth": json.Number("1000000000"), "head": map[string]any{"state": "DISPATCHING",
			"since": "2020-01-01T00:00:00Z"}, "next_at": "2050-01-01T00:00:00Z", "sender": long, "node": long},
		"senders": {"account": long, "pool": long, "state": "WAITING_INCLUSION", "paused": true, "draining": true, "queue": long, "bound_since": "2020-01-01T00:00:00Z",
			"blocked_until": nil, "block_reason": long, "last_used_at": "2020-01-01T00:00:00Z"},
		"pools": {"name": long, "paused": true, "free": json.Number("10000"), "bound": json.Number("10000"), "blocked": json.Number("10000"), "waiting": json.Number("10000"), "after_failure": "keep"},
		"dispatchers": {"type": long, "worker_url": long, "pool": long, "slots": json.Number("10000"), "exclusive": long, "paused": true,
			"gate": map[string]any{"until": "2050-01-01T00:00:00Z", "reason": long}},
		"nodes": {"name": long, "state": "silent", "draining": true, "queues": json.Number("10000"), "heartbeat_at": "2020-01-01T00:00:00Z", "started_at": "2020-01-01T00:00:00Z",
			"epoch": json.Number("1000"), "version": long},
		"contexts": {"name": long, "state": "removed", "paused": true, "max_depth": json.Number("1000000000"), "require_key": true, "declared_queues": false},
		"api-keys": {"id": "0123456789abcdef", "name": long, "role": "executor", "only": map[string]any{"queues": []any{long}}, "expires_at": "2050-01-01T00:00:00Z",
			"last_used_at": "2020-01-01T00:00:00Z"},
		"domains": {"name": long, "state": "Quarantined", "mode": "ENDORSER", "self": long, "coordinator": "Observing",
			"height": "1000000000", "service_url": long},
		"intents": {"id": "0193f0e1-7a2b-8c3d-9e4f-123456789012", "uid": long, "party": long,
			"state": "EndorsementGathering", "created_at": "2020-01-01T00:00:00Z",
			"receipt": map[string]any{"outcome": "success", "text": long}},
		"works": {"intent": "0193f0e1-7a2b-8c3d-9e4f-123456789012", "node": long, "state": "Endorsement_Gathering",
			"since": "2020-01-01T00:00:00Z", "generation": "1000000000", "hash": long},
		"processors": {"name": long, "state": "running", "high": json.Number("100000"), "med": json.Number("100000"), "executing": true,
			"pending_callbacks": json.Number("10000"), "starving": map[string]any{"queue": "Med"}, "tick_interval": "1m30s", "owner": long},
		"batches": {"id": json.Number("1000000000"), "priority": "High", "state": "Waiting_Callback", "index": json.Number("100"), "retries": json.Number("1000"),
			"created_at": "2020-01-01T00:00:00Z", "cooldown_until": "2050-01-01T00:00:00Z", "label": long, "result": map[string]any{"kind": "partially_executed", "reason": long}},
		"sources": {"name": long, "kind": "postgres_table", "state": "stopped", "lag_seconds": json.Number("1000000"), "failures": json.Number("1000"),
			"next_at": "2050-01-01T00:00:00Z", "last_error": long},
		"events": {"id": "0193f0e1-7a2b-8c3d-9e4f-123456789012", "source": long, "tool": long, "status": "Successful", "retried": json.Number("100"),
			"created_at": "2020-01-01T00:00:00Z", "error": map[string]any{"code": long, "message": long}},
		"channels": {"name": long, "kind": "integrity", "state": "blocked", "blocked": true, "blocked_until": "2050-01-01T00:00:00Z", "queued": json.Number("100000"),
			"offered": json.Number("1000"), "active": json.Number("1000"), "dropped": json.Number("1000"), "block_reason": long},
		"tools": {"fqn": long, "health": map[string]any{"state": "unreachable", "checked_at": "2020-01-01T00:00:00Z", "last_error": long}, "timeout": "1m30s",
			"url": long, "refresh_error": long},
		"machines": {"name": long, "follows": long},
		"attempts": {"attempt": json.Number("12"), "started_at": "2020-01-01T00:00:00Z",
			"worker_ms": json.Number("31000"), "class": "transient",
			"late": true, "sender": long, "fee": long, "nonce": long, "node": long, "hash": long,
			"error": map[string]any{"code": long, "message": long}},
		"history": {"at": "2020-01-01T00:00:00Z", "event": "Completed", "to": "WAITING_INCLUSION", "by": long,
			"detail": long},
		"audit": {"at": "2020-01-01T00:00:00Z", "actor": long, "action": "pause", "object": long, "via": "http",
			"request_id": long, "reason": long},
		"subscriptions": {"name": long, "kind": "webhook", "enabled": true, "pending": json.Number("100000"),
			"failing_since": "2020-01-01T00:00:00Z",
			"cursor":        long, "url": long, "disabled_reason": long},
		"deliveries": {"id": "0193f0e1-7a2b-8c3d-9e4f-123456789012", "event": "transaction.unresolved",
			"state": "pending", "tries": json.Number("12"),
			"created_at": "2020-01-01T00:00:00Z", "next_at": "2050-01-01T00:00:00Z", "subscription": long,
			"transaction": long, "cursor": long, "error": long},
		"jobs": {"id": "0193f0e1-7a2b-8c3d-9e4f-123456789012", "ref": json.Number("1"), "uid": long,
			"status":      "dispatched",
			"script_type": "python", "runner": long, "tries": json.Number("12"), "created_at": "2020-01-01T00:00:00Z",
			"flow": "0193f0e1-7a2b-8c3d-9e4f-123456789012", "error": map[string]any{"code": long, "message": long}},
		"flows": {"id": "0193f0e1-7a2b-8c3d-9e4f-123456789012", "ref": json.Number("1"), "status": "dispatched",
			"job_count": json.Number("1000"), "created_at": "2020-01-01T00:00:00Z",
			"error": map[string]any{"code": long, "message": long}},
		"messages": {"id": "0193f0e1-7a2b-8c3d-9e4f-123456789012", "ref": json.Number("1"), "status": "acknowledged",
			"message_type": "result", "from": long, "to": map[string]any{"context": long}, "caller_id": long,
			"created_at": "2020-01-01T00:00:00Z", "deadline": "2050-01-01T00:00:00Z",
			"error": map[string]any{"code": long, "message": long}},
		"runners": {"name": long, "state": "live", "slots": json.Number("4"), "held": json.Number("4"),
			"seen_at": "2020-01-01T00:00:00Z", "script_types": []any{"python", "osis"}},
		"peers": {"name": long, "url": long, "installation": "0123456789abcdef01234567",
			"met_at": "2020-01-01T00:00:00Z",
			"refuses": map[string]any{
				"since": "2020-01-01T00:00:00Z", "code": "peer_unauthenticated", "message": long,
			}},
		"others": {"name": long, "a": "short", "b": long, "c": json.Number("1"), "d": map[string]any{"x": "y"}},
	}
	for noun := range layouts {
		if rows[noun] == nil {
			t.Errorf("%s are listed, but not tried here", noun)
		}
	}
	for noun, r := range rows {
		var b bytes.Buffer
		p := paper{width: 80}
		p.table(&b, columnsOf(noun, []record{r}), []record{r})
		if id := r.text("id"); id != "" && !strings.Contains(b.String(), id) {
			t.Errorf("the id of one of %s is cut:\n%s", noun, &b)
		}
		p.record(&b, r)
		for l := range strings.Lines(b.String()) {
			alone := len(strings.Fields(l)) == 1 // a name that is longer than the paper is not cut: it has a line of its own
			if n := utf8.RuneCountInString(strings.TrimSuffix(l, "\n")); n > 80 && !alone ||
				strings.ContainsRune(l, '\x1b') {
				t.Errorf("%s: %d columns: %q", noun, n, l)
			}
		}
		b.Reset()
		paper{}.table(&b, columnsOf(noun, []record{r}), []record{r})
		if lines := strings.Count(b.String(), "\n"); lines != 2 {
			t.Errorf("in a pipe a row of %s is one line, not %d:\n%s", noun, lines-1, &b)
		}
	}
	why := record{"summary": long, "blockers": []any{map[string]any{"kind": "retry_delay", "object": "/transactions/" + long, "since": "2020-01-01T00:00:00Z",
		"detail": long + " " + long, "next": map[string]any{"at": "2050-01-01T00:00:00Z", "what": long}, "lane": map[string]any{"kind": "dispatcher", "name": long},
		"levers": []any{map[string]any{"method": "POST", "path": "/transactions/x/retry"}, map[string]any{"method": "PUT", "path": "/dispatchers/" + long}}}}}
	var b bytes.Buffer
	printWhy(&b, paper{width: 80}, why, "", time.Now())
	for l := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(l, "\n")); n > 80 && !strings.HasPrefix(l, "   lever ") {
			t.Errorf("why: %d columns: %q", n, l)
		}
	}
	if !strings.Contains(b.String(), "postern retry x") || !strings.Contains(b.String(), "postern api PUT") {
		t.Errorf("levers are told as commands:\n%s", &b)
	}
	var plain, coloured bytes.Buffer
	row := []record{{"uid": "a", "state": "FAILED"}}
	paper{width: 80}.table(&plain, layouts["transactions"], row)
	paper{width: 80, colours: true}.table(&coloured, layouts["transactions"], row)
	if strings.Contains(plain.String(), "\x1b") || !strings.Contains(coloured.String(), "\x1b[31mFAILED\x1b[0m") {
		t.Errorf("%q %q", plain.String(), coloured.String())
	}
}
