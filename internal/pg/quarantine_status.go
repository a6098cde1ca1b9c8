package pg

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

// QuarantineStatus is what the database says of itself and of what is in quarantine.
type QuarantineStatus struct {
	Deployment string // "" if no process had one yet
	Life       int64
	Scopes     []*QuarantinedScope
	Waiting    []WaitingType // in any of them
	Open       []Unreconciled
	More       bool     // there is more open than is listed
	Unheeded   []string // nodes that do not know of it yet
}

// QuarantinedScope is one scope in quarantine: who entered it, and how far its workers were asked.
type QuarantinedScope struct {
	Quarantine
	Actor, Via            string
	EnteredAt             time.Time
	ReconcileAt           *time.Time // when the last round of questions began; nil: none has
	ReconciledAt          *time.Time // when it had asked about everything; nil: it has not
	Asked, Moved, Unknown int64
	Open                  int64
	original              string // the deployment of the database, where it may be a copy of that one's
	id                    int64
	after                 position
}

// Lost says whether something may be lost, so that workers are to be asked before it is released.
func (q *QuarantinedScope) Lost() bool { return !q.LostFrom.IsZero() }

// Copy says whether the database may be a copy: a process has run on it under another deployment, and no operator has
// announced that one since.
func (q *QuarantinedScope) Copy() bool { return q.original != "" }

// NextStep is what an operator does next, as a command.
func (q *QuarantinedScope) NextStep() string {
	scope := q.args()
	switch {
	case q.Copy():
		return fmt.Sprintf("keep it in quarantine, and reconcile nothing: its workers are those of %q. Once it has workers and hooks of its own: "+
			"postern identity announce %s --reason ..., then postern quarantine release%s --anyway --reason ...", q.original, q.Deployment, scope)
	case q.Lost() && q.ReconciledAt == nil && q.Via == ViaStart:
		return "postern quarantine release" + scope + " --anyway --reason ...; where commits may be lost, postern quarantine reconcile" + scope + " first"
	case q.Lost() && q.ReconciledAt == nil:
		return "postern quarantine reconcile" + scope
	case q.Lost() && q.Open > 0:
		return "decide about what is open, as by postern abandon ID or cancel, then postern quarantine reconcile" + scope
	}
	return "postern quarantine release" + scope + " --reason ..."
}

// WaitingType is how much waits of one type: the queues whose next transaction is of it, and what stands in them.
type WaitingType struct {
	Context, Type        string
	Queues, Transactions int64
}

// Why a transaction is not reconciled.
const (
	OpenUnreachable = "unreachable" // its worker did not answer
	OpenUnsupported = "unsupported" // its worker cannot be asked, and its dispatcher is not idempotent
	OpenAhead       = "ahead"       // its worker knows it, but one before it in its queue has not ended
	OpenBusy        = "busy"        // a node had it in hand, or it changed while its worker was asked
)

// Unreconciled is a transaction whose fate a round of questions to workers has not found out.
type Unreconciled struct {
	ID            outbox.ID
	Context, Type string
	Why, Detail   string
	At            time.Time
}

// openListed is how many of them a status lists.
const openListed = 100

// ViaStart is how a process enters a quarantine which finds another deployment in the database when it starts.
const ViaStart = "start"

// scopesSQL reads the scopes. If the quarantine of everything notes that the database is a copy, this holds for each
// part.
const scopesSQL = `SELECT x.quarantine_id, coalesce(c.name, ''), coalesce(x.type, ''), x.reason, x.actor, x.via, x.entered_at,
		coalesce(x.lost_from, '0001-01-01 00:00:00+00'), coalesce(x.lost_until, '0001-01-01 00:00:00+00'),
		coalesce(copy.deployment, ''), coalesce(copy.original, ''),
		x.reconcile_at, x.reconciled_at, x.after_queue, x.after_seq, x.asked, x.moved, x.unknown,
		(SELECT count(*) FROM postern.unreconciled u
			WHERE (x.context_id IS NULL OR x.context_id = u.context_id) AND (x.type IS NULL OR x.type = u.type))
	FROM postern.quarantine x
	LEFT JOIN postern.context c ON c.context_id = x.context_id
	LEFT JOIN (SELECT e.deployment, nullif(s.deployment, e.deployment) AS original
		FROM postern.quarantine e
		CROSS JOIN postern.store s
		WHERE e.context_id IS NULL AND e.type IS NULL AND e.deployment <> '') copy ON true`

