package messages

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Asked is a message that a peer is asked about, with how far it has come there, as far as that is known here: what the
// last word had as steps.
type Asked struct {
	ID    uuid.UUID `json:"id"`
	Steps int       `json:"steps"`
	Lines []int     `json:"lines,omitempty"` // of each of its jobs, how much of the output is known
}

// check refuses numbers that no row has.
func (a *Asked) check(at int) error {
	for _, n := range append([]int{a.Steps}, a.Lines...) {
		if n < 0 || n > math.MaxInt32 {
			return fault.At(fmt.Sprintf("/open/%d", at), "open says of message %s that %d is known of it: want 0 to %d",
				a.ID, n, math.MaxInt32)
		}
	}
	return nil
}

// Word is what a peer says of a message that it was brought, under the id that the message has where it came from.
type Word struct {
	ID     uuid.UUID `json:"id"`
	Steps  int       `json:"steps"`
	Status string    `json:"status"`
	Code   string    `json:"code,omitempty"`
	Error  string    `json:"error,omitempty"`
	Result *Told     `json:"result,omitempty"` // of one that was processed with a result

	Started bool    `json:"started,omitempty"` // a runner has taken one of its jobs
	Lines   []Piece `json:"lines,omitempty"`   // of the output of its jobs, what is not known
}

// Told is a result.
type Told struct {
	ID     uuid.UUID       `json:"id"`
	Format string          `json:"format"`
	Body   string          `json:"message"`
	Result json.RawMessage `json:"result,omitempty"`
}

// MaxAsked is of how many messages a peer is asked at once, and stoppedAtOnce how many it is told to stop: it ends each
// of these, and the job of each, in a commit.
const (
	MaxAsked      = 1000
	stoppedAtOnce = 100
)

// maxTold is how many bytes one answer has, beyond the first word of it.
const maxTold = 1 << 20

// roomOf is the room of an answer, as its question says it.
func roomOf(asked int) int {
	if asked <= 0 {
		return maxTold
	}
	return min(max(asked, 1<<16), maxTold)
}

// size is how many bytes of an answer a word has.
func (w *Word) size() int {
	raw, _ := json.Marshal(w) // texts and numbers never fail
	return len(raw)
}

// fit has a word that does not fit into less than the usual room say so, and not what its message came to.
func (w *Word) fit(room int) {
	if room == maxTold || w.Result == nil || w.size() <= room {
		return
	}
	w.Status, w.Result, w.Code = string(message.Error), nil, "result_too_large"
	w.Error = fmt.Sprintf("it is done at the peer, and its result does not fit into the %d bytes that an answer "+
		"has over this line", room)
}

// Following is a peer at which messages are open, and which this process follows.
type Following struct {
	Context int32
	Peer    string
}

