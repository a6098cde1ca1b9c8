package flows

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// DefaultTTL is how long a runner may be silent where nothing else is said.
const DefaultTTL = 15 * time.Second

// RunnerSettings is what people write of a runner.
type RunnerSettings struct {
	Name        string
	Type        string   // of the published design; "": none of them
	ScriptTypes []string // empty: whatever its process can execute
	Local       bool     // false: it takes what its topic names
	Topic       string
	Slots       int
	TTL         time.Duration
	PublicKey   string
	Address     string
}

// Runner is one with what is known of its process.
type Runner struct {
	RunnerSettings
	ID        int32
	Able      []string // the script types that its process can execute
	Missing   map[string]string
	Program   string
	Isolation string
	Instance  string
	Epoch     int64 // 0: no process has registered
	SeenAt    *time.Time
	ClaimedAt *time.Time
	Live      bool // it was seen within its ttl
	Held      int
	Paused    bool
	Version   int64
	CreatedAt time.Time

	patience time.Duration // how long it may be silent: the longest of its ttl and of those that its process was told
	untold   bool          // its last two answers did not both say the ttl
}

// WithDefaults fills in the fields that are left out.
func (r RunnerSettings) WithDefaults() RunnerSettings {
	if r.Topic == "" {
		r.Topic = "runner" + r.Name
	}
	if r.Slots == 0 {
		r.Slots = 1
	}
	if r.TTL == 0 {
		r.TTL = DefaultTTL
	}
	if len(r.ScriptTypes) == 0 {
		r.ScriptTypes = flow.RunnerTypes[r.Type]
	}
	if r.ScriptTypes == nil {
		r.ScriptTypes = []string{}
	}
	return r
}

// lanes are those from which a runner takes: of the script types that it is for and that its process can execute. One
// that is not local takes of these what names its topic, and nothing else.
func (r *Runner) lanes() []string {
	both := []string{}
	for _, name := range r.Able {
		switch {
		case len(r.ScriptTypes) > 0 && !slices.Contains(r.ScriptTypes, name):
		case r.Local:
			both = append(both, name)
		default:
			both = append(both, flow.TopicLane(r.Topic, name))
		}
	}
	return both
}

const runnerColumns = `r.runner_id, r.name, r.type, r.script_types, r.local, r.topic, r.slots, r.ttl, r.public_key,
	r.address,
	r.able, r.missing, r.program, r.isolation, r.instance, r.epoch, r.seen_at, r.claimed_at, r.paused, r.version,
		r.created_at, ` + patience + `, (r.told_ttl, r.told_before) IS DISTINCT FROM (r.ttl, r.ttl)`

// patience is how long a runner may be silent. Its process goes by the ttl of the last answer that it got, which is one
// of the last two, or is about to get; it kills its scripts before that is over (see heldRunner.saw).
const patience = `greatest(r.ttl, r.told_ttl, r.told_before)`

func (r *Runner) fields() []any {
	return []any{&r.ID, &r.Name, &r.Type, &r.ScriptTypes, &r.Local, &r.Topic, &r.Slots, &r.TTL, &r.PublicKey,
		&r.Address,
		&r.Able, &r.Missing, &r.Program, &r.Isolation, &r.Instance, &r.Epoch, &r.SeenAt, &r.ClaimedAt, &r.Paused,
		&r.Version, &r.CreatedAt, &r.patience, &r.untold}
}

// Runners lists up to limit runners of a context by name, those after a given one.
func (s *Store) Runners(ctx context.Context, contextID int32, after string, limit int) ([]*Runner, error) {
	return s.runners(ctx, contextID, "", after, limit)
}

// Runner returns one runner, or NotFound.
func (s *Store) Runner(ctx context.Context, contextID int32, name string) (*Runner, error) {
	list, err := s.runners(ctx, contextID, name, "", 1)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 || name == "" {
		return nil, noRunner(name)
	}
	return list[0], nil
}

