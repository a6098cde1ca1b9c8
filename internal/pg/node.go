package pg

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"net/netip"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/addresses"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/sequencer"
	"github.com/postern-dev/postern/internal/twin"
)

// Node is one incarnation of a running process: an id that is fresh for each boot, and an epoch that
// rises each time it was buried.
type Node struct {
	ID    int64
	Epoch int32
	Name  string
	TTL   time.Duration
	Types []string // that it works on; empty: all
}

// Takes says whether the node works on a type.
func (n Node) Takes(typ string) bool { return len(n.Types) == 0 || slices.Contains(n.Types, typ) }

// Register makes a node row with a fresh id. Its leases are valid for ttl after each Beat.
func (s *Store) Register(ctx context.Context, name, version string, ttl time.Duration) (Node, error) {
	n := Node{Name: name, TTL: ttl, Epoch: 1}
	for try := 1; ; try++ {
		_, err := s.WriteBeat(ctx, &n.ID, `INSERT INTO postern.node (name, version, ttl, heartbeat_at, quarantine)
			SELECT $1, $2, $3, coalesce($4::timestamptz, clock_timestamp()), s.quarantine
			FROM postern.store s
			FOR SHARE OF s
			RETURNING node_id, beats, heartbeat_at`, name, version, ttl, s.LeaseNow())
		// Another node has drawn the same id in this millisecond, or the answer is lost. A row that is there all the
		// same is that of a node whose heart does not beat.
		if try == db.Attempts || db.SQLState(err) != "23505" && fault.CodeOf(err) != "commit_unknown" {
			return n, err
		}
	}
}

// NodeLoad is what a node says of itself with each heartbeat, for those who ask why nothing goes out. Nothing
// is decided by it.
type NodeLoad struct {
	Concurrency int // how many calls it may have out; 0: it does not say
	Calls       int // how many it has out
}

// Beat renews the leases of a node, and writes which types it works on and what else it says of itself. False means
// that it was buried: it owns nothing any more, must drop what it has in hand and go on under Reincarnate. A fault
// "database_went_back": the count of its heartbeats in the row has fallen, so that the row is an old one; the witness
// then tells that something is lost.
func (s *Store) Beat(ctx context.Context, n Node, says NodeLoad) (alive bool, err error) {
	return s.WriteBeat(ctx, &n.ID, `UPDATE postern.node
		SET heartbeat_at = coalesce($3::timestamptz, clock_timestamp()), beats = beats + 1, heeds = $4,
			types = coalesce($5::text[], '{}'), concurrency = $6, calls = $7
		WHERE node_id = $1 AND epoch = $2 AND dead_at IS NULL RETURNING node_id, beats, heartbeat_at`,
		n.ID, n.Epoch, s.LeaseNow(), s.QuarantineView().number, n.Types, says.Concurrency, says.Calls)
}

// Peers is what a node sees when it looks at all nodes.
type Peers struct {
	Others []Peer // that are not buried
	Buried bool   // the node itself was
	Drain  bool   // the node itself is to drain
}

// Peer is another node as one look saw it.
type Peer struct {
	ID     int64
	Beats  int64 // how many heartbeats its row has had
	Silent bool  // the last of them is older than its ttl
}

// Peers looks at all nodes. Where the quarantine has changed it is read at once.
func (s *Store) Peers(ctx context.Context, n Node) (p Peers, err error) {
	var quarantine int64
	var ids, beats []int64
	var silent []bool
	err = s.Pool().QueryRow(ctx, `SELECT coalesce(array_agg(node_id) FILTER (WHERE node_id <> $1), '{}'),
			coalesce(array_agg(beats) FILTER (WHERE node_id <> $1), '{}'),
			coalesce(array_agg(heartbeat_at + ttl < coalesce($3::timestamptz, clock_timestamp())) FILTER (WHERE node_id <> $1), '{}'),
			coalesce(bool_or(draining) FILTER (WHERE node_id = $1), false),
			count(*) FILTER (WHERE node_id = $1 AND epoch = $2) = 0,
			coalesce(max(quarantine) FILTER (WHERE node_id = $1), 0)
		FROM postern.node
		WHERE dead_at IS NULL`, n.ID, n.Epoch, s.LeaseNow()).Scan(&ids, &beats, &silent, &p.Drain, &p.Buried, &quarantine)
	for i := range ids {
		p.Others = append(p.Others, Peer{ids[i], beats[i], silent[i]})
	}
	if err == nil && quarantine > s.QuarantineView().number {
		err = s.Refresh(ctx)
	}
	return p, db.Known(err)
}

