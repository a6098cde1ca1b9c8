package httpapi_test

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/postern-dev/postern/internal/pg/domains"
	"github.com/postern-dev/postern/internal/remote/signature"
)

// ofTransactionsAndQueues are the levers of transactions, nodes and queues.
func (l *levers) ofTransactionsAndQueues() map[string]pulled {
	return map[string]pulled{
		"POST /transactions/{id}/cancel":  {arrange: l.waiting, tells: history},
		"POST /transactions/{id}/retry":   {arrange: l.retrying, tells: history},
		"POST /transactions/{id}/suspend": {arrange: l.waiting, tells: func(at string) []string { return append(history(at), its(at)...) }},
		"POST /transactions/{id}/resume":  {arrange: l.suspended, tells: history},
		"POST /transactions/{id}/move":    {arrange: l.behind, body: `{"place": "head"}`, tells: history},
		"POST /transactions/{id}/abandon": {arrange: func() string { at := l.alone(); l.claimOne(l.node); return at }, tells: history},
		"POST /transactions/{id}/redrive": {arrange: l.failed, tells: history},

		"POST /transactions/{id}/was-done":     {arrange: l.holding, tells: history},
		"POST /transactions/{id}/was-not-done": {arrange: l.holding, tells: history},

		"POST /nodes/{name}/drain":  {arrange: l.aNode},
		"POST /nodes/{name}/resume": {arrange: func() string { at := l.aNode(); l.want(202, "POST", at+"/drain", ""); return at }},
		"POST /nodes/{name}/bury":   {arrange: l.aNode},

		"PUT /queues/{name}":         {arrange: func() string { return "/queues/" + l.name() }},
		"PATCH /queues/{name}":       {arrange: l.queue, action: "put"},
		"DELETE /queues/{name}":      {arrange: l.queue},
		"POST /queues/{name}/pause":  {arrange: func() string { l.waiting(); return fmt.Sprintf("/queues/q-%d", l.n) }, tells: its},
		"POST /queues/{name}/resume": {arrange: func() string { at := l.queue(); l.want(200, "POST", at+"/pause", ""); return at }},
		"POST /queues/{name}/drain":  {arrange: l.queue},
		"POST /queues/{name}/purge":  {arrange: func() string { l.waiting(); return fmt.Sprintf("/queues/q-%d", l.n) }},
	}
}

// ofSendersAndTypes are the levers of senders, pools and dispatchers.
func (l *levers) ofSendersAndTypes() map[string]pulled {
	return map[string]pulled{
		"PUT /senders/{account}":          {arrange: func() string { return "/senders/two" }, body: `{"pool": "crew"}`},
		"PATCH /senders/{account}":        {arrange: l.made(sender, `{"pool": "crew"}`), action: "put"},
		"DELETE /senders/{account}":       {arrange: l.made("/senders/three", `{"pool": "crew"}`)},
		"POST /senders/{account}/pause":   {arrange: l.made(sender, `{"pool": "crew"}`)},
		"POST /senders/{account}/resume":  {arrange: l.made(sender, `{"pool": "crew"}`, "pause")},
		"POST /senders/{account}/drain":   {arrange: l.made("/senders/four", `{"pool": "crew"}`)},
		"POST /senders/{account}/block":   {arrange: l.made(sender, `{"pool": "crew"}`), body: `{"for": "1h"}`},
		"POST /senders/{account}/unblock": {arrange: l.made(sender, `{"pool": "crew"}`)},

		"PUT /pools/{name}":    {arrange: func() string { return pool }},
		"PATCH /pools/{name}":  {arrange: func() string { return pool }, action: "put"},
		"DELETE /pools/{name}": {arrange: l.made("/pools/empty", `{}`)},
		"POST /pools/{name}/pause": {arrange: func() string {
			l.want(201, "POST", "/transactions", `{"type": "sign", "queue": "`+l.name()+`"}`)
			return pool
		}, tells: l.last},
		"POST /senders/{account}/purge": {arrange: func() string {
			l.want(201, "POST", "/transactions", `{"type": "sign", "queue": "`+l.name()+`", "sender": "acct"}`)
			return sender
		}},
		"POST /pools/{name}/resume": {arrange: func() string { return pool }},

		"PUT /dispatchers/{type}":         {arrange: func() string { return "/dispatchers/new" }, body: `{"worker_url": "http://127.0.0.1:1/"}`},
		"PATCH /dispatchers/{type}":       {arrange: func() string { return pay }, action: "put"},
		"DELETE /dispatchers/{type}":      {arrange: l.made("/dispatchers/old", `{"worker_url": "http://127.0.0.1:1/"}`)},
		"POST /dispatchers/{type}/pause":  {arrange: l.waits(pay), tells: l.last},
		"POST /dispatchers/{type}/resume": {arrange: func() string { return pay }},

		"POST /dispatchers/{type}/purge": {arrange: l.waits(pay)},
		"POST /dispatchers/{type}/drain": {arrange: l.made("/dispatchers/last", `{"worker_url": "http://127.0.0.1:1/"}`)},
	}
}

