package httpapi_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/httpapi"
)

// closedDoor is a server without development mode, and a key of an admin of system.
func closedDoor(t *testing.T, change ...func(*httpapi.Config)) (*door, string) {
	t.Helper()
	d := newDoor(t, append(change, func(c *httpapi.Config) { c.Auth = "required" })...)
	const key = "postern_bootstra_0123456789012345678901234567890123456789012"
	prefix, hash, ok := httpapi.ParseKey(key)
	if !ok {
		t.Fatal("the key of the test is none")
	}
	if stored, err := d.store.Actors.BootstrapKey(t.Context(), prefix, hash); err != nil || !stored {
		t.Fatal(stored, err)
	}
	return d, "Authorization: Bearer " + key
}

// key makes an API key and returns its header and its actor.
func (d *door) key(root, in, role string, only ...string) (header, actor, id string) {
	d.t.Helper()
	body, _ := json.Marshal(map[string]any{"name": role, "role": role, "only": only})
	a := d.want(201, "POST", "/api-keys", string(body), root, "Postern-Context: "+in)
	return "Authorization: Bearer " + a.str("secret"), a.str("actor"), a.str("id")
}

func TestEveryOperationStandsInTheTableOfAccess(t *testing.T) {
	missing, gone := httpapi.AccessDiffers()
	if len(missing) > 0 {
		t.Errorf("say in internal/httpapi/base_access.go who may do these: %s", strings.Join(missing, ", "))
	}
	if len(gone) > 0 {
		t.Errorf("internal/httpapi/base_access.go lists what is no operation: %s", strings.Join(gone, ", "))
	}
}

// who names a caller of the matrix, and what it may do.
type who struct {
	name    string
	headers []string
	level   int
	only    []string
	owns    bool // it posted the transaction, or the intent, that it asks about
	foreign bool // its role is one in another context

	key     ed25519.PrivateKey // it signs its requests
	creates bool               // it made the flow that it asks about
}

// ofCreator says whether a flow is changed or started so, which its creator alone may do.
func ofCreator(op string) bool {
	return slices.Contains([]string{
		"PATCH /flows/{id}", "POST /flows/{id}/start", "POST /flows/{id}/jobs", "DELETE /flows/{id}/jobs/{ref}",
	}, op)
}

const (
	none = iota
	any1
	reads
	executes
	administers
	system
)

// processorPosts hand work to a processor.
var processorPosts = []string{"/processors/{name}/batches", "/processors/{name}/insert", "/processors/{name}/callbacks/{id}", "/authorizations/{label}/send"}

// runnerCalls are what runners and receivers ask and tell, what they were told, and how somebody meets a prerequisite.
var runnerCalls = []string{
	"/jobs/{id}/prerequisites", "/jobs/{id}/replay",
	"/runners/{name}/register", "/runners/{name}/claim", "/runners/{name}/renew",
	"/tries/{id}/log", "/tries/{id}/finish", "/tries/{id}/fail",
	"/messages:receive", "/messages/{id}/ack", "/messages/{id}/processed", "/messages/{id}/reply",
	"/messages/{id}/reject",
}

// jobPosts make jobs, or messages, which may make some.
var jobPosts = []string{"/messages", "/jobs", "/flows", "/flows/{id}/jobs", "/flows/{id}/redrive"}

// intentPosts make intents, and intentLevers are what those who post may do with them.
var (
	intentPosts  = []string{"/domains/{name}/intents", "/domains/{name}/intents:batch"}
	intentLevers = []string{"/domains/{name}/intents/{id}/resume", "/domains/{name}/intents/{id}/cancel"}
)

// leastFor says by the path alone who may do something: the rows of the design, not the table of the code.
func leastFor(method, path string) (least int, own bool) {
	switch {
	case path == "/livez" || path == "/readyz",
		strings.HasPrefix(path, "/contexts/{context}/processors/{name}/peers/{peer}/"), // these are signed
		strings.HasPrefix(path, "/contexts/{context}/peers/{peer}/"):
		return none, false
	case path == "/machines", path == "/machines/{name}", path == "/limits", path == "/walks:validate":
		return any1, false
	case method == "GET" && (path == "/contexts" || path == "/actors/{id}"):
		return any1, false
	case slices.Contains([]string{"GET /identity", "PATCH /actors/{id}", "POST /actors/{id}/keys",
		"DELETE /actors/{id}/keys/{key}"}, method+" "+path): // its own, where it names an actor
		return any1, false
	case ofSystem(path), method == "DELETE" && path == "/contexts/{name}":
		return system, false
	case strings.HasPrefix(path, "/api-keys"), strings.HasPrefix(path, "/audit"):
		return administers, false
	case method == "GET":
		return reads, false
	case path == "/processors/{name}/tick", path == "/authorizations/{label}/executions/{id}/retry":
		return reads, false
	case path == "/transactions" || path == "/transactions:batch" || path == "/events" || path == "/subscriptions/{name}/ack", strings.HasPrefix(path, "/channels/{name}/messages"), path == "/channels/{name}/receive", slices.Contains(processorPosts, path):
		return executes, false
	case method == "POST" && slices.Contains(runnerCalls, path):
		return executes, false
	case slices.Contains(intentPosts, path):
		return executes, false
	case slices.Contains(intentLevers, path):
		return executes, true
	case slices.Contains([]string{"/processors/{name}/evict", "/processors/{name}/pause", "/processors/{name}/resume"}, path):
		return executes, false
	case slices.Contains([]string{"/transactions/{id}/cancel", "/transactions/{id}/retry", "/transactions/{id}/redrive"}, path):
		return executes, true
	}
	return administers, false
}

