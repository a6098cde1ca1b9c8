package main

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/api/client"
)

// layouts are the columns in which nouns are listed. A noun that has none here is listed by its name and
// what else is short.
var layouts = map[string][]column{
	"transactions": {
		{head: "uid", cell: field("uid")},
		{head: "queue", cell: field("queue")},
		{head: "type", cell: field("type"), soft: true},
		{head: "state", cell: stateOf},
		{head: "tries", cell: field("attempt"), soft: true},
		{head: "age", cell: since("received_at")},
		{head: "next", cell: since("next_at"), soft: true},
		{head: "error", cell: firstOf("error.code", "error.message"), tail: true},
	},
	"attempts": {
		{head: "#", cell: field("attempt")},
		{head: "started", cell: clock("started_at")},
		{head: "ms", cell: field("worker_ms"), soft: true},
		{head: "class", cell: field("class")},
		{head: "late", cell: field("late")},
		{head: "sender", cell: field("sender")},
		{head: "fee", cell: field("fee")},
		{head: "nonce", cell: field("nonce"), soft: true},
		{head: "node", cell: field("node"), soft: true},
		{head: "hash", cell: field("hash")},
		{head: "error", cell: codeAndMessage, tail: true},
	},
	"history": {
		{head: "at", cell: clock("at")},
		{head: "event", cell: field("event")},
		{head: "to", cell: field("to")},
		{head: "by", cell: field("by")},
		{head: "detail", cell: field("detail"), tail: true},
	},
	"queues": {
		{head: "name", cell: field("name")},
		{head: "state", cell: stateOf},
		{head: "depth", cell: field("depth")},
		{head: "head", cell: field("head.state")},
		{head: "since", cell: since("head.since"), soft: true},
		{head: "next", cell: since("next_at")},
		{head: "sender", cell: field("sender")},
		{head: "node", cell: field("node"), soft: true},
		{head: "waits for", cell: field(waitsFor), tail: true},
	},
	"senders": {
		{head: "account", cell: field("account")},
		{head: "pool", cell: field("pool"), soft: true},
		{head: "state", cell: stateOf},
		{head: "queue", cell: field("queue")},
		{head: "bound", cell: since("bound_since"), soft: true},
		{head: "blocked", cell: blocked},
		{head: "used", cell: since("last_used_at"), soft: true},
		{head: "reason", cell: field("block_reason"), tail: true},
	},
	"pools": {
		{head: "name", cell: field("name")},
		{head: "state", cell: stateOf},
		{head: "free", cell: field("free")},
		{head: "bound", cell: field("bound")},
		{head: "blocked", cell: field("blocked")},
		{head: "waiting", cell: field("waiting")},
		{head: "after failure", cell: field("after_failure"), soft: true},
	},
	"dispatchers": {
		{head: "type", cell: field("type")},
		{head: "state", cell: stateOf},
		{head: "worker", cell: field("worker_url")},
		{head: "pool", cell: field("pool")},
		{head: "slots", cell: field("slots"), soft: true},
		{head: "exclusive", cell: field("exclusive"), soft: true},
		{head: "again", cell: since("gate.until")},
		{head: "why", cell: field("gate.reason"), tail: true},
	},
	"contexts": {
		{head: "name", cell: field("name")},
		{head: "state", cell: stateOf},
		{head: "max depth", cell: field("max_depth")},
		{head: "require key", cell: field("require_key"), soft: true},
		{head: "declared queues", cell: field("declared_queues"), soft: true},
	},
	"api-keys": {
		{head: "id", cell: field("id")},
		{head: "name", cell: field("name")},
		{head: "role", cell: field("role")},
		{head: "only", cell: only},
		{head: "expires", cell: since("expires_at")},
		{head: "used", cell: since("last_used_at"), soft: true},
	},
	"audit": {
		{head: "at", cell: clock("at")},
		{head: "actor", cell: field("actor")},
		{head: "action", cell: field("action")},
		{head: "object", cell: field("object")},
		{head: "via", cell: field("via"), soft: true},
		{head: "request", cell: field("request_id"), soft: true},
		{head: "reason", cell: field("reason"), tail: true},
	},
	"subscriptions": {
		{head: "name", cell: field("name")},
		{head: "kind", cell: field("kind")},
		{head: "enabled", cell: field("enabled")},
		{head: "pending", cell: field("pending")},
		{head: "failing", cell: since("failing_since")},
		{head: "cursor", cell: field("cursor"), soft: true},
		{head: "url", cell: field("url")},
		{head: "reason", cell: field("disabled_reason"), tail: true},
	},
	"deliveries": {
		{head: "id", cell: field("id")},
		{head: "event", cell: field("event")},
		{head: "state", cell: field("state")},
		{head: "tries", cell: field("tries"), soft: true},
		{head: "age", cell: since("created_at")},
		{head: "next", cell: since("next_at"), soft: true},
		{head: "subscription", cell: field("subscription")},
		{head: "transaction", cell: field("transaction")},
		{head: "position", cell: field("cursor"), soft: true},
		{head: "error", cell: field("error"), tail: true},
	},
	"domains": {
		{head: "name", cell: field("name")},
		{head: "state", cell: field("state")},
		{head: "mode", cell: field("mode")},
		{head: "self", cell: field("self"), soft: true},
		{head: "coordinator", cell: field("coordinator")},
		{head: "height", cell: field("height"), soft: true},
		{head: "service", cell: field("service_url"), tail: true},
	},
	"intents": {
		{head: "id", cell: field("id")},
		{head: "uid", cell: field("uid"), soft: true},
		{head: "party", cell: field("party")},
		{head: "state", cell: field("state")},
		{head: "receipt", cell: field("receipt.outcome")},
		{head: "age", cell: since("created_at")},
		{head: "text", cell: field("receipt.text"), tail: true},
	},
	"works": {
		{head: "intent", cell: field("intent")},
		{head: "node", cell: field("node"), soft: true},
		{head: "state", cell: field("state")},
		{head: "for", cell: since("since")},
		{head: "generation", cell: field("generation"), soft: true},
		{head: "hash", cell: field("hash"), tail: true},
	},
	"processors": {
		{head: "name", cell: field("name")},
		{head: "state", cell: field("state")},
		{head: "high", cell: field("high")},
		{head: "med", cell: field("med")},
		{head: "executing", cell: field("executing")},
		{head: "callbacks", cell: field("pending_callbacks")},
		{head: "starving", cell: field("starving.queue"), soft: true},
		{head: "every", cell: field("tick_interval"), soft: true},
		{head: "owner", cell: field("owner"), soft: true},
	},
	"batches": {
		{head: "id", cell: field("id")},
		{head: "line", cell: field("priority")},
		{head: "state", cell: field("state")},
		{head: "done", cell: field("index")},
		{head: "retries", cell: field("retries"), soft: true},
		{head: "age", cell: since("created_at")},
		{head: "cools", cell: ahead("cooldown_until"), soft: true},
		{head: "label", cell: field("label")},
		{head: "result", cell: firstOf("result.reason", "result.kind"), tail: true},
	},
	"sources": {
		{head: "name", cell: field("name")},
		{head: "kind", cell: field("kind"), soft: true},
		{head: "state", cell: field("state")},
		{head: "lag", cell: field("lag_seconds")},
		{head: "failures", cell: field("failures")},
		{head: "next", cell: since("next_at"), soft: true},
		{head: "error", cell: field("last_error"), tail: true},
	},
	"events": {
		{head: "id", cell: field("id")},
		{head: "tool", cell: field("tool")},
		{head: "status", cell: field("status")},
		{head: "again", cell: field("retried"), soft: true},
		{head: "age", cell: since("created_at"), soft: true},
		{head: "error", cell: firstOf("error.code", "error.message"), tail: true},
	},
	"channels": {
		{head: "name", cell: field("name")},
		{head: "kind", cell: field("kind"), soft: true},
		{head: "state", cell: field("state")},
		{head: "blocked", cell: blocked},
		{head: "queued", cell: field("queued")},
		{head: "offered", cell: field("offered"), soft: true},
		{head: "active", cell: field("active"), soft: true},
		{head: "dropped", cell: field("dropped"), soft: true},
		{head: "reason", cell: field("block_reason"), tail: true},
	},
	"tools": {
		{head: "fqn", cell: field("fqn")},
		{head: "health", cell: field("health.state")},
		{head: "checked", cell: since("health.checked_at"), soft: true},
		{head: "timeout", cell: field("timeout"), soft: true},
		{head: "url", cell: field("url")},
		{head: "why", cell: firstOf("health.last_error", "refresh_error"), tail: true},
	},
	"nodes": {
		{head: "name", cell: field("name")},
		{head: "state", cell: stateOf},
		{head: "queues", cell: field("queues")},
		{head: "heartbeat", cell: since("heartbeat_at")},
		{head: "started", cell: since("started_at"), soft: true},
		{head: "epoch", cell: field("epoch"), soft: true},
		{head: "version", cell: field("version"), soft: true},
	},
	"jobs": {
		{head: "id", cell: field("id")},
		{head: "ref", cell: field("ref")},
		{head: "status", cell: field("status")},
		{head: "type", cell: field("script_type")},
		{head: "queue", cell: field("queue"), soft: true},
		{head: "runner", cell: field("runner")},
		{head: "tries", cell: field("tries"), soft: true},
		{head: "age", cell: since("created_at")},
		{head: "flow", cell: field("flow"), soft: true},
		{head: "error", cell: codeAndMessage, tail: true},
	},
	"flows": {
		{head: "id", cell: field("id")},
		{head: "ref", cell: field("ref")},
		{head: "status", cell: field("status")},
		{head: "jobs", cell: field("job_count")},
		{head: "finished", cell: field("finished_count")},
		{head: "age", cell: since("created_at")},
		{head: "redrive of", cell: field("redrive_of"), soft: true},
		{head: "error", cell: codeAndMessage, tail: true},
	},
	"runners": {
		{head: "name", cell: field("name")},
		{head: "state", cell: field("state")},
		{head: "held", cell: field("held")},
		{head: "slots", cell: field("slots")},
		{head: "type", cell: field("type"), soft: true},
		{head: "isolation", cell: field("isolation"), soft: true},
		{head: "seen", cell: since("seen_at")},
		{head: "claimed", cell: since("claimed_at"), soft: true},
		{head: "program", cell: field("program"), soft: true},
		{head: "address", cell: field("address"), soft: true},
	},
	"messages": { // those of channels too, which have a set and no status
		{head: "id", cell: field("id")},
		{head: "ref", cell: field("ref"), soft: true},
		{head: "status", cell: firstOf("status", "set")},
		{head: "type", cell: field("message_type"), soft: true},
		{head: "from", cell: field("from"), soft: true},
		{head: "to", cell: field("to.context")},
		{head: "caller", cell: field("caller_id"), soft: true},
		{head: "age", cell: since("created_at")},
		{head: "deadline", cell: ahead("deadline")},
		{head: "error", cell: codeAndMessage, tail: true},
	},
	"peers": {
		{head: "name", cell: field("name")},
		{head: "url", cell: field("url")},
		{head: "installation", cell: field("installation"), soft: true},
		{head: "met", cell: since("met_at"), soft: true},
		{head: "refuses", cell: since("refuses.since")},
		{head: "why", cell: firstOf("refuses.message", "refuses.code"), tail: true},
	},
	"machines": {
		{head: "name", cell: field("name")},
		{head: "follows", cell: field("follows")},
	},
}

