package deliveries

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// DeliveryID names a delivery: its track, its transaction and the event that it tells. It packs the key of its row,
// and is opaque to clients.
type DeliveryID struct {
	ID    outbox.ID
	Event string
	Track int32
}

// String writes the id as clients see it.
func (d DeliveryID) String() string {
	to := strconv.Itoa(int(d.Track))
	switch d.Track {
	case HookTrack:
		to = "hook"
	case CallbackTrack:
		to = "callback"
	}
	return fmt.Sprintf("%s.%s.%s", d.ID, d.Event, to)
}

// ParseDeliveryID reads what String wrote, or NotFound.
func ParseDeliveryID(s string) (d DeliveryID, err error) {
	parts := strings.Split(s, ".")
	if len(parts) == 3 {
		d.Event = parts[1]
		n, bad := strconv.ParseInt(parts[2], 10, 32)
		d.Track = int32(n)
		if parts[2] == "callback" {
			d.Track, bad = CallbackTrack, nil
		} else if parts[2] == "hook" {
			d.Track, bad = HookTrack, nil
		}
		d.ID, err = outbox.ParseID(parts[0])
		if err == nil && bad == nil && d.String() == s {
			return d, nil
		}
	}
	return d, fault.New(fault.NotFound, "not_found", "no delivery %q", fault.Clip(s))
}

// DeliveryRow is a delivery as readers see it.
type DeliveryRow struct {
	DeliveryID
	Subscription string // "" for a hook or callback
	Batch        int64  // that it tells of, 0 for none
	Of           string // the id of what it tells of, other than a transaction and a batch; of a domain its name
	Position     int64
	URL          string
	At           time.Time
	State        string // pending, delivered, failed
	Attempts     int
	NextAt       *time.Time
	Error        string
	Tries        json.RawMessage
	CreatedAt    time.Time
	EndedAt      *time.Time
}

// Tag changes with the state of a delivery, and with each try.
func (d *DeliveryRow) Tag() string { return deliveryTag(d.State, d.Attempts) }

func deliveryTag(state string, attempts int) string { return fmt.Sprintf("%s-%d", state, attempts) }

// seen compares what a client last saw of a delivery with the state and the tries in its row, which is locked.
func seen(by db.By, id DeliveryID, state string, attempts int) error {
	switch state { // as deliverySelect shows it
	case "queued":
		state = "pending"
	case "absent":
		state = "delivered"
	}
	tag := deliveryTag(state, attempts)
	if by.Match == nil || by.Match(tag) {
		return nil
	}
	return fault.New(fault.Conflict, "precondition_failed", "delivery %s is %s by now, after %d tries: read it again",
		id, state, attempts).With("version", tag)
}

// deliverySelect reads deliveries. An event that is kept to be fetched is delivered once it has been acknowledged. An
// event that a worker has no hook for has no receiver.
const deliverySelect = `SELECT d.queue_id, d.seq, d.day - '1970-01-01', coalesce(postern.salt(t.created_at, t.moved_from), 0), d.event, d.subscription_id, coalesce(s.name, ''),
		CASE WHEN d.subscription_id > 0 THEN d.cursor ELSE 0 END,
		coalesce(x.batch_id, CASE d.event WHEN 'result' THEN d.seq ELSE 0 END),
		CASE WHEN d.event LIKE 'job-%' OR d.event LIKE 'flow-%' OR d.event = 'message-received'
			THEN coalesce(postern.told_of(d.queue_id, d.seq)::text, '')
			WHEN d.event LIKE 'intent-%' OR d.event = 'coordinator-changed'
			THEN coalesce(postern.told_in_domain(d.event, d.queue_id, d.seq), '')
			ELSE '' END,
		coalesce(d.url, s.url, ''), d.at, v.state, d.attempts, d.next_at, coalesce(d.error, ''), d.tries, d.created_at, d.ended_at
	FROM postern.delivery d
	LEFT JOIN postern.task t ON (t.queue_id, t.seq, t.day) = (d.queue_id, d.seq, d.day)
	LEFT JOIN postern.subscription s ON s.subscription_id = d.subscription_id
	LEFT JOIN postern.batch_step x ON d.event = 'timeout' AND x.notice = d.seq
	LEFT JOIN postern.checkpoint k ON k.subscription_id = d.subscription_id AND d.state = 'kept'
	CROSS JOIN LATERAL (SELECT CASE d.state WHEN 'queued' THEN 'pending' WHEN 'absent' THEN 'delivered'
		WHEN 'kept' THEN CASE WHEN d.cursor <= k.acked THEN 'delivered' ELSE 'pending' END ELSE d.state END AS state) v `

