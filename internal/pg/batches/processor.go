package batches

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/processor"
)

// Processor is one with its settings and what stands in its lines (S4.1).
type Processor struct {
	ID           int32
	Name         string
	Owner        string // the actor that may enqueue, insert, evict, pause and resume; "" for none
	Fair         bool
	TickInterval time.Duration // 0: it is ticked by hand
	// DeliverWithin is how long a batch of a remote domain waits for somebody to take it (S4.14); 0: as long as it
	// takes.
	DeliverWithin time.Duration
	// DeliverAs is the type as which its batches go whole to the processor of another installation, whose dispatcher
	// knows the way; "": they are executed from here, action by action.
	DeliverAs string
	Peers     []string // other installations whose batches it executes
	Paused    bool
	Height    int64
	Length    [2]int64 // of its lines, by priority
	Executing int64    // the batch that is being executed, 0 for none
	Waiting   int      // batches that wait for a callback
	Starving  *Starving
	Version   int64
	CreatedAt time.Time
	tickedAt  *time.Time
}

// Starving says that Med waits because a batch of High is in its cooldown after a failure (S4.10): the first one of
// High whose contract is not away.
type Starving struct {
	By    int64
	Since time.Time
}

const processorColumns = `p.processor_id, p.name, p.owner, p.fair, p.tick_interval, p.deliver_within, p.deliver_as, p.paused, p.height, p.version, p.created_at, p.ticked_at`

func (p *Processor) fields() []any {
	return []any{&p.ID, &p.Name, &p.Owner, &p.Fair, &p.TickInterval, &p.DeliverWithin, &p.DeliverAs, &p.Paused,
		&p.Height, &p.Version, &p.CreatedAt, &p.tickedAt}
}

const processorsSQL = `SELECT ` + processorColumns + `, h.length, m.length,
		coalesce((SELECT b.batch_id FROM postern.batch b WHERE b.processor_id = p.processor_id AND b.state = 'Executing'), 0),
		(SELECT count(*) FROM postern.batch b WHERE b.processor_id = p.processor_id AND b.state = 'Waiting_Callback'),
		ARRAY(SELECT r.name FROM postern.processor_peer r WHERE r.processor_id = p.processor_id ORDER BY r.name), 
		coalesce(s.batch_id, 0), s.updated_at
	FROM postern.processor p
	JOIN postern.batch_line h ON h.processor_id = p.processor_id AND h.priority = 0
	JOIN postern.batch_line m ON m.processor_id = p.processor_id AND m.priority = 1
	CROSS JOIN (SELECT coalesce($5::timestamptz, clock_timestamp())) n(now)
	LEFT JOIN LATERAL (` + firstHoldingMedSQL + `) s ON m.length > 0 AND NOT p.fair AND s.cools
	WHERE p.context_id = $1 AND p.removed_at IS NULL AND ($2 = '' OR p.name = $2) AND p.name > $3 ORDER BY p.name LIMIT $4`

func (s *Store) processors(ctx context.Context, contextID int32, name, after string, limit int) ([]*Processor, error) {
	rows, err := s.Db(ctx).Query(ctx, processorsSQL, contextID, name, after, limit, s.Clock())
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*Processor, error) {
		p, by, since := &Processor{}, int64(0), (*time.Time)(nil)
		err := row.Scan(append(p.fields(), &p.Length[processor.High], &p.Length[processor.Med], &p.Executing,
			&p.Waiting, &p.Peers, &by, &since)...)
		if by != 0 {
			p.Starving = &Starving{by, *since}
		}
		return p, err
	})
	return list, db.Known(err)
}

// Processors lists up to limit processors of a context by name, those after a given one.
func (s *Store) Processors(ctx context.Context, contextID int32, after string, limit int) ([]*Processor, error) {
	return s.processors(ctx, contextID, "", after, limit)
}

// Processor returns one processor, or NotFound.
func (s *Store) Processor(ctx context.Context, contextID int32, name string) (*Processor, error) {
	list, err := s.processors(ctx, contextID, name, "", 1)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 || name == "" {
		return nil, noProcessor(name)
	}
	return list[0], nil
}

func noProcessor(name string) error {
	return fault.New(fault.NotFound, "not_found", "no processor %q", fault.Clip(name))
}

const processorSettingsSQL = `SELECT owner, fair, tick_interval, deliver_within, deliver_as
	FROM postern.processor
	WHERE context_id = $1 AND name = $2`

// processorSettings are what a PUT replaces, as the audit shows them.
type processorSettings struct {
	Owner         string `json:"owner"`
	Fair          bool   `json:"fair"`
	TickInterval  string `json:"tick_interval"`
	DeliverWithin string `json:"deliver_within"`
	DeliverAs     string `json:"deliver_as"`
}

