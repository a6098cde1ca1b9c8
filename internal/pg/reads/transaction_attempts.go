package reads

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Dispatch is one dispatch of a transaction, as far as it has come.
type Dispatch struct {
	pg.Attempt
	Token    string
	Answered *time.Time // nil while it is in flight
	Late     bool       // an answer that came when somebody else had the queue: it changed nothing
}

// past is everything that is recorded of one transaction.
type past struct {
	t        *pg.Transaction
	recorded []pg.Attempt      // oldest first: the first and the last ones, or those of a page
	left     int64             // so many between the first and the last ones are left out
	last     map[int]call      // of a page, by attempt: its last call
	included []pg.Attempt      // of a page: how accepted ones went on
	unknown  map[int]time.Time // by attempt: when a call without an outcome was recorded last
	outcome  *outcomePast
	current  *Dispatch // the dispatch in flight
	held     *auditRow // since when, and why, it is held, or was until it ended; nil: it was not
	audit    []auditRow
}

type outcomePast struct {
	Was, State outbox.State
	pg.Attempt
	DoneAt time.Time
}

type auditRow struct {
	at                    time.Time
	actor, action, reason string
}

// some are the rows of a page of attempts; with skip < 0 the last ones.
type some struct{ skip, limit int }

// historyEnds is how many calls a history has at its beginning, and at its end. A head that is blocked is called every
// 30 s, for a month perhaps: the calls between are counted alone. A page of attempts lists all.
const historyEnds = 500

// past reads what is recorded, in one batch; of the attempts the first and the last ones, or those of a page and one
// more.
func (s *Store) past(ctx context.Context, contextID int32, id outbox.ID, page *some) (*past, error) {
	t, err := s.Transaction(ctx, contextID, id)
	if err != nil {
		return nil, err
	}
	id = t.ID // it may have been moved
	p := &past{t: t, unknown: map[int]time.Time{}, last: map[int]call{}}
	paths, err := s.PathsOf(ctx, t)
	if err != nil {
		return nil, err
	}
	b := &pgx.Batch{}
	key := []any{id.Queue, id.Seq, id.Day.Time()}
	p.readAttempts(b, key, page)
	p.readUnknown(b, key)
	p.readOutcome(b, key)
	p.readCurrent(b, id)
	p.readHeld(b, id)
	b.Queue(`SELECT at, actor, action, reason FROM postern.audit WHERE context_id = $1 AND object = ANY ($2) ORDER BY at, audit_id`, contextID, paths).
		Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var a auditRow
				if err := rows.Scan(&a.at, &a.actor, &a.action, &a.reason); err != nil {
					return err
				}
				p.audit = append(p.audit, a)
			}
			return rows.Err()
		})
	if err := s.Pool().SendBatch(ctx, b).Close(); err != nil {
		return nil, db.Known(err)
	}
	for i := range p.recorded {
		before(p.recorded[i].StartedAt, p.recorded[i].AnsweredAt)
	}
	if p.outcome != nil {
		before(p.outcome.StartedAt, p.outcome.DoneAt)
	}
	if p.current != nil && p.told(p.current.Attempt.Attempt, p.current.Node == "", *p.current.StartedAt) {
		p.current = nil
	}
	return p, nil
}

// told says whether the call of an attempt that began at a time is among what is recorded, as one without an outcome:
// then no other call is out, and the attempt is asked about, or held. idle says that no node has it in hand.
func (p *past) told(attempt int, idle bool, began time.Time) bool {
	at, known := p.unknown[attempt]
	return known && (idle || !at.Before(began))
}

// readAttempts reads the rows of calls, oldest first. A page has no rows of how accepted ones went on, which belong to
// their calls: they are read beside it, and there is one for an attempt at most.
func (p *past) readAttempts(b *pgx.Batch, key []any, page *some) {
	const of = ` WHERE (a.queue_id, a.seq, a.day) = ($1, $2, $3)`
	const order = ` ORDER BY a.answered_at, a.attempt, a.step`
	if page == nil {
		p.readEnds(b, key, of+` AND a.step <> 'late'`, order)
		return
	}
	const calls = of + ` AND a.step <> 'inclusion'`
	from, args := `$4`, append(key[:len(key):len(key)], page.skip, page.limit+1)
	if page.skip < 0 {
		from = `greatest(0, (SELECT count(*) FROM postern.attempt a` + calls + `) - $4)`
		args[len(key)] = page.limit
	}
	b.Queue(pg.AttemptsSQL+calls+order+` OFFSET `+from+` LIMIT $5`, args...).Query(func(rows pgx.Rows) error {
		return pg.ScanAttempts(rows, func(_ int64, a pg.Attempt) { p.recorded = append(p.recorded, a) })
	})
	b.Queue(pg.AttemptsSQL+of+` AND a.step = 'inclusion'`+order, key...).Query(func(rows pgx.Rows) error {
		return pg.ScanAttempts(rows, func(_ int64, a pg.Attempt) { p.included = append(p.included, a) })
	})
	b.Queue(`
		SELECT DISTINCT ON (attempt) attempt, fence, step
		FROM postern.attempt
		WHERE (queue_id, seq, day) = ($1, $2, $3) AND step IN ('dispatch', 'unknown')
		ORDER BY attempt, answered_at DESC, step DESC`, key...).Query(func(rows pgx.Rows) error {
		var c call
		_, err := pgx.ForEachRow(rows, []any{&c.attempt, &c.fence, &c.step}, func() error {
			p.last[c.attempt] = c
			return nil
		})
		return err
	})
}