func scanDelivery(row pgx.CollectableRow) (*DeliveryRow, error) {
	v := &DeliveryRow{}
	return v, row.Scan(&v.ID.Queue, &v.ID.Seq, &v.ID.Day, &v.ID.Salt, &v.Event, &v.Track, &v.Subscription, &v.Position, &v.Batch, &v.Of, &v.URL, &v.At, &v.State,
		&v.Attempts, &v.NextAt, &v.Error, &v.Tries, &v.CreatedAt, &v.EndedAt)
}

// DeliveryFilter narrows a list of deliveries. Empty fields do not narrow.
type DeliveryFilter struct {
	Subscription           []string
	Transaction            *outbox.ID
	State                  []string
	After, Before          time.Time // of their creation, half-open
	Ascending              bool
	AfterAt                time.Time // the cursor
	AfterQueue, AfterSeq   int64
	AfterTrack, AfterEvent string
	Limit                  int
	Days                   db.Window // that are read
}

// DeliveryDays chooses the days of a page, and those that follow it, nil for none: the days under which transactions
// are stored, of at most db.WindowSpans spans, the newest first, or the oldest. from are those in which the list goes
// on, nil for a new one.
func (s *Store) DeliveryDays(of *outbox.ID, ascending bool, from *db.Window) (days db.Window, following *db.Window) {
	switch {
	case of != nil:
		return db.Window{First: of.Day, Until: of.Day + 1}, nil
	case from != nil:
		days = *from
	case ascending:
		days, _ = s.Above(0)
	default:
		days, _ = s.Below(0)
	}
	var w db.Window
	switch {
	case ascending && days.Until != 0:
		w, _ = s.Above(days.Until)
	case !ascending && days.First != 0:
		w, _ = s.Below(days.First)
	default:
		return days, nil
	}
	return days, &w
}

// Page lists deliveries from the days in which a list goes on, nil for a new one, and from those that follow while it
// is not full, for as long as db.Windows lets it. It leaves in f the days in which it ended; following are those behind
// them, nil for none.
func (s *Store) Page(
	ctx context.Context, contextID int32, f *DeliveryFilter, from *db.Window,
) (list []*DeliveryRow, following *db.Window, err error) {
	more, limit := db.Windows(), f.Limit
	for {
		f.Days, following = s.DeliveryDays(f.Transaction, f.Ascending, from)
		f.Limit = limit - len(list)
		part, err := s.Deliveries(ctx, contextID, *f)
		if err != nil {
			return nil, nil, err
		}
		list = append(list, part...)
		if following == nil || len(list) == limit || !more() {
			return list, following, nil
		}
		from, f.AfterAt = following, time.Time{}
	}
}

// Deliveries lists deliveries of some days by their time: those of one transaction with the hooks of its worker; of all
// others the hooks that failed.
func (s *Store) Deliveries(ctx context.Context, contextID int32, f DeliveryFilter) ([]*DeliveryRow, error) {
	args := []any{contextID}
	arg := func(v any) string { args = append(args, v); return "$" + strconv.Itoa(len(args)) }
	where := []string{"d.context_id = $1"}
	if id := f.Transaction; id != nil {
		where = append(where, fmt.Sprintf("(d.queue_id, d.seq, d.day, postern.salt(t.created_at, t.moved_from)) = (%s, %s, %s, %s)", arg(id.Queue), arg(id.Seq), arg(id.Day.Time()), arg(id.Salt)))
	} else {
		where = append(where, "(d.event NOT IN ('on-success', 'on-failure') OR d.state = 'failed')", "coalesce(s.kind, '') <> 'stream'")
	}
	if len(f.Subscription) > 0 {
		where = append(where, "s.name = ANY ("+arg(f.Subscription)+")")
	}
	if len(f.State) > 0 {
		where = append(where, "v.state = ANY ("+arg(f.State)+")")
	}
	if slices.Equal(f.State, []string{"failed"}) { // along the index of those
		where = append(where, "d.state = 'failed'")
	}
	if !f.After.IsZero() {
		where = append(where, "d.created_at >= "+arg(f.After))
	}
	if !f.Before.IsZero() {
		where = append(where, "d.created_at < "+arg(f.Before))
	}
	cmp, dir := "<", "DESC"
	if f.Ascending {
		cmp, dir = ">", "ASC"
	}
	const key = "d.created_at, d.queue_id, d.seq, d.subscription_id::text, d.event"
	if !f.AfterAt.IsZero() {
		where = append(where, fmt.Sprintf("(%s) %s (%s, %s, %s, %s, %s)", key, cmp, arg(f.AfterAt), arg(f.AfterQueue), arg(f.AfterSeq), arg(f.AfterTrack), arg(f.AfterEvent)))
	}
	sql := pg.Within(deliverySelect, f.Days) + " WHERE " + strings.Join(where, " AND ") +
		" ORDER BY " + strings.ReplaceAll(key, ",", " "+dir+",") + " " + dir + " LIMIT " + arg(f.Limit)
	rows, err := s.Db(ctx).Query(ctx, sql, args...)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanDelivery)
	return list, db.Known(err)
}