func noRunner(name string) error {
	return fault.New(fault.NotFound, "not_found", "no runner %q", fault.Clip(name))
}

func (s *Store) runners(ctx context.Context, contextID int32, name, after string, limit int) ([]*Runner, error) {
	rows, err := s.Db(ctx).Query(ctx, `SELECT `+runnerColumns+`,
			coalesce(r.seen_at + `+patience+` > coalesce($5::timestamptz, clock_timestamp()), false),
			(SELECT count(*) FROM postern.job_try t WHERE t.runner_id = r.runner_id AND t.state = 'Held')
		FROM postern.runner r
		WHERE r.context_id = $1
			AND r.removed_at IS NULL
			AND ($2 = '' OR r.name = $2)
			AND r.name > $3
		ORDER BY r.name
		LIMIT $4`, contextID, name, after, limit, s.LeaseNow())
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*Runner, error) {
		r := &Runner{}
		return r, row.Scan(append(r.fields(), &r.Live, &r.Held)...)
	})
	return list, db.Known(err)
}

const runnerLock = `SELECT version, removed_at IS NOT NULL FROM postern.runner WHERE context_id = $1
	AND name = $2 FOR UPDATE`

// PutRunner creates a runner or replaces its settings; version as in db.MatchVersion. What its process said of itself
// stays.
func (s *Store) PutRunner(ctx context.Context, by db.By, r RunnerSettings, version int64) (created bool, err error) {
	err = s.Run(ctx, func(t *db.Txn) error {
		created, err = t.LockVersion(ctx, version, runnerLock, by.Context, r.Name)
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		equip(b, by.Context)
		s.insertRunner(b, by.Context, r)
		s.AuditIn(b, by, "put", "/runners/"+r.Name)
		return t.Commit(ctx, b)
	})
	if err != nil {
		return false, err
	}
	return created, s.Reconfigured(ctx)
}

// insertRunner adds to b what makes a runner, or replaces its settings. One that was removed begins anew: a process
// that was that runner before has an old epoch.
func (s *Store) insertRunner(b *pgx.Batch, contextID int32, r RunnerSettings) {
	b.Queue(`INSERT INTO postern.runner AS r (context_id, name, type, script_types, local, topic, slots, ttl,
		public_key, address, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, coalesce($11::timestamptz, clock_timestamp()))
		ON CONFLICT (context_id, name) DO UPDATE SET type = excluded.type, script_types = excluded.script_types,
			local = excluded.local,
			topic = excluded.topic, slots = excluded.slots, ttl = excluded.ttl, public_key = excluded.public_key,
			address = excluded.address, made_itself = false, removed_at = NULL, version = r.version + 1,
			instance = CASE WHEN r.removed_at IS NULL THEN r.instance ELSE '' END,
			epoch = r.epoch + CASE WHEN r.removed_at IS NULL THEN 0 ELSE 1 END,
			seen_at = CASE WHEN r.removed_at IS NULL THEN r.seen_at END`,
		contextID, r.Name, r.Type, r.ScriptTypes, r.Local, r.Topic, r.Slots, r.TTL, r.PublicKey, r.Address, s.Clock())
}

// PauseRunner keeps a runner from claiming, or lets it claim again. What it holds goes on.
func (s *Store) PauseRunner(ctx context.Context, by db.By, name string, paused bool) (pg.LeverResult, error) {
	r, err := s.SetFlag(ctx, by, pg.Verb(paused), "/runners/"+name,
		`UPDATE postern.runner SET paused = $3, version = version + 1
		WHERE context_id = $1 AND name = $2 AND removed_at IS NULL AND paused <> $3`, runnerLock, name, paused)
	if err == nil && !paused {
		s.bells.ringAll()
	}
	return r, err
}

