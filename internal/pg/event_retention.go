package pg

import (
	"context"
	"time"
)

// forgetEvents removes events that ended before a time, with their histories, in chunks. Those that came with the last page
// that moved the cursor of their source stay, however old they are: an inclusive cursor brings the last of them again, and
// it is to be known then. So does all that a source has after it was rewound, until it has something new. Nobody writes what
// has ended but who redrives it, and waits here or finds it gone. Served by event_listed.
func (s *Store) forgetEvents(ctx context.Context, before time.Time) error {
	return s.inChunks(ctx, `WITH old AS MATERIALIZED (SELECT e.event_id FROM postern.context c CROSS JOIN LATERAL (
				SELECT e.event_id FROM postern.event e JOIN postern.source s ON s.source_id = e.source_id
				WHERE e.context_id = c.context_id AND e.created_at < $1 AND e.updated_at < $1 AND e.status IN ('Successful', 'Dead') AND e.created_at < s.stored_at
				ORDER BY e.created_at LIMIT 10000) e LIMIT 10000),
			moves AS (DELETE FROM postern.event_move x USING old WHERE x.event_id = old.event_id),
			drops AS (DELETE FROM postern.event_drop x USING old WHERE x.event_id = old.event_id)
		DELETE FROM postern.event x USING old WHERE x.event_id = old.event_id`, before)
}

// forgetMessages removes the records of messages that ended before a time, in chunks. An id that is sent anew after that begins
// with fence 1 again; who held it so long ago has lost it long since. Served by message_end_by_time.
func (s *Store) forgetMessages(ctx context.Context, before time.Time) error {
	return s.inChunks(ctx, `WITH old AS MATERIALIZED (SELECT e.channel_id, e.message_id, e.fence FROM postern.message_end e WHERE e.ended_at < $1 LIMIT 10000)
		DELETE FROM postern.message_end x USING old WHERE (x.channel_id, x.message_id, x.fence) = (old.channel_id, old.message_id, old.fence)`, before)
}

// inChunks runs a statement until it finds nothing more.
func (s *Store) inChunks(ctx context.Context, sql string, args ...any) error {
	for {
		tag, err := s.exec(ctx, sql, args...)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
	}
}