// ofSubscriptionsAndProcessors are the levers of subscriptions, processors and authorizations.
func (l *levers) ofSubscriptionsAndProcessors() map[string]pulled {
	return map[string]pulled{
		"PUT /subscriptions/{name}":                {arrange: func() string { return "/subscriptions/new" }, body: hook},
		"PATCH /subscriptions/{name}":              {arrange: l.made(hooked, hook), action: "put"},
		"DELETE /subscriptions/{name}":             {arrange: l.made("/subscriptions/old", hook)},
		"POST /subscriptions/{name}/enable":        {arrange: l.made(hooked, hook)},
		"POST /subscriptions/{name}/disable":       {arrange: l.made(hooked, hook)},
		"POST /subscriptions/{name}/test":          {arrange: l.made(hooked, hook)},
		"POST /subscriptions/{name}/rotate-secret": {arrange: l.made(hooked, hook), action: "rotate_secret"},
		"POST /subscriptions/{name}/redeliver":     {arrange: l.made(hooked, hook), body: `{"since": "2026-01-01T00:00:00Z"}`},
		"POST /deliveries/{id}/retry": {arrange: func() string {
			id := l.want(202, "POST", l.made(hooked, hook)()+"/test", "").str("delivery")
			l.number()
			return "/deliveries/" + id
		}},

		"PUT /processors/{name}": {arrange: func() string { return "/processors/new" }},
		"PATCH /processors/{name}": {
			arrange: l.made(plant, `{}`), body: `{"fair": true}`, action: "put",
		},
		"DELETE /processors/{name}":                  {arrange: l.made("/processors/old", `{}`)},
		"POST /processors/{name}/pause":              {arrange: l.made(plant, `{}`)},
		"POST /processors/{name}/resume":             {arrange: l.made(plant, `{}`)},
		"POST /processors/{name}/evict":              {arrange: func() string { l.want(201, "POST", l.made(plant, `{}`)()+"/batches", addOne); return plant }, body: `{"position": 0}`, object: "/batches"},
		"PUT /processors/{name}/peers/{peer}":        {arrange: func() string { return plant + "/peers/near" }, body: peerSecret},
		"DELETE /processors/{name}/peers/{peer}":     {arrange: l.made(plant+"/peers/near", peerSecret)},
		"PUT /authorizations/{label}":                {arrange: func() string { return "/authorizations/new" }, body: l.allowed("new")},
		"PUT /authorizations/{label}/grants/{actor}": {arrange: func() string { return l.made("/authorizations/counts", l.allowed("counts"))() + "/grants/ann" }, body: `{"calls": 3}`, action: "grant"},
		"PATCH /authorizations/{label}":              {arrange: l.made("/authorizations/part", l.allowed("part")), body: `{"max_concurrent_executions": 2}`, action: "put"},
		"POST /authorizations":                       {arrange: func() string { return "/authorizations" }, body: l.allowed("posted"), object: "/posted", action: "put"},
		"DELETE /authorizations/{label}":             {arrange: l.made("/authorizations/old", l.allowed("old"))},
		"POST /authorizations/{label}/disable":       {arrange: l.made("/authorizations/one", l.allowed("one"))},
		"POST /authorizations/{label}/enable":        {arrange: l.made("/authorizations/two", l.allowed("two"), "disable")},
	}
}

// ofPeers are the levers of peers.
func (l *levers) ofPeers() map[string]pulled {
	return map[string]pulled{
		"PUT /peers/{name}":    {arrange: func() string { return "/peers/new" }, body: peerSecret},
		"PATCH /peers/{name}":  {arrange: l.made("/peers/far", peerSecret), body: peerURL, action: "put"},
		"DELETE /peers/{name}": {arrange: l.made("/peers/old", peerSecret)},
		"POST /peers/{name}/rotate-secret": {
			arrange: l.made("/peers/far", peerSecret), action: "rotate_secret",
		},
	}
}

// tokens are the settings of a domain.
const tokens = `{"types": ["ADD"], "service_url": "http://127.0.0.1:1"}`

// parks answers the calls of services, one of a domain at a time: each intent is parked. It returns how many these are.
func (l *levers) parks() int {
	calls, err := l.store.Domains.ClaimCalls(l.t.Context(), 1, nil, 10)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, c := range calls {
		e, err := c.Read([]json.RawMessage{json.RawMessage(`{"result": "PARK", "reason": "later"}`)})
		if err != nil {
			l.t.Fatal(err)
		}
		if _, err := l.store.Domains.Step(l.t.Context(), c.Domain, []domains.Event{e}); err != nil {
			l.t.Fatal(err)
		}
	}
	return len(calls)
}

