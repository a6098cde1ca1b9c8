package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/session"
)

// recent is how long a transaction may be open before it is named.
var recent = time.Minute

// snapshots names the sessions whose transactions have been open for long: nothing that died since they
// began can be cleaned, in any table.
func snapshots(ctx context.Context, c *pgx.Conn) ([]Finding, error) {
	rows, err := c.Query(ctx, `
		SELECT pid::text, coalesce(usename, ''), coalesce(application_name, ''), coalesce(state, ''), clock_timestamp() - xact_start
		FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
			AND xact_start < clock_timestamp() - $1::interval
		UNION ALL SELECT 'prepared ' || gid, owner, '', 'prepared', clock_timestamp() - prepared
		FROM pg_prepared_xacts WHERE database = current_database() AND prepared < clock_timestamp() - $1::interval
		ORDER BY 5 DESC LIMIT 10`, recent)
	if err != nil {
		return nil, err
	}
	var found []Finding
	var pid, user, application, state string
	var age time.Duration
	_, err = pgx.ForEachRow(rows, []any{&pid, &user, &application, &state, &age}, func() error {
		f := Finding{"old snapshots", Warn, fmt.Sprintf("pid %s (%s, %q) has a transaction open for %s, %s", pid, user,
			application, coarse(age), state),
			"end it, or: SELECT pg_terminate_backend(" + pid + ")"}
		if gid, prepared := strings.CutPrefix(pid, "prepared "); prepared {
			f.Found = fmt.Sprintf("the prepared transaction %q of %s is %s old", gid, user, coarse(age))
			f.Remedy = "commit it, or: ROLLBACK PREPARED '" + gid + "'"
		}
		if age > old {
			f.State = Bad
		}
		found = append(found, f)
		return nil
	})
	if err == nil && len(found) == 0 {
		found = []Finding{{Check: "old snapshots", State: OK, Found: "no transaction is open for more than a minute"}}
	}
	return found, err
}

// Drained is found where all nodes that live are drained.
func Drained(names []string) Finding {
	some := strings.Join(names[:min(len(names), 5)], ", ")
	return Finding{
		Check:  "nodes",
		State:  Bad,
		Found:  "nothing goes out: each node that lives is drained (" + some + ")",
		Remedy: "postern resume nodes/" + names[0] + ", or start another `postern work`",
	}
}

