package messages

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/deliveries"
	"github.com/postern-dev/postern/internal/pg/flows"
	"github.com/postern-dev/postern/internal/pg/peers"
	"github.com/postern-dev/postern/internal/pg/reads"
)

// Store keeps messages. It is safe for concurrent use.
type Store struct {
	*pg.Store
	// Ring is told that there may be something to route or to settle; nil: looks go by the clock alone. It must not
	// wait.
	Ring func()
	// Passed is told, after the commit, that deadlines were over, by their names; nil: it is not.
	Passed func(code string)
	// Open says that each caller may do everything, as in development without authentication.
	Open bool

	reads         *reads.Store
	flows         *flows.Store
	installations *peers.Store
	bells         bells
	deliveries    *deliveries.Store
	told          atomic.Bool // subscriptions may have heard since they were last waited for
}

// Messages is a kind that most installations have none of.
const Messages pg.Kind = "messages"

// Removed is a kind: messages to removed peers that have not ended.
const Removed pg.Kind = "messages to removed peers"

// New registers messages with a store that has not started.
func New(core *pg.Store, r *reads.Store, jobs *flows.Store, installations *peers.Store, told *deliveries.Store) *Store {
	s := &Store{Store: core, reads: r, flows: jobs, installations: installations, deliveries: told}
	core.Make(peersMade())
	jobs.MessageEnded, jobs.CountDown, jobs.Away = s.ring, countDown, away{s}
	jobs.KeptSQL = `EXISTS (SELECT FROM postern.message m
		WHERE m.message_id = j.message_id AND (m.ended_at IS NULL OR m.ended_at >= $1 OR m.jobs_open IS NOT NULL))`
	installations.Removed, installations.OpenAt = s.endRemoved, s.openAt
	installations.Waits(`EXISTS (SELECT FROM postern.message m
		WHERE m.context_id = p.context_id AND m.peer = p.name AND m.ended_at IS NULL)`)
	installations.Waits(`EXISTS (SELECT ` + toStopSQL + ` p.life_at
		AND m.context_id = p.context_id AND m.peer = p.name)`)
	core.Make(pg.Made{Maker: forgetter{s: s}, Owns: func(string, string) bool { return false }})
	core.RegisterKind(Messages, `EXISTS (SELECT FROM postern.message)`)
	core.RegisterKind(Removed, `EXISTS (SELECT FROM postern.peer p
		WHERE p.removed_at IS NOT NULL AND EXISTS (SELECT FROM postern.message m
			WHERE m.context_id = p.context_id AND m.peer = p.name AND m.ended_at IS NULL))`)
	core.Needs("messages that have not ended", `EXISTS (SELECT FROM postern.message
		WHERE ended_at IS NULL AND (context_id = $1 OR target_id = $1 AND delivered_at IS NOT NULL))`)
	return s
}

// countDown adds to b that a job of a message has ended.
func countDown(b *pgx.Batch, id uuid.UUID) {
	b.Queue(`UPDATE postern.message SET jobs_open = jobs_open - 1 WHERE message_id = $1 AND jobs_open > 0`, id)
}

func (s *Store) ring() {
	if s.Ring != nil {
		s.Ring()
	}
}

// tell adds to b that subscriptions of the context that a message is for hear of it, in the commit that delivers it.
func (s *Store) tell(b *pgx.Batch, m *Message, now time.Time) {
	if s.deliveries.Subscribers.TellOf(b, now, m.Target, outbox.OfMessage(m.ID, outbox.DayOf(now)),
		outbox.EventMessageReceived) {
		s.told.Store(true)
	}
}

// heardOf wakes the loops that deliver, where subscriptions may have heard of something that has committed.
func (s *Store) heardOf() {
	if s.told.Swap(false) {
		s.RingHere()
	}
}

// bells wake the receivers of this process that wait for a context. Another process sees a delivery by its look, a
// second later at most.
type bells struct {
	mu   sync.Mutex
	news map[int32]chan struct{}
}

// of is closed when something is delivered to a context here.
func (b *bells) of(contextID int32) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.news == nil {
		b.news = map[int32]chan struct{}{}
	}
	if b.news[contextID] == nil {
		b.news[contextID] = make(chan struct{})
	}
	return b.news[contextID]
}

func (b *bells) ring(contextID int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.news[contextID]; c != nil {
		close(c)
		delete(b.news, contextID)
	}
}

// forgetter forgets messages in the course of retention. No transaction is theirs, so that no lever asks it.
type forgetter struct {
	pg.Maker
	s *Store
}

// Forget removes messages that ended before a time.
func (f forgetter) Forget(ctx context.Context, before time.Time) error {
	if err := f.s.forgetStopped(ctx, before); err != nil || !f.s.Has(Messages) {
		return err
	}
	return f.s.forgetMessages(ctx, before)
}

// forgetStopped removes what was stopped before a time. There may be some where there is no message.
func (s *Store) forgetStopped(ctx context.Context, before time.Time) error {
	_, err := s.Exec(ctx, `DELETE FROM postern.message_stopped WHERE at < $1`, before)
	return err
}

// forgetMessages removes messages that ended before a time, in chunks. One whose jobs have not ended stays until they
// have, and one that a subscription is still to be told of.
//
// So does one that a peer may have open and was not told to stop (toStopSQL reads the same rows): whenever the line to
// it is back, it would do what was taken back. No time bounds that, since none bounds how long the line is cut. The
// peer does: it is there, with a URL, so that it is asked; these rows go with its removal. All that was let go to a
// peer stays for seven days besides: so long a peer that is restored is told to stop it again.
//
// The time is noted before they go, so that an envelope that might be a second one is never taken for the first.
func (s *Store) forgetMessages(ctx context.Context, before time.Time) error {
	_, err := s.Exec(ctx, `UPDATE postern.retained SET messages_before = greatest(messages_before, $1)`, before)
	if err != nil {
		return err
	}
	now, err := s.Now(ctx)
	if err != nil {
		return err
	}
	return s.InChunks(ctx, func(atOnce int) (int, error) {
		tag, err := s.Exec(ctx, forgetSQL, before, atOnce, now)
		return int(tag.RowsAffected()), err
	})
}

const forgetSQL = `WITH old AS MATERIALIZED (
		SELECT m.message_id
		FROM postern.message m
		WHERE m.ended_at < $1
			AND m.jobs_open IS NULL
			AND NOT postern.message_to_be_told(m.message_id)
			AND NOT (m.routed_at IS NOT NULL
				AND (m.status = 'error' AND m.stop_told_at IS NULL OR m.ended_at >= $3::timestamptz - interval '7 days')
				AND EXISTS (
					SELECT FROM postern.peer p
					WHERE p.context_id = m.context_id AND p.name = m.peer AND p.url <> '' AND p.removed_at IS NULL))
		ORDER BY m.ended_at
		LIMIT $2),
	steps AS (DELETE FROM postern.message_step s USING old WHERE s.message_id = old.message_id),
	late AS (DELETE FROM postern.message_late l USING old WHERE l.message_id = old.message_id),
	logs AS (DELETE FROM postern.message_log l USING old WHERE l.message_id = old.message_id)
	DELETE FROM postern.message m USING old WHERE m.message_id = old.message_id`

// now reads the clock by which is decided, behind the locks of t.
func (s *Store) now(ctx context.Context, t *db.Txn) (now time.Time, err error) {
	b := &pgx.Batch{}
	s.ReadNow(b, &now)
	return now, t.Send(ctx, b)
}

// path is where a message is, as levers and the audit name it.
func path(id uuid.UUID) string { return "/messages/" + id.String() }