// ofDomains are the levers of domains and intents.
func (l *levers) ofDomains() map[string]pulled {
	l.store.Domains.Self = func() int64 { return l.node.ID }
	// anIntent is one that waits for another.
	anIntent := func() string {
		at := l.made("/domains/one", tokens)() + "/intents"
		first := l.want(201, "POST", at, `{"party": "ann", "data": 1}`).str("id")
		return at + "/" + l.want(201, "POST", at, `{"party": "ann", "data": 1, "depends_on": ["`+first+`"]}`).str("id")
	}
	// aParked is one that the service has parked.
	aParked := func() string {
		at := anIntent()
		first := l.want(200, "GET", at, "").body["depends_on"].([]any)[0].(string)
		for l.parks() > 0 {
		}
		return "/domains/one/intents/" + first
	}
	return map[string]pulled{
		"PUT /domains/{name}": {arrange: func() string { return "/domains/new" }, body: tokens},
		"PATCH /domains/{name}": {
			arrange: l.made("/domains/one", tokens), body: `{"once": "ledger"}`, action: "put",
		},
		"DELETE /domains/{name}":                   {arrange: l.made("/domains/old", tokens)},
		"POST /domains/{name}/pause":               {arrange: l.made("/domains/idle", tokens)},
		"POST /domains/{name}/resume":              {arrange: l.made("/domains/idle", tokens, "pause")},
		"POST /domains/{name}/intents/{id}/resume": {arrange: aParked},
		"POST /domains/{name}/intents/{id}/cancel": {arrange: anIntent},
	}
}

// ofEvents are the levers of sources, channels, events and tools.
func (l *levers) ofEvents() map[string]pulled {
	return map[string]pulled{
		"PUT /sources/{name}":           {arrange: func() string { return "/sources/new" }, body: pushes},
		"PATCH /sources/{name}":         {arrange: l.made("/sources/one", pushes), action: "put"},
		"DELETE /sources/{name}":        {arrange: l.made("/sources/old", pushes)},
		"POST /sources/{name}/pause":    {arrange: l.made("/sources/one", pushes)},
		"POST /sources/{name}/resume":   {arrange: l.made("/sources/one", pushes, "pause")},
		"POST /sources/{name}/rewind":   {arrange: l.made("/sources/one", pushes)},
		"PUT /channels/{name}":          {arrange: func() string { return "/channels/new" }, body: `{"kind": "integrity"}`},
		"PATCH /channels/{name}":        {arrange: l.made("/channels/one", `{"kind": "integrity"}`), action: "put"},
		"DELETE /channels/{name}":       {arrange: l.made("/channels/old", `{"kind": "integrity"}`)},
		"POST /channels/{name}/block":   {arrange: l.aCap, body: `{"for": "1h"}`, below: "/senders"},
		"POST /channels/{name}/unblock": {arrange: func() string { at := l.aCap(); l.want(200, "POST", at+"/block", ""); return at }, below: "/senders"},
		"POST /events/{id}/redrive":     {arrange: l.aDeadEvent, tells: history},

		"PUT /tools/{fqn}":          {arrange: func() string { return "/tools/xyz.labs.new@1" }, body: `{"url": "http://127.0.0.1:1", ` + sums + `}`},
		"PATCH /tools/{fqn}":        {arrange: l.made("/tools/xyz.labs.one@1", `{"url": "http://127.0.0.1:1", `+sums+`}`), body: `{"timeout": "5s"}`, action: "put"},
		"DELETE /tools/{fqn}":       {arrange: l.made("/tools/xyz.labs.old@1", `{"url": "http://127.0.0.1:1", `+sums+`}`)},
		"POST /tools/{fqn}/refresh": {arrange: l.made("/tools/xyz.labs.add@1", `{"url": "`+newInstrument(l.t).URL+`"}`)},
	}
}

// aJob posts a job.
func (l *levers) aJob() string {
	const job = `{"script": "1", "script_type": "python", "prerequisites": ["ok"]}`
	return "/jobs/" + l.want(201, "POST", "/jobs", job).str("id")
}

// aFlow posts a flow.
func (l *levers) aFlow() string {
	const flow = `{"jobs": [{"ref": 1, "script": "1", "script_type": "python"}]}`
	return "/flows/" + l.want(201, "POST", "/flows", flow).str("id")
}

// aMessage sends a message.
func (l *levers) aMessage() string {
	const chat = `{"to": {"context": "default"}, "message_type": "chat", "message": "hello"}`
	return "/messages/" + l.want(201, "POST", "/messages", chat).str("id")
}