// Follow takes for holder, until a time from now, each peer at which messages are open, or are to be stopped, or that
// knows another life of this store, and that no other holder has, but for those in leave. One that was told to stop
// something in a month, or that processed something in seven days, is asked once a minute besides: it may have been
// restored, and then has to be told what to stop. A process that has a peer asks it what has become of them. One that
// asks without having it does no harm: each word is compared with what is known, behind the lock of its message.
//
// Two processes that come at once skip the rows that the other has locked; behind its lock a row is read as it is now,
// so that a peer that was taken meanwhile does not fit the condition any more.
func (s *Store) Follow(ctx context.Context, holder string, until time.Duration, leave ...Following) (list []Following,
	err error) {
	contexts, names := apart(leave)
	err = s.Run(ctx, func(t *db.Txn) error {
		list = nil
		b := &pgx.Batch{}
		b.Queue(`UPDATE postern.peer p
			SET followed_by = $1,
				followed_until = x.now + $2::interval,
				told_life = CASE WHEN x.idle THEN -1 ELSE p.told_life END
			FROM (
				SELECT p.peer_id, n.now, i.idle
				FROM postern.peer p
				CROSS JOIN (SELECT coalesce($3::timestamptz, clock_timestamp()) AS now) n
				CROSS JOIN LATERAL (SELECT CASE
					WHEN coalesce(p.followed_until, '-infinity') >= n.now - interval '1 minute' THEN false
					ELSE coalesce(p.stop_told_at > n.now - interval '30 days', false)
						OR EXISTS (SELECT FROM postern.message m WHERE m.status = 'processed'
							AND m.context_id = p.context_id AND m.context_id IS NOT NULL AND m.peer = p.name
							AND m.peer IS NOT NULL AND m.ended_at > n.now - interval '7 days')
					END AS idle) i
				WHERE p.url <> ''
					AND p.removed_at IS NULL
					AND (p.context_id, p.name) NOT IN (SELECT x.* FROM unnest($4::int[], $5::text[]) x)
					AND (p.followed_by = $1 OR p.followed_until IS NULL OR p.followed_until <= n.now)
					AND (EXISTS (SELECT FROM postern.message m WHERE m.context_id = p.context_id
							AND m.peer = p.name AND m.ended_at IS NULL AND m.delivered_at IS NOT NULL)
						OR EXISTS (SELECT `+toStopSQL+` p.life_at AND m.context_id = p.context_id AND m.peer = p.name)
						OR EXISTS (SELECT `+toStopDoneSQL+`)
						OR p.told_life <> (SELECT x.life FROM postern.store x)
						OR i.idle)
				ORDER BY p.peer_id
				FOR UPDATE OF p SKIP LOCKED) x
			WHERE p.peer_id = x.peer_id
			RETURNING p.context_id, p.name`, holder, until, s.LeaseNow(), contexts, names).
			Query(func(rows pgx.Rows) (err error) {
				list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Following])
				return err
			})
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if len(list) == 0 {
			return t.Rollback(ctx)
		}
		return t.Commit(ctx, &pgx.Batch{})
	})
	return list, err
}

// Unfollow lets others have what holder follows: these, or where none is named all of them. A peer that another one
// has taken meanwhile stays with that: behind the lock of its row the holder is read as it is now.
func (s *Store) Unfollow(ctx context.Context, holder string, these ...Following) error {
	contexts, names := apart(these)
	_, err := s.Exec(ctx, `UPDATE postern.peer p SET followed_until = NULL
		WHERE p.followed_by = $1
			AND p.followed_until IS NOT NULL
			AND ($4 OR (p.context_id, p.name) IN (SELECT x.* FROM unnest($2::int[], $3::text[]) x))`, holder, contexts,
		names, len(these) == 0)
	return err
}

// apart are the contexts and the names of peers.
func apart(list []Following) (contexts []int32, names []string) {
	contexts, names = []int32{}, []string{}
	for _, f := range list {
		contexts, names = append(contexts, f.Context), append(names, f.Peer)
	}
	return contexts, names
}

// OpenAt lists messages that a peer has stored and that have not ended here, those after an id.
func (s *Store) OpenAt(ctx context.Context, f Following, after uuid.UUID) ([]Asked, error) {
	rows, err := s.Db(ctx).Query(ctx, `SELECT m.message_id, m.peer_steps, m.peer_lines
		FROM postern.message m
		WHERE m.context_id = $1
			AND m.peer = $2
			AND m.ended_at IS NULL
			AND m.delivered_at IS NOT NULL
			AND NOT m.redelivering
			AND m.message_id > $3
		ORDER BY m.message_id
		LIMIT $4`, f.Context, f.Peer, after, MaxAsked)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Asked])
	return list, db.Known(err)
}

