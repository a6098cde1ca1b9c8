package pg_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// granted lists the grants of applications and of everybody, and what each is for, or what checks it. A change that
// grants more says here what that permits.
var granted = []struct{ grants, because string }{
	// reading: the policy "tenant" of each table leaves the rows of own contexts
	{"postern_submit SELECT postern.task postern.outcome postern.dependency postern.idempotency",
		"submit compares bodies"},
	{"postern_submit SELECT postern.queue postern.queue_name", "submit looks for room"},
	{"postern_submit SELECT postern.delivery postern.checkpoint", "feed reads them"},
	{"postern_submit SELECT postern.outbox", "submit looks for a uid"},
	{"postern_submit SELECT postern.batch postern.batch_step postern.processor", "feed tells of batches"},
	{"postern_submit SELECT(context_id declared_queues draining max_depth name removed_at require_key) " +
		"postern.context", "submit looks for a context; no column that is secret"},
	{"postern_submit SELECT(context_id draining posted_by removed_at type) postern.dispatcher",
		"submit looks for a type; no URL"},
	{"postern_submit SELECT(account context_id sender_id) postern.sender", "feed tells of senders; no address"},
	{"postern_submit SELECT(context_id dropped include kind name newest removed_at subscription_id) " +
		"postern.subscription", "feed and ack look for it; no secret"},
	{"postern_submit SELECT(actor cause context_id created_at ended_at error error_code finished " +
		"flow_id jobs redrive_of ref result started_at) postern.flow", "feed tells of flows; no environment"},
	{"postern_submit SELECT(actor body context_id created_at format message_id peer ref reply_to result " +
		"target_id to_actor topic type) postern.message", "feed tells of messages"},
	{"postern_submit SELECT(actor created_at domain_id ended_at intent_id parked party receipt seq text uid) " +
		"postern.coord_intent", "feed tells of intents"},
	{"postern_submit SELECT(domain_id generation intent_id uid) postern.coord_activity", "by their transactions"},
	{"postern_submit SELECT(data domain_id generation intent_id part) postern.coord_payload", "with their data"},
	{"postern_submit SELECT(context_id domain_id name settings) postern.domain", "feed tells of domains"},
	{"postern_submit SELECT(at domain_id event n node object reason) postern.coord_step",
		"feed tells who coordinates, and why an intent is parked"},
	{"postern_submit SELECT(actor cause context_id created_at ended_at error error_code exit_code " +
		"flow_id job_id queue ref result script_type started_at tx_id uid) postern.job",
		"feed tells of jobs; no script and no environment"},
	// writing: a trigger judges each row
	{"postern_submit INSERT(callback context_id data depends_on max_retries not_before queue tags type uid) " +
		"postern.outbox", "judge_staged refuses what POST refuses; its number, actor and time are not given"},
	{"postern_submit UPDATE(acked) postern.checkpoint",
		"judge_ack: forward, and not beyond all events; feed locks the row"},
	// views, which leave own contexts by themselves
	{"postern_submit SELECT postern.transactions postern.bodies postern.queues postern.senders postern.places " +
		"postern.arrivals postern.contexts postern.located report.attempts report.stuck report.causes " +
		"report.throughput_hourly report.latency_hourly report.time_in_state report.failures report.sender_use " +
		"report.deliveries report.audit report.nodes report.processors report.batches report.events " +
		"report.channels report.retention postern.jobs report.flows report.jobs report.messages report.domains " +
		"report.intents report.runners",
		"people and applications read them"},
	{"PUBLIC SELECT postern.own_contexts", "the contexts of the one that asks"},
	{"postern_submit USAGE postern", "to name these"},
	{"postern_submit USAGE report", "to name these"},
	// functions with the rights of another; all others do what their caller may do
	{"PUBLIC DEFINER postern.is_allowed(address inet)",
		"submit asks whether a node may call an address; it returns no range"},
}

// TestWhatIsGrantedToApplicationsIsNeededAndChecked lists the grants of the database.
func TestWhatIsGrantedToApplicationsIsNeededAndChecked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rows, err := w.S.Pool().Query(w.Ctx, `
		WITH n AS (SELECT n.oid, n.nspname FROM pg_namespace n WHERE n.nspname IN ('postern', 'report', 'river')),
		given AS (
			SELECT a.grantee, a.privilege_type || ' ' || n.nspname || '.' || c.relname AS what
			FROM pg_class c JOIN n ON n.oid = c.relnamespace CROSS JOIN aclexplode(c.relacl) a
			WHERE NOT c.relispartition
			UNION ALL
			SELECT a.grantee, a.privilege_type || '(' || string_agg(t.attname, ' '
				ORDER BY t.attname::text COLLATE "C") || ') ' || n.nspname || '.' || c.relname
			FROM pg_class c JOIN n ON n.oid = c.relnamespace JOIN pg_attribute t ON t.attrelid = c.oid
			CROSS JOIN aclexplode(t.attacl) a
			GROUP BY a.grantee, a.privilege_type, n.nspname, c.relname
			UNION ALL
			SELECT a.grantee, a.privilege_type || ' ' || n.nspname FROM n JOIN pg_namespace s USING (oid)
			CROSS JOIN aclexplode(s.nspacl) a
			UNION ALL
			SELECT a.grantee, 'DEFINER ' || n.nspname || '.' || p.proname
				|| '(' || pg_get_function_identity_arguments(p.oid) || ')'
			FROM pg_proc p JOIN n ON n.oid = p.pronamespace
			CROSS JOIN aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
			WHERE p.prosecdef
			UNION ALL
			SELECT a.grantee, 'DEFAULT ' || a.privilege_type || ' ' || n.nspname
			FROM pg_default_acl d JOIN n ON n.oid = d.defaclnamespace CROSS JOIN aclexplode(d.defaclacl) a)
		SELECT coalesce(r.rolname, 'PUBLIC') || ' ' || g.what FROM given g LEFT JOIN pg_roles r ON r.oid = g.grantee
		WHERE g.grantee = 0 OR r.rolname = 'postern_submit'`)
	w.Must(err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	w.Must(err)
	want := map[string]bool{}
	for _, g := range granted {
		list := g.grants
		head, objects := list, []string{""}
		if at := strings.Index(list, " SELECT "); at > 0 {
			head, objects = list[:at+len(" SELECT ")], strings.Fields(list[at+len(" SELECT "):])
		}
		for _, o := range objects {
			want[head+o] = true
		}
	}
	for _, g := range got {
		if !want[g] {
			t.Errorf("granted, and not listed: %s", g)
		}
		delete(want, g)
	}
	for _, g := range slices.Sorted(maps.Keys(want)) {
		t.Errorf("listed, and not granted: %s", g)
	}
}

