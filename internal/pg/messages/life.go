package messages

import (
	"context"

	"github.com/postern-dev/postern/internal/pg/peers"
)

// Lives takes the life that the store of a peer has now, 0 where it has not said. Where that is another one, the peer
// was restored, and may have open again what it was told to stop: it is told of all that has ended here once more.
//
// The life is noted behind that: a process that dies between the two has it done anew.
func (s *Store) Lives(ctx context.Context, p *peers.Peer, life int64) error {
	if life != 0 && p.Life != 0 && life != p.Life {
		if _, err := s.Exec(ctx, `UPDATE postern.message m
			SET stop_told_at = NULL
			WHERE m.context_id = $1
				AND m.peer = $2
				AND m.status = 'error'
				AND m.stop_told_at IS NOT NULL`, p.Context, p.Name); err != nil {
			return err
		}
	}
	return s.installations.Lives(ctx, p, life)
}
