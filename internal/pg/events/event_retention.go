package events

import (
	"context"
	"time"
)

// forgetEvents removes events that ended before a time, with their histories, in chunks. Those of the last page that
// moved the cursor of their source stay, and younger ones, however old they are: an inclusive cursor brings the last
// of them again, a cursor that does not move brings all that come after it, and they are to be known then. So do all
// events of a source after it was rewound, until it is read to its end again. Only a redrive writes an event that has
// ended; it waits here or finds the event gone. Served by event_listed, by which the events of all contexts are gone
// through in one order, so that those that stay are looked at once.
func (s *Store) forgetEvents(ctx context.Context, before time.Time) error {
	at, id := time.Time{}, ""
	return s.InChunks(ctx, func(atOnce int) (n int, err error) {
		err = s.WriteRow(ctx, `WITH c AS MATERIALIZED (SELECT x.* FROM postern.context c CROSS JOIN LATERAL (
				SELECT e.created_at, e.event_id, e.source_id, e.updated_at, e.status FROM postern.event e
				WHERE e.context_id = c.context_id AND e.created_at < $1 AND (e.created_at, e.event_id) > ($2, coalesce(nullif($3, '')::uuid, '00000000-0000-0000-0000-000000000000'))
				ORDER BY e.created_at, e.event_id LIMIT $4) x ORDER BY x.created_at, x.event_id LIMIT $4),
			old AS MATERIALIZED (SELECT c.event_id FROM c JOIN postern.source s ON s.source_id = c.source_id
				WHERE c.updated_at < $1 AND c.status IN ('Successful', 'Dead') AND c.created_at < s.kept_from),
			moves AS (DELETE FROM postern.event_move x USING old WHERE x.event_id = old.event_id),
			drops AS (DELETE FROM postern.event_drop x USING old WHERE x.event_id = old.event_id),
			events AS (DELETE FROM postern.event x USING old WHERE x.event_id = old.event_id)
			SELECT count(*), coalesce(max(c.created_at), $2), coalesce((SELECT l.event_id::text FROM c l ORDER BY l.created_at DESC, l.event_id DESC LIMIT 1), $3) FROM c`,
			[]any{before, at, id, atOnce}, &n, &at, &id)
		return n, err
	})
}

// forgetChannelMessages removes the records of messages that ended before a time, in chunks. An id that is sent anew
// after that begins with fence 1 again. A receiver that held the old message has lost it long since. Served by
// channel_message_end_by_time.
func (s *Store) forgetChannelMessages(ctx context.Context, before time.Time) error {
	return s.InChunks(ctx, func(atOnce int) (int, error) {
		tag, err := s.Exec(ctx, `WITH old AS MATERIALIZED (SELECT e.channel_id, e.message_id, e.fence FROM postern.channel_message_end e WHERE e.ended_at < $1 LIMIT $2)
			DELETE FROM postern.channel_message_end x USING old WHERE (x.channel_id, x.message_id, x.fence) = (old.channel_id, old.message_id, old.fence)`, before, atOnce)
		return int(tag.RowsAffected()), err
	})
}