// Words says of messages that a peer has brought what it does not know yet, and which of them are not here: it has to
// bring those again. The steps of a word count those of the message, those of its jobs and what these have written:
// each of them only rises, and much output begins again from 0: what counts is whether the number is another one. One
// that has ended is told in any case, since after a restore the numbers may meet again.
//
// An answer has room for so many bytes, 0 for as many as over HTTP. Output that does not fit beside an end is told
// before it; an end that does not fit alone is told as an error, or it would be asked about for ever.
func (s *Store) Words(ctx context.Context, contextID int32, peer string, asked []Asked, room int) (words []Word,
	unknown []uuid.UUID, err error) {
	for at := range asked {
		if err := asked[at].check(at); err != nil {
			return nil, nil, err
		}
	}
	room = roomOf(room)
	told, unknown, err := s.readWords(ctx, contextID, peer, asked)
	if err != nil {
		return nil, nil, err
	}
	lines := map[uuid.UUID][]int{}
	for _, a := range asked {
		lines[a.ID] = a.Lines
	}
	size := 0
	for _, w := range told {
		if w.written {
			var more bool
			if w.Lines, more, err = s.pieces(ctx, w.message, lines[w.ID], room/2); err != nil {
				return nil, nil, err
			}
			if more || len(w.Lines) > 0 && w.size() > room { // its end is told behind all that was written
				w.Steps, w.Status, w.Code, w.Error, w.Result = 0, string(message.Acknowledged), "", "", nil
			}
		}
		w.fit(room)
		if size += w.size(); size > room && len(words) > 0 {
			break
		}
		words = append(words, w.Word)
	}
	return words, unknown, nil
}

// toldWord is a word with what it is made of.
type toldWord struct {
	Word
	message uuid.UUID // here
	written bool      // its jobs have written something
}

// readWordsSQL reads words as far as their results fit into one answer, and those that are not here: one word goes
// beyond the bytes of an answer at most. The others are told when they are asked about next.
const readWordsSQL = `SELECT w.id, w.here, w.steps, w.status, w.error_code, w.error, w.result_id, w.format, w.body,
		w.result, w.started, w.written
	FROM (
		SELECT q.id, m.message_id AS here, coalesce(m.steps + x.steps, 0) AS steps, coalesce(m.status, '') AS status,
			coalesce(m.error_code, '') AS error_code, coalesce(m.error, '') AS error, r.message_id AS result_id,
			coalesce(r.format, '') AS format, coalesce(r.body, '') AS body, r.result, x.started,
			x.logged > 0 AS written,
			coalesce(sum(coalesce(octet_length(r.body), 0) + coalesce(octet_length(r.result::text), 0)
				+ coalesce(octet_length(m.error), 0)) OVER (
					ORDER BY q.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
		FROM unnest($3::uuid[], $4::int[]) q(id, steps)
		LEFT JOIN postern.message m ON (m.target_id, m.peer, m.peer_message) = ($1, $2, q.id) AND m.context_id IS NULL
		LEFT JOIN postern.message r ON r.reply_to = m.message_id AND r.type = 'result'
		CROSS JOIN LATERAL (
			SELECT (coalesce(sum(j.steps + j.logged), 0) % 1073741824)::int AS steps,
				coalesce(bool_or(j.started), false) AS started, coalesce(sum(j.logged), 0) AS logged
			FROM (
				SELECT k.steps, k.started_at IS NOT NULL AS started, (
					SELECT coalesce(sum(t.logged), 0) FROM postern.job_try t WHERE t.job_id = k.job_id) AS logged
				FROM postern.job k
				WHERE m.type = 'job' AND k.message_id = m.message_id) j) x
		WHERE m.message_id IS NULL OR m.steps + x.steps <> q.steps OR m.ended_at IS NOT NULL) w
	WHERE w.here IS NULL OR w.before <= $5
	ORDER BY w.id`

func (s *Store) readWords(ctx context.Context, contextID int32, peer string, asked []Asked) (list []toldWord,
	unknown []uuid.UUID, err error) {
	ids, steps := make([]uuid.UUID, len(asked)), make([]int, len(asked))
	for i, a := range asked {
		ids[i], steps[i] = a.ID, a.Steps
	}
	rows, err := s.Db(ctx).Query(ctx, readWordsSQL, contextID, peer, ids, steps, maxTold)
	if err != nil {
		return nil, nil, db.Known(err)
	}
	defer rows.Close()
	for rows.Next() {
		var w toldWord
		var here, of *uuid.UUID
		told := &Told{}
		if err := rows.Scan(&w.ID, &here, &w.Steps, &w.Status, &w.Code, &w.Error, &of, &told.Format, &told.Body,
			(*[]byte)(&told.Result), &w.Started, &w.written); err != nil {
			return nil, nil, db.Known(err)
		}
		if here == nil {
			unknown = append(unknown, w.ID)
			continue
		}
		w.message = *here
		if of != nil {
			told.ID, w.Result = *of, told
		}
		list = append(list, w)
	}
	return list, unknown, db.Known(rows.Err())
}