// Reincarnate brings a buried node back under the epoch that the bury gave it. A Conflict "node_gone": it has no row.
// No other process ever gets its id, so that the row was either forgotten, a day after the node's death, or never was
// in this database.
//
// It has to know the quarantine of that moment, as one that registers has: EnterQuarantine raises the number of the
// nodes that are not buried. It holds the row of postern.store from before it reads these nodes until its commit, and
// this statement locks that row before it writes its node. So a quarantine that has the row first is waited for, and
// its number is read behind the lock; one that has it later waits for this commit, and finds a node that lives.
func (s *Store) Reincarnate(ctx context.Context, n Node) (Node, error) {
	err := s.WriteRow(ctx, `UPDATE postern.node n
		SET dead_at = NULL, heartbeat_at = coalesce($2::timestamptz, clock_timestamp()), quarantine = s.quarantine
		FROM (SELECT quarantine FROM postern.store FOR SHARE) s
		WHERE n.node_id = $1 RETURNING n.epoch`, []any{n.ID, s.LeaseNow()}, &n.Epoch)
	if errors.Is(err, pgx.ErrNoRows) {
		return n, fault.New(fault.Conflict, "node_gone", "node %s (%d) has no row in the database any more", n.Name, n.ID)
	}
	return n, err
}

// Leave ends a node that stops by itself. The next Release releases the queues that it still owns.
func (s *Store) Leave(ctx context.Context, n Node) error {
	_, err := s.Exec(ctx, `UPDATE postern.node SET dead_at = coalesce($3::timestamptz, clock_timestamp()), epoch = epoch + 1
		WHERE node_id = $1 AND epoch = $2`, n.ID, n.Epoch, s.LeaseNow())
	return err
}

// BuryThose is Bury for nodes that were seen, and have not beaten since.
func (s *Store) BuryThose(ctx context.Context, seen []Peer) (n int, err error) {
	ids, beats := make([]int64, len(seen)), make([]int64, len(seen))
	for i, p := range seen {
		ids[i], beats[i] = p.ID, p.Beats
	}
	tag, err := s.Exec(ctx, `UPDATE postern.node n SET dead_at = coalesce($1::timestamptz, clock_timestamp()), epoch = epoch + 1
		FROM ROWS FROM (unnest($2::bigint[]), unnest($3::bigint[])) g(node_id, beats)
		WHERE (n.node_id, n.beats) = (g.node_id, g.beats)
			AND n.dead_at IS NULL AND n.heartbeat_at + n.ttl < coalesce($1::timestamptz, clock_timestamp())`, s.LeaseNow(), ids, beats)
	return int(tag.RowsAffected()), err
}

// Bury ends every node whose heartbeat is older than its ttl and returns how many those were. It commits
// before anything is released: a claim that ran meanwhile holds the key of the node's row, so that either
// the claim sees the bury and takes nothing, or the bury waits for its commit, and the release that
// follows sees what it took.
func (s *Store) Bury(ctx context.Context) (n int, err error) {
	tag, err := s.Exec(ctx, `UPDATE postern.node SET dead_at = coalesce($1::timestamptz, clock_timestamp()), epoch = epoch + 1
		WHERE dead_at IS NULL AND heartbeat_at + ttl < coalesce($1::timestamptz, clock_timestamp())`, s.LeaseNow())
	return int(tag.RowsAffected()), err
}

// orphansSQL locks a chunk of queues whose owner is not a live (node, epoch), in the order of their ids.
// It is one scan of queue along its key; queues without an owner cost only their reading.
const orphansSQL = ` FROM postern.queue q LEFT JOIN postern.node n ON (n.node_id, n.epoch) = (q.node_id, q.node_epoch) AND n.dead_at IS NULL
	WHERE q.node_id IS NOT NULL AND n.node_id IS NULL AND q.queue_id > $1 ORDER BY q.queue_id LIMIT $2 FOR UPDATE OF q SKIP LOCKED`

// releaseChunk is how many queues one release transaction takes.
const releaseChunk = 500