// wanted is the status of a refusal, 0 for none.
func (w who) wanted(method, path string) int {
	least, own := leastFor(method, path)
	inContext := !ofSystem(path) && least > any1
	verb := "operate"
	if method == "GET" {
		verb = "read"
	} else if path == "/transactions" || path == "/transactions:batch" || path == "/events" || (path == "/channels/{name}/messages" || slices.Contains(processorPosts, path)) && method == "POST" {
		verb = "post"
	} else if method == "POST" && (slices.Contains(jobPosts, path) || slices.Contains(intentPosts, path)) {
		verb = "post"
	}
	switch {
	case least == none:
		return 0
	case w.level == none:
		return 401
	case w.foreign && inContext:
		return 404
	case w.foreign && least > any1, w.level < least:
		return 403
	case len(w.only) > 0 && !slices.Contains(w.only, verb):
		return 403
	case own && w.level == executes && !w.owns:
		return 403
	}
	return 0
}

// ofSystem says whether a path is about the whole installation.
func ofSystem(path string) bool {
	return slices.ContainsFunc([]string{"/actors", "/nodes", "/quarantine", "/identity"}, func(p string) bool { return strings.HasPrefix(path, p) })
}

// TestWhoMayDoWhat tries every operation of the contract as everybody.
func TestWhoMayDoWhat(t *testing.T) {
	d, root := closedDoor(t)
	for _, name := range []string{"shop", "other"} {
		d.want(201, "PUT", "/contexts/"+name, `{}`, root)
	}
	in := "Postern-Context: shop"
	d.want(201, "PUT", "/dispatchers/pay", `{"worker_url": "http://127.0.0.1:1/"}`, root, in)
	d.want(201, "PUT", "/senders/acct", `{"pool": "crew"}`, root, in)
	d.want(201, "PUT", "/queues/line", `{}`, root, in)
	actor := d.want(201, "POST", "/actors", `{}`, root).str("id")
	d.want(200, "PUT", "/contexts/shop/members/"+actor, `{"roles": ["reader"]}`, root)

	everybody := []who{{name: "nobody"}}
	add := func(name, in, role string, level int, only ...string) *who {
		header, _, _ := d.key(root, in, role, only...)
		everybody = append(everybody, who{name: name, headers: []string{header, "Postern-Context: shop"}, level: level, only: only, foreign: in == "other"})
		return &everybody[len(everybody)-1]
	}
	poster := add("executor", "shop", "executor", executes)
	poster.owns = true
	posted := d.want(201, "POST", "/transactions", `{"type": "pay", "queue": "line", "uid": "order-1"}`, poster.headers...)
	d.want(201, "PUT", "/domains/tok", `{"types": ["pay"], "service_url": "http://127.0.0.1:1"}`, root, in)
	intent := d.want(201, "POST", "/domains/tok/intents", `{"party": "ann", "data": 1}`, poster.headers...)
	d.want(201, "POST", "/domains/tok/intents", `{"party": "ann", "data": 2}`, root, in) // it keeps the domain
	add("another executor", "shop", "executor", executes)
	add("reader", "shop", "reader", reads)
	add("foreign admin", "other", "admin", administers)
	add("foreign reader", "other", "reader", reads)
	add("admin who may read", "shop", "admin", administers, "read")
	add("admin who may post", "shop", "admin", administers, "post")
	add("admin who may operate", "shop", "admin", administers, "operate")
	add("poster who may read", "shop", "executor", executes, "read", "post")
	add("admin", "shop", "admin", administers)
	everybody = append(everybody, d.signers(root)...)
	everybody = append(everybody, who{name: "system admin", headers: []string{root, in}, level: system})
	_, _, victim := d.key(root, "shop", "reader", "operate") // so that who may operate may be shown its secret

	creator := everybody[slices.IndexFunc(everybody, func(w who) bool { return w.creates })]
	job, flow := d.foreignThings(root, creator.key)

	fill := func(path string) string {
		noun := strings.Split(path, "/")[1]
		names := map[string]string{"queues": "line", "pools": "crew", "contexts": "shop", "machines": "queue",
			"domains": "tok"}
		ids := map[string]string{
			"transactions": posted.str("id"), "actors": actor, "api-keys": victim, "jobs": job, "flows": flow,
			"domains": intent.str("id"),
		}
		return strings.NewReplacer("{name}", names[noun]+map[bool]string{true: "x"}[names[noun] == ""], "{id}", ids[noun]+map[bool]string{true: "x"}[ids[noun] == ""],
			"{uid}", "order-1", "{account}", "acct", "{context}", "shop", "{peer}", "near", "{type}", "pay", "{actor}", actor, "{fqn}", "xyz.labs.add@1").Replace(path)
	}
	cells := 0
	for _, w := range everybody {
		for _, op := range operations(t, d) {
			method, path, _ := strings.Cut(op, " ")
			body := ""
			if method != "GET" && method != "DELETE" {
				body = `{}`
			}
			headers := w.headers
			if w.key != nil {
				headers = d.signed(w.key, method, fill(path), body, headers...)
			}
			status, code := d.status(method, fill(path), body, headers...)
			want := w.wanted(method, path)
			if want == 0 && !w.creates && ofCreator(op) && status == 403 {
				want = 403
			}
			if strings.HasPrefix(op, "POST /contexts/{context}/peers/{peer}/") {
				want = 401 // a door believes the secret of the peer alone, whatever else is shown
			}
			wantCode := map[int]string{401: "unauthenticated", 403: "forbidden", 404: "not_found"}[want]
			if cells++; want != 0 && (status != want || code != wantCode) || want == 0 && (status == 401 || status == 403 || status >= 500 && path != "/readyz") {
				t.Errorf("%s: %s answered %d %s, want %d", w.name, op, status, code, want)
			}
		}
	}
	if cells < 2500 {
		t.Errorf("only %d cells", cells)
	}
	// a foreign admin that asks in its own context does not find the things of shop either
	find := func(name string) who {
		return everybody[slices.IndexFunc(everybody, func(w who) bool { return w.name == name })]
	}
	d2, d3 := find("foreign admin").headers[0], find("signed foreign admin").key
	d.noForeignLevers(d3, "/transactions/"+posted.str("id"), "/jobs/"+job, "/flows/"+flow)
	for _, op := range operations(t, d) {
		method, path, _ := strings.Cut(op, " ")
		if method != "GET" || !strings.Contains(path, "{") || strings.HasPrefix(path, "/machines") || strings.HasPrefix(path, "/nodes") || strings.HasSuffix(path, "/health") { // these are in no context
			continue
		}
		for _, headers := range [][]string{{d2}, d.signed(d3, method, fill(path), "")} {
			if status, code := d.status(method, fill(path), "", headers...); status != 404 {
				t.Errorf("a foreign admin: %s answered %d %s", op, status, code)
			}
		}
	}
}