// Hear takes what a peer says of a message. A word that is known changes nothing, so that it may come twice, late, or
// from two processes that follow at one time. A word that comes behind an end here is kept as late, but for that of the
// answer which is here: one that is told to stop a message again says it again.
func (s *Store) Hear(ctx context.Context, f Following, w Word) error {
	var queue int64
	w.Steps = min(max(w.Steps, 0), math.MaxInt32) // as far as a row has room for what a peer says
	err := s.Run(ctx, func(t *db.Txn) error {
		queue = 0
		m, now, err := s.lock(ctx, t, w.ID)
		if err != nil {
			return err
		}
		if m == nil || m.Context != f.Context || m.Peer != f.Peer ||
			m.PeerSteps == w.Steps && len(w.Lines) == 0 && (m.Status.Ended() || !message.Status(w.Status).Ended()) {
			return t.Rollback(ctx)
		}
		b := &pgx.Batch{}
		if err := s.overdue(b, m, now); err != nil {
			return err
		}
		if m.PeerSteps = w.Steps; m.Status.Ended() {
			switch known, err := s.answeredBy(ctx, t, m, w); {
			case err != nil:
				return err
			case known:
				return t.Rollback(ctx)
			}
			s.Late(b, m, w.event(), int64(w.Steps), "peer:"+f.Peer, w, now)
			return s.commit(ctx, t, b, m)
		}
		lines := s.heardOutput(b, m, w.Lines, now)
		if m.Carries {
			if queue, err = s.heardTry(ctx, t, b, m, w, lines); err != nil {
				return err
			}
		}
		if err := s.heard(b, m, w, now); err != nil {
			return err
		}
		return s.commit(ctx, t, b, m)
	})
	if err == nil {
		s.heardOf()
		s.flows.ToldAway(ctx, queue)
	}
	return err
}

// answeredBy says that a message was processed, and that a word says so, with the same result.
func (s *Store) answeredBy(ctx context.Context, t *db.Txn, m *Message, w Word) (known bool, err error) {
	if m.Status != message.Processed || message.Status(w.Status) != message.Processed {
		return false, nil
	}
	var id uuid.UUID // of its result
	if w.Result != nil {
		id = w.Result.ID
	}
	b := &pgx.Batch{}
	b.Queue(`SELECT coalesce((SELECT r.peer_message FROM postern.message r WHERE r.reply_to = $1 AND r.type = 'result'),
		$3) = $2`, m.ID, id, uuid.UUID{}).QueryRow(func(row pgx.Row) error { return row.Scan(&known) })
	return known, t.Send(ctx, b)
}

// event is what has happened at the peer, in the words of the machine.
func (w *Word) event() message.Event {
	switch message.Status(w.Status) {
	case message.Acknowledged:
		return message.OnAcknowledged
	case message.Error:
		return message.OnRefused
	case message.Processed:
		if w.Result != nil {
			return message.OnResult
		}
		return message.OnProcessed
	}
	return message.OnReceived
}

