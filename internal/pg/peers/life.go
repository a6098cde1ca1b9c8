package peers

import "context"

// Lives notes which life the store of a peer has, 0 where it has not said, and that the peer knows that of this store.
// Where nothing is new, nothing is written. One that has another life was restored, and may have open again what it was
// told to stop: it is told of all once more that was told before life_at (messages.Store.ToStop). It may have open
// again what was processed, too: it is told to stop what was in the seven days before.
//
// Of two sessions that hear of one life the second waits for the row, finds that life, and keeps life_at.
func (s *Store) Lives(ctx context.Context, p *Peer, theirs int64) error {
	if (theirs == 0 || theirs == p.Life) && p.ToldLife == p.OwnLife {
		return nil
	}
	_, err := s.Exec(ctx, `UPDATE postern.peer
		SET life = coalesce(nullif($2::bigint, 0), life),
			told_life = $3,
			life_at = CASE WHEN life <> nullif($2::bigint, 0)
				THEN greatest(n.now, stop_told_at + interval '1 microsecond')
				ELSE life_at END,
			stop_from = CASE WHEN life <> nullif($2::bigint, 0) THEN least(stop_from, n.now - interval '7 days')
				ELSE stop_from END
		FROM (SELECT coalesce($4::timestamptz, clock_timestamp()) AS now) n
		WHERE peer_id = $1`, p.ID, theirs, p.OwnLife, s.Clock())
	return err
}
