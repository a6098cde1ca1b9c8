package domains

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Call is a question to the service of a domain, leased to this process.
type Call struct {
	Domain     int32
	Name       string // of the domain
	Kind       string
	Key        string
	Tries      int
	Fence      int64
	URL        string
	Sign       bool
	Timeout    time.Duration
	Requests   []Request
	Err        error // why it could not be prepared: it has no requests
	settings   *Settings
	intent     string
	generation int64
	call       coord.Call
	makers     map[string]made
}

// Request is one HTTP request of a call. Most calls have one; of a signature, one for each party.
type Request struct {
	Key, Name, Party string
	Body             json.RawMessage // nil: it is a GET
}

// claimSQL leases calls whose time has come, and that no other process is at. Those of a domain that is still wait.
//
// Why no two processes are at one call: SKIP LOCKED leaves out rows that another claim has locked, and behind its
// commit the lease is over only at leased_until. A process that wakes up after that has an older fence: see fenced.
const claimSQL = `WITH due AS MATERIALIZED (
		SELECT c.domain_id, c.key, d.name, d.settings, n.now
		FROM postern.coord_call c
		JOIN postern.domain d ON d.domain_id = c.domain_id
		JOIN postern.coord_state s ON s.domain_id = c.domain_id
		CROSS JOIN (SELECT coalesce($1::timestamptz, clock_timestamp())) n(now)
		WHERE c.due <= n.now AND NOT c.aside AND NOT s.still AND (c.leased_until IS NULL OR c.leased_until <= n.now)
			AND d.removed_at IS NULL AND NOT d.paused AND d.context_id <> ALL ($2) AND c.domain_id <> ALL ($3)
			AND (c.kind <> 'height' OR s.due IS NOT NULL)
		ORDER BY c.due
		LIMIT $4
		FOR UPDATE OF c SKIP LOCKED)
	UPDATE postern.coord_call c
	SET leased_by = $5, leased_until = due.now + (due.settings->>'service_timeout')::interval + interval '5 s',
		tries = c.tries + 1, fence = greatest(c.fence + 1, (extract(epoch FROM due.now) * 1000)::bigint)
	FROM due
	WHERE c.domain_id = due.domain_id AND c.key = due.key
	RETURNING c.domain_id, due.name, due.settings, c.kind, c.key, c.tries, c.fence, coalesce(c.intent_id::text, ''),
		c.generation, c.call, c.makers`

// ClaimCalls leases up to so many calls to this process, none of the domains in full, and makes their requests. One
// whose requests cannot be made has the error, and holds up no other.
func (s *Store) ClaimCalls(ctx context.Context, node int64, full []int32, most int) (list []*Call, err error) {
	if s.QuarantinedWhole() {
		return nil, nil
	}
	if full == nil {
		full = []int32{}
	}
	err = s.Run(ctx, func(t *db.Txn) error {
		list = nil
		b := &pgx.Batch{}
		b.Queue(claimSQL, s.Clock(), s.QuarantineView().Contexts(), full, most,
			node).Query(func(rows pgx.Rows) (err error) {
			list, err = pgx.CollectRows(rows, scanCall)
			return err
		})
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if len(list) == 0 {
			return t.Rollback(ctx)
		}
		return t.Commit(ctx, &pgx.Batch{})
	})
	if err != nil {
		return nil, err
	}
	for _, c := range list {
		if c.Err = s.prepare(ctx, c); c.Err != nil {
			c.Requests = nil
		}
	}
	return list, nil
}

// Lost says whether what a call asks about is not here any more, or is something else: it will not be asked.
func (c *Call) Lost() bool { return errors.Is(c.Err, errNoData) || errors.Is(c.Err, errOtherData) }

