package ui_test

import (
	"fmt"
	"strings"
	"testing"
)

// throng fills all other tables that grow with so many rows each: jobs, half of them in flows of two, with a try, a
// step and a line of output each; events; deliveries; messages of a channel; messages between contexts; intents of a
// domain, half of them open; sessions; the audit. It returns the pages of things that have many others.
func (h *house) throng(n int) (pages []string) {
	h.t.Helper()
	h.api("PUT", "/subscriptions/hook", `{"kind": "pull", "events": ["transaction.done"]}`)
	h.api("PUT", "/channels/ch", `{"kind": "integrity"}`)
	h.api("PUT", "/runners/box", `{"script_types": ["python"]}`)
	h.api("PUT", "/sources/src", `{"kind": "push", "map": {"fqn": "/tool"}}`)
	h.api("PUT", "/contexts/keys", `{}`)
	h.api("PUT", "/domains/notes", `{"types": ["T"], "service_url": "http://127.0.0.1:1"}`)
	h.api("POST", "/domains/notes/pause", ``)
	h.key("keys", "reader")
	for _, sql := range []string{
		`INSERT INTO postern.flow (flow_id, context_id, actor, env, status, jobs, created_at, updated_at)
			SELECT ('00000000-0000-7000-8000-' || lpad(i::text, 12, '0'))::uuid, c.id, 'a', '{}', 'dispatched', 2,
				clock_timestamp() - i * interval '1 s', clock_timestamp()
			FROM c, generate_series(1, $1::int / 4) i`,
		`INSERT INTO postern.job (job_id, context_id, actor, ref, flow_id, script, script_type, timeout, retries, env,
				status, was, result, started_at, ended_at, tx_open, created_at, updated_at)
			SELECT ('00000000-0000-7000-9000-' || lpad(i::text, 12, '0'))::uuid, c.id, 'a', i,
				CASE WHEN i <= $1::int / 2 THEN
					('00000000-0000-7000-8000-' || lpad(((i + 1) / 2)::text, 12, '0'))::uuid END,
				'1', 'python', '1 min', 0, '{}', CASE WHEN i % 2 = 0 THEN 'finished' ELSE 'dispatched' END,
				CASE WHEN i % 2 = 0 THEN 'started' ELSE '' END, CASE WHEN i % 2 = 0 THEN '{}'::jsonb END,
				CASE WHEN i % 2 = 0 THEN clock_timestamp() END, CASE WHEN i % 2 = 0 THEN clock_timestamp() END,
				i % 2 = 1, clock_timestamp() - i * interval '1 s', clock_timestamp()
			FROM c, generate_series(1, $1::int) i`,
		`INSERT INTO postern.job_try (try_id, context_id, job_id, queue_id, seq, attempt, token, lane, was, state,
				runner_id, offered_at, held_at, ended_at, settled)
			SELECT j.job_id, c.id, j.job_id, 1, j.ref, 1, j.ref::text, 'python', CASE WHEN j.ref % 2 = 0 THEN 'Held'
				ELSE '' END, CASE WHEN j.ref % 2 = 0 THEN 'Finished' ELSE 'Offered' END,
				CASE WHEN j.ref % 2 = 0 THEN (SELECT runner_id FROM postern.runner) END, j.created_at, j.started_at,
				j.ended_at, true
			FROM c, postern.job j
			WHERE j.ref <= $1`,
		`INSERT INTO postern.try_log (try_id, fence, n, at, stream, text)
			SELECT t.try_id, 0, 1, t.offered_at, 'stdout', 'x' FROM postern.job_try t WHERE t.seq <= $1`,
		`INSERT INTO postern.flow_step (object, n, at, machine, was, event, status)
			SELECT j.job_id, 1, j.created_at, 'job', '', 'JobCreated', 'dispatched' FROM postern.job j WHERE ref <= $1`,
		`INSERT INTO postern.event (event_id, context_id, source_id, identity, json, fqn, was, status, created_at,
				updated_at, entered_at)
			SELECT gen_random_uuid(), c.id, s.source_id, i::text, '{}', 'f', '', 'Queued',
				clock_timestamp() - i * interval '1 s', clock_timestamp(), clock_timestamp()
			FROM c, postern.source s, generate_series(1, $1::int) i`,
		`INSERT INTO postern.delivery (queue_id, seq, day, subscription_id, event, context_id, cursor, at, state,
				created_at)
			SELECT t.queue_id, t.seq, t.day, s.subscription_id, 'done', t.context_id, row_number() OVER (),
				t.created_at, 'kept', t.created_at
			FROM postern.task t, postern.subscription s
			LIMIT $1`,
		`INSERT INTO postern.channel_message (channel_id, message_id, payload, state, fence, draw, created_at,
				updated_at)
			SELECT l.channel_id, i::text, '{}', 'Queued', 1, i, clock_timestamp(), clock_timestamp()
			FROM postern.channel l, generate_series(1, $1::int) i
			WHERE l.name = 'ch'`,
		`INSERT INTO postern.message (message_id, context_id, target_id, to_context, actor, type, format, body, timeout,
				timeout_ack, timeout_result, was, status, created_at, routed_at, delivered_at, acked_at, ended_at,
				updated_at)
			SELECT ('00000000-0000-7000-a000-' || lpad(i::text, 12, '0'))::uuid, c.id, c.id, 'default', 'a', 'chat',
				'text', 'x', 0, 0, 0, CASE WHEN i % 2 = 0 THEN 'acknowledged' ELSE 'dispatched' END,
				CASE WHEN i % 2 = 0 THEN 'processed' ELSE 'dispatched' END, x.at, x.at, x.at,
				CASE WHEN i % 2 = 0 THEN x.at END, CASE WHEN i % 2 = 0 THEN x.at END, x.at
			FROM c, generate_series(1, $1::int) i
			CROSS JOIN LATERAL (SELECT clock_timestamp() - i * interval '1 s' AS at) x`,
		`INSERT INTO postern.message_step (message_id, n, at, was, event, status)
			SELECT m.message_id, 1, m.created_at, '', 'Sent', 'dispatched' FROM postern.message m LIMIT $1`,
		`INSERT INTO postern.coord_intent (domain_id, intent_id, seq, uid, hash, actor, party, was, state, since, held,
				image, receipt, created_at, ended_at)
			SELECT d.domain_id, ('00000000-0000-7000-b000-' || lpad(i::text, 12, '0'))::uuid, i, i::text, '', 'a',
				'ann@self', CASE WHEN i % 2 = 0 THEN 'Submitted' ELSE '' END,
				CASE WHEN i % 2 = 0 THEN 'Confirmed' ELSE 'Pending' END, clock_timestamp(), i % 2 = 1, '{}',
				CASE WHEN i % 2 = 0 THEN 'success' END, clock_timestamp(),
				CASE WHEN i % 2 = 0 THEN clock_timestamp() END
			FROM c, postern.domain d, generate_series(1, $1::int) i
			WHERE d.name = 'notes'`,
		`INSERT INTO postern.coord_payload (domain_id, intent_id, generation, part, data, at)
			SELECT i.domain_id, i.intent_id, 0, 'intent', '{}', i.created_at FROM postern.coord_intent i LIMIT $1`,
		`INSERT INTO postern.coord_step (domain_id, object, at, machine, was, event, state)
			SELECT i.domain_id, i.intent_id::text, i.created_at, 'originator_transaction', '', 'Received', 'Pending'
			FROM postern.coord_intent i
			LIMIT $1`,
		`INSERT INTO postern.audit (context_id, at, actor, via, action, object)
			SELECT c.id, clock_timestamp() - i * interval '1 s', 'a', 'http', 'pause', '/queues/q' || i
			FROM c, generate_series(1, $1::int) i`,
		`INSERT INTO postern.ui_session (hash, key_id, key_hash, expires_at)
			SELECT sha256(i::text::bytea), k.key_id, k.hash, clock_timestamp() + interval '1 h'
			FROM postern.api_key k, generate_series(1, $1::int) i`,
	} {
		const context = `WITH c AS (SELECT context_id AS id FROM postern.context WHERE name = 'default') `
		head, rest, _ := strings.Cut(sql, "SELECT")
		tag, err := h.store.Pool().Exec(h.t.Context(), head+context+"SELECT"+rest, n)
		if err != nil || tag.RowsAffected() < int64(n/4) {
			h.t.Fatalf("%s: %v %v", sql, tag, err)
		}
	}
	if _, err := h.store.Pool().Exec(h.t.Context(), `VACUUM (ANALYZE, SKIP_LOCKED)`); err != nil {
		h.t.Fatal(err)
	}
	return append(narrowed, "flows/00000000-0000-7000-8000-000000000001", "jobs/00000000-0000-7000-9000-000000000002",
		"jobs/00000000-0000-7000-9000-000000000002/logs", "jobs?status=dispatched", "flows?status=finished",
		"runners/box", "channels/ch", "sources/src", "subscriptions/hook", "audit?actor=a", "messages?box=in",
		"messages/00000000-0000-7000-a000-000000000002", "domains/notes",
		"domains/notes/intents?receipt=success", "domains/notes/intents/00000000-0000-7000-b000-000000000001")
}