func (p *Processor) settings() processorSettings {
	return processorSettings{
		Owner:         p.Owner,
		Fair:          p.Fair,
		TickInterval:  p.TickInterval.String(),
		DeliverWithin: p.DeliverWithin.String(),
		DeliverAs:     p.DeliverAs,
	}
}

const processorLock = `SELECT version, removed_at IS NOT NULL FROM postern.processor WHERE context_id = $1 AND name = $2 FOR UPDATE`

// PutProcessor creates a processor or replaces its settings; version as in matchVersion. Without an owner it stays
// with the one that it has; a new one belongs to whom puts it. Settings that are there already change nothing. Its
// height, and whether it is paused, are changed by calls of their own. Two that create one at a time both insert: the
// second waits in its upsert for the first, and then replaces what it made, the owner too.
func (s *Store) PutProcessor(ctx context.Context, by db.By, p Processor, version int64) (created bool, err error) {
	if err := s.knowsType(ctx, by.Context, p.DeliverAs); err != nil {
		return false, err
	}
	err = s.Run(ctx, func(t *db.Txn) error {
		created, err = t.LockVersion(ctx, version, processorLock, by.Context, p.Name)
		if err != nil {
			return err
		}
		var before any
		if !created {
			was := Processor{}
			row := t.Conn.QueryRow(ctx, processorSettingsSQL, by.Context, p.Name)
			err := row.Scan(&was.Owner, &was.Fair, &was.TickInterval, &was.DeliverWithin, &was.DeliverAs)
			if err != nil {
				return err
			}
			if p.Owner == "" {
				p.Owner = was.Owner
			}
			if was.settings() == p.settings() {
				return t.Rollback(ctx)
			}
			before = was.settings()
		} else if p.Owner == "" {
			p.Owner = by.Actor
		}
		b := &pgx.Batch{}
		b.Queue(`INSERT INTO postern.processor AS p (context_id, name, owner, fair, tick_interval, created_at, deliver_within, deliver_as)
			VALUES ($1, $2, $3, $4, $5, coalesce($6::timestamptz, clock_timestamp()), $7, $8)
			ON CONFLICT (context_id, name) DO UPDATE SET owner = excluded.owner, fair = excluded.fair, tick_interval = excluded.tick_interval,
				deliver_within = excluded.deliver_within, deliver_as = excluded.deliver_as, removed_at = NULL, version = p.version + 1`, by.Context, p.Name, p.Owner, p.Fair, p.TickInterval, s.Clock(), p.DeliverWithin, p.DeliverAs)
		b.Queue(`INSERT INTO postern.batch_line (processor_id, priority) SELECT p.processor_id, q FROM postern.processor p, unnest(ARRAY[0, 1]) q
			WHERE p.context_id = $1 AND p.name = $2 ON CONFLICT DO NOTHING`, by.Context, p.Name)
		s.AuditChange(b, by, "put", "/processors/"+p.Name, before, p.settings())
		return t.Commit(ctx, b)
	})
	if err != nil {
		return false, err
	}
	return created, s.Appeared(ctx, created)
}

// PauseProcessor refuses ticks of a processor, or allows them again. All but ticks work on (S4.9), and what is
// being executed ends. Its owner's call, and idempotent.
func (s *Store) PauseProcessor(ctx context.Context, by db.By, name string, paused bool) (r pg.LeverResult, err error) {
	err = s.onProcessor(ctx, by.Context, name, func(t *db.Txn, h *heldProcessor) error {
		if err := h.owned(by); err != nil {
			return err
		}
		if err := by.Seen(h.Version); err != nil {
			return err
		}
		r.Changed = h.Paused != paused
		b := &pgx.Batch{}
		if r.Changed {
			b.Queue(`UPDATE postern.processor SET paused = $2, version = version + 1 WHERE processor_id = $1`, h.ID,
				paused)
		}
		s.AuditIn(b, by, pg.Verb(paused), "/processors/"+name)
		return t.Commit(ctx, b)
	})
	return r, err
}

// SetHeight raises the height of the domain that a processor serves. It never falls (S0.3): a lower one is
// refused, the same one changes nothing.
func (s *Store) SetHeight(ctx context.Context, by db.By, name string, height int64) error {
	return s.onProcessor(ctx, by.Context, name, func(t *db.Txn, h *heldProcessor) error {
		if err := by.Seen(h.Version); err != nil {
			return err
		}
		if height < h.Height {
			return fault.At("/height", "height %d is over: it is %d already, and it never falls", height, h.Height)
		}
		b := &pgx.Batch{}
		b.Queue(`UPDATE postern.processor SET height = $2 WHERE processor_id = $1`, h.ID, height)
		return t.Commit(ctx, b)
	})
}

