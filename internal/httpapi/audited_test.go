package httpapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/httpapi"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// noLever are the operations that are not pulled here, with the reason.
var noLever = map[string]string{
	"POST /transactions":             "a transaction keeps who posted it",
	"POST /transactions:batch":       "so do these",
	"POST /subscriptions/{name}/ack": "a consumer's checkpoint, moved all the time",
	"POST /dispatchers/{type}/check": "it changes nothing",
	"POST /walks:validate":           "it changes nothing",
	"POST /apply":                    "as each PUT",

	"POST /processors/{name}/batches":                                         "a post: the batch keeps who sent it",
	"POST /processors/{name}/insert":                                          "so does this one",
	"POST /authorizations/{label}/send":                                       "and this one",
	"POST /processors/{name}/tick":                                            "anybody may, all the time; the batch keeps what came of it",
	"POST /authorizations/{label}/executions/{id}/retry":                      "anybody may; the history of the batch has it",
	"POST /processors/{name}/callbacks/{id}":                                  "the answer to a batch, which keeps it",
	"POST /contexts/{context}/processors/{name}/peers/{peer}/dispatch/{type}": "a post: the batch keeps which peer sent it",
	"POST /contexts/{context}/processors/{name}/peers/{peer}/status/{type}":   "a question",

	"PUT /processors/{name}/height": "a reading of the chain",

	"POST /peers/{name}/check":                       "a question to the peer, whose answer it shows",
	"POST /contexts/{context}/peers/{peer}/hello":    "a question",
	"POST /contexts/{context}/peers/{peer}/follow":   "a question",
	"POST /contexts/{context}/peers/{peer}/coord":    "a domain keeps the history of what they lead to",
	"POST /contexts/{context}/peers/{peer}/messages": "a message keeps which peer brought it",
	"PUT /domains/{name}/height":                     "a reading of the chain",
	"POST /domains/{name}/intents":                   "an intent keeps who posted it",
	"POST /domains/{name}/intents:batch":             "so do these",
	"POST /domains/{name}/release":                   "so does it of this: its store must have lost something",
	"POST /domains/{name}/intents/{id}/release":      "internal/pg/domains reads its audit row: a permit must be open",

	"POST /tools/{fqn}/check":  "a question to the tool, whose answer it shows",
	"POST /tools/{fqn}/invoke": "it records nothing",

	"POST /events":             "a post: its history names who brought it",
	"POST /events:redrive":     "as POST /events/{id}/redrive, for many",
	"POST /jobs":               "a job keeps who posted it",
	"POST /jobs/{id}/replay":   "internal/app reads its audit row: a runner must have held it",
	"POST /flows":              "so does a flow",
	"POST /flows/{id}/jobs":    "so do these",
	"POST /flows/{id}/redrive": "a post of another flow",
	"POST /flows:validate":     "it changes nothing",

	"POST /runners/{name}/register": "a runner is known by its epoch",
	"POST /runners/{name}/claim":    "the tries that it is handed keep which runner has them",
	"POST /runners/{name}/renew":    "a heartbeat",
	"POST /tries/{id}/log":          "the output of a try",
	"POST /tries/{id}/finish":       "the try keeps it",
	"POST /tries/{id}/fail":         "the try keeps it",

	"POST /messages":                "a message keeps who sent it",
	"POST /messages:receive":        "the history of the message has it",
	"POST /messages/{id}/ack":       "likewise",
	"POST /messages/{id}/processed": "likewise",
	"POST /messages/{id}/reply":     "likewise",
	"POST /messages/{id}/reject":    "likewise",

	"POST /channels/{name}/messages":           "a message, of which its channel keeps a record",
	"POST /channels/{name}/receive":            "likewise",
	"POST /channels/{name}/messages/{id}/ack":  "likewise",
	"POST /channels/{name}/messages/{id}/nack": "likewise",
}

// pulled is one lever: the state in which it is pulled, and the records that it leaves behind.
type pulled struct {
	arrange func() (path string)       // the object, or where it is made
	body    string                     // without the reason
	object  string                     // of the audit row, below what arrange returns
	action  string                     // in the audit row, else the last word of the path, or the method
	below   string                     // the object is called so there
	whole   string                     // the object, whatever the path
	tells   func(path string) []string // paths that must name actor and reason, too: history, why
}