// narrowed are lists of what none or few of many rows are.
var narrowed = strings.Fields(`messages?status=error messages?status=acknowledged messages?box=in&status=error
	jobs?status=error jobs?status=started flows?status=error events?status=Dead deliveries?state=failed
	domains/notes/intents?receipt=failure domains/notes/intents?state=Reverted domains/notes/intents?state=Parked`)

// counted are tables that pages read much of today: the events kept of one subscription and the messages of one channel
// are counted, and what is open in a domain, which steps take into memory, is gone through for one state of it. Lists
// of queues that are narrowed look at up to 25,000 queues. The queues that a node holds are looked for in all rows: an
// index by node would be written with each claim and each end of one. How many are in each state is counted, and kept,
// so that it takes a twentieth of a connection. A page that is not listed must not read so much, and these must read
// nothing else.
var counted = map[string][]string{
	"subscriptions/hook":                 {"delivery"},
	"channels/ch":                        {"channel_message"},
	"domains/notes/intents?state=Parked": {"coord_intent"},
	"queues?state=FREE":                  {"queue", "queue_name"},
	"queues?prefix=q99":                  {"queue_name"},
	"queues?stuck_for=10h":               {"queue", "queue_name"},
	"nodes/n":                            {"queue"},
	"queues?node=n":                      {"queue"},
	"now":                                {"queue"},
	"machines/transaction":               {"queue"},
	"machines/queue":                     {"queue"},
}