func scanScope(row pgx.CollectableRow) (*QuarantinedScope, error) {
	v := &QuarantinedScope{}
	err := row.Scan(&v.id, &v.Context, &v.Type, &v.Reason, &v.Actor, &v.Via, &v.EnteredAt, &v.LostFrom, &v.LostUntil,
		&v.Deployment, &v.original, &v.ReconcileAt, &v.ReconciledAt, &v.after.queue, &v.after.seq, &v.Asked, &v.Moved, &v.Unknown, &v.Open)
	for _, t := range []*time.Time{&v.LostFrom, &v.LostUntil} {
		if t.Year() <= 1 {
			*t = time.Time{}
		}
	}
	return v, err
}

// QuarantineScopes lists what is in quarantine.
func (s *Store) QuarantineScopes(ctx context.Context) ([]*QuarantinedScope, error) {
	rows, err := s.Db(ctx).Query(ctx, scopesSQL+` ORDER BY x.quarantine_id`)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanScope)
	return list, db.Known(err)
}

// Quarantine reads the whole status in a few statements. It counts waiting transactions in the rows of their queues.
func (s *Store) Quarantine(ctx context.Context) (v *QuarantineStatus, err error) {
	v = &QuarantineStatus{}
	if err := s.Db(ctx).QueryRow(ctx, `SELECT deployment, life FROM postern.store`).Scan(&v.Deployment, &v.Life); err != nil {
		return nil, db.Known(err)
	}
	if v.Scopes, err = s.QuarantineScopes(ctx); err != nil || len(v.Scopes) == 0 {
		return v, err
	}
	if v.Unheeded, err = s.QuarantineUnheeded(ctx); err != nil {
		return nil, err
	}
	rows, err := s.Db(ctx).Query(ctx, `SELECT c.name, coalesce(d.type, ''), count(*), sum(q.tail_seq - coalesce(q.cur_seq, q.head_seq) + 1)::bigint
		FROM postern.queue q
		JOIN postern.context c ON c.context_id = q.context_id
		LEFT JOIN postern.lane n ON n.lane_id = q.lane
		LEFT JOIN postern.dispatcher d ON d.dispatcher_id = n.dispatcher_id
		WHERE q.phase <> 'IDLE' AND EXISTS (SELECT FROM postern.quarantine x
			WHERE (x.context_id IS NULL OR x.context_id = q.context_id) AND (x.type IS NULL OR x.type = d.type) OFFSET 0)
		GROUP BY 1, 2
		ORDER BY 1, 2`)
	if err != nil {
		return nil, db.Known(err)
	}
	v.Waiting, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (w WaitingType, err error) {
		return w, row.Scan(&w.Context, &w.Type, &w.Queues, &w.Transactions)
	})
	if err != nil {
		return nil, db.Known(err)
	}
	v.Open, v.More, err = s.unreconciled(ctx)
	return v, err
}

// unreconciled lists the first of what is open, and says whether there are more.
func (s *Store) unreconciled(ctx context.Context) (list []Unreconciled, more bool, err error) {
	rows, err := s.Db(ctx).Query(ctx, `SELECT u.queue_id, u.seq, u.day - '1970-01-01', coalesce(postern.salt(t.created_at, t.moved_from), 0), c.name, u.type, u.why, u.detail, u.at
		FROM postern.unreconciled u
		JOIN postern.context c ON c.context_id = u.context_id
		LEFT JOIN postern.task t ON (t.queue_id, t.seq, t.day) = (u.queue_id, u.seq, u.day)
		ORDER BY u.queue_id, u.seq
		LIMIT $1`, openListed+1)
	if err != nil {
		return nil, false, db.Known(err)
	}
	list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (u Unreconciled, err error) {
		return u, row.Scan(&u.ID.Queue, &u.ID.Seq, &u.ID.Day, &u.ID.Salt, &u.Context, &u.Type, &u.Why, &u.Detail, &u.At)
	})
	if more = len(list) > openListed; more {
		list = list[:openListed]
	}
	return list, more, db.Known(err)
}