// Delivery returns one delivery, or NotFound.
func (s *Store) Delivery(ctx context.Context, contextID int32, id DeliveryID) (*DeliveryRow, error) {
	rows, err := s.Db(ctx).Query(ctx, deliverySelect+` WHERE d.context_id = $1 AND (d.queue_id, d.seq, d.day, d.subscription_id, d.event) = ($2, $3, $4, $5, $6)
		AND coalesce(postern.salt(t.created_at, t.moved_from), 0) = $7`, contextID, id.ID.Queue, id.ID.Seq, id.ID.Day.Time(), id.Track, id.Event, id.ID.Salt)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanDelivery)
	if err == nil && len(list) == 0 {
		return nil, fault.New(fault.NotFound, "not_found", "no delivery %q", fault.Clip(id.String()))
	}
	if err != nil {
		return nil, db.Known(err)
	}
	return list[0], nil
}

// RetryDelivery makes one delivery due now: one that waits for its next try, or once more one that has
// ended. One that stands behind another of its queue stays there.
func (s *Store) RetryDelivery(ctx context.Context, by db.By, id DeliveryID) (r pg.LeverResult, err error) {
	d, err := s.Delivery(ctx, by.Context, id)
	if err != nil {
		return r, err
	}
	err = s.Run(ctx, func(t *db.Txn) error {
		r = pg.LeverResult{State: "pending"}
		var deleted bool
		var state string
		var attempts int
		var now time.Time
		b := &pgx.Batch{}
		// Who deletes the subscription holds this lock. Either it has committed, which the row tells, or it waits for
		// our commit, and ends this delivery with the others. A hook or callback has no row.
		b.Queue(`SELECT removed_at IS NOT NULL
			FROM postern.subscription
			WHERE subscription_id = $1
			FOR UPDATE`, id.Track).
			Query(func(rows pgx.Rows) error {
				_, err := pgx.ForEachRow(rows, []any{&deleted}, func() error { return nil })
				return err
			})
		b.Queue(`SELECT state, attempts
			FROM postern.delivery
			WHERE (queue_id, seq, day, subscription_id, event) = ($1, $2, $3, $4, $5)
			FOR UPDATE`, id.ID.Queue, id.ID.Seq, id.ID.Day.Time(), id.Track, id.Event).
			QueryRow(func(row pgx.Row) error { return row.Scan(&state, &attempts) })
		s.ReadNow(b, &now)
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if err := d.mayRetry(deleted, state); err != nil {
			return err
		}
		if err := seen(by, id, state, attempts); err != nil {
			return err
		}
		if state == "queued" {
			r.Pending, r.At = true, "after the deliveries of its queue that stand before it"
			return t.Rollback(ctx)
		}
		b = &pgx.Batch{}
		makeDue(b, id, state, now)
		r.Changed = true
		s.AuditIn(b, by, "retry", "/deliveries/"+id.String())
		return t.Commit(ctx, b)
	})
	s.RingHere()
	return r, err
}

// mayRetry refuses a delivery that is kept to be fetched, and one of a deleted subscription, which would never be made,
// and would keep its day in the database for ever.
func (d *DeliveryRow) mayRetry(deleted bool, state string) error {
	switch {
	case deleted:
		return fault.New(fault.Conflict, "wrong_state",
			"delivery %s cannot be retried: its subscription %q was deleted", d.DeliveryID, d.Subscription)
	case state == "kept":
		return fault.New(fault.Conflict, "wrong_state",
			"delivery %s is kept to be fetched: redeliver takes subscription %q back", d.DeliveryID, d.Subscription)
	}
	return nil
}

// makeDue makes a delivery due at a moment, or the next one of its queue to be so.
func makeDue(b *pgx.Batch, id DeliveryID, state string, now time.Time) {
	key := []any{id.ID.Queue, id.ID.Seq, id.ID.Day.Time(), id.Track, id.Event, now}
	const where = ` WHERE (queue_id, seq, day, subscription_id, event) = ($1, $2, $3, $4, $5)`
	switch {
	case state == "pending":
		b.Queue(`UPDATE postern.delivery SET next_at = $6`+where, key...)
	case id.Track > 0:
		b.Queue(`UPDATE postern.delivery SET state = 'queued', ended_at = NULL, first_at = NULL, error = NULL`+where,
			key[:5]...)
		b.Queue(promoteSQL, id.Track, []int64{id.ID.Queue}, now)
	default:
		b.Queue(`UPDATE postern.delivery
			SET state = 'pending', next_at = $6, ended_at = NULL, first_at = NULL, error = NULL`+where, key...)
	}
}