// Release takes the queues of owners that are no live (node, epoch) away from them and returns how many
// those were. It changes owner and fence only, besides writing the head and position that the outcomes
// show: phase, sender, attempt and not_before stay (S2.13). A queue with a call under way goes to the lane
// resume, where the next owner asks before it sends anything; a delay goes on until its time.
//
// It never waits for a lock: a queue that is locked is in the hands of a settle (which then commits
// before us, or is fenced by the next round) or of a lever.
//
// A scan of queue is for nodes whose epoch has ended since the last scan that found nothing of them, however
// many processes scan and whichever of them starts anew. Such a scan is proof for ever: a claim holds the row
// of its node by its key, so each claim under an epoch was committed before that epoch ended, and the
// snapshot of the scan is later than the statement that saw the end. A locked queue still has its owner there.
func (s *Store) Release(ctx context.Context) (total int, err error) {
	if twin.Planted("no_release") {
		return 0, nil
	}
	var nodes []int64
	var epochs []int32
	rows, err := s.Pool().Query(ctx, `SELECT node_id, epoch FROM postern.node WHERE released_epoch < epoch`)
	if err != nil {
		return 0, db.Known(err)
	}
	var node int64
	var epoch int32
	if _, err = pgx.ForEachRow(rows, []any{&node, &epoch}, func() error {
		nodes, epochs = append(nodes, node), append(epochs, epoch)
		return nil
	}); err != nil || len(nodes) == 0 {
		return 0, db.Known(err)
	}
	if total, err = s.releaseOrphans(ctx); err != nil {
		return total, err
	}
	_, err = s.Exec(ctx, `WITH o AS MATERIALIZED (SELECT DISTINCT node_id, node_epoch FROM postern.queue WHERE node_id IS NOT NULL)
		UPDATE postern.node n SET released_epoch = e.epoch FROM ROWS FROM (unnest($1::bigint[]), unnest($2::int[])) e(node_id, epoch)
		WHERE n.node_id = e.node_id AND n.released_epoch < e.epoch
			AND NOT EXISTS (SELECT FROM o WHERE o.node_id = e.node_id AND o.node_epoch < e.epoch)`, nodes, epochs)
	return total, err
}

func (s *Store) releaseOrphans(ctx context.Context) (total int, err error) {
	for after := int64(0); ; {
		var n, freed int
		err := s.Run(ctx, func(t *db.Txn) (err error) {
			n, freed = 0, 0
			var rows []*QueueRow
			e := newEffects(s)
			b := &pgx.Batch{}
			b.Queue("SELECT "+QueueSelect+orphansSQL, after, releaseChunk).Query(func(r pgx.Rows) error {
				return collectQueues(r, &rows)
			})
			s.ReadNow(b, &e.now)
			if err := t.Send(ctx, b); err != nil || len(rows) == 0 {
				return err
			}
			if n = len(rows); n == releaseChunk {
				after = rows[n-1].ID
			}
			if rows, err = orphans(ctx, t, rows); err != nil || len(rows) == 0 {
				return errors.Join(err, t.Rollback(ctx))
			}
			if err := exact(ctx, t, rows); err != nil {
				return err
			}
			for _, q := range rows {
				e.orphan(q, sequencer.CodeNodeLost, "its node went away while it was in the worker's hands")
			}
			freed = len(rows)
			return e.commit(ctx, t, &pgx.Batch{})
		})
		total += freed
		if err != nil || n < releaseChunk {
			return total, err
		}
	}
}

// orphans leaves of locked rows those whose owner is no live node. The statement that locked them decided
// by its own snapshot: somebody may have released and claimed a row since, and PostgreSQL compares what
// it locks with the old row of node, which was none.
func orphans(ctx context.Context, t *db.Txn, rows []*QueueRow) ([]*QueueRow, error) {
	type owner struct {
		node  int64
		epoch int32
	}
	var nodes []int64
	for _, q := range rows {
		nodes = append(nodes, q.Node)
	}
	live := map[owner]bool{}
	b := &pgx.Batch{}
	b.Queue(`SELECT node_id, epoch FROM postern.node WHERE node_id = ANY ($1) AND dead_at IS NULL`, nodes).Query(func(r pgx.Rows) error {
		var o owner
		_, err := pgx.ForEachRow(r, []any{&o.node, &o.epoch}, func() error { live[o] = true; return nil })
		return err
	})
	err := t.Send(ctx, b)
	return slices.DeleteFunc(rows, func(q *QueueRow) bool { return live[owner{q.Node, q.NodeEpoch}] }), err
}