// heard adds to b what a word changes.
func (s *Store) heard(b *pgx.Batch, m *Message, w Word, now time.Time) error {
	c := Change{By: "peer:" + m.Peer, Now: now}
	at := func(on message.Event) Change {
		c.On = on
		return c
	}
	var list []Change
	status := message.Status(w.Status)
	if m.Status == message.Dispatched && (status == message.Acknowledged || status == message.Processed) {
		list = append(list, at(message.OnAcknowledged))
	}
	switch {
	case status == message.Error:
		refused := at(message.OnRefused)
		switch refused.Code, refused.Text = w.Code, w.Error; w.Code {
		case "":
			refused.Code = message.CodeRejected
		case message.CodeCancelled: // Stop did that there, and nothing else does
			refused.Text = "it was ended here before (cancelled, or by a deadline), as its peer was told then. This " +
				"store was restored from a backup of a time before that: send it anew if it is still wanted"
		}
		list = append(list, refused)
	case status == message.Processed && w.Result == nil:
		list = append(list, at(message.OnProcessed))
	case status == message.Processed:
		return s.heardResult(b, m, w.Result, list, c)
	}
	if len(list) == 0 { // a step there that is none here
		b.Queue(`UPDATE postern.message
			SET peer_steps = $2, peer_lines = coalesce($3::int[], '{}')
			WHERE message_id = $1`, m.ID, m.PeerSteps, m.PeerLines)
		return nil
	}
	return s.Move(b, m, list...)
}

// heardResult adds to b that a message has its result: a message of msg_in, which is processed with it.
func (s *Store) heardResult(b *pgx.Batch, m *Message, r *Told, before []Change, c Change) error {
	if len(before) > 0 {
		if err := s.Move(b, m, before...); err != nil {
			return err
		}
	}
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	if !slices.Contains(message.Formats, r.Format) {
		r.Format = message.DefaultFormat // a newer version may know another one
	}
	result := &Message{ID: id, Target: m.Context, Peer: m.Peer, PeerMessage: &r.ID, ReplyTo: &m.ID, Actor: c.By,
		Type: message.Result, Format: r.Format, Body: r.Body, Result: r.Result}
	if here := s.ContextByID(m.Context); here != nil {
		result.ToContext = here.Name
	}
	return s.Answer(b, m, result, c)
}

// lostMost is how often a message is delivered again to a peer that has lost it.
const lostMost = 3

// Lost has a message delivered again that its peer does not have any more, as after a restore there, or where the peer
// has forgotten it while it could not be asked. What its jobs
// write then is known from the first line on, behind that of before. After the third time it ends in error.
func (s *Store) Lost(ctx context.Context, f Following, id uuid.UUID) error {
	var again int
	err := s.Run(ctx, func(t *db.Txn) error {
		again = 0
		m, now, err := s.lock(ctx, t, id)
		if err != nil {
			return err
		}
		if m == nil || m.Context != f.Context || m.Peer != f.Peer || m.Status.Ended() || m.DeliveredAt == nil {
			return t.Rollback(ctx)
		}
		b := &pgx.Batch{}
		under := false
		b.Queue(`SELECT redelivered, redelivering FROM postern.message WHERE message_id = $1`, id).
			QueryRow(func(row pgx.Row) error { return row.Scan(&again, &under) })
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if under {
			again = 0
			return t.Rollback(ctx)
		}
		b = &pgx.Batch{}
		if again++; again > lostMost {
			again = 0
			if err := s.Move(b, m, Change{On: message.OnRefused, By: "peer:" + f.Peer, Now: now, Code: CodeLost,
				Text: "the peer does not have it any more, however often it is delivered: it may have been done " +
					"there. Look there before you send it anew"}); err != nil {
				return err
			}
			return t.Commit(ctx, b)
		}
		b.Queue(`UPDATE postern.message SET redelivered = $2, redelivering = true, peer_steps = 0, peer_lines = '{}',
				peer_tx = NULL, updated_at = $3, steps = steps + 1
			WHERE message_id = $1`, id, again, now)
		step, status := db.Columns{}, string(m.Status)
		step.Add(id.String(), m.Steps+1, now, status, string(message.OnRouted), status, "peer:"+f.Peer,
			fmt.Sprintf("the peer does not know it any more: it is delivered again (%d of %d)", again, lostMost))
		stepInsert.Queue(b, step)
		return t.Commit(ctx, b)
	})
	if err == nil && again > 0 {
		_, err = s.Carry(ctx)
	}
	return err
}

// CodeLost is that of a message which its peer has lost again and again.
const CodeLost = "lost_at_peer"
