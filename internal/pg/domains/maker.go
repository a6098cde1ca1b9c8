package domains

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// domainMaker is the Maker of the public transactions of domains.
type domainMaker struct{ s *Store }

func domainsMade(s *Store) pg.Made {
	return pg.Made{
		Maker:  domainMaker{s},
		As:     outbox.ByAdmin,
		Owns:   func(_, uid string) bool { return strings.HasPrefix(uid, UIDPrefix) },
		Awaits: awaitedByDomains,
	}
}

// awaitedByDomains are the places of the public transactions whose end no step has taken. Served by activity_open.
const awaitedByDomains = `SELECT i.queue_id, i.seq, i.day
	FROM (SELECT d.context_id, a.uid FROM postern.coord_activity a JOIN postern.domain d ON d.domain_id = a.domain_id
		WHERE a.ended_at IS NULL) k(context_id, key)
	CROSS JOIN LATERAL (
		SELECT x.queue_id, x.seq, x.day
		FROM postern.idempotency x
		WHERE (x.context_id, x.key) = (k.context_id, k.key) OFFSET 0) i`

// May refuses nothing: an end that a lever gives to a public transaction is one for its work like any other.
func (m domainMaker) May(db.By, string, *pg.Task) error { return nil }

// Redrive refuses: a public transaction goes out by the permit of its generation alone, and once.
func (m domainMaker) Redrive(_ context.Context, _ db.By, t *pg.Transaction, _ pg.Redrive, _ pg.Repost) (pg.Accepted,
	error) {
	path := m.path(t.UID)
	return pg.Accepted{}, fault.New(fault.Conflict, "wrong_state",
		"transaction %s is the public transaction of an intent, which "+
			"is assembled anew where that is right: look at %s, and post a new intent", t.ID, path).With("intent", path)
}

// path is where the intent of a public transaction is read.
func (m domainMaker) path(uid string) string {
	domain, rest, _ := strings.Cut(strings.TrimPrefix(uid, UIDPrefix), ":")
	id, _, _ := strings.Cut(rest, ".")
	name := domain
	if n, err := strconv.Atoi(domain); err == nil {
		_ = m.s.Pool().QueryRow(context.Background(), `SELECT name FROM postern.domain WHERE domain_id = $1`,
			n).Scan(&name)
	}
	return "/domains/" + name + "/intents/" + id
}

// Moved changes nothing: a work finds its public transaction by the uid, which moves along.
func (m domainMaker) Moved(*pgx.Batch, *pg.Task) {}

// Ended names the intent.
func (m domainMaker) Ended(t *pg.Transaction) string {
	return fmt.Sprintf("it was the public transaction of %s", m.path(t.UID))
}

// Forget removes intents that ended before a time, with all that belongs to them, in chunks. One that a step may still
// need, or that a subscription is still to be told of, stays.
func (m domainMaker) Forget(ctx context.Context, before time.Time) error {
	return m.s.forget(ctx, before)
}

func (s *Store) forget(ctx context.Context, before time.Time) error {
	if err := s.InChunks(ctx, func(atOnce int) (int, error) {
		tag, err := s.Exec(ctx, `DELETE FROM postern.coord_step x
			USING (SELECT y.domain_id, y.object, y.n
				FROM postern.domain d
				JOIN postern.coord_step y ON y.domain_id = d.domain_id AND y.object = ''
				WHERE y.at < $1
				LIMIT $2) old
			WHERE (x.domain_id, x.object, x.n) = (old.domain_id, old.object, old.n)`, before, atOnce)
		return int(tag.RowsAffected()), err
	}); err != nil {
		return err
	}
	for _, sql := range []string{forgetSQL, forgetWorkSQL, forgetDataSQL} {
		if err := s.InChunks(ctx, func(atOnce int) (int, error) {
			tag, err := s.Exec(ctx, sql, before, atOnce)
			return int(tag.RowsAffected()), err
		}); err != nil {
			return err
		}
	}
	return nil
}