// readEnds reads the first and the last rows of calls, in the order of the primary key, which is that in which they
// were made: a fence rises from one call to the next. It counts those between.
func (p *past) readEnds(b *pgx.Batch, key []any, of, order string) {
	args := append(key[:len(key):len(key)], historyEnds)
	b.Queue(`SELECT greatest(0, count(*) - 2 * $4::bigint) FROM postern.attempt a`+of, args...).
		QueryRow(func(row pgx.Row) error { return row.Scan(&p.left) })
	end := func(direction string) string {
		return `(SELECT queue_id, seq, day, attempt, fence, step FROM postern.attempt a` + of +
			` ORDER BY attempt` + direction + `, fence` + direction + `, step` + direction + ` LIMIT $4)`
	}
	b.Queue(`WITH x AS MATERIALIZED (`+end("")+` UNION `+end(" DESC")+`) `+
		pg.AttemptsSQL+` JOIN x ON (x.queue_id, x.seq, x.day, x.attempt, x.fence, x.step)
				= (a.queue_id, a.seq, a.day, a.attempt, a.fence, a.step)`+order, args...).
		Query(func(rows pgx.Rows) error {
			return pg.ScanAttempts(rows, func(_ int64, a pg.Attempt) { p.recorded = append(p.recorded, a) })
		})
}

// call names the row of a call.
type call struct {
	attempt int
	fence   int64
	step    string
}

// readUnknown reads when a call without an outcome was recorded last.
func (p *past) readUnknown(b *pgx.Batch, key []any) {
	b.Queue(`
		SELECT attempt, max(answered_at)
		FROM postern.attempt
		WHERE (queue_id, seq, day) = ($1, $2, $3) AND step = 'unknown'
		GROUP BY attempt`, key...).Query(func(rows pgx.Rows) error {
		var attempt int
		var at time.Time
		_, err := pgx.ForEachRow(rows, []any{&attempt, &at}, func() error {
			p.unknown[attempt] = at
			return nil
		})
		return err
	})
}

// readHeld reads the mark of what is held, or was until it ended.
func (p *past) readHeld(b *pgx.Batch, id outbox.ID) {
	b.Queue(`
		SELECT at, reason
		FROM postern.mark
		WHERE (queue_id, seq, kind) = ($1, $2, 'unknown')`, id.Queue, id.Seq).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			p.held = &auditRow{}
			if err := rows.Scan(&p.held.at, &p.held.reason); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

// readOutcome reads how the transaction ended, if it has.
func (p *past) readOutcome(b *pgx.Batch, key []any) {
	b.Queue(`SELECT o.was, o.state, coalesce(o.attempt, 0), coalesce(o.fence, 0), coalesce(s.account, ''), coalesce(w.name, ''), coalesce(o.fee, ''), coalesce(o.nonce, ''),
			coalesce(o.hash, ''), coalesce(o.error_class, ''), coalesce(o.error_code, ''), coalesce(o.error, ''), o.started_at, o.done_at
		FROM postern.outcome o LEFT JOIN postern.sender s ON s.sender_id = o.sender_id LEFT JOIN postern.node w ON w.node_id = o.node_id
		WHERE (o.queue_id, o.seq, o.day) = ($1, $2, $3)`, key...).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			o := &outcomePast{}
			if err := rows.Scan(&o.Was, &o.State, &o.Attempt.Attempt, &o.Fence, &o.Sender, &o.Node, &o.Fee, &o.Nonce,
				&o.Hash, &o.Class, &o.Code, &o.Error,
				&o.StartedAt, &o.DoneAt); err != nil {
				return err
			}
			p.outcome = o
		}
		return rows.Err()
	})
}

