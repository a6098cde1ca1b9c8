package main

import (
	"path"
	"strings"
	"time"

	"github.com/postern-dev/postern/api/client"
)

// layouts are the columns in which nouns are listed. A noun that has none here is listed by its name and
// what else is short.
var layouts = map[string][]column{
	"transactions": {
		{head: "uid", cell: field("uid"), firm: true}, {head: "queue", cell: field("queue")}, {head: "type", cell: field("type")},
		{head: "state", cell: stateOf, firm: true},
		{head: "tries", cell: field("attempt"), firm: true}, {head: "age", cell: since("received_at"), firm: true},
		{head: "next", cell: since("next_at"), firm: true}, {head: "error", cell: firstOf("error.code", "error.message"), tail: true}},
	"queues": {
		{head: "name", cell: field("name"), firm: true}, {head: "state", cell: stateOf, firm: true}, {head: "depth", cell: field("depth"), firm: true},
		{head: "head", cell: field("head.state"), firm: true}, {head: "since", cell: since("head.since"), firm: true}, {head: "next", cell: since("next_at"), firm: true},
		{head: "sender", cell: field("sender")}, {head: "node", cell: field("node")}},
	"senders": {
		{head: "account", cell: field("account"), firm: true}, {head: "pool", cell: field("pool")}, {head: "state", cell: stateOf, firm: true},
		{head: "queue", cell: field("queue")}, {head: "bound", cell: since("bound_since"), firm: true}, {head: "blocked", cell: blocked, firm: true},
		{head: "reason", cell: field("block_reason"), tail: true}, {head: "used", cell: since("last_used_at"), firm: true}},
	"pools": {
		{head: "name", cell: field("name"), firm: true}, {head: "state", cell: stateOf, firm: true}, {head: "free", cell: field("free"), firm: true},
		{head: "bound", cell: field("bound"), firm: true}, {head: "blocked", cell: field("blocked"), firm: true}, {head: "waiting", cell: field("waiting"), firm: true},
		{head: "after failure", cell: field("after_failure")}},
	"dispatchers": {
		{head: "type", cell: field("type"), firm: true}, {head: "state", cell: stateOf, firm: true}, {head: "worker", cell: field("worker_url")},
		{head: "pool", cell: field("pool")}, {head: "slots", cell: field("slots"), firm: true}, {head: "exclusive", cell: field("exclusive")},
		{head: "again", cell: since("gate.until"), firm: true}, {head: "why", cell: field("gate.reason"), tail: true}},
	"contexts": {
		{head: "name", cell: field("name")}, {head: "state", cell: stateOf, firm: true}, {head: "max depth", cell: field("max_depth"), firm: true},
		{head: "require key", cell: field("require_key"), firm: true}, {head: "declared queues", cell: field("declared_queues"), firm: true}},
	"api-keys": {
		{head: "id", cell: field("id"), firm: true}, {head: "name", cell: field("name")}, {head: "role", cell: field("role"), firm: true},
		{head: "only", cell: field("only")}, {head: "expires", cell: since("expires_at"), firm: true}, {head: "used", cell: since("last_used_at"), firm: true}},
	"processors": {
		{head: "name", cell: field("name")}, {head: "state", cell: field("state"), firm: true}, {head: "high", cell: field("high"), firm: true},
		{head: "med", cell: field("med"), firm: true}, {head: "executing", cell: field("executing"), firm: true}, {head: "callbacks", cell: field("pending_callbacks"), firm: true},
		{head: "starving", cell: field("starving.queue"), firm: true}, {head: "every", cell: field("tick_interval")}, {head: "owner", cell: field("owner")}},
	"batches": {
		{head: "id", cell: field("id"), firm: true}, {head: "line", cell: field("priority"), firm: true}, {head: "state", cell: field("state"), firm: true},
		{head: "done", cell: field("index"), firm: true}, {head: "retries", cell: field("retries"), firm: true}, {head: "age", cell: since("created_at"), firm: true},
		{head: "cools", cell: ahead("cooldown_until"), firm: true}, {head: "label", cell: field("label")}, {head: "result", cell: firstOf("result.reason", "result.kind"), tail: true}},
	"sources": {
		{head: "name", cell: field("name")}, {head: "kind", cell: field("kind"), firm: true}, {head: "state", cell: field("state"), firm: true},
		{head: "lag", cell: field("lag_seconds"), firm: true}, {head: "failures", cell: field("failures"), firm: true}, {head: "next", cell: since("next_at"), firm: true},
		{head: "error", cell: field("last_error"), tail: true}},
	"events": {
		{head: "id", cell: field("id"), firm: true}, {head: "tool", cell: field("tool")},
		{head: "status", cell: field("status"), firm: true}, {head: "again", cell: field("retried"), firm: true}, {head: "age", cell: since("created_at"), firm: true},
		{head: "error", cell: firstOf("error.code", "error.message"), tail: true}},
	"channels": {
		{head: "name", cell: field("name")}, {head: "kind", cell: field("kind"), firm: true}, {head: "state", cell: field("state"), firm: true},
		{head: "blocked", cell: blocked, firm: true}, {head: "queued", cell: field("queued"), firm: true}, {head: "offered", cell: field("offered"), firm: true},
		{head: "active", cell: field("active"), firm: true}, {head: "dropped", cell: field("dropped"), firm: true}, {head: "reason", cell: field("block_reason"), tail: true}},
	"tools": {
		{head: "fqn", cell: field("fqn")}, {head: "health", cell: field("health.state"), firm: true}, {head: "checked", cell: since("health.checked_at"), firm: true},
		{head: "timeout", cell: field("timeout"), firm: true}, {head: "url", cell: field("url")}, {head: "why", cell: firstOf("health.last_error", "refresh_error"), tail: true}},
	"nodes": {
		{head: "name", cell: field("name"), firm: true}, {head: "state", cell: stateOf, firm: true}, {head: "queues", cell: field("queues"), firm: true},
		{head: "heartbeat", cell: since("heartbeat_at"), firm: true}, {head: "started", cell: since("started_at"), firm: true},
		{head: "epoch", cell: field("epoch"), firm: true}, {head: "version", cell: field("version"), tail: true}},
	"machines": {{head: "name", cell: field("name"), firm: true}, {head: "follows", cell: field("follows")}},
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

// columnsOf are the columns of a noun; of one that is not laid out, what is plain and short: its key and
// name first, then by the alphabet, as long as there is room.
func columnsOf(noun string, rows []record, width int) []column {
	if l, ok := layouts[path.Base(noun)]; ok { // also of processors/main/batches
		return l
	}
	var list []column
	for _, key := range keys(rows) {
		need := len(key)
		for _, r := range rows {
			need = max(need, len(r.text(key)))
		}
		if len(list) > 0 && need+2 > width {
			continue
		}
		width -= need + 2
		list = append(list, column{head: strings.ReplaceAll(key, "_", " "), cell: field(key), firm: len(list) == 0})
	}
	return list
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

// plural is the noun that somebody means who may have written queue for queues.
func plural(noun string) string {
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
