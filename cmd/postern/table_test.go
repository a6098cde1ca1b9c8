package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// tableFiles holds what lists look like on 80 columns, and in a pipe.
const tableFiles = "../../testdata/cli/tables"

// before is the time that was so long ago.
func before(d time.Duration) string { return time.Now().Add(-d).UTC().Format(time.RFC3339Nano) }

// sampleRows are rows as installations have them, with names as long as identifiers are.
func sampleRows() map[string][]record {
	const id, uid = "01j9z3k5f7h9m1p3r5t7v9x1z3", "0193f0e1-7a2b-8c3d-9e4f-123456789012"
	refused := map[string]any{"code": "worker_refused",
		"message": "the account 4711 is closed since the first of the month, ask the branch"}
	return map[string][]record{
		"transactions": {
			{"uid": uid, "queue": "claim-7f3", "type": "PAY", "state": "RETRY", "attempt": json.Number("3"),
				"received_at": before(90 * time.Second), "next_at": before(-9*time.Hour - time.Minute),
				"error": refused},
			{"uid": "order-4711", "queue": "claim-7f4", "type": "PAY", "state": "DONE",
				"attempt": json.Number("1"), "received_at": before(26 * time.Hour)},
		},
		"transactions-short": {
			{"uid": "order-4711", "queue": "ada", "type": "PAY", "state": "RETRY", "attempt": json.Number("3"),
				"received_at": before(90 * time.Second), "next_at": before(-9*time.Hour - time.Minute),
				"error": map[string]any{"code": "timeout"}},
		},
		"queues": {
			{"name": "claim-7f3", "state": "DELAY", "paused": true, "depth": json.Number("12"),
				"sender": "acct-1", "node": "worker-7-4711-a",
				"head":    map[string]any{"state": "RETRY", "since": before(90 * time.Second)},
				"next_at": before(-9*time.Hour - time.Minute)},
			{"name": "claim-7f4", "state": "FREE", "depth": json.Number("2"), "waits_for": "type PAY is paused",
				"head": map[string]any{"state": "WAITING", "since": before(90 * time.Second)}},
		},
		"senders": {
			{"account": "0x52908400098527886E0F7030069857D2E4169EE7", "pool": "payouts", "state": "FREE",
				"queue":        "claim-7f3",
				"bound_since":  before(time.Hour + time.Minute),
				"block_reason": "its nonce is behind that of the chain, see the runbook",
				"last_used_at": before(90 * time.Second)},
		},
		"audit": {
			{"at": "2026-11-20T14:04:10.123Z", "actor": "ada", "action": "pause",
				"object": "queues/claim-7f3-of-the-customer-with-a-long-name",
				"via":    "http", "request_id": id,
				"reason": "the bank is closed until Monday, and it pays nothing out before"},
		},
		"attempts": {
			{"attempt": json.Number("1"), "started_at": "2026-11-20T14:04:10.123Z",
				"worker_ms": json.Number("31"), "class": "transient", "sender": "acct-1",
				"fee": "10", "nonce": "7", "node": "worker-7",
				"hash": "0x9fc76417374aa880d4449a1f7f31ec597f00b1f6f3dd2d66f4c9c6c445836d8b", "error": refused},
		},
		"jobs": {
			{"id": uid, "caller_id": "key:2cwyiweq", "ref": json.Number("7"), "script_type": "python",
				"queue": "reports", "status": "error", "tries": json.Number("2"), "runner": "r1",
				"flow": "01a21b2d-cc31-79e0-8691-a244acb726e2", "created_at": before(90 * time.Second),
				"error": map[string]any{"code": "exit", "message": "the script ended with exit code 3"}},
			{"id": "j2", "status": "dispatched", "script_type": "sal", "created_at": before(90 * time.Second)},
		},
		"flows": {
			{"id": uid, "caller_id": "key:2cwyiweq", "ref": json.Number("7"), "status": "started",
				"job_count": json.Number("12"), "finished_count": json.Number("3"), "created_at": before(time.Hour)},
		},
		"messages": {
			{"id": uid, "caller_id": "key:2cwyiweq", "ref": json.Number("7"), "status": "dispatched",
				"message_type": "chat", "from": "default", "to": map[string]any{"context": "shop"},
				"created_at": before(time.Hour)},
			{"id": "m-1", "set": "queued", "created_at": before(time.Hour)}, // of a channel
		},
		"runners": {
			{"name": "r1", "type": "python", "state": "live", "slots": json.Number("4"), "held": json.Number("1"),
				"isolation": "strict", "seen_at": before(3 * time.Second), "claimed_at": before(90 * time.Second),
				"program": "devel-385ef91b0123", "address": "10.0.0.7", "created_at": before(26 * time.Hour)},
		},
		"api-keys": {
			{"id": uid, "name": "till", "role": "executor", "only": []any{}},
			{"id": id, "name": "eye", "role": "reader", "only": []any{"read", "post"}},
		},
		"nouns-without-a-layout": {
			{"name": "ours", "id": uid, "reason": "because it was asked for in a meeting that went on for long",
				"b": "second", "c": "third", "d": "fourth", "e": "fifth value"},
		},
	}
}

func TestTablesAreGolden(t *testing.T) {
	for noun, rows := range sampleRows() {
		var b bytes.Buffer
		layout := columnsOf(noun, rows)
		if noun == "transactions-short" {
			layout = layouts["transactions"]
		}
		paper{width: 80}.table(&b, layout, rows)
		b.WriteString("\nin a pipe:\n")
		paper{}.table(&b, layout, rows)
		file := filepath.Join(tableFiles, noun+".txt")
		if *update {
			if err := os.MkdirAll(tableFiles, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if stored, err := os.ReadFile(file); err != nil || !bytes.Equal(stored, b.Bytes()) {
			t.Errorf("%s is not what is printed (%v): run this test with -update and read the diff\n%s", file, err, &b)
		}
	}
}

func TestWhatWasMeantIsFoundByDistance(t *testing.T) {
	for _, c := range []struct{ word, want string }{
		{"quues", "queues"},
		{"qeues", "queues"},
		{"senser", "senders"},
		{"dispatcher", "dispatchers"},
		{"trans", "transactions"},
		{"qeueu", "queues"},
		{"zebra", ""},
		{"x", ""},
	} {
		if got := nearest(c.word, []string{"dispatchers", "queues", "senders", "transactions"}); got != c.want {
			t.Errorf("%q: %q, want %q", c.word, got, c.want)
		}
	}
	if d := distance("pots", "post"); d != 1 {
		t.Errorf("two neighbours that are swapped are one change, not %d", d)
	}
}