// nodes wants one that dispatches, and none that is gone and still holds queues.
func nodes(ctx context.Context, c *pgx.Conn) ([]Finding, error) {
	rows, err := c.Query(ctx, `
		SELECT n.name, n.dead_at IS NULL AND n.heartbeat_at > clock_timestamp() - n.ttl, clock_timestamp() - n.heartbeat_at,
			coalesce(q.held, 0), n.draining
		FROM postern.node n LEFT JOIN (SELECT node_id, count(*) AS held FROM postern.queue WHERE node_id IS NOT NULL GROUP BY 1) q USING (node_id)
		WHERE n.kind = 'work' ORDER BY n.heartbeat_at DESC LIMIT 1000`)
	if err != nil {
		return nil, err
	}
	var found []Finding
	var live, drained []string
	var name string
	var alive, draining bool
	var silent time.Duration
	var held int
	_, err = pgx.ForEachRow(rows, []any{&name, &alive, &silent, &held, &draining}, func() error {
		switch {
		case alive:
			if live = append(live, name); draining {
				drained = append(drained, name)
			}
		case held > 0:
			found = append(found, Finding{"dead nodes", Bad,
				fmt.Sprintf("%s is silent for %s and holds %s", name, coarse(silent), fault.Many(held, "queue")),
				"another node takes them over: start `postern work` if none does"})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	switch {
	case len(live) == 0:
		found = append(found, Finding{"nodes", Bad, "no process dispatches", "start `postern work`"})
	case len(drained) == len(live):
		found = append(found, Drained(drained))
	case len(live) > 5:
		found = append(found, Finding{Check: "nodes", State: OK,
			Found: fmt.Sprintf("%d live: %s and others", len(live), strings.Join(live[:5], ", "))})
	default:
		found = append(found, Finding{Check: "nodes", State: OK,
			Found: fmt.Sprintf("%d live: %s", len(live), strings.Join(live, ", "))})
	}
	return found, nil
}

// overdue names queues that are in a state for longer than it may last, with who should have moved them.
func overdue(ctx context.Context, c *pgx.Conn) ([]Finding, error) {
	rows, err := c.Query(ctx, `
		SELECT x.name, coalesce(n.name, ''), o.phase, clock_timestamp() - o.due, o.what, coalesce(o.node, '')
		FROM postern.overdue o JOIN postern.context x USING (context_id) LEFT JOIN postern.queue_name n USING (queue_id)
		ORDER BY o.due LIMIT 5`)
	if err != nil {
		return nil, err
	}
	var found []Finding
	var tenant, name, phase, what, node string
	var late time.Duration
	_, err = pgx.ForEachRow(rows, []any{&tenant, &name, &phase, &late, &what, &node}, func() error {
		f := Finding{
			Check: "overdue queues",
			State: Bad,
			Found: fmt.Sprintf("queue %q (context %s) should have left %s %s ago: %s", name,
				tenant, phase, coarse(late), what),
			Remedy: "look at the log of the processes that work, and restart them one after the other",
		}
		if name == "" {
			f.Found = fmt.Sprintf("unordered work (context %s) should have left %s %s ago: %s",
				tenant, phase, coarse(late), what)
		}
		if node != "" {
			f.Remedy = "it should have handed it back by itself: restart it, or postern bury nodes/" + node +
				" --reason ..."
		}
		found = append(found, f)
		return nil
	})
	if err == nil && len(found) == 0 {
		found = []Finding{{Check: "overdue queues", State: OK,
			Found: "each is in its state for no longer than that may last"}}
	}
	return found, err
}

// quarantine says what is kept from leaving: behind it nothing moves, whatever else is found.
func quarantine(ctx context.Context, c *pgx.Conn) ([]Finding, error) {
	rows, err := c.Query(ctx, `SELECT coalesce(x.name, ''), coalesce(q.type, ''), q.reason, q.actor, clock_timestamp() - q.entered_at
		FROM postern.quarantine q LEFT JOIN postern.context x USING (context_id) ORDER BY q.quarantine_id`)
	if err != nil {
		return nil, err
	}
	var found []Finding
	var tenant, typ, reason, actor string
	var age time.Duration
	_, err = pgx.ForEachRow(rows, []any{&tenant, &typ, &reason, &actor, &age}, func() error {
		what := "everything"
		switch {
		case typ != "" && tenant != "":
			what = fmt.Sprintf("type %s of context %s", typ, tenant)
		case typ != "":
			what = "type " + typ
		case tenant != "":
			what = "context " + tenant
		}
		found = append(found, Finding{"quarantine", Bad,
			fmt.Sprintf("%s is in quarantine for %s, entered by %s, and nothing of it leaves: %s",
				what, coarse(age), actor, reason),
			"postern quarantine status says what is to be done"})
		return nil
	})
	return found, err
}

// queues names the queues that are not paused, whose head has not moved for long and has no timer that is due later.
func queues(ctx context.Context, c *pgx.Conn) ([]Finding, error) {
	rows, err := c.Query(ctx, `
		SELECT x.name, coalesce(n.name, ''), q.phase, clock_timestamp() - s.since
		FROM postern.queue q JOIN postern.context x USING (context_id) LEFT JOIN postern.queue_name n USING (queue_id)
		LEFT JOIN postern.timer t ON t.queue_id = q.queue_id
		-- a try that came to nothing is no move
		CROSS JOIN LATERAL (SELECT least(greatest(q.entered_at, t.due_at), q.blocked_since)) s(since)
		WHERE q.phase <> 'IDLE' AND NOT q.paused AND s.since < clock_timestamp() - $1::interval
			AND NOT EXISTS (SELECT FROM postern.mark m -- see held
				WHERE (m.queue_id, m.seq, m.kind) = (q.queue_id, q.cur_seq, 'unknown'))
		ORDER BY 4 DESC LIMIT 1001`, old)
	if err != nil {
		return nil, err
	}
	var found []Finding
	var tenant, name, phase string
	var age time.Duration
	n := 0
	_, err = pgx.ForEachRow(rows, []any{&tenant, &name, &phase, &age}, func() error {
		if n++; n > 5 {
			return nil
		}
		f := Finding{"stuck queues", Bad, fmt.Sprintf("queue %q (context %s) is %s for %s", name, tenant,
			phase, coarse(age)), "postern why queues/" + name}
		if name == "" {
			f.Found, f.Remedy = fmt.Sprintf("unordered work (context %s) is %s for %s", tenant, phase, coarse(age)),
				"postern ls state=WAITING order=asc, then postern why ID"
		}
		if tenant != "default" {
			f.Remedy += " --context " + tenant
		}
		found = append(found, f)
		return nil
	})
	switch {
	case n > 1000:
		found = append(found, Finding{"stuck queues", Bad, "more than 1000 stand still",
			"look at what they have in common first: nodes, workers, senders"})
	case n > 5:
		found = append(found, Finding{"stuck queues", Bad, fmt.Sprintf("%d stand still", n),
			"look at what they have in common first: nodes, workers, senders"})
	case n == 0 && err == nil:
		found = []Finding{{Check: "stuck queues", State: OK, Found: "none has stood still for " + coarse(old)}}
	}
	return found, err
}

// gates names the workers that are left alone, since nothing came of the calls to them, with the last answer.
func gates(ctx context.Context, c *pgx.Conn) ([]Finding, error) {
	rows, err := c.Query(ctx, `
		SELECT 'type', d.type, d.settings->>'worker_url', d.gate_failures, d.gate_reason, d.gate_node,
			clock_timestamp() - d.gate_since
		FROM postern.dispatcher d
		WHERE d.gate_failures > 0 AND d.removed_at IS NULL
		UNION ALL SELECT 'sender', s.account, s.worker_url, s.gate_failures, s.gate_reason, s.gate_node,
			clock_timestamp() - s.gate_since
		FROM postern.sender s
		WHERE s.gate_failures > 0 AND s.removed_at IS NULL
		ORDER BY 1 DESC, 2 LIMIT 20`)
	if err != nil {
		return nil, err
	}
	var found []Finding
	var kind, name, url, why, node string
	var failures int
	var age *time.Duration
	_, err = pgx.ForEachRow(rows, []any{&kind, &name, &url, &failures, &why, &node, &age}, func() error {
		tries := fmt.Sprintf("%d tries in a row", failures)
		if age != nil {
			tries += ", for " + coarse(*age)
		}
		if node != "" {
			tries += ", the last by node " + node
		}
		f := Finding{
			Check: "worker of " + name,
			State: Bad,
			Found: fmt.Sprintf("calls to %s come to nothing (%s): %s", url, tries, why),
			Remedy: "start it, or give another worker_url: postern api PATCH /dispatchers/" + name +
				` -d '{"worker_url": "http://WORKER"}'`,
		}
		if kind == "sender" {
			f.Check = "worker of sender " + name
			f.Remedy = "mend that; probes go on by themselves, and postern unblock senders/" + name + " tries at once"
			if url == "" {
				f.Found = fmt.Sprintf("its worker cannot use it (%s): %s", tries, why)
			}
		}
		if refused(why) {
			f.Remedy = "see addresses: start `postern work` with the range of its host in --worker-allow-cidr"
		}
		found = append(found, f)
		return nil
	})
	return found, err
}

// blocked names the types whose gate is open, though the calls of some queues come to nothing, with the last answer to
// the one of them that waits for longest.
func blocked(ctx context.Context, c *pgx.Conn) ([]Finding, error) {
	rows, err := c.Query(ctx, `
		SELECT x.name, t.type, count(*), max(clock_timestamp() - q.blocked_since),
			(array_agg(concat_ws(' ', a.error, '(' || a.code || ')') ORDER BY q.blocked_since))[1],
			(array_agg(postern.public_id(t.queue_id, t.seq, t.day, postern.salt(t.created_at, t.moved_from))
				ORDER BY q.blocked_since))[1]::text
		FROM postern.queue q
		JOIN postern.context x USING (context_id)
		JOIN postern.task t ON t.queue_id = q.queue_id AND t.seq = coalesce(q.cur_seq, q.next_seq, q.head_seq)
			AND t.day BETWEEN q.head_day AND q.tail_day
		LEFT JOIN LATERAL (
			SELECT a.error, a.code
			FROM postern.attempt a
			WHERE (a.queue_id, a.seq, a.day) = (t.queue_id, t.seq, t.day) AND a.class IS NOT NULL AND a.step <> 'late'
			ORDER BY a.attempt DESC, a.answered_at DESC
			LIMIT 1) a ON true
		WHERE q.blocked_since IS NOT NULL AND q.phase <> 'IDLE'
			AND NOT EXISTS (SELECT FROM postern.dispatcher d -- see gates
				WHERE (d.context_id, d.type) = (t.context_id, t.type) AND d.gate_failures > 0)
		GROUP BY x.name, t.type
		ORDER BY 4 DESC
		LIMIT 20`)
	if err != nil {
		return nil, err
	}
	var found []Finding
	var tenant, typ, said, id string
	var n int
	var age time.Duration
	_, err = pgx.ForEachRow(rows, []any{&tenant, &typ, &n, &age, &said, &id}, func() error {
		words := []string{"postern", "why", id}
		if tenant != "default" {
			words = append(words, "--context", tenant)
		}
		found = append(found, Finding{
			Check: "worker of " + typ,
			State: Bad,
			Found: fmt.Sprintf("the calls of %d of its queues (context %s) come to nothing, for up to %s: %s",
				n, tenant, coarse(age), said),
			Remedy: Shell(words...),
		})
		return nil
	})
	return found, err
}

// Worker is one whose reachability is to be tried.
type Worker struct{ Type, URL string }

// Workers lists up to 100 workers of all dispatchers, so that the caller can try to reach them.
func Workers(ctx context.Context, url string) ([]Worker, error) {
	c, err := session.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer c.Close(context.WithoutCancel(ctx))
	rows, err := c.Query(ctx, `SELECT min(type), settings->>'worker_url' FROM postern.dispatcher
		WHERE removed_at IS NULL AND settings->>'worker_url' LIKE 'http%' GROUP BY 2 ORDER BY 1 LIMIT 100`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Worker])
}

// refused says whether a gate is closed since the nodes may not call the address by their own setting, which its reason
// then names: the worker may be well, and another URL mends nothing.
func refused(why string) bool { return strings.Contains(why, "--worker-allow-cidr") }