func field(path string) func(record) string { return func(r record) string { return r.text(path) } }

func since(path string) func(record) string {
	return func(r record) string { return ago(r.moment(path), time.Now()) }
}

// ahead is since for what is over once its time has come.
func ahead(path string) func(record) string {
	return func(r record) string {
		if !r.moment(path).After(time.Now()) {
			return ""
		}
		return since(path)(r)
	}
}

// blocked is until when a sender is: null beside a reason means until somebody unblocks it.
func blocked(r record) string {
	if r.text("blocked_until") == "" && r.text("block_reason") != "" {
		return "for good"
	}
	return since("blocked_until")(r)
}

func firstOf(paths ...string) func(record) string {
	return func(r record) string {
		for _, p := range paths {
			if s := r.text(p); s != "" {
				return s
			}
		}
		return ""
	}
}

// only is to what an API key is narrowed within its role.
func only(r record) string {
	list, _ := r.at("only").([]any)
	var words []string
	for _, w := range list {
		words = append(words, fmt.Sprint(w))
	}
	return cmp.Or(strings.Join(words, " "), "all")
}

// stateOf is the state of something configured, and whether somebody holds it.
func stateOf(r record) string {
	s := r.text("state")
	for _, mark := range []string{"draining", "paused", "held"} {
		if r.text(mark) != "" {
			s = strings.TrimSpace(s + " " + mark)
		}
	}
	return s
}

