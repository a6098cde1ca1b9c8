package httpapi_test

import (
	"encoding/json"
	"fmt"
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

	"POST /tools/{fqn}/check":  "a question to the tool, whose answer it shows",
	"POST /tools/{fqn}/invoke": "it records nothing",

	"POST /events":                             "a post: its history names who brought it",
	"POST /events:redrive":                     "as POST /events/{id}/redrive, for many",
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
	d := newDoor(t, callsLoopback(t), func(c *httpapi.Config) { c.Reconcile = c.Store.ReconcileRound })
	node, n := d.node(), 0
	d.dispatcher("pay")
	d.want(201, "PUT", "/senders/acct", `{"pool": "crew"}`)
	name := func() string { n++; return fmt.Sprintf("q-%d", n) }
	waiting := func() string { return "/transactions/" + d.post(name(), 1)[0] }
	alone := func() string { d.claimAll(node); return waiting() } // it is what is claimed next
	retrying := func() string { at := alone(); d.answerOne(node, failing); return at }
	failed := func() string { at := alone(); d.answerOne(node, rejected); return at }
	suspended := func() string { at := waiting(); d.want(200, "POST", at+"/suspend", ""); return at }
	behind := func() string {
		ids := d.post(name(), 3)
		d.want(200, "POST", "/queues/q-"+fmt.Sprint(n)+"/pause", "")
		return "/transactions/" + ids[2]
	}
	made := func(path, body string, also ...string) func() string {
		return func() string {
			if a := d.call("PUT", path, body); a.status != 200 && a.status != 201 {
				t.Fatalf("PUT %s: %s", path, a.raw)
			}
			for _, verb := range also {
				d.want(200, "POST", path+"/"+verb, "")
			}
			return path
		}
	}
	queue := func() string { at := "/queues/" + name(); d.want(201, "PUT", at, `{}`); return at }
	apart := func() { made("/dispatchers/apart", `{"worker_url": "http://127.0.0.1:1/"}`)() }
	quarantined := func() { // the lever would wait for its node, which is none
		apart()
		if err := d.store.EnterQuarantine(t.Context(), db.By{Actor: "test", Via: "test"}, pg.Quarantine{Type: "apart", Reason: "for the test"}); err != nil {
			t.Fatal(err)
		}
	}
	actor := func() string { return "/actors/" + d.want(201, "POST", "/actors", `{}`).str("id") }
	key := func() string {
		return "/api-keys/" + d.want(201, "POST", "/api-keys", `{"name": "k", "role": "reader"}`).str("id")
	}
	const hook = `{"kind": "webhook", "url": "http://127.0.0.1:1/", "events": ["transaction.done"]}`
	aCap := func() string { n++; return made(fmt.Sprintf("/channels/cap-%d", n), `{"kind": "cap", "cap": "0x1"}`)() }
	deadEvent := func() string { return "/events/" + d.deadEvent() }
	const pushes = `{"kind": "push", "map": {"fqn": "/tool"}}`
	history := func(at string) []string { return []string{at + "/history"} }
	its := func(at string) []string { return []string{at + "/why"} }
	last := func(string) []string { return []string{fmt.Sprintf("/queues/q-%d/why", n)} }
	waits := func(path string) func() string { return func() string { waiting(); return path } }
	aNode := func() string {
		other := "n-" + name()
		if _, err := d.store.Register(t.Context(), other, "test", time.Hour); err != nil {
			t.Fatal(err)
		}
		return "/nodes/" + other
	}
	const plant = "/processors/main"
	d.want(201, "PUT", "/dispatchers/ADD", `{"worker_url": "http://127.0.0.1:9/"}`)
	made(plant, `{}`)()
	allowed := func(label string) string {
		return `{"label": "` + label + `", "mode": {"permissioned": {"with_call_limit": {"dev": 1}}}, "duration": {"blocks": 5}, "actions_config": {"non_atomic": {"functions": [` + addFunction + `]}}}`
	}
	sender, pool, pay, shop, hooked := "/senders/acct", "/pools/crew", "/dispatchers/pay", "/contexts/shop", "/subscriptions/hook"
	made("/dispatchers/sign", `{"worker_url": "http://127.0.0.1:1/", "pool": "crew"}`)()
	made(shop, `{}`)()

	holding := func() string { at := alone(); d.hold(node); return at }
	table := map[string]pulled{
		"POST /transactions/{id}/cancel":  {arrange: waiting, tells: history},
		"POST /transactions/{id}/retry":   {arrange: retrying, tells: history},
		"POST /transactions/{id}/suspend": {arrange: waiting, tells: func(at string) []string { return append(history(at), its(at)...) }},
		"POST /transactions/{id}/resume":  {arrange: suspended, tells: history},
		"POST /transactions/{id}/move":    {arrange: behind, body: `{"place": "head"}`, tells: history},
		"POST /transactions/{id}/abandon": {arrange: func() string { at := alone(); d.claimOne(node); return at }, tells: history},
		"POST /transactions/{id}/redrive": {arrange: failed, tells: history},

		"POST /transactions/{id}/was-done":     {arrange: holding, tells: history},
		"POST /transactions/{id}/was-not-done": {arrange: holding, tells: history},

		"POST /nodes/{name}/drain":  {arrange: aNode},
		"POST /nodes/{name}/resume": {arrange: func() string { at := aNode(); d.want(202, "POST", at+"/drain", ""); return at }},
		"POST /nodes/{name}/bury":   {arrange: aNode},

		"PUT /queues/{name}":         {arrange: func() string { return "/queues/" + name() }},
		"PATCH /queues/{name}":       {arrange: queue, action: "put"},
		"DELETE /queues/{name}":      {arrange: queue},
		"POST /queues/{name}/pause":  {arrange: func() string { waiting(); return fmt.Sprintf("/queues/q-%d", n) }, tells: its},
		"POST /queues/{name}/resume": {arrange: func() string { at := queue(); d.want(200, "POST", at+"/pause", ""); return at }},
		"POST /queues/{name}/drain":  {arrange: queue},
		"POST /queues/{name}/purge":  {arrange: func() string { waiting(); return fmt.Sprintf("/queues/q-%d", n) }},

		"PUT /senders/{account}":          {arrange: func() string { return "/senders/two" }, body: `{"pool": "crew"}`},
		"PATCH /senders/{account}":        {arrange: made(sender, `{"pool": "crew"}`), action: "put"},
		"DELETE /senders/{account}":       {arrange: made("/senders/three", `{"pool": "crew"}`)},
		"POST /senders/{account}/pause":   {arrange: made(sender, `{"pool": "crew"}`)},
		"POST /senders/{account}/resume":  {arrange: made(sender, `{"pool": "crew"}`, "pause")},
		"POST /senders/{account}/drain":   {arrange: made("/senders/four", `{"pool": "crew"}`)},
		"POST /senders/{account}/block":   {arrange: made(sender, `{"pool": "crew"}`), body: `{"for": "1h"}`},
		"POST /senders/{account}/unblock": {arrange: made(sender, `{"pool": "crew"}`)},

		"PUT /pools/{name}":    {arrange: func() string { return pool }},
		"PATCH /pools/{name}":  {arrange: func() string { return pool }, action: "put"},
		"DELETE /pools/{name}": {arrange: made("/pools/empty", `{}`)},
		"POST /pools/{name}/pause": {arrange: func() string {
			d.want(201, "POST", "/transactions", `{"type": "sign", "queue": "`+name()+`"}`)
			return pool
		}, tells: last},
		"POST /senders/{account}/purge": {arrange: func() string {
			d.want(201, "POST", "/transactions", `{"type": "sign", "queue": "`+name()+`", "sender": "acct"}`)
			return sender
		}},
		"POST /pools/{name}/resume": {arrange: func() string { return pool }},

		"PUT /dispatchers/{type}":         {arrange: func() string { return "/dispatchers/new" }, body: `{"worker_url": "http://127.0.0.1:1/"}`},
		"PATCH /dispatchers/{type}":       {arrange: func() string { return pay }, action: "put"},
		"DELETE /dispatchers/{type}":      {arrange: made("/dispatchers/old", `{"worker_url": "http://127.0.0.1:1/"}`)},
		"POST /dispatchers/{type}/pause":  {arrange: waits(pay), tells: last},
		"POST /dispatchers/{type}/resume": {arrange: func() string { return pay }},

		"POST /dispatchers/{type}/purge": {arrange: waits(pay)},
		"POST /dispatchers/{type}/drain": {arrange: made("/dispatchers/last", `{"worker_url": "http://127.0.0.1:1/"}`)},

		"PUT /subscriptions/{name}":                {arrange: func() string { return "/subscriptions/new" }, body: hook},
		"PATCH /subscriptions/{name}":              {arrange: made(hooked, hook), action: "put"},
		"DELETE /subscriptions/{name}":             {arrange: made("/subscriptions/old", hook)},
		"POST /subscriptions/{name}/enable":        {arrange: made(hooked, hook)},
		"POST /subscriptions/{name}/disable":       {arrange: made(hooked, hook)},
		"POST /subscriptions/{name}/test":          {arrange: made(hooked, hook)},
		"POST /subscriptions/{name}/rotate-secret": {arrange: made(hooked, hook), action: "rotate_secret"},
		"POST /subscriptions/{name}/redeliver":     {arrange: made(hooked, hook), body: `{"since": "2026-01-01T00:00:00Z"}`},
		"POST /deliveries/{id}/retry": {arrange: func() string {
			id := d.want(202, "POST", made(hooked, hook)()+"/test", "").str("delivery")
			d.number()
			return "/deliveries/" + id
		}},

		"PUT /processors/{name}": {arrange: func() string { return "/processors/new" }},
		"PATCH /processors/{name}": {
			arrange: made(plant, `{}`), body: `{"fair": true}`, action: "put",
		},
		"DELETE /processors/{name}":                  {arrange: made("/processors/old", `{}`)},
		"POST /processors/{name}/pause":              {arrange: made(plant, `{}`)},
		"POST /processors/{name}/resume":             {arrange: made(plant, `{}`)},
		"POST /processors/{name}/evict":              {arrange: func() string { d.want(201, "POST", made(plant, `{}`)()+"/batches", addOne); return plant }, body: `{"position": 0}`, object: "/batches"},
		"PUT /processors/{name}/peers/{peer}":        {arrange: func() string { return plant + "/peers/near" }, body: peerSecret},
		"DELETE /processors/{name}/peers/{peer}":     {arrange: made(plant+"/peers/near", peerSecret)},
		"PUT /authorizations/{label}":                {arrange: func() string { return "/authorizations/new" }, body: allowed("new")},
		"PUT /authorizations/{label}/grants/{actor}": {arrange: func() string { return made("/authorizations/counts", allowed("counts"))() + "/grants/ann" }, body: `{"calls": 3}`, action: "grant"},
		"PATCH /authorizations/{label}":              {arrange: made("/authorizations/part", allowed("part")), body: `{"max_concurrent_executions": 2}`, action: "put"},
		"POST /authorizations":                       {arrange: func() string { return "/authorizations" }, body: allowed("posted"), object: "/posted", action: "put"},
		"DELETE /authorizations/{label}":             {arrange: made("/authorizations/old", allowed("old"))},
		"POST /authorizations/{label}/disable":       {arrange: made("/authorizations/one", allowed("one"))},
		"POST /authorizations/{label}/enable":        {arrange: made("/authorizations/two", allowed("two"), "disable")},

		"PUT /sources/{name}":           {arrange: func() string { return "/sources/new" }, body: pushes},
		"PATCH /sources/{name}":         {arrange: made("/sources/one", pushes), action: "put"},
		"DELETE /sources/{name}":        {arrange: made("/sources/old", pushes)},
		"POST /sources/{name}/pause":    {arrange: made("/sources/one", pushes)},
		"POST /sources/{name}/resume":   {arrange: made("/sources/one", pushes, "pause")},
		"POST /sources/{name}/rewind":   {arrange: made("/sources/one", pushes)},
		"PUT /channels/{name}":          {arrange: func() string { return "/channels/new" }, body: `{"kind": "integrity"}`},
		"PATCH /channels/{name}":        {arrange: made("/channels/one", `{"kind": "integrity"}`), action: "put"},
		"DELETE /channels/{name}":       {arrange: made("/channels/old", `{"kind": "integrity"}`)},
		"POST /channels/{name}/block":   {arrange: aCap, body: `{"for": "1h"}`, below: "/senders"},
		"POST /channels/{name}/unblock": {arrange: func() string { at := aCap(); d.want(200, "POST", at+"/block", ""); return at }, below: "/senders"},
		"POST /events/{id}/redrive":     {arrange: deadEvent, tells: history},

		"PUT /tools/{fqn}":          {arrange: func() string { return "/tools/xyz.labs.new@1" }, body: `{"url": "http://127.0.0.1:1", ` + sums + `}`},
		"PATCH /tools/{fqn}":        {arrange: made("/tools/xyz.labs.one@1", `{"url": "http://127.0.0.1:1", `+sums+`}`), body: `{"timeout": "5s"}`, action: "put"},
		"DELETE /tools/{fqn}":       {arrange: made("/tools/xyz.labs.old@1", `{"url": "http://127.0.0.1:1", `+sums+`}`)},
		"POST /tools/{fqn}/refresh": {arrange: made("/tools/xyz.labs.add@1", `{"url": "`+newInstrument(t).URL+`"}`)},

		"PUT /contexts/{name}":                 {arrange: func() string { return "/contexts/new" }},
		"PATCH /contexts/{name}":               {arrange: made(shop, `{}`), action: "put"},
		"DELETE /contexts/{name}":              {arrange: made("/contexts/old", `{}`)},
		"POST /contexts/{name}/pause":          {arrange: waits("/contexts/default"), tells: last},
		"POST /contexts/{name}/resume":         {arrange: func() string { return "/contexts/default" }},
		"POST /contexts/{name}/drain":          {arrange: made(shop, `{}`)},
		"POST /contexts/{name}/purge":          {arrange: waits("/contexts/default")},
		"PUT /contexts/{name}/members/{actor}": {arrange: func() string { return shop + "/members" + strings.TrimPrefix(actor(), "/actors") }, body: `{"roles": ["reader"]}`, action: "member"},
		"DELETE /contexts/{name}/members/{actor}": {arrange: func() string {
			return made(shop+"/members"+strings.TrimPrefix(actor(), "/actors"), `{"roles": ["reader"]}`)()
		}, action: "member"},
		"POST /quarantine/enter": {arrange: func() string { apart(); return "/quarantine/enter" }, body: `{"type": "apart"}`,
			whole: "/quarantine/types/apart"},
		"POST /quarantine/reconcile": {arrange: func() string { quarantined(); return "/quarantine/reconcile" }, body: `{"type": "apart"}`,
			whole: "/quarantine/types/apart"},
		"POST /quarantine/release": {arrange: func() string { quarantined(); return "/quarantine/release" }, body: `{"type": "apart"}`,
			whole: "/quarantine/types/apart"},
		"POST /identity/announce":    {arrange: func() string { return "/identity/announce" }, body: `{"deployment": "here"}`, whole: "/identity"},
		"POST /actors":               {arrange: func() string { return "/actors" }, action: "create"},
		"PATCH /actors/{id}":         {arrange: actor},
		"DELETE /actors/{id}":        {arrange: actor},
		"POST /api-keys":             {arrange: func() string { return "/api-keys" }, body: `{"name": "k", "role": "reader"}`, action: "create"},
		"DELETE /api-keys/{id}":      {arrange: key},
		"POST /api-keys/{id}/rotate": {arrange: key},
	}
	many := map[string]func() string{"cancel": waiting, "retry": retrying, "redrive": failed, "suspend": waiting, "resume": suspended, "move": behind,
		"was-done": holding, "was-not-done": holding}

	doc := d.want(200, "GET", "/openapi.json", "").body
	for _, op := range operations(t, d) {
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
		at := p.arrange()
		body := map[string]any{}
		if p.body != "" {
			if err := json.Unmarshal([]byte(p.body), &body); err != nil {
				t.Fatal(err)
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
			t.Errorf("%s takes no reason in its body", op)
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
			headers = append(headers, "If-Match: "+d.want(200, "GET", at, "").header.Get("ETag"))
		}
		if takesMatch(doc, method, path) {
			if a := d.call(method, send, string(raw), headers[0], `If-Match: "never"`); a.status != 412 {
				t.Errorf("%s answers %d to an If-Match that nothing ever matches: %s", op, a.status, a.raw)
			}
		}
		a := d.call(method, send, string(raw), headers...)
		if a.status >= 300 || a.body["changed"] == false && !slices.Contains([]string{"/senders/acct", hooked}, at) || bulk && a.body["changed"] != 1.0 {
			t.Errorf("%s answered %d: %s", op, a.status, a.raw)
			continue
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
			rows = append(rows, d.want(200, "GET", "/audit?limit=1&object="+object+"&action="+action, "", "Postern-Context: "+in).body["items"].([]any)...)
		}
		found := slices.ContainsFunc(rows, func(r any) bool {
			v := r.(map[string]any)
			when, err := time.Parse(time.RFC3339, v["at"].(string))
			return v["actor"] == "dev" && v["via"] == "http" && v["reason"] == reason && v["request_id"] == a.header.Get("Postern-Request-Id") &&
				err == nil && when.Sub(begun).Abs() < time.Minute
		})
		if !found {
			t.Errorf("%s leaves no row of audit with action %q, object %q, reason %q and its request: %v", op, action, object, reason, rows)
		}
		if p.tells == nil {
			continue
		}
		for _, page := range p.tells(at) {
			if told := d.want(200, "GET", page, "").raw; !strings.Contains(told, "dev") || !strings.Contains(told, reason) {
				t.Errorf("after %s, %s names neither who nor why: %s", op, page, told)
			}
		}
	}
}