// TestACheckpointOnlyGoesWhereEventsWere moves the checkpoints of pull subscriptions past postern.ack, as the grant of
// an application allows.
func TestACheckpointOnlyGoesWhereEventsWere(t *testing.T) {
	t.Parallel()
	w := twoTenants(t)
	shop, name := w.as("postern_submit")
	w.Exec(`SELECT postern.grant_context($1, 'shop', 'executor')`, name)
	w.Exec(`UPDATE postern.subscription SET newest = postern.micros(clock_timestamp())`)
	w.Exec(`UPDATE postern.checkpoint SET acked = 10`)
	var mine, other, newest int64
	w.Scan(`SELECT min(subscription_id), max(subscription_id), min(newest) FROM postern.subscription`,
		&mine, &other, &newest)
	move := func(sub int64, to string) string {
		return fmt.Sprintf(`UPDATE postern.checkpoint SET acked = %s WHERE subscription_id = %d`, to, sub)
	}
	denied(t, shop, "ZP422", move(mine, "9223372036854775807"), move(mine, "acked + 3600000000 + "+fmt.Sprint(newest)),
		move(mine, "9"), move(mine, "NULL"))
	denied(t, shop, "42501", `UPDATE postern.checkpoint SET acked_at = 'infinity'`,
		`UPDATE postern.checkpoint SET subscription_id = 0`, `DELETE FROM postern.checkpoint`,
		`INSERT INTO postern.checkpoint (subscription_id) VALUES (99)`,
		`DO $$BEGIN LOCK TABLE postern.checkpoint; END$$`,
		`DO $$BEGIN LOCK TABLE postern.outbox IN SHARE MODE; END$$`, `SELECT FROM postern.task FOR UPDATE`,
		`ALTER TABLE postern.checkpoint DISABLE TRIGGER ALL`)
	denied(t, shop, "ZP422", fmt.Sprintf(`SELECT postern.ack('s', 'c%d-%d', 'shop')`, mine, newest*2))
	denied(t, shop, "ZP404", fmt.Sprintf(`SELECT postern.ack('s', 'c%d-1', 'other')`, other),
		fmt.Sprintf(`SELECT postern.ack('s', 'c%d-1', 'shop')`, other))
	tag, err := shop.Exec(w.Ctx, move(other, "acked + 1"))
	if err != nil || tag.RowsAffected() != 0 {
		t.Errorf("the checkpoint of another context moved: %s, %v", tag, err)
	}
	shows(t, shop, fmt.Sprintf(`SELECT postern.ack('s', 'c%d-9', 'shop')::text`, mine), "false")
	shows(t, shop, fmt.Sprintf(`SELECT postern.ack('s', 'c%d-%d', 'shop')::text`, mine, newest), "true")
	var moved, stayed int64
	var stamped bool
	w.Must(w.S.Pool().QueryRow(w.Ctx, `SELECT max(acked) FILTER (WHERE subscription_id = $1),
		max(acked) FILTER (WHERE subscription_id = $2),
		bool_or(acked_at > now() - interval '1 min' AND acked_at <= clock_timestamp())
			FILTER (WHERE subscription_id = $1)
		FROM postern.checkpoint`, mine, other).Scan(&moved, &stayed, &stamped))
	if moved != newest || stayed != 10 || !stamped {
		t.Errorf("the checkpoints are at %d and %d, stamped %t, want %d and 10", moved, stayed, stamped, newest)
	}

	w.Exec(`SELECT postern.grant_context($1, 'shop', 'reader')`, name)
	tag, err = shop.Exec(w.Ctx, move(mine, "acked + 1"))
	if err != nil || tag.RowsAffected() != 0 {
		t.Errorf("a reader moved a checkpoint: %s, %v", tag, err)
	}
}

// TestARoleLearnsOfItsOwnContextsOnly asks for those of others.
func TestARoleLearnsOfItsOwnContextsOnly(t *testing.T) {
	t.Parallel()
	w := twoTenants(t)
	shop, name := w.as("postern_submit")
	_, other := w.as("postern_reporter")
	w.Exec(`SELECT postern.grant_context($1, 'shop', 'reader')`, name)
	w.Exec(`SELECT postern.grant_context($1, 'other', 'executor')`, other)
	shows(t, shop, `SELECT array_length(postern.contexts_of(current_user), 1)::text`, "1")
	shows(t, shop, `SELECT c.name || ' ' || o.executes
		FROM postern.own_contexts o
		JOIN postern.context c USING (context_id)`,
		"shop false")
	denied(t, shop, "42501", fmt.Sprintf(`SELECT postern.contexts_of(%s)`, quote(other)),
		`SELECT postern.contexts_of('postern_app')`, `SELECT postern.contexts_of(NULL)`,
		`SELECT * FROM postern.sql_role`)
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