// forgetWorkSQL removes works for intents of other nodes.
const forgetWorkSQL = `WITH old AS MATERIALIZED (
		SELECT w.domain_id, w.intent_id
		FROM postern.coord_work w
		WHERE w.since < $1 AND NOT w.held
			AND NOT EXISTS (SELECT FROM postern.coord_intent i
				WHERE (i.domain_id, i.intent_id) = (w.domain_id, w.intent_id))
			AND NOT EXISTS (SELECT FROM postern.coord_activity a
				WHERE (a.domain_id, a.intent_id) = (w.domain_id, w.intent_id) AND a.ended_at IS NULL)
		LIMIT $2),
	activities AS (DELETE FROM postern.coord_activity x USING old WHERE (x.domain_id, x.intent_id) = (old.domain_id,
		old.intent_id)),
	payloads AS (DELETE FROM postern.coord_payload x USING old WHERE (x.domain_id, x.intent_id) = (old.domain_id,
		old.intent_id)),
	steps AS (DELETE FROM postern.coord_step x USING old WHERE (x.domain_id, x.object) = (old.domain_id,
		old.intent_id::text))
	DELETE FROM postern.coord_work x USING old WHERE (x.domain_id, x.intent_id) = (old.domain_id, old.intent_id)`

// forgetDataSQL removes what was endorsed here for other nodes.
const forgetDataSQL = `WITH old AS MATERIALIZED (
		SELECT p.domain_id, p.intent_id, p.generation, p.part, p.name, p.party
		FROM postern.coord_payload p
		WHERE p.at < $1
			AND NOT EXISTS (SELECT FROM postern.coord_intent i
				WHERE (i.domain_id, i.intent_id) = (p.domain_id, p.intent_id))
			AND NOT EXISTS (SELECT FROM postern.coord_work w
				WHERE (w.domain_id, w.intent_id) = (p.domain_id, p.intent_id))
			AND NOT EXISTS (SELECT FROM postern.coord_call c
				WHERE (c.domain_id, c.intent_id) = (p.domain_id, p.intent_id))
		LIMIT $2)
	DELETE FROM postern.coord_payload x USING old
	WHERE (x.domain_id, x.intent_id, x.generation, x.part, x.name, x.party)
		= (old.domain_id, old.intent_id, old.generation, old.part, old.name, old.party)`

const forgetSQL = `WITH old AS MATERIALIZED (
		SELECT i.domain_id, i.intent_id
		FROM postern.coord_intent i
		WHERE i.ended_at < $1 AND NOT i.held
			AND NOT EXISTS (SELECT FROM postern.coord_work w WHERE (w.domain_id, w.intent_id) = (i.domain_id,
				i.intent_id) AND w.held)
			AND NOT EXISTS (SELECT FROM postern.coord_activity a
				WHERE (a.domain_id, a.intent_id) = (i.domain_id, i.intent_id) AND a.ended_at IS NULL)
			AND NOT EXISTS (SELECT FROM postern.coord_call c WHERE c.domain_id = i.domain_id
				AND c.intent_id = i.intent_id)
			AND NOT postern.intent_to_be_told(i.domain_id, i.seq)
		ORDER BY i.ended_at
		LIMIT $2),
	works AS (DELETE FROM postern.coord_work x USING old WHERE (x.domain_id, x.intent_id) = (old.domain_id,
		old.intent_id)),
	permits AS (DELETE FROM postern.coord_permit x USING old WHERE (x.domain_id, x.intent_id) = (old.domain_id,
		old.intent_id)),
	spends AS (DELETE FROM postern.coord_spend x USING old WHERE (x.domain_id, x.intent_id) = (old.domain_id,
		old.intent_id)),
	activities AS (DELETE FROM postern.coord_activity x USING old WHERE (x.domain_id, x.intent_id) = (old.domain_id,
		old.intent_id)),
	payloads AS (DELETE FROM postern.coord_payload x USING old WHERE (x.domain_id, x.intent_id) = (old.domain_id,
		old.intent_id)),
	steps AS (DELETE FROM postern.coord_step x USING old WHERE (x.domain_id, x.object) = (old.domain_id,
		old.intent_id::text))
	DELETE FROM postern.coord_intent x USING old WHERE (x.domain_id, x.intent_id) = (old.domain_id, old.intent_id)`
