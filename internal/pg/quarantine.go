package pg

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Quarantine keeps what leaves this database from leaving: nothing is dispatched, no hook, callback or webhook is
// delivered, no tool is called and no source is polled. Posts are taken and answered meanwhile, and reads go on. A
// database enters it that may have lost commits or may be a copy, where calling again could do harm that tokens do not
// prevent.
type Quarantine struct {
	Context string // empty: all contexts
	Type    string // empty: all types
	Reason  string
	// Deployment is that of the process which found the database under another one, so that it may be a copy. Empty:
	// none did.
	Deployment string
	// The lost time: commits between these moments may be missing. Where they are zero and everything is entered, it is
	// taken to last from the newest commit that the rows show until now.
	LostFrom, LostUntil time.Time
}

// whole says whether the scope is everything.
func (q Quarantine) whole() bool { return q.Context == "" && q.Type == "" }

// String names the scope for people.
func (q Quarantine) String() string {
	switch {
	case q.whole():
		return "everything"
	case q.Type == "":
		return "context " + q.Context
	case q.Context == "":
		return "type " + q.Type
	}
	return "type " + q.Type + " of context " + q.Context
}

// args is the scope as the command line names it, with a space before each part.
func (q Quarantine) args() (args string) {
	if q.Context != "" {
		args += " contexts/" + q.Context
	}
	if q.Type != "" {
		args += " dispatchers/" + q.Type
	}
	return args
}

// notThere says that the scope is not in quarantine, and where to find what is.
func (q Quarantine) notThere(kind fault.Kind, code string) error {
	if q.whole() {
		return fault.New(kind, code, "there is no quarantine of everything: a part may be in quarantine, which is to be named, "+
			"as contexts/NAME or dispatchers/TYPE; postern quarantine status lists the parts")
	}
	return fault.New(kind, code, "there is no quarantine of %s: postern quarantine status lists what is in quarantine, and under which name", q)
}

// Object is the scope as the audit names it.
func (q Quarantine) Object() string {
	switch {
	case q.whole():
		return "/quarantine"
	case q.Type == "":
		return "/quarantine/contexts/" + q.Context
	case q.Context == "":
		return "/quarantine/types/" + q.Type
	}
	return "/quarantine/contexts/" + q.Context + "/types/" + q.Type
}

// EnterQuarantine puts a scope into quarantine. If the scope is in quarantine already, its lost time may grow, and its
// questions to workers begin anew, since they did not cover commits that were lost since. The first entering of
// everything draws a new life of the store, and so does one whose lost time begins earlier than was known.
//
// No commit that comes after this one leases what is in quarantine. A claim, a take and a wake lock the key of their
// node's row, under the number of the quarantine that their process knows (liveNodeSQL). This commit changes that key.
// It waits for the commits that hold the key, so that their leases are committed before it. A later one finds another
// number, takes nothing, and its process reads the configuration again. A node that registers meanwhile waits for the
// row of postern.store, which is locked first.
//
// A process decides by the same number whether it calls the worker of a queue that it has leased, hands on the next
// transaction after a settle, or delivers an event. AwaitQuarantine waits until all processes know the number.
func (s *Store) EnterQuarantine(ctx context.Context, by db.By, q Quarantine) error {
	if err := s.Run(ctx, func(t *db.Txn) error { return s.enterQuarantine(ctx, t, by, q) }); err != nil {
		return err
	}
	return s.Reconfigured(ctx)
}

