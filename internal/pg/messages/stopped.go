package messages

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg/db"
)

// WordsOfStopped says of messages that a peer has had stopped how their receivers had answered here before: processed,
// with a result or without, or rejected. The peer asks about none of them any more, and keeps that as late. done lists
// those that have no more to be told: the peer has the others stopped again, since one answer does not have the room,
// which is that of Words.
func (s *Store) WordsOfStopped(ctx context.Context, contextID int32, peer string, ids []uuid.UUID, room int) (
	words []Word, done []uuid.UUID, err error) {
	if len(ids) == 0 {
		return nil, nil, nil
	}
	room = roomOf(room)
	asked := make([]Asked, len(ids))
	for i, id := range ids {
		asked[i] = Asked{ID: id, Steps: -1}
	}
	told, done, err := s.readWords(ctx, contextID, peer, asked)
	if err != nil {
		return nil, nil, err
	}
	size := 0
	for _, w := range told {
		if message.Status(w.Status) == message.Processed || w.Code == message.CodeRejected {
			w.fit(room)
			if size += w.size(); size > room && len(words) > 0 {
				break
			}
			words = append(words, w.Word)
		}
		done = append(done, w.ID)
	}
	return words, done, nil
}

// toStopSQL finds messages that have ended here in error, and that a peer may still have open: all that were let go to
// it. A process may die between the post of the transaction that carries one and its note. What the peer was told to
// stop before the time that follows it may have forgotten: since then its store has another life.
const toStopSQL = `FROM postern.message m
	WHERE m.status = 'error' AND m.routed_at IS NOT NULL AND m.context_id IS NOT NULL AND m.peer IS NOT NULL
		AND coalesce(m.stop_told_at, '-infinity') <`

// toStopDoneSQL finds messages that were processed here in the days before the store of their peer had another life.
// The restored store may have them open again, and would hand them out anew, or keep them for ever. p is the row of the
// peer. peers.Store.Lives notes from when on they are, and Stopped, once some were told, from when on there are others.
const toStopDoneSQL = `FROM postern.message m
	WHERE m.status = 'processed' AND m.context_id IS NOT NULL AND m.peer IS NOT NULL AND m.context_id = p.context_id
		AND m.peer = p.name AND m.ended_at >= p.stop_from AND m.ended_at <= p.life_at
		AND coalesce(m.stop_told_at, '-infinity') < p.life_at`

// ToStop lists messages that a peer is to stop, and among them those whose jobs it is to stop, too: they carry jobs of
// this installation. Those that have ended in error here come first: they are not to be done.
func (s *Store) ToStop(ctx context.Context, f Following) (stop, abort []uuid.UUID, err error) {
	rows, err := s.Db(ctx).Query(ctx, `SELECT x.message_id, x.carries_job
		FROM (
			(SELECT m.message_id, m.carries_job, false AS done, coalesce(m.stop_told_at, '-infinity') AS at
			`+toStopSQL+` (SELECT p.life_at FROM postern.peer p WHERE p.context_id = $1 AND p.name = $2)
				AND m.context_id = $1
				AND m.peer = $2
			ORDER BY coalesce(m.stop_told_at, '-infinity'), m.message_id
			LIMIT $3)
			UNION ALL
			(SELECT m.message_id, m.carries_job, true, m.ended_at
			FROM postern.peer p
			CROSS JOIN LATERAL (SELECT m.message_id, m.carries_job, m.ended_at `+toStopDoneSQL+`
				ORDER BY m.ended_at, m.message_id
				LIMIT $3) m
			WHERE p.context_id = $1 AND p.name = $2)) x
		ORDER BY x.done, x.at, x.message_id
		LIMIT $3`, f.Context, f.Peer, stoppedAtOnce)
	if err != nil {
		return nil, nil, db.Known(err)
	}
	var id uuid.UUID
	var carries bool
	_, err = pgx.ForEachRow(rows, []any{&id, &carries}, func() error {
		if stop = append(stop, id); carries {
			abort = append(abort, id)
		}
		return nil
	})
	return stop, abort, db.Known(err)
}

// Stopped notes that a peer has been told to stop messages, in the life that its store had when it said so.
//
// Of this and the note of another life (peers.Store.Lives) the second one waits for the row of the peer. Behind that
// note it is a life before, and nothing is noted: the peer is told anew. In front of it the time here is below that of
// the life, and the same holds; both times only rise, whatever a clock does.
func (s *Store) Stopped(ctx context.Context, f Following, ids []uuid.UUID, life int64) error {
	_, err := s.Exec(ctx, `WITH p AS (
			UPDATE postern.peer p
			SET stop_told_at = greatest(coalesce($4::timestamptz, clock_timestamp()), stop_told_at, life_at),
				stop_from = (SELECT min(m.ended_at) `+toStopDoneSQL+`
					AND m.message_id <> ALL (coalesce($3, '{}'::uuid[])))
			WHERE context_id = $1 AND name = $2 AND life IS NOT DISTINCT FROM nullif($5::bigint, 0)
			RETURNING stop_told_at)
		UPDATE postern.message m
		SET stop_told_at = p.stop_told_at
		FROM p
		WHERE m.message_id = ANY ($3) AND m.context_id = $1 AND m.peer = $2`, f.Context, f.Peer, ids, s.Clock(), life)
	return err
}

// Stop ends messages that a peer has brought, and that have ended where they come from. Jobs that were made of them go
// on, but for those of the messages in abort: these are cancelled, once all is stopped. A call that is made again goes
// on with the rest.
func (s *Store) Stop(ctx context.Context, contextID int32, peer string, ids, abort []uuid.UUID) error {
	for _, id := range ids {
		if err := s.stop(ctx, contextID, peer, id); err != nil {
			return err
		}
	}
	return s.abort(ctx, contextID, peer, abort)
}

// stop ends one message. One that has ended stays as it is. One that is not here is not stored any more: a process of
// the peer that was frozen may still bring it.
func (s *Store) stop(ctx context.Context, contextID int32, peer string, id uuid.UUID) error {
	return s.Run(ctx, func(t *db.Txn) error {
		var list []*Message
		b := &pgx.Batch{}
		lockArrival(b, contextID, peer, id)
		b.Queue(`SELECT `+briefColumns+`
			FROM postern.message m
			WHERE m.context_id IS NULL AND (m.target_id, m.peer, m.peer_message) = ($1, $2, $3)
			FOR UPDATE`, contextID, peer, id).Query(collect(&list))
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if len(list) > 0 && list[0].Status.Ended() {
			return t.Rollback(ctx)
		}
		now, err := s.now(ctx, t)
		if err != nil {
			return err
		}
		b = &pgx.Batch{}
		if len(list) == 0 {
			b.Queue(`INSERT INTO postern.message_stopped (target_id, peer, peer_message, at)
				VALUES ($1, $2, $3, $4)
				ON CONFLICT DO NOTHING`, contextID, peer, id, now)
			return t.Commit(ctx, b)
		}
		if err := s.Move(b, list[0], Change{On: message.OnRefused, By: "peer:" + peer, Now: now,
			Code: message.CodeCancelled, Text: "it has ended where it comes from"}); err != nil {
			return err
		}
		return t.Commit(ctx, b)
	})
}

// lockArrival adds to b a lock on a message of a peer that may not be here yet, so that of its arrival and its stop the
// second one sees what the first one has done.
func lockArrival(b *pgx.Batch, contextID int32, peer string, id uuid.UUID) {
	b.Queue(`SELECT pg_advisory_xact_lock(hashtextextended('message ' || $1::int || ' ' || $2::text || ' '
		|| $3::uuid, 0))`, contextID, peer, id)
}