// RemoveProcessor removes a processor that has nothing to do; Conflict "in_use" while a batch of it has not ended. A
// post of a batch holds the same lock: it comes before this and is seen, or after it and finds no processor.
func (s *Store) RemoveProcessor(ctx context.Context, by db.By, name string) error {
	return s.onProcessor(ctx, by.Context, name, func(t *db.Txn, h *heldProcessor) error {
		if err := by.Seen(h.Version); err != nil {
			return err
		}
		var n int64
		b := &pgx.Batch{}
		b.Queue(`SELECT (SELECT count(*) FROM postern.batch WHERE processor_id = $1 AND state = 'Executing')
			+ (SELECT count(*) FROM postern.batch WHERE processor_id = $1 AND state = 'Waiting_Callback')
			+ (SELECT count(*) FROM postern.batch WHERE processor_id = $1 AND state = 'Timed_Out')`, h.ID).
			QueryRow(func(row pgx.Row) error { return row.Scan(&n) })
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if n += h.lines[processor.High].Length + h.lines[processor.Med].Length; n > 0 {
			return fault.New(fault.Conflict, "in_use", "processor %q has %s: evict first, or wait for the end",
				fault.Clip(name), fault.Many(n, "batch"))
		}
		b = &pgx.Batch{}
		b.Queue(`UPDATE postern.processor SET removed_at = $2, version = version + 1 WHERE processor_id = $1`, h.ID,
			h.now)
		b.Queue(`DELETE FROM postern.processor_peer WHERE processor_id = $1`, h.ID)
		s.AuditIn(b, by, "delete", "/processors/"+name)
		return t.Commit(ctx, b)
	})
}

// heldProcessor is a processor whose row is locked, with its lines and the time as they are behind that lock.
type heldProcessor struct {
	Processor
	s         *Store
	contextID int32
	lines     [2]processor.Line
	stored    [2]processor.Line
	now       time.Time
	told      bool // somebody hears of what is written
	dealt     bool // places of a line have been dealt anew
	left      []stay
}

// stay is how long a batch was in a state.
type stay struct {
	in   processor.State
	took time.Duration
}

// onProcessor runs fn with a processor locked; fn ends the transaction.
func (s *Store) onProcessor(ctx context.Context, contextID int32, name string,
	fn func(*db.Txn, *heldProcessor) error) error {
	var h *heldProcessor
	err := s.Run(ctx, func(t *db.Txn) (err error) {
		if h, err = s.lockProcessor(ctx, t, contextID, name); err != nil {
			return err
		}
		return fn(t, h)
	})
	if err != nil {
		return err
	}
	if h.told {
		s.RingHere()
	}
	if j := db.JointOf(ctx); s.BatchLeft != nil && (j == nil || !j.Dry) {
		for _, v := range h.left {
			s.BatchLeft(v.in, v.took)
		}
	}
	return nil
}

// lockProcessor locks a processor and reads its lines in a statement of its own, so that it sees what the last
// holder of the lock committed. NotFound if there is none.
func (s *Store) lockProcessor(ctx context.Context, t *db.Txn, contextID int32, name string) (*heldProcessor, error) {
	h := &heldProcessor{s: s, contextID: contextID}
	b := &pgx.Batch{}
	b.Queue(`SELECT `+processorColumns+` FROM postern.processor p WHERE p.context_id = $1 AND p.name = $2 AND p.removed_at IS NULL FOR UPDATE`,
		contextID, name).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, h.fields(), func() error { return nil })
		return err
	})
	b.Queue(`SELECT l.priority, l.length, l.lowest, l.highest FROM postern.batch_line l
		WHERE l.processor_id = (SELECT p.processor_id FROM postern.processor p WHERE p.context_id = $1 AND p.name = $2)`, contextID, name).
		Query(func(rows pgx.Rows) error {
			var prio processor.Priority
			var l processor.Line
			_, err := pgx.ForEachRow(rows, []any{&prio, &l.Length, &l.Lowest, &l.Highest}, func() error {
				h.lines[prio], h.Length[prio] = l, l.Length
				return nil
			})
			return err
		})
	s.ReadNow(b, &h.now)
	if err := t.Send(ctx, b); err != nil {
		return nil, err
	}
	if h.ID == 0 {
		return nil, noProcessor(name)
	}
	h.stored = h.lines
	return h, nil
}