func scanCall(row pgx.CollectableRow) (*Call, error) {
	c := &Call{settings: &Settings{}}
	var settings, call, makers []byte
	err := row.Scan(&c.Domain, &c.Name, &settings, &c.Kind, &c.Key, &c.Tries, &c.Fence, &c.intent, &c.generation, &call,
		&makers)
	if err != nil {
		return nil, err
	}
	for _, one := range []struct {
		raw  []byte
		into any
	}{{settings, c.settings}, {call, &c.call}, {makers, &c.makers}} {
		if err := json.Unmarshal(one.raw, one.into); err != nil {
			return nil, err
		}
	}
	c.URL, c.Sign, c.Timeout = c.settings.ServiceURL, c.settings.Sign != "", time.Duration(c.settings.ServiceTimeout)
	return c, nil
}

// Read makes the event of what the service answered to the requests of a call. An answer that is not of the contract is
// the answer ERROR, which counts.
func (c *Call) Read(answers []json.RawMessage) (Event, error) {
	d := coord.New(c.Name, c.settings.Self, c.settings.coord(), 1)
	e := Event{Event: coord.Event{ID: c.intent}, Fence: c.Fence}
	for n, body := range answers {
		a, kept, err := d.ReadAnswer(&c.call, body, c.settings.Types)
		if err != nil {
			return c.Failed(err.Error()), err
		}
		e.Answer = &a
		if a.Result != coord.OK {
			e.Parts = nil
			break
		}
		part := map[string]string{"assemble": "assembled", "prepare": "prepared"}[c.Kind]
		if part == "" {
			part = c.Kind
		}
		if kept != nil {
			r := c.Requests[n]
			e.Parts = append(e.Parts, Part{c.intent, c.generation, part, r.Name, r.Party, kept})
		}
	}
	e.Answer.Reason = clipped(e.Answer.Reason)
	return e, nil
}

// Failed is the event of an answer that counts as an error.
func (c *Call) Failed(why string) Event {
	a := coord.Answer{Key: c.Key, Result: coord.Err, Reason: clipped(c.Kind + ": " + why)}
	return Event{Event: coord.Event{Answer: &a, ID: c.intent}, Fence: c.Fence}
}

func clipped(s string) string {
	if len(s) > 1000 {
		s = s[:1000] + "..."
	}
	return string([]rune(s))
}

// Told says whether no step waits for the answer to a call.
func (c *Call) Told() bool { return c.Kind == CallSettled || c.Kind == CallHeight }

// Postpone has a call made again later. One whose lease is another's by now is left alone.
func (s *Store) Postpone(ctx context.Context, c *Call, why string, after time.Duration) error {
	_, err := s.Exec(ctx, `UPDATE postern.coord_call
		SET leased_by = NULL, leased_until = NULL, error = $4, due = coalesce($6::timestamptz,
			clock_timestamp()) + $5::interval
		WHERE domain_id = $1 AND key = $2 AND fence = $3`, c.Domain, c.Key, c.Fence, clipped(why), after, s.Clock())
	return err
}

// Heard ends a call whose answer no step waits for: the service was told, or has said its height.
func (s *Store) Heard(ctx context.Context, c *Call, body []byte) error {
	if c.Kind == CallSettled {
		_, err := s.Exec(ctx, `DELETE FROM postern.coord_call WHERE domain_id = $1 AND key = $2 AND fence = $3`,
			c.Domain, c.Key,
			c.Fence)
		return err
	}
	height, err := readHeight(body)
	if err != nil {
		return err
	}
	// One that rests asks for no height, and a domain that is removed rests: neither is woken by a late answer.
	_, err = s.Exec(ctx, `UPDATE postern.coord_state SET height = $2, due = least(due, coalesce($3::timestamptz,
		clock_timestamp()))
		WHERE domain_id = $1 AND height < $2 AND due IS NOT NULL`, c.Domain, height, s.Clock())
	return err
}

// readHeight reads the height that a service answered. Others would refuse what this node says at a greater one.
func readHeight(body []byte) (int64, error) {
	var answer struct {
		Height json.Number `json:"height"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return 0, err
	}
	height, err := answer.Height.Int64()
	if err != nil || height < 0 || height > mostNumber {
		return 0, fault.New(fault.Invalid, "bad_answer", "height %q: want digits, and at most %d",
			fault.Clip(answer.Height.String()), int64(mostNumber))
	}
	return height, nil
}