// columnsOf are the columns of a noun. One that is not laid out has what is plain: what names it, and soft, by the
// alphabet, the rest.
func columnsOf(noun string, rows []record) []column {
	if l, ok := layouts[path.Base(noun)]; ok { // also of processors/main/batches
		return l
	}
	var list []column
	for i, key := range keys(rows) {
		c := column{head: strings.ReplaceAll(key, "_", " "), cell: field(key)}
		c.tail = strings.Contains(key, "reason") || strings.Contains(key, "error")
		c.soft = i > 0 && !c.tail && !slices.Contains([]string{"id", "object", "state"}, key)
		list = append(list, c)
	}
	slices.SortStableFunc(list, func(a, b column) int { return order(a.tail) - order(b.tail) })
	return list
}

// order puts sentences behind names.
func order(tail bool) int {
	if tail {
		return 1
	}
	return 0
}

// codeAndMessage is an error as its code and what was said.
func codeAndMessage(r record) string {
	return strings.TrimSpace(r.text("error.code") + " " + r.text("error.message"))
}

// nouns are what can be listed, with the parameters that their lists take.
func nouns() map[string][]string {
	all := map[string][]string{}
	for _, op := range client.Operations {
		if op.Method == "GET" && strings.HasPrefix(op.Name, "List") && strings.Count(op.Path, "/") == 1 {
			all[strings.TrimPrefix(op.Path, "/")] = op.Query
		}
	}
	return all
}

// otherNames are words that people say for a noun.
var otherNames = map[string]string{"type": "dispatchers", "types": "dispatchers", "key": "api-keys", "keys": "api-keys",
	"delivery": "deliveries", "batch": "batches", "tx": "transactions"}

// plural is the noun that somebody means who may have written queue for queues, or types for dispatchers.
func plural(noun string) string {
	if name, ok := otherNames[noun]; ok {
		return name
	}
	if _, ok := nouns()[noun+"s"]; ok {
		return noun + "s"
	}
	return noun
}

// can says whether the contract has a call such as POST /queues/{}/pause.
func can(method, path string) bool {
	for _, op := range client.Operations {
		if op.Method == method && braces.ReplaceAllString(op.Path, "{}") == path {
			return true
		}
	}
	return false
}
