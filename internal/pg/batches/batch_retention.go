package batches

import (
	"context"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
)

// forgetBatches removes batches that ended before a time, with their histories, in chunks. A batch stays while a
// subscriber is still to be told of it, since the telling reads its row: one statement sees one moment, and the
// notice goes from fanout to delivery in one commit. Of two processes at once the second finds the rows gone.
func (s *Store) forgetBatches(ctx context.Context, before time.Time) error {
	return s.InChunks(ctx, func(atOnce int) (int, error) {
		tag, err := s.Exec(ctx, `WITH old AS MATERIALIZED (SELECT b.batch_id FROM postern.batch b WHERE b.state = 'Done' AND b.updated_at < $1
				AND NOT EXISTS (SELECT FROM (SELECT b.batch_id UNION ALL SELECT s.notice FROM postern.batch_step s WHERE s.batch_id = b.batch_id AND s.notice IS NOT NULL) n(seq)
					WHERE EXISTS (SELECT FROM postern.fanout f WHERE f.event IN ('result', 'timeout') AND f.seq = n.seq OFFSET 0)
						OR EXISTS (SELECT FROM postern.delivery d WHERE d.queue_id = $2::bigint + b.processor_id AND d.seq = n.seq
							AND d.event IN ('result', 'timeout') AND d.state IN ('pending', 'queued') OFFSET 0))
				ORDER BY b.updated_at LIMIT $3),
			steps AS (DELETE FROM postern.batch_step x USING old WHERE x.batch_id = old.batch_id),
			actions AS (DELETE FROM postern.batch_action x USING old WHERE x.batch_id = old.batch_id)
			DELETE FROM postern.batch x USING old WHERE x.batch_id = old.batch_id`, before, outbox.OfProcessor(0, 0, 0).Queue, atOnce)
		return int(tag.RowsAffected()), err
	})
}