// ofJobs are the levers of jobs, flows and runners.
func (l *levers) ofJobs() map[string]pulled {
	return map[string]pulled{
		"POST /jobs/{id}/cancel":        {arrange: l.aJob, tells: history},
		"POST /jobs/{id}/prerequisites": {arrange: l.aJob, body: `{"met": ["ok"]}`, action: "met"},
		"POST /messages/{id}/cancel":    {arrange: l.aMessage, tells: history},
		"PATCH /flows/{id}":             {arrange: l.aFlow, body: `{"env_vars": {"A": "1"}}`},
		"POST /flows/{id}/start":        {arrange: l.aFlow, tells: history},
		"POST /flows/{id}/cancel":       {arrange: l.aFlow, tells: history},
		"DELETE /flows/{id}/jobs/{ref}": {arrange: func() string { return l.aFlow() + "/jobs/1" }},
		"PUT /runners/{name}":           {arrange: func() string { return "/runners/new" }},
		"PATCH /runners/{name}":         {arrange: l.made("/runners/one", `{}`), body: `{"slots": 2}`, action: "put"},
		"DELETE /runners/{name}":        {arrange: l.made("/runners/old", `{}`)},
		"POST /runners/{name}/pause":    {arrange: l.made("/runners/two", `{}`)},
		"POST /runners/{name}/resume":   {arrange: l.made("/runners/three", `{}`, "pause")},
	}
}

// ofContextsAndActors are the levers of contexts, the quarantine, actors and keys.
func (l *levers) ofContextsAndActors() map[string]pulled {
	key, kept := drawn(l.t), drawn(l.t)
	ann := strings.TrimPrefix(l.actor(), "/actors/")
	here := l.want(200, "GET", "/identity", "").str("installation")
	proof := signature.Prove(key, here, ann)
	return map[string]pulled{
		"PUT /contexts/{name}":                 {arrange: func() string { return "/contexts/new" }},
		"PATCH /contexts/{name}":               {arrange: l.made(shopAt, `{}`), action: "put"},
		"DELETE /contexts/{name}":              {arrange: l.made("/contexts/old", `{}`)},
		"POST /contexts/{name}/pause":          {arrange: l.waits("/contexts/default"), tells: l.last},
		"POST /contexts/{name}/resume":         {arrange: func() string { return "/contexts/default" }},
		"POST /contexts/{name}/drain":          {arrange: l.made(shopAt, `{}`)},
		"POST /contexts/{name}/purge":          {arrange: l.waits("/contexts/default")},
		"PUT /contexts/{name}/members/{actor}": {arrange: func() string { return shopAt + "/members" + strings.TrimPrefix(l.actor(), "/actors") }, body: `{"roles": ["reader"]}`, action: "member"},
		"DELETE /contexts/{name}/members/{actor}": {arrange: func() string {
			return l.made(shopAt+"/members"+strings.TrimPrefix(l.actor(), "/actors"), `{"roles": ["reader"]}`)()
		}, action: "member"},
		"POST /quarantine/enter": {arrange: func() string { l.apart(); return "/quarantine/enter" }, body: `{"type": "apart"}`,
			whole: "/quarantine/types/apart"},
		"POST /quarantine/reconcile": {arrange: func() string { l.quarantined(); return "/quarantine/reconcile" }, body: `{"type": "apart"}`,
			whole: "/quarantine/types/apart"},
		"POST /quarantine/release": {arrange: func() string { l.quarantined(); return "/quarantine/release" }, body: `{"type": "apart"}`,
			whole: "/quarantine/types/apart"},
		"POST /identity/announce": {arrange: func() string { return "/identity/announce" }, body: `{"deployment": "here"}`, whole: "/identity"},
		"POST /actors":            {arrange: func() string { return "/actors" }, action: "create"},
		"PATCH /actors/{id}":      {arrange: l.actor},
		"DELETE /actors/{id}":     {arrange: l.actor},
		"POST /actors/{id}/keys": {
			arrange: func() string { return "/actors/" + ann },
			body:    fmt.Sprintf(`{"public_key": %q, "proof": %q}`, public(key), proof),
			object:  "/keys/" + keyID(key),
			action:  "add_key",
		},
		"DELETE /actors/{id}/keys/{key}": {
			arrange: func() string {
				a := l.want(201, "POST", "/actors", fmt.Sprintf(`{"public_keys": [%q]}`, public(kept)))
				return a.header.Get("Location") + "/keys/" + keyID(kept)
			},
			action: "retire_key",
		},
		"POST /api-keys":             {arrange: func() string { return "/api-keys" }, body: `{"name": "k", "role": "reader"}`, action: "create"},
		"DELETE /api-keys/{id}":      {arrange: l.key},
		"POST /api-keys/{id}/rotate": {arrange: l.key},
	}
}