// operations lists "METHOD /path" of the contract, in one order.
func operations(t *testing.T, d *door) []string {
	t.Helper()
	a := d.want(200, "GET", "/openapi.json", "")
	var list []string
	for path, item := range a.body["paths"].(map[string]any) {
		for method := range item.(map[string]any) {
			list = append(list, strings.ToUpper(method)+" "+path)
		}
	}
	slices.SortFunc(list, func(a, b string) int { // deletes last: others need what they take away
		del := func(s string) int { return map[bool]int{true: 1}[strings.HasPrefix(s, "DELETE")] }
		if n := del(a) - del(b); n != 0 {
			return n
		}
		return strings.Compare(a, b)
	})
	return list
}

// status asks and reads no more than a problem, so that a stream ends too.
func (d *door) status(method, path, body string, headers ...string) (status int, code string) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, d.url+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	for _, h := range headers {
		k, v, _ := strings.Cut(h, ": ")
		req.Header.Set(k, v)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		d.t.Fatal(fmt.Errorf("%s %s: %w", method, path, err))
	}
	defer res.Body.Close()
	if strings.HasPrefix(res.Header.Get("Content-Type"), "application/problem") {
		var p struct{ Code string }
		_ = json.NewDecoder(res.Body).Decode(&p)
		code = p.Code
	}
	return res.StatusCode, code
}