// ReleaseQuarantine lets a scope go, and returns how it stood. Where something may be lost, and its workers were not
// asked about everything, or something is open, it is Conflict "not_reconciled" unless anyway is set. Processes hear of
// it within a second.
func (s *Store) ReleaseQuarantine(ctx context.Context, by db.By, q Quarantine, anyway bool) (v *QuarantinedScope, err error) {
	err = s.Run(ctx, func(t *db.Txn) (err error) {
		v, err = s.releaseQuarantine(ctx, t, by, q, anyway)
		return err
	})
	if err != nil {
		return nil, err
	}
	return v, s.Reconfigured(ctx)
}

func (s *Store) releaseQuarantine(ctx context.Context, t *db.Txn, by db.By, q Quarantine, anyway bool) (x *QuarantinedScope, err error) {
	lock := &pgx.Batch{}
	lock.Queue(`SELECT FROM postern.store FOR UPDATE`)
	lock.Queue(scopesSQL+` WHERE coalesce(c.name, '') = $1 AND coalesce(x.type, '') = $2`, q.Context, q.Type).Query(func(rows pgx.Rows) error {
		list, err := pgx.CollectRows(rows, scanScope)
		if len(list) > 0 {
			x = list[0]
		}
		return err
	})
	switch err := t.Send(ctx, lock); {
	case err != nil:
		return nil, err
	case x == nil:
		return nil, q.notThere(fault.Conflict, "wrong_state")
	case x.Lost() && !anyway && (x.ReconciledAt == nil || x.Open > 0):
		return nil, x.notReconciled()
	}
	if by.Context, err = auditContext(ctx, t, by, nil); err != nil {
		return nil, err
	}
	b := &pgx.Batch{}
	b.Queue(`DELETE FROM postern.quarantine WHERE quarantine_id = $1`, x.id)
	b.Queue(`UPDATE postern.store SET quarantine = quarantine + 1`)
	b.Queue(`DELETE FROM postern.unreconciled u WHERE NOT EXISTS (SELECT FROM postern.quarantine x
		WHERE (x.context_id IS NULL OR x.context_id = u.context_id) AND (x.type IS NULL OR x.type = u.type) OFFSET 0)`)
	s.AuditChange(b, by, "release", q.Object(), map[string]any{"reason": x.Reason, "entered_at": x.EnteredAt, "reconciled_at": x.ReconciledAt,
		"asked": x.Asked, "moved": x.Moved, "unknown": x.Unknown, "open": x.Open}, nil)
	return x, t.Commit(ctx, b)
}

// notReconciled refuses to release what may be lost, and says what is to be done first.
func (q *QuarantinedScope) notReconciled() error {
	asked := fmt.Sprintf("%s asked about, %d moved on, %d never seen by their worker, %d open",
		fault.Many(q.Asked, "transaction"), q.Moved, q.Unknown, q.Open)
	var what, next string
	switch {
	case q.Copy():
		what, next = fmt.Sprintf("this database may be a copy of that of deployment %q", q.original), q.NextStep()
	case q.ReconcileAt == nil:
		what, next = "the workers were not asked yet what they did in the lost time", "run postern quarantine reconcile"+q.args()
	case q.ReconciledAt == nil:
		what = "the workers were asked about a part only (" + asked + ")"
		next = "run postern quarantine reconcile" + q.args() + ", which goes on where it was"
	default:
		what = fmt.Sprintf("the workers were asked about everything, and of %s it is not known what became (%s)",
			fault.Many(q.Open, "transaction"), asked)
		next = "postern quarantine status lists them: decide about each, as with postern abandon ID or postern cancel ID, and run postern quarantine reconcile" +
			q.args() + " again"
	}
	return fault.New(fault.Conflict, "not_reconciled", "%s. Next: %s. With --anyway it is released as it is, and what was executed in the lost time may be executed again", what, next)
}