// GiveUpAll releases all queues that the node holds, as it does when it ends. Like Release, but it waits for locks.
// GiveUp releases single queues before that, by their fences.
func (s *Store) GiveUpAll(ctx context.Context, n Node) (total int, err error) {
	err = s.Run(ctx, func(t *db.Txn) error {
		var rows []*QueueRow
		e := newEffects(s)
		b := &pgx.Batch{}
		b.Queue("SELECT "+QueueSelect+" FROM postern.queue q WHERE (q.node_id, q.node_epoch) = ($1, $2) ORDER BY q.queue_id FOR UPDATE",
			n.ID, n.Epoch).Query(func(r pgx.Rows) error { return collectQueues(r, &rows) })
		s.ReadNow(b, &e.now)
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if total = len(rows); total == 0 {
			return t.Rollback(ctx)
		}
		return e.handBack(ctx, t, rows)
	})
	return total, err
}

// handBack takes locked queues from the node that gives them up, and commits.
func (e *effects) handBack(ctx context.Context, t *db.Txn, rows []*QueueRow) error {
	if err := exact(ctx, t, rows); err != nil {
		return err
	}
	for _, q := range rows {
		e.orphan(q, sequencer.CodeHandedBack, "its node handed it back without knowing whether the worker has it")
	}
	return e.commit(ctx, t, &pgx.Batch{})
}

// orphan takes a queue from its owner. A call that was under way leaves a row that says so.
func (e *effects) orphan(q *QueueRow, code, text string) {
	if q.Phase == outbox.PhaseDispatching {
		e.lost = append(e.lost, lostCall{Queue: q.ID, Seq: q.Cur, From: q.HeadDay, To: q.TailDay, Attempt: q.Attempt, Fence: q.Fence,
			Sender: q.Sender, Node: q.Node, Fee: q.Fee, Code: code, Text: text, StartedAt: q.EnteredAt})
	}
	q.Node, q.NodeEpoch = 0, 0
	q.Fence = e.s.Fence(q.Fence, e.now)
	e.saved = append(e.saved, q)
	if q.Phase == outbox.PhaseDispatching {
		q.EnteredAt = later(e.now, q.EnteredAt)
		e.readyAdd = append(e.readyAdd, e.key(q))
		return
	}
	due := q.NotBefore
	if due.Before(e.now) {
		due = e.now
	}
	e.timerSet[q.ID] = due
}

// exact writes into the rows the head and position that the outcomes show, and since when it is in flight. While a
// node works through a queue without marks its outcomes are gapless from the position in the row on (see Settle), so
// that the highest one tells; with marks the row is always written.
func exact(ctx context.Context, t *db.Txn, rows []*QueueRow) error {
	b := &pgx.Batch{}
	for _, q := range rows {
		if q.Node == 0 && q.Phase != outbox.PhaseDispatching || q.Cur == 0 || q.Marks > 0 {
			continue
		}
		b.Queue(`SELECT seq, done_at FROM postern.outcome WHERE queue_id = $1 AND seq >= $2 AND day >= $3 ORDER BY seq DESC LIMIT 1`,
			q.ID, q.Cur, q.HeadDay.Time()).Query(func(rows pgx.Rows) error {
			var last int64
			var at time.Time
			_, err := pgx.ForEachRow(rows, []any{&last, &at}, func() error {
				q.Head, q.Cur, q.EnteredAt = last+1, last+1, later(at, q.EnteredAt)
				return nil
			})
			return err
		})
	}
	if b.Len() == 0 {
		return nil
	}
	return t.Send(ctx, b)
}

// Allow writes into the row of a node which private ranges it may call, so that others can tell before it calls.
func (s *Store) Allow(ctx context.Context, n Node, ranges []netip.Prefix) error {
	list := []string{}
	for _, p := range ranges {
		list = append(list, p.String())
	}
	_, err := s.Exec(ctx, `UPDATE postern.node SET worker_allow_cidr = $2 WHERE node_id = $1`, n.ID, list)
	return err
}

// Allowances lists what the nodes that live may call besides public addresses.
func (s *Store) Allowances(ctx context.Context) ([]addresses.Allowance, error) {
	list, err := addresses.Allowances(ctx, s.Pool(), s.LeaseNow())
	return list, db.Known(err)
}

// Addresses lists what the nodes call.
func (s *Store) Addresses(ctx context.Context) ([]addresses.Address, error) {
	list, err := addresses.All(ctx, s.Pool())
	return list, db.Known(err)
}
