package main

import (
	"strings"
	"testing"
)

func TestAnOperatorReordersSuspendsAndClearsAQueue(t *testing.T) {
	t.Parallel()
	at := installation(t)
	table := append(at, "POSTERN_OUTPUT=table")
	do := func(code int, args ...string) result {
		t.Helper()
		r := postern(t, table, args...)
		r.want(t, code)
		return r
	}
	do(0, "api", "PUT", "/dispatchers/HELLO", "-d", `{"worker_url": "noop:"}`)
	do(0, "api", "PUT", "/queues/ada", "-d", `{}`)
	do(0, "pause", "queues/ada")
	for _, uid := range []string{"a", "b", "c", "d", "e"} {
		do(0, "post", "HELLO", "-q", "ada", "--uid", uid)
	}

	// the order
	postern(t, table, "move", "e", "d", "--first", "--reason", "urgent").want(t, 0, "e  done", "d  done")
	postern(t, table, "move", "e", "--first").want(t, 0, "it was so already")
	postern(t, table, "move", "a", "--after", "b", "--dry-run").want(t, 0, "would be done")
	postern(t, table, "move", "a", "--before", "nobody").want(t, 1, "nobody")
	do(2, "move", "a")
	do(2, "move", "a", "--first", "--after", "b")
	postern(t, table, "why", "a").want(t, 0, "placed ahead", "urgent")

	// one, and many
	postern(t, table, "suspend", "b", "--reason", "check").want(t, 0, "b  done")
	postern(t, table, "ls", "suspended=true").want(t, 0, "b ")
	postern(t, table, "suspend", "queue=ada", "--max", "2", "--dry-run").want(t, 0, "2 looked at, 1 would change")
	postern(t, table, "suspend", "queue=ada", "--max", "9").want(t, 0,
		"5 looked at, 4 changed, 0 of them pending, 0 refused")
	do(2, "suspend", "queue=ada")
	do(2, "abandon", "queue=ada", "--reason", "x")
	do(0, "resume", "queues/ada")
	postern(t, table, "why", "e").want(t, 0, "suspended by dev", "lever postern resume ")
	postern(t, table, "resume", "suspended=true", "--max", "9").want(t, 0, "5 changed")
	postern(t, at, "api", "GET", "/transactions/by-uid/c?wait=30s").want(t, 0, `"DONE"`)
	postern(t, table, "cancel", "queue=ada",
		"state=DONE", "--max", "9").want(t, 1, "5 looked at, 0 changed", "5 refused", "DONE already")
	out := do(0, "ls", "queue=ada", "-o", "json").stdout
	for _, pair := range [][2]string{{"e", "d"}, {"d", "a"}, {"a", "b"}, {"b", "c"}} { // by when they were done
		first, second := doneAt(t, out, pair[0]), doneAt(t, out, pair[1])
		if first > second {
			t.Errorf("%s was done at %s, %s at %s", pair[0], first, pair[1], second)
		}
	}

	// the queue and its sender
	postern(t, table, "drain", "queues/ada").want(t, 0, "queues/ada  done")
	postern(t, table, "post", "HELLO", "-q", "ada").want(t, 1, "until it is resumed")
	do(0, "resume", "queues/ada")
	do(0, "pause", "queues/ada")
	for range 3 {
		do(0, "post", "HELLO", "-q", "ada")
	}
	postern(t, table, "purge", "queues/ada", "--dry-run").want(t, 0, "would be done: 3 cancelled")
	postern(t, table, "purge", "queues/ada", "--max", "2", "--reason", "twice").want(t, 0, "2 cancelled; more wait")
	do(0, "api", "PUT", "/senders/acct-1", "-d", `{"pool": "p"}`)
	postern(t, table, "block", "senders/acct-1", "--for", "1h", "--reason", "gap").want(t, 0, "done")
	do(0, "block", "senders/acct-1")
	postern(t, table, "ls", "senders").want(t, 0, "for good")
	do(0, "unblock", "senders/acct-1")
}

// doneAt finds when a transaction of a page was done.
func doneAt(t *testing.T, page, uid string) string {
	t.Helper()
	r, err := parse([]byte(page))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range r.records("items") {
		if x.text("uid") == uid {
			return x.text("done_at")
		}
	}
	t.Fatalf("no %s in %s", uid, strings.TrimSpace(page))
	return ""
}