func (s *Store) enterQuarantine(ctx context.Context, t *db.Txn, by db.By, q Quarantine) error {
	lock := &pgx.Batch{}
	lock.Queue(`SET LOCAL lock_timeout = '25s'`) // a claim whose commit waits for a standby is waited for
	lock.Queue(`SELECT FROM postern.store FOR UPDATE`)
	if err := t.Send(ctx, lock); err != nil {
		return err
	}
	contextID, err := scopeOf(ctx, t, q)
	if err != nil {
		return err
	}
	if q.whole() && q.LostUntil.IsZero() {
		if q.LostFrom, q.LostUntil, err = lostTime(ctx, t); err != nil {
			return err
		}
	}
	if by.Context, err = auditContext(ctx, t, by, contextID); err != nil {
		return err
	}
	by.Reason = q.Reason
	b := &pgx.Batch{}
	b.Queue(`WITH was AS (SELECT lost_from FROM postern.quarantine WHERE context_id IS NULL AND type IS NULL)
		UPDATE postern.store SET quarantine = quarantine + 1,
			life = CASE
				WHEN $1 AND NOT EXISTS (SELECT FROM was WHERE lost_from <= $2)
				THEN (random() * 9007199254740991)::bigint
				ELSE life END,
			signed_after = CASE WHEN $1
				THEN greatest(signed_after, least($3::timestamptz, coalesce($4::timestamptz, clock_timestamp())))
				ELSE signed_after END`, q.whole(), db.Nullable(q.LostFrom), db.Nullable(q.LostUntil), s.Clock())
	b.Queue(`INSERT INTO postern.quarantine (context_id, type, reason, actor, via, deployment, lost_from, lost_until, entered_at)
		VALUES ($1, nullif($2, ''), $3, $4, $5, $9, $6, $7, coalesce($8::timestamptz, clock_timestamp()))
		ON CONFLICT (context_id, type) DO UPDATE
		SET lost_from = least(quarantine.lost_from, excluded.lost_from),
			lost_until = greatest(quarantine.lost_until, excluded.lost_until),
			reason = excluded.reason, actor = excluded.actor, via = excluded.via,
			deployment = coalesce(nullif(excluded.deployment, ''), quarantine.deployment),
			reconcile_at = NULL, reconciled_at = NULL, after_queue = 0, after_seq = 0, asked = 0, moved = 0, unknown = 0`,
		contextID, q.Type, q.Reason, by.Actor, by.Via, db.Nullable(q.LostFrom), db.Nullable(q.LostUntil), s.Clock(), q.Deployment)
	b.Queue(`UPDATE postern.node n SET quarantine = s.quarantine FROM postern.store s WHERE n.dead_at IS NULL`)
	s.AuditIn(b, by, "enter", q.Object())
	return t.Commit(ctx, b)
}

// AnnounceDeployment says under which deployment this database runs from now on; not changed: it did already.
func (s *Store) AnnounceDeployment(ctx context.Context, by db.By, name string) (r LeverResult, err error) {
	err = s.Run(ctx, func(t *db.Txn) error {
		var was string
		b := &pgx.Batch{}
		b.Queue(`SELECT deployment FROM postern.store FOR UPDATE`).QueryRow(func(row pgx.Row) error { return row.Scan(&was) })
		err := t.Send(ctx, b)
		if err != nil {
			return err
		}
		r.Changed = was != name
		if by.Context, err = auditContext(ctx, t, by, nil); err != nil {
			return err
		}
		b = &pgx.Batch{}
		b.Queue(`UPDATE postern.store SET deployment = $1`, name)
		s.AuditChange(b, by, "announce", "/identity", map[string]string{"deployment": was}, map[string]string{"deployment": name})
		return t.Commit(ctx, b)
	})
	return r, err
}

