package domains

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Mail is a coordination message to another node, leased to this process.
type Mail struct {
	Parcel
	Domain  int32
	Context int32
	slot    string
	makers  map[string]made
}

// A message that no process could bring to its node for so long is dropped. The machines say again what still counts:
// so nothing piles up for a node that is away.
const mailFor = time.Minute

// mailLease is longer than a call to a peer takes.
const mailLease = 30 * time.Second

// writeMail puts what a step says to other nodes into its slots.
func (h *seat) writeMail(b *pgx.Batch, d *coord.Domain, list []*coord.Message) error {
	type place struct{ node, slot string }
	newest := map[place]*coord.Message{}
	var places []place
	for _, m := range list {
		at := place{m.To, m.Slot()}
		if newest[at] == nil {
			places = append(places, at)
		}
		newest[at] = m
	}
	if len(places) == 0 {
		return nil
	}
	var nodes, slots, texts, makers []string
	var beats []int64
	for _, at := range places {
		m := newest[at]
		text, err := json.Marshal(m)
		if err != nil {
			return err
		}
		by := []byte("{}")
		if m.Kind == coord.AssembleRequest && len(m.Pending) > 0 {
			if by, err = json.Marshal(makersOf(d, m.Pending)); err != nil {
				return err
			}
		}
		nodes, slots, beats = append(nodes, at.node), append(slots, at.slot), append(beats, m.Beat)
		texts, makers = append(texts, string(text)), append(makers, string(by))
	}
	b.Queue(`INSERT INTO postern.coord_out AS x (domain_id, node, slot, beat, message, makers, at)
		SELECT $1, q.node, q.slot, q.beat, q.message::json, q.makers::jsonb, $7
		FROM unnest($2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[]) q(node, slot, beat, message, makers)
		ON CONFLICT (domain_id, node, slot) DO UPDATE SET beat = excluded.beat, message = excluded.message,
			makers = excluded.makers, at = excluded.at, leased_until = NULL`, h.id, nodes, slots, beats, texts, makers,
		h.now)
	return nil
}

// claimMailSQL leases messages that no other process sends, in the order in which they were said.
//
// Why a message is not deleted that was never sent: the sender deletes by the beat of what it has sent, and a newer one
// in the same slot has a higher beat. Two processes may send one message, which changes nothing.
const claimMailSQL = `WITH due AS MATERIALIZED (
		SELECT o.domain_id, o.node, o.slot, d.name, d.context_id, n.now
		FROM postern.coord_out o
		JOIN postern.domain d ON d.domain_id = o.domain_id
		CROSS JOIN (SELECT coalesce($1::timestamptz, clock_timestamp())) n(now)
		WHERE (o.leased_until IS NULL OR o.leased_until <= n.now) AND d.removed_at IS NULL AND NOT d.paused
			AND d.context_id <> ALL ($2)
			AND NOT EXISTS (SELECT FROM unnest($3::int[], $4::text[]) q(context_id, node)
				WHERE (q.context_id, q.node) = (d.context_id, o.node))
		ORDER BY o.beat
		LIMIT $5
		FOR UPDATE OF o SKIP LOCKED)
	UPDATE postern.coord_out o
	SET leased_until = due.now + $6::interval
	FROM due
	WHERE (o.domain_id, o.node, o.slot) = (due.domain_id, due.node, due.slot)
	RETURNING o.domain_id, due.context_id, due.name, o.slot, o.message, o.makers`

// Busy names a peer to which a process sends nothing now.
type Busy struct {
	Context int32
	Node    string
}

// ClaimMail leases messages to this process, with their data, but for those to peers that are busy. Those that are too
// old are dropped.
func (s *Store) ClaimMail(ctx context.Context, busy []Busy, most int) (list []*Mail, err error) {
	if s.QuarantinedWhole() {
		return nil, nil
	}
	contexts, nodes := []int32{}, []string{}
	for _, b := range busy {
		contexts, nodes = append(contexts, b.Context), append(nodes, b.Node)
	}
	err = s.Run(ctx, func(t *db.Txn) error {
		list = nil
		dropped := int64(0)
		b := &pgx.Batch{}
		b.Queue(`DELETE FROM postern.coord_out o
			WHERE o.at < coalesce($1::timestamptz, clock_timestamp()) - $2::interval`, s.Clock(), mailFor).
			Exec(func(tag pgconn.CommandTag) error { dropped = tag.RowsAffected(); return nil })
		b.Queue(claimMailSQL, s.Clock(), s.QuarantineView().Contexts(), contexts, nodes, most, mailLease).
			Query(func(rows pgx.Rows) (err error) {
				list, err = pgx.CollectRows(rows, scanMail)
				return err
			})
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if dropped == 0 && len(list) == 0 {
			return t.Rollback(ctx)
		}
		return t.Commit(ctx, &pgx.Batch{})
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b *Mail) int { return int(a.Beat - b.Beat) })
	kept := list[:0]
	for _, m := range list {
		if err := s.fill(ctx, m); err != nil {
			s.Log.Warn("a message to a node of a domain cannot be made", "domain", m.Parcel.Domain, "kind", m.Kind,
				"error", err)
			if err := s.Delivered(ctx, []*Mail{m}); err != nil {
				return nil, err
			}
			continue
		}
		kept = append(kept, m)
	}
	return kept, nil
}

func scanMail(row pgx.CollectableRow) (*Mail, error) {
	m := &Mail{}
	var message, makers []byte
	if err := row.Scan(&m.Domain, &m.Context, &m.Parcel.Domain, &m.slot, &message, &makers); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(message, &m.Message); err != nil {
		return nil, err
	}
	return m, json.Unmarshal(makers, &m.makers)
}

// Delivered removes messages that their nodes have taken, or that never will be.
func (s *Store) Delivered(ctx context.Context, list []*Mail) error {
	ids, nodes, slots, beats := keysOf(list)
	_, err := s.Exec(ctx, `DELETE FROM postern.coord_out o
		USING unnest($1::int[], $2::text[], $3::text[], $4::bigint[]) q(domain_id, node, slot, beat)
		WHERE (o.domain_id, o.node, o.slot, o.beat) = (q.domain_id, q.node, q.slot, q.beat)`, ids, nodes, slots, beats)
	return err
}

// Undelivered ends the leases of messages that could not be sent. Without a reason the one before stays.
func (s *Store) Undelivered(ctx context.Context, list []*Mail, why string) error {
	ids, nodes, slots, beats := keysOf(list)
	_, err := s.Exec(ctx, `UPDATE postern.coord_out o SET leased_until = NULL, error = coalesce(nullif($5, ''), o.error)
		FROM unnest($1::int[], $2::text[], $3::text[], $4::bigint[]) q(domain_id, node, slot, beat)
		WHERE (o.domain_id, o.node, o.slot, o.beat) = (q.domain_id, q.node, q.slot, q.beat)`, ids, nodes, slots, beats,
		clipped(why))
	return err
}

func keysOf(list []*Mail) (ids []int32, nodes, slots []string, beats []int64) {
	for _, m := range list {
		ids, nodes = append(ids, m.Domain), append(nodes, m.To)
		slots, beats = append(slots, m.slot), append(beats, m.Beat)
	}
	return ids, nodes, slots, beats
}