// readCurrent reads the dispatch in flight, if there is one.
func (p *past) readCurrent(b *pgx.Batch, id outbox.ID) {
	// in a lazy run a transaction went out at the moment of the outcome before it
	b.Queue(`SELECT q.attempt, q.fence, coalesce(s.account, ''), coalesce(w.name, ''), coalesce(q.fee, ''),
			CASE WHEN q.cur_seq = $2 THEN q.entered_at ELSE coalesce((SELECT max(done_at) FROM postern.outcome o WHERE o.queue_id = $1 AND o.seq = $2 - 1), q.entered_at) END
		FROM postern.queue q LEFT JOIN postern.sender s ON s.sender_id = q.sender_id LEFT JOIN postern.node w ON w.node_id = q.node_id
		WHERE q.queue_id = $1 AND q.phase = 'DISPATCHING'`, id.Queue, id.Seq).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			d := &Dispatch{}
			d.Step, d.StartedAt = "dispatch", new(time.Time)
			if err := rows.Scan(&d.Attempt.Attempt, &d.Fence, &d.Sender, &d.Node, &d.Fee, d.StartedAt); err != nil {
				return err
			}
			if p.t.State == outbox.DISPATCHING {
				p.current = d
			}
		}
		return rows.Err()
	})
}

// before puts the start of a call before its end. The start is by the clock of the process that called, the end by the
// one by which is decided, and a call may be quicker than the clocks are apart.
func before(started *time.Time, ended time.Time) {
	if started != nil && started.After(ended) {
		*started = ended
	}
}

// Attempts lists a page of the dispatches of a transaction, oldest first, the one in flight and the last one included;
// or NotFound. skip are those before it; below 0 the page has the last ones of all. There may be one more than limit,
// which says that there are more; of the last ones never.
func (s *Store) Attempts(ctx context.Context, contextID int32, id outbox.ID, skip, limit int) ([]Dispatch, error) {
	p, err := s.past(ctx, contextID, id, &some{skip, limit})
	if err != nil {
		return nil, err
	}
	list := p.dispatches(limit)
	if skip < 0 {
		list = list[max(0, len(list)-limit):] // a call without a row is at the end
	}
	for i := range list {
		list[i].Token = p.t.ID.Token(p.t.ReceivedAt, list[i].Attempt.Attempt)
	}
	return list, nil
}

// ruled says whether the transaction ended by an operator's word while no call was out.
func (p *past) ruled() bool {
	o := p.outcome
	if o.Was != outbox.DISPATCHING || o.StartedAt == nil {
		return false
	}
	byHand := o.Code == "abandoned" || p.pulled("was-done")
	return byHand && p.told(o.Attempt.Attempt, false, *o.StartedAt)
}

// pulled says whether people pulled a lever on the transaction.
func (p *past) pulled(action string) bool {
	return slices.ContainsFunc(p.audit, func(a auditRow) bool { return a.action == action })
}

// dispatches are the rows of a page, with what came of those that were accepted and of the last call; at the end of
// the list also a call that has no row: the one in flight, or the one whose answer ended the transaction.
func (p *past) dispatches(limit int) []Dispatch {
	list := []Dispatch{}
	lasts := map[int]*Dispatch{} // by attempt: its last call, where it is of this page
	for _, a := range p.recorded {
		at := a.AnsweredAt
		list = append(list, Dispatch{Attempt: a, Answered: &at, Late: a.Step == "late"})
	}
	for i := range list {
		if a := list[i].Attempt; p.last[a.Attempt] == (call{a.Attempt, a.Fence, a.Step}) {
			lasts[a.Attempt] = &list[i]
		}
	}
	for _, a := range p.included {
		if d := lasts[a.Attempt]; d != nil {
			d.Class, d.Code, d.Error = a.Class, a.Code, a.Error // the worker answered when it accepted
		}
	}
	atEnd := len(list) <= limit
	switch o := p.outcome; {
	case o != nil && o.Attempt.Attempt > 0 && o.Was != outbox.RETRY && o.Was != outbox.WAITING:
		if p.ruled() {
			break // the rows of its calls have what was answered to them
		}
		d := lasts[o.Attempt.Attempt]
		if _, recorded := p.last[o.Attempt.Attempt]; !recorded || o.Was == outbox.DISPATCHING {
			if !atEnd {
				break
			}
			a := o.Attempt
			a.Step = "dispatch"
			list = append(list, Dispatch{Attempt: a})
			d = &list[len(list)-1]
		}
		if d != nil {
			p.ended(d)
		}
	case p.current != nil && atEnd:
		list = append(list, *p.current)
	}
	return list
}

// ended writes what the outcome says into the last call.
func (p *past) ended(d *Dispatch) {
	o := p.outcome
	d.Class, d.Code, d.Error = o.Class, o.Code, o.Error
	if d.Answered == nil { // else it answered when it accepted, and the outcome came later
		d.Answered = &o.DoneAt
	}
	if o.Code == "abandoned" && o.Was == outbox.DISPATCHING { // no answer came
		d.Answered = nil
	}
}
