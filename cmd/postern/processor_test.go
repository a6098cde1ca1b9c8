package main

import (
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/pgtest"
)

// An owner works a processor, against real processes and a worker that is built in.
func TestAProcessorIsWorkedFromTheCommandLine(t *testing.T) {
	t.Parallel()
	_, at := serving(t, append(database(pgtest.New(t).URL), "POSTERN_AUTH=none"), "serve", "--work")
	env := []string{at, "POSTERN_OUTPUT=table"}
	postern(t, env, "api", "PUT", "/dispatchers/ADD", "-d", `{"worker_url": "noop:"}`).want(t, 0)
	postern(t, env, "api", "PUT", "/processors/main", "-d", `{"tick_interval": "0s"}`).want(t, 0)
	const batch = `{"actions_config": {"non_atomic": {"functions": [{"domain": "main", "contract_address": "ADD", "message_details": {"message": {"name": "add"}}}]}}, "msgs": [{"msg": {"add": {}}}]}`
	postern(t, env, "processor", "insert", "main", batch).want(t, 0, "Queued", "Med")
	postern(t, env, "processor", "insert", "main", batch, "--position", "0").want(t, 0, "Queued")
	postern(t, env, "processor", "insert", "main", batch, "--after", "2").want(t, 0, "Queued")
	postern(t, env, "processor", "insert", "main", batch, "--position", "9").want(t, 1, "Index out of bounds")
	postern(t, env, "processor", "insert", "main", "[]").want(t, 2, "want a JSON object")
	postern(t, []string{at}, "processor", "show", "main", "--line", "Med", "-o", "json").want(t, 0, `"length":3`)
	postern(t, env, "processor", "show", "main", "--line", "Med",
		"--from", "1", "--to", "2").want(t, 0, "Queued", "Med")
	postern(t, env, "processor", "show", "main", "--line", "Med", "--to", "9").want(t, 2, "Invalid range")
	postern(t, env, "processor", "show", "main", "--to", "2").want(t, 2, "--line")
	postern(t, env, "processor", "ls").want(t, 0, "main", "Active", "3")
	postern(t, env, "processor", "pause", "main", "--reason", "audit").want(t, 0, "done")
	postern(t, env, "processor", "tick", "main").want(t, 1, "Processor is currently paused")
	postern(t, env, "processor", "resume", "main").want(t, 0, "done")
	postern(t, env, "why", "processors/main/batches/1").want(t, 0, "behind 2 batches", "processors/main/batches/2")
	postern(t, env, "processor", "evict", "main", "--position", "1").want(t, 0, "removed_by_owner")
	postern(t, env, "processor", "evict", "main", "3").want(t, 1, "batch 3 is Done")
	postern(t, env, "processor", "evict", "main").want(t, 2, "want an ID")
	postern(t, env, "show", "processors/main/batches/1").want(t, 0, "actions_config", "Queued")
	for range 2 {
		postern(t, env, "processor", "tick", "main", "--wait", "30s").want(t, 0, "finished", "executed")
	}
	postern(t, env, "processor", "tick", "main").want(t, 1, "There is currently nothing to process")
	postern(t, env, "processor", "show", "main").want(t, 0, "Active")
}

// S4.14: no worker takes the batch, and it times out. Once there is a worker, the batch is sent again under its id.
func TestABatchIsSentAgainFromTheCommandLine(t *testing.T) {
	t.Parallel()
	at := installation(t)
	env := append(at, "POSTERN_OUTPUT=table")
	postern(t, env, "api", "PUT", "/dispatchers/ADD", "-d", `{"worker_url": "http://127.0.0.1:9/"}`).want(t, 0)
	postern(t, env, "api", "PUT", "/processors/far",
		"-d", `{"tick_interval": "50ms", "deliver_within": "100ms"}`).want(t, 0)
	postern(t, env, "api", "POST", "/authorizations", "-d", `{"label": "pay", "mode": "permissionless", "actions_config": {"non_atomic": {"functions": [
		{"domain": "far", "contract_address": "ADD", "message_details": {"message": {"name": "add"}}}]}}}`).want(t, 0)
	postern(t, env, "processor", "retry", "pay", "1").want(t, 1, "has no execution 1")
	postern(t, env, "api", "POST", "/authorizations/pay/send",
		"-d", `{"messages": [{"msg": {"add": {}}}], "ttl": 3600}`).want(t, 0)
	is := func(what string) {
		t.Helper()
		for until := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			switch r := postern(t, at, "api", "GET", "/processors/far/batches/1"); {
			case strings.Contains(r.stdout, what):
				return
			case time.Now().After(until):
				t.Fatalf("%s: not within a minute\n%s%s", what, r.stdout, r.stderr)
			}
		}
	}
	is(`"state":"Timed_Out"`)
	postern(t, env, "why", "processors/far/batches/1").want(t, 0, "undelivered", "postern processor retry pay 1",
		"postern processor evict far 1")
	postern(t, env, "api", "PUT", "/dispatchers/ADD", "-d", `{"worker_url": "noop:"}`).want(t, 0)
	postern(t, env, "api", "PATCH", "/processors/far", "-d", `{"deliver_within": "0s"}`).want(t, 0)
	postern(t, env, "processor", "retry", "pay", "one").want(t, 2, "want the number of a batch")
	postern(t, env, "processor", "retry", "pay", "1").want(t, 0)
	is(`"kind":"executed"`)
	postern(t, env, "processor", "retry", "pay", "1").want(t, 1, "Messages are not retriable")
}

func TestThePageAboutProcessorsWorksAsItIsWritten(t *testing.T) {
	t.Parallel()
	said := play(t, "processor.md", append(installation(t), "POSTERN_OUTPUT=table",
		"POSTERN_METRICS_LISTEN=127.0.0.1:0"), "127.0.0.1:8081", "127.0.0.1:0")
	mustSay(t, said, "requeued", "finished", "removed_by_owner", "starving",
		"The message doesn't pass all the parameter restrictions", "callback_pending",
		`callbacks/7 -d '{"payload":"..."}'`, "evict main 7", `"spent":1`, `"initiator":"peer:near"`)
}