// RemoveRunner removes a runner. What it holds is offered to others, as when its process dies.
func (s *Store) RemoveRunner(ctx context.Context, by db.By, name string) error {
	var offered []offer
	err := s.Run(ctx, func(t *db.Txn) error {
		missing, err := t.LockVersion(ctx, 0, runnerLock, by.Context, name)
		if err != nil {
			return err
		}
		if missing {
			return noRunner(name)
		}
		if err := by.Seen(t.Version); err != nil {
			return err
		}
		b := &pgx.Batch{}
		r, err := s.heldOf(ctx, t, by.Context, name)
		if err != nil {
			return err
		}
		if offered, err = s.takeBack(ctx, t, b, r.tries, flow.TryLapsed, r.now); err != nil {
			return err
		}
		b.Queue(`UPDATE postern.runner SET removed_at = coalesce($3::timestamptz, clock_timestamp()), paused = false,
			version = version + 1
			WHERE context_id = $1 AND name = $2`, by.Context, name, s.Clock())
		s.AuditIn(b, by, "delete", "/runners/"+name)
		return t.Commit(ctx, b)
	})
	if err != nil {
		return err
	}
	s.offered(offered)
	return nil
}

// Registration is what a process says of itself when it begins.
type Registration struct {
	Instance  string
	Takeover  bool
	Able      []string
	Missing   map[string]string
	Slots     int
	Isolation string
	Program   string
}

// Register begins an epoch of a runner, which exists from then on. What an earlier epoch held is offered to others.
// Outcomes besides: Conflict "runner_live" while another process is seen under that name, unless it takes over.
//
// Two that register at one time are serial by the lock of the row, or by the key where there is none: the second sees
// that the first lives.
func (s *Store) Register(ctx context.Context, by db.By, name string, p Registration) (epoch int64,
	ttl time.Duration, err error) {
	missing, err := json.Marshal(p.Missing)
	if err != nil {
		return 0, 0, err
	}
	if p.Missing == nil {
		missing = []byte("{}")
	}
	var offered []offer
	err = s.Run(ctx, func(t *db.Txn) error {
		created, err := t.LockVersion(ctx, 0, runnerLock, by.Context, name)
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		if created {
			equip(b, by.Context)
			s.insertRunner(b, by.Context, RunnerSettings{Name: name, Local: true, Slots: p.Slots}.WithDefaults())
			b.Queue(`UPDATE postern.runner SET made_itself = true WHERE context_id = $1 AND name = $2`, by.Context,
				name)
			if err := t.Send(ctx, b); err != nil {
				return err
			}
		}
		r, err := s.heldOf(ctx, t, by.Context, name)
		if err != nil {
			return err
		}
		if r.SeenAt != nil && r.Instance != p.Instance && !p.Takeover && r.SeenAt.Add(r.patience).After(r.now) {
			return fault.New(fault.Conflict, "runner_live", "another process registered as runner %q, and was seen "+
				"%s ago: wait until it is silent "+
				"for %s, choose another name, or take "+
				"over", fault.Clip(name), r.now.Sub(*r.SeenAt).Round(time.Second),
				r.patience)
		}
		b = &pgx.Batch{}
		if offered, err = s.takeBack(ctx, t, b, r.tries, flow.TryLapsed, r.now); err != nil {
			return err
		}
		epoch, ttl = s.Fence(r.Epoch, r.now), r.TTL
		b.Queue(`UPDATE postern.runner SET epoch = $2, instance = $3, able = $4, missing = $5::text::jsonb,
			program = $6, isolation = $7,
				seen_at = $8, told_ttl = ttl, told_before = ttl, slots = CASE WHEN made_itself THEN $9 ELSE slots END
			WHERE runner_id = $1`, r.ID, epoch, p.Instance, p.Able, string(missing), p.Program, p.Isolation, r.now,
			p.Slots)
		return t.Commit(ctx, b)
	})
	if err != nil {
		return 0, 0, err
	}
	s.offered(offered)
	return epoch, ttl, s.Reconfigured(ctx)
}
