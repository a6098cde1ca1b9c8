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