// CompareDeployment is called by a process at its start. The first process that has a deployment gives it to the
// database. A process with another deployment may run on a copy of the database: everything enters quarantine. If
// everything is in quarantine already, the quarantine notes the deployment, so that no operator is told to ask the
// workers of the original. was is the deployment of the database, "" if it fits.
func (s *Store) CompareDeployment(ctx context.Context, by db.By, name string) (was string, err error) {
	if name == "" {
		return "", nil
	}
	err = s.WriteRow(ctx, `WITH given AS (UPDATE postern.store SET deployment = $1 WHERE deployment = '' RETURNING deployment)
		SELECT coalesce((SELECT deployment FROM given), (SELECT deployment FROM postern.store))`, []any{name}, &was)
	if err != nil {
		return "", err
	}
	if was == "" { // another has given it meanwhile
		err = s.Pool().QueryRow(ctx, `SELECT deployment FROM postern.store`).Scan(&was)
	}
	if err != nil || was == name {
		return "", db.Known(err)
	}
	if s.QuarantinedWhole() {
		_, err := s.Exec(ctx, `UPDATE postern.quarantine SET deployment = $1 WHERE context_id IS NULL AND type IS NULL`, name)
		return was, err
	}
	return was, s.EnterQuarantine(ctx, by, Quarantine{
		Deployment: name,
		Reason:     fmt.Sprintf("deployment %q differs from %q of the database: a copy?", name, was),
	})
}

