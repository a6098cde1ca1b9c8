package peers

import "context"

// Lives notes which life the store of a peer has, 0 where it has not said, and that the peer knows that of this store.
// Where nothing is new, nothing is written.
func (s *Store) Lives(ctx context.Context, p *Peer, theirs int64) error {
	if theirs == 0 {
		theirs = p.Life
	}
	if theirs == p.Life && p.ToldLife == p.OwnLife {
		return nil
	}
	_, err := s.Exec(ctx, `UPDATE postern.peer
		SET life = nullif($2::bigint, 0), told_life = $3
		WHERE peer_id = $1`, p.ID, theirs, p.OwnLife)
	return err
}