// scanned says which tables a page has read more than so many rows and entries of indexes of, by what the database has
// counted before and after it.
func scanned(before, after map[string]int64, most int64) (tables []string) {
	for table, n := range after {
		if n -= before[table]; n > most {
			tables = append(tables, fmt.Sprintf("%d of %s", n, table))
		}
	}
	return tables
}

// The check of pages that scan finds one: a list that is narrowed by a column without an index, as a page would ask it.
func TestAPageThatScansIsFound(t *testing.T) {
	h := newHouse(t, "none")
	h.crowd(6000)
	h.throng(8000)
	for table, sql := range map[string]string{
		"job":        `SELECT count(*) FROM postern.job WHERE script = '2'`,
		"audit":      `SELECT count(*) FROM postern.audit WHERE request_id = 'x'`,
		"queue":      `SELECT count(*) FROM postern.queue WHERE fence = 77`,
		"queue_name": `SELECT count(*) FROM postern.queue_name WHERE name LIKE '%none'`,
		"event":      `SELECT count(*) FROM postern.event WHERE digest = 'x'`,
	} {
		before := h.rowsRead()
		if _, err := h.store.Pool().Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
		found := scanned(before, h.rowsRead(), 5000)
		if len(found) != 1 || !strings.HasSuffix(found[0], " of "+table) {
			t.Errorf("%s: %v", sql, found)
		}
	}
}