// TestEveryLeverLeavesWhoWhenAndWhy pulls every lever of the contract: an operation that is added fails here until it
// is pulled too.
func TestEveryLeverLeavesWhoWhenAndWhy(t *testing.T) {
	l := newLevers(t)
	table := map[string]pulled{}
	for _, rows := range []map[string]pulled{
		l.ofTransactionsAndQueues(),
		l.ofSendersAndTypes(),
		l.ofSubscriptionsAndProcessors(),
		l.ofPeers(),
		l.ofDomains(),
		l.ofEvents(),
		l.ofJobs(),
		l.ofContextsAndActors(),
	} {
		maps.Copy(table, rows)
	}
	many := map[string]func() string{
		"cancel":       l.waiting,
		"retry":        l.retrying,
		"redrive":      l.failed,
		"suspend":      l.waiting,
		"resume":       l.suspended,
		"move":         l.behind,
		"was-done":     l.holding,
		"was-not-done": l.holding,
	}
	doc := l.want(200, "GET", "/openapi.json", "").body
	for _, op := range operations(t, l.door) {
		method, path, _ := strings.Cut(op, " ")
		if method == "GET" || noLever[op] != "" {
			continue
		}
		p, ok := table[op]
		verb, bulk := strings.CutPrefix(path, "/transactions:")
		if arrange := many[verb]; bulk && arrange != nil {
			p = pulled{arrange: arrange, action: verb, tells: history}
		} else if !ok {
			t.Errorf("%s is not pulled here: say how, or why it leaves nothing", op)
			continue
		}
		l.pull(doc, op, p, bulk)
	}
}

// pull pulls one lever, and looks for who, when and why in the records that it leaves.
func (l *levers) pull(doc map[string]any, op string, p pulled, bulk bool) {
	l.t.Helper()
	method, path, _ := strings.Cut(op, " ")
	verb := strings.TrimPrefix(path, "/transactions:")
	at := p.arrange()
	body := map[string]any{}
	if p.body != "" {
		if err := json.Unmarshal([]byte(p.body), &body); err != nil {
			l.t.Fatal(err)
		}
	}
	send, object, reason := at, at+p.object, ""
	if bulk {
		send, body["ids"] = path, []string{strings.TrimPrefix(at, "/transactions/")}
		if verb == "move" {
			body["place"] = "head"
		}
	} else if method == "POST" && strings.Contains(path, "{") {
		send += path[strings.LastIndex(path, "/"):]
	}
	if reason = "because of " + op; takesReason(doc, method, path) {
		body["reason"] = reason
	} else if method == "POST" && (bulk || strings.Contains(path, "{")) {
		l.t.Errorf("%s takes no reason in its body", op)
	} else {
		send += "?reason=" + url.QueryEscape(reason)
	}
	raw, _ := json.Marshal(body)
	begun := time.Now()
	headers := []string{"Postern-Context: default"}
	switch method {
	case "DELETE":
		raw = nil
	case "PATCH":
		headers = append(headers, "If-Match: "+l.want(200, "GET", at, "").header.Get("ETag"))
	}
	if takesMatch(doc, method, path) {
		if a := l.call(method, send, string(raw), headers[0], `If-Match: "never"`); a.status != 412 {
			l.t.Errorf("%s answers %d to an If-Match that nothing ever matches: %s", op, a.status, a.raw)
		}
	}
	a := l.call(method, send, string(raw), headers...)
	if a.status >= 300 || a.body["changed"] == false && !slices.Contains([]string{"/senders/acct", hooked}, at) || bulk && a.body["changed"] != 1.0 {
		l.t.Errorf("%s answered %d: %s", op, a.status, a.raw)
		return
	}
	if id := a.str("id"); object == "/actors" || object == "/api-keys" {
		object += "/" + id
	}
	if p.whole != "" {
		object = p.whole
	}
	if p.below != "" {
		object = p.below + object[strings.LastIndex(object, "/"):]
	}
	action := p.action
	if action == "" {
		if action = strings.ToLower(method); method == "POST" {
			action = path[strings.LastIndex(path, "/")+1:]
		}
	}
	var rows []any
	for _, in := range []string{"default", "system", "shop", "new"} { // rows of no other context are kept in system
		if in == "new" && object != "/contexts/new" {
			continue
		}
		rows = append(rows, l.want(200, "GET", "/audit?limit=1&object="+object+"&action="+action, "", "Postern-Context: "+in).body["items"].([]any)...)
	}
	found := slices.ContainsFunc(rows, func(r any) bool {
		v := r.(map[string]any)
		when, err := time.Parse(time.RFC3339, v["at"].(string))
		return v["actor"] == "dev" && v["via"] == "http" && v["reason"] == reason && v["request_id"] == a.header.Get("Postern-Request-Id") &&
			err == nil && when.Sub(begun).Abs() < time.Minute
	})
	if !found {
		l.t.Errorf("%s leaves no row of audit with action %q, object %q, reason %q and its request: %v", op, action, object, reason, rows)
	}
	if p.tells == nil {
		return
	}
	for _, page := range p.tells(at) {
		if told := l.want(200, "GET", page, "").raw; !strings.Contains(told, "dev") || !strings.Contains(told, reason) {
			l.t.Errorf("after %s, %s names neither who nor why: %s", op, page, told)
		}
	}
}

// levers is a door behind which things stand that can be pulled at.
type levers struct {
	*door
	node pg.Node
	n    int // names so far
}