// scopeOf is the id of the scope's context, nil for all. A type that does not exist is a mistake of who asks.
func scopeOf(ctx context.Context, t *db.Txn, q Quarantine) (id *int32, err error) {
	if q.Context != "" {
		err := t.Conn.QueryRow(ctx, `SELECT context_id FROM postern.context WHERE name = $1 AND removed_at IS NULL`, q.Context).Scan(&id)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil, noContext(q.Context)
		}
		if err != nil {
			return nil, err
		}
	}
	if q.Type == "" {
		return id, nil
	}
	var any bool
	err = t.Conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM postern.dispatcher WHERE type = $1 AND context_id = coalesce($2, context_id))`, q.Type, id).Scan(&any)
	if err == nil && !any {
		err = fault.New(fault.NotFound, "not_found", "no dispatcher of type %q", fault.Clip(q.Type))
	}
	return id, err
}

// auditContext is where the lever is written down: where its user is, in the scope's context, or in that of the system.
func auditContext(ctx context.Context, t *db.Txn, by db.By, scope *int32) (id int32, err error) {
	if by.Context != 0 {
		return by.Context, nil
	}
	if scope != nil {
		return *scope, nil
	}
	err = t.Conn.QueryRow(ctx, `SELECT context_id FROM postern.context WHERE name = $1`, System).Scan(&id)
	return id, err
}

// lostTime is the time whose commits may be missing from rows that were restored: from the newest that they show, which
// is a heartbeat, an arrival or an end, until now. Each is read along an index, of the newest days.
func lostTime(ctx context.Context, t *db.Txn) (from, until time.Time, err error) {
	err = t.Conn.QueryRow(ctx, `SELECT coalesce(greatest((SELECT max(heartbeat_at) FROM postern.node), (SELECT max(at) FROM postern.audit), (SELECT max(t.at) FROM postern.context c
			CROSS JOIN LATERAL ((SELECT t.created_at AS at FROM postern.task t WHERE t.context_id = c.context_id AND t.created_at > '-infinity'
				ORDER BY t.created_at DESC LIMIT 1)
			UNION ALL (SELECT o.done_at FROM postern.outcome o WHERE o.context_id = c.context_id AND o.state <> 'DONE' ORDER BY o.done_at DESC LIMIT 1)) t)), clock_timestamp()),
		clock_timestamp()`).Scan(&from, &until)
	if from.After(until) { // rows of a clock that was ahead, as a debug clock is
		from = until
	}
	return from, until, err
}

// Quarantined is what a process knows of the quarantine: one reading of it, by which it decides in memory.
type Quarantined struct {
	number int64 // of postern.store; it rises with each change
	scopes []scope
	lines  int64 // of postern.store; it never changes

	installation string // of postern.store; it never changes, either
}

// scope is one row of postern.quarantine. Zero values are all.
type scope struct {
	context int32
	typ     string
}

// quarantineSQL reads what quarantined holds, as columns of one row.
const quarantineSQL = `(SELECT quarantine FROM postern.store),
	(SELECT lines FROM postern.store),
	(SELECT installation::text FROM postern.store),
	(SELECT coalesce(array_agg(coalesce(context_id, 0) ORDER BY quarantine_id), '{}') FROM postern.quarantine),
	(SELECT coalesce(array_agg(coalesce(type, '') ORDER BY quarantine_id), '{}') FROM postern.quarantine)`

// holds says whether a type of a context is in quarantine.
func (q *Quarantined) holds(contextID int32, typ string) bool {
	return slices.ContainsFunc(q.scopes, func(s scope) bool {
		return (s.context == 0 || s.context == contextID) && (s.typ == "" || s.typ == typ)
	})
}

// Number rises with each beginning and end of a quarantine.
func (q *Quarantined) Number() int64 { return q.number }

// Whole says whether everything is in quarantine.
func (q *Quarantined) Whole() bool { return slices.Contains(q.scopes, scope{}) }

// Any says whether anything is.
func (q *Quarantined) Any() bool { return len(q.scopes) > 0 }

// Contexts lists the contexts that are in quarantine with all of their types. A quarantine of everything adds none.
func (q *Quarantined) Contexts() []int32 {
	list := []int32{}
	for _, s := range q.scopes {
		if s.typ == "" && s.context != 0 {
			list = append(list, s.context)
		}
	}
	return list
}

// quarantinedQueueSQL finds queues q whose head, or what they have in flight, is of a type in quarantine. Its lane
// tells the type.
const quarantinedQueueSQL = `SELECT q.queue_id FROM postern.queue q
	LEFT JOIN postern.lane n ON n.lane_id = q.lane
	LEFT JOIN postern.dispatcher d ON d.dispatcher_id = n.dispatcher_id
	JOIN postern.quarantine x ON (x.context_id IS NULL OR x.context_id = q.context_id) AND (x.type IS NULL OR x.type = d.type)`

// QuarantineView is what this process knows of it now.
func (s *Store) QuarantineView() *Quarantined { return &s.Conf.view.Load().quarantine }

// QuarantinedWhole says whether everything must stay here, as far as this process knows.
func (s *Store) QuarantinedWhole() bool { return s.QuarantineView().Whole() }

// QuarantinedAny says whether anything is in quarantine, as far as this process knows.
func (s *Store) QuarantinedAny() bool { return s.QuarantineView().Any() }

// Quarantined says whether what a type of a context sends must stay here, as far as this process knows; without a type,
// whether what the context itself does must: its sources, its processors, its tools.
func (s *Store) Quarantined(contextID int32, typ string) bool {
	return s.QuarantineView().holds(contextID, typ)
}

// QuarantineUnheeded returns the names of live nodes that do not yet say that they know the quarantine. Without any, no
// call of it begins any more: a node says so in its heartbeat, once it decides by that number, and one that says
// nothing for as long as its leases hold begins none.
func (s *Store) QuarantineUnheeded(ctx context.Context) (silent []string, err error) {
	rows, err := s.Pool().Query(ctx, `SELECT n.name FROM postern.node n
		WHERE n.dead_at IS NULL AND n.heeds < n.quarantine AND n.heartbeat_at + n.ttl >= coalesce($1::timestamptz, clock_timestamp()) ORDER BY 1`, s.LeaseNow())
	if err != nil {
		return nil, db.Known(err)
	}
	silent, err = pgx.CollectRows(rows, pgx.RowTo[string])
	return silent, db.Known(err)
}

// AwaitQuarantine waits until every live node knows the quarantine, or ctx ends: the error then names those that do
// not.
func (s *Store) AwaitQuarantine(ctx context.Context) error {
	for {
		silent, err := s.QuarantineUnheeded(ctx)
		if err != nil || len(silent) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nodes that do not say that they know of it: %s", strings.Join(silent, ", "))
		case <-time.After(50 * time.Millisecond):
		}
	}
}