const (
	plant  = "/processors/main"
	sender = "/senders/acct"
	pool   = "/pools/crew"
	pay    = "/dispatchers/pay"
	shopAt = "/contexts/shop"
	hooked = "/subscriptions/hook"

	hook   = `{"kind": "webhook", "url": "http://127.0.0.1:1/", "events": ["transaction.done"]}`
	pushes = `{"kind": "push", "map": {"fqn": "/tool"}}`
)

func newLevers(t *testing.T) *levers {
	d := newDoor(t, callsLoopback(t), func(c *httpapi.Config) { c.Reconcile = c.Store.ReconcileRound })
	l := &levers{door: d, node: d.node()}
	d.dispatcher("pay")
	d.want(201, "PUT", "/senders/acct", `{"pool": "crew"}`)
	d.want(201, "PUT", "/dispatchers/ADD", `{"worker_url": "http://127.0.0.1:9/"}`)
	l.made(plant, `{}`)()
	l.made("/dispatchers/sign", `{"worker_url": "http://127.0.0.1:1/", "pool": "crew"}`)()
	l.made(shopAt, `{}`)()
	return l
}

func (l *levers) name() string { l.n++; return fmt.Sprintf("q-%d", l.n) }

func (l *levers) waiting() string { return "/transactions/" + l.post(l.name(), 1)[0] }

// alone is a transaction that is claimed next, since all others are claimed already.
func (l *levers) alone() string { l.claimAll(l.node); return l.waiting() }

func (l *levers) retrying() string { at := l.alone(); l.answerOne(l.node, failing); return at }

func (l *levers) failed() string { at := l.alone(); l.answerOne(l.node, rejected); return at }

func (l *levers) holding() string { at := l.alone(); l.hold(l.node); return at }

func (l *levers) suspended() string {
	at := l.waiting()
	l.want(200, "POST", at+"/suspend", "")
	return at
}

// behind is a transaction with two before it, in a queue that is paused.
func (l *levers) behind() string {
	ids := l.post(l.name(), 3)
	l.want(200, "POST", "/queues/q-"+fmt.Sprint(l.n)+"/pause", "")
	return "/transactions/" + ids[2]
}

// made returns a function that makes a named thing, pulls some levers on it, and returns its path.
func (l *levers) made(path, body string, also ...string) func() string {
	return func() string {
		if a := l.call("PUT", path, body); a.status != 200 && a.status != 201 {
			l.t.Fatalf("PUT %s: %s", path, a.raw)
		}
		for _, verb := range also {
			l.want(200, "POST", path+"/"+verb, "")
		}
		return path
	}
}

func (l *levers) queue() string {
	at := "/queues/" + l.name()
	l.want(201, "PUT", at, `{}`)
	return at
}

func (l *levers) apart() { l.made("/dispatchers/apart", `{"worker_url": "http://127.0.0.1:1/"}`)() }

// quarantined puts a type into quarantine by the store: the lever would wait for its node, and there is none.
func (l *levers) quarantined() {
	l.apart()
	by, q := db.By{Actor: "test", Via: "test"}, pg.Quarantine{Type: "apart", Reason: "for the test"}
	if err := l.store.EnterQuarantine(l.t.Context(), by, q); err != nil {
		l.t.Fatal(err)
	}
}

func (l *levers) actor() string {
	return "/actors/" + l.want(201, "POST", "/actors", `{}`).str("id")
}

func (l *levers) key() string {
	return "/api-keys/" + l.want(201, "POST", "/api-keys", `{"name": "k", "role": "reader"}`).str("id")
}

func (l *levers) aCap() string {
	l.n++
	return l.made(fmt.Sprintf("/channels/cap-%d", l.n), `{"kind": "cap", "cap": "0x1"}`)()
}

func (l *levers) aDeadEvent() string { return "/events/" + l.deadEvent() }

func (l *levers) aNode() string {
	other := "n-" + l.name()
	if _, err := l.store.Register(l.t.Context(), other, "test", time.Hour); err != nil {
		l.t.Fatal(err)
	}
	return "/nodes/" + other
}

// waits returns a function that posts a transaction, which waits for the thing at path.
func (l *levers) waits(path string) func() string {
	return func() string { l.waiting(); return path }
}

// allowed is an authorization under a label.
func (l *levers) allowed(label string) string {
	return `{"label": "` + label + `", "mode": {"permissioned": {"with_call_limit": {"dev": 1}}}, "duration": {"blocks": 5}, ` +
		`"actions_config": {"non_atomic": {"functions": [` + addFunction + `]}}}`
}

// history, its and last are pages that name actor and reason: the history and the why of the object, and the why of
// the last queue.
func history(at string) []string { return []string{at + "/history"} }

func its(at string) []string { return []string{at + "/why"} }

func (l *levers) last(string) []string { return []string{fmt.Sprintf("/queues/q-%d/why", l.n)} }
