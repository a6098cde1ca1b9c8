package messages

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Message is one with all that is known of it.
type Message struct {
	ID           uuid.UUID
	Context      int32      // in whose msg_out it is; 0: it came from a peer
	Target       int32      // in whose msg_in it is, once delivered; 0: it goes to a peer
	Peer         string     // "": both are contexts of this installation
	PeerMessage  *uuid.UUID // its id at the peer
	ToContext    string
	ToActor      string
	Topic        string
	Actor        string
	CallerKey    []byte
	Ref          *int64
	ReplyTo      *uuid.UUID
	Type, Format string
	Body         string
	Jobs         json.RawMessage
	JobsOpen     *int
	Result       json.RawMessage
	Timeouts     message.Timeouts
	Envelope     []byte
	Status       message.Status
	Steps        int
	Cursor       int64
	PeerSteps    int
	PeerLines    []int // of each of its jobs at the peer, how much of the output is known here
	Again        int   // how often it was delivered again, since its peer had lost it
	Carries      bool  // the try of a job, which has its id
	Fence        int64
	LeaseUntil   *time.Time
	Receiver     string
	Handed       int        // how often a receiver was handed it
	HandedAt     *time.Time // the last time
	Due          *time.Time // the deadline that runs
	CreatedAt    time.Time
	RoutedAt     *time.Time
	DeliveredAt  *time.Time
	AckedAt      *time.Time
	EndedAt      *time.Time
	UpdatedAt    time.Time
	Code, Error  string
	Replay       bool // it was there: the same request made it before

	was  message.Status
	hash []byte
	key  string // of the request that made it
	over bool   // its deadline ends it in the commit that is prepared
}

// Tag rises with each step of a message, and whenever a receiver is handed it.
func (m *Message) Tag() int64 { return int64(m.Steps) + m.Fence }

// messageColumns are all of a message. briefColumns leave out its texts, which may have many MiB, and bodyColumns all
// of them but its body; of an envelope that is there both have one byte.
const (
	messageColumns = rowColumns + `, m.body, m.jobs, m.result, m.envelope`
	briefColumns   = rowColumns + `, ''` + noTexts
	bodyColumns    = rowColumns + `, m.body` + noTexts
	noTexts        = `, NULL::jsonb, NULL::jsonb, CASE WHEN m.envelope IS NOT NULL THEN '\x00'::bytea END`
)

const rowColumns = `m.message_id, coalesce(m.context_id, 0), coalesce(m.target_id, 0), coalesce(m.peer, ''),
	m.peer_message, m.to_context, coalesce(m.to_actor, ''), coalesce(m.topic, ''), m.actor, m.caller_key, m.ref,
	m.reply_to, m.type, m.format, m.jobs_open, make_interval(secs => m.timeout), make_interval(secs => m.timeout_ack),
	make_interval(secs => m.timeout_result), m.was, m.status, m.steps, m.cursor, m.peer_steps, m.fence,
	m.lease_until, coalesce(m.receiver, ''), m.due_at, m.created_at, m.routed_at, m.delivered_at, m.acked_at,
	m.ended_at, m.updated_at, m.error_code, m.error, m.body_hash, coalesce(m.request_key, ''), m.peer_lines,
	m.carries_job, m.redelivered, m.handed, m.handed_at`

func (m *Message) fields() []any {
	return []any{&m.ID, &m.Context, &m.Target, &m.Peer, &m.PeerMessage, &m.ToContext, &m.ToActor, &m.Topic, &m.Actor,
		&m.CallerKey, &m.Ref, &m.ReplyTo, &m.Type, &m.Format, &m.JobsOpen, &m.Timeouts.Deliver, &m.Timeouts.Ack,
		&m.Timeouts.Result, &m.was, &m.Status, &m.Steps, &m.Cursor, &m.PeerSteps, &m.Fence, &m.LeaseUntil, &m.Receiver,
		&m.Due, &m.CreatedAt, &m.RoutedAt, &m.DeliveredAt, &m.AckedAt, &m.EndedAt, &m.UpdatedAt, &m.Code, &m.Error,
		&m.hash, &m.key, &m.PeerLines, &m.Carries, &m.Again, &m.Handed, &m.HandedAt,
		&m.Body, (*[]byte)(&m.Jobs), (*[]byte)(&m.Result), &m.Envelope}
}

func scanMessage(row pgx.CollectableRow) (*Message, error) {
	m := &Message{}
	return m, row.Scan(m.fields()...)
}

func collect(into *[]*Message) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*into, err = pgx.CollectRows(rows, scanMessage)
		return err
	}
}

// Change is an event of a message with what is recorded of it.
type Change struct {
	On     message.Event
	By     string
	Detail string
	Now    time.Time
	Code   string // of an end in error by OnRefused
	Text   string
	Lease  time.Time // until when a receiver has it, of OnReceived
	Again  bool      // its receiver was handed it before: that is counted, and is no step
}

// peerLate is how much later a deadline ends a message here that a peer has brought: the peer keeps its deadlines, and
// tells of their ends. One that was restored to a time before the message, or that is gone, tells of none.
const peerLate = time.Minute

// happen lets something happen to a message and returns the row of its history, nil for none. *machine.Illegal: of one
// that has ended, it is late.
func (s *Store) happen(m *Message, c Change) (step []any, err error) {
	next, err := message.Next(m.Status, c.On, m.Timeouts, m.DeliveredAt != nil, m.Due, c.Now)
	if err != nil {
		return nil, err
	}
	begins := next.Due != nil && next.Due != m.Due
	m.was, m.Status, m.Due, m.UpdatedAt = next.From, next.To, next.Due, c.Now
	if m.Context == 0 {
		if m.Cursor = s.Fence(m.Cursor, c.Now); begins {
			due := next.Due.Add(peerLate)
			m.Due = &due
		}
	}
	if next.Lease {
		m.Fence, m.LeaseUntil, m.Receiver = s.Fence(m.Fence, c.Now), &c.Lease, c.By
		m.Handed, m.HandedAt = m.Handed+1, &c.Now
	}
	if c.Again {
		return nil, nil
	}
	m.Steps++
	switch c.On {
	case message.OnRouted:
		m.RoutedAt = &c.Now
	case message.OnDelivered:
		m.DeliveredAt = &c.Now
		if m.RoutedAt == nil {
			m.RoutedAt = &c.Now
		}
	case message.OnAcknowledged:
		m.AckedAt, m.LeaseUntil = &c.Now, nil
	case message.OnDeadline:
		m.over = true
	}
	if next.To.Ended() {
		m.EndedAt, m.Due, m.LeaseUntil = &c.Now, nil, nil
	}
	detail := c.Detail
	if next.To == message.Error {
		m.Code, m.Error = c.Code, c.Text
		if next.Code != "" {
			m.Code, m.Error = next.Code, next.Text
		}
		detail = m.Error
	}
	return []any{m.ID.String(), m.Steps, c.Now, string(next.From), string(c.On), string(next.To), c.By, detail}, nil
}

var stepInsert = db.InsertMany("message_step", "", "message_id uuid", "n int", "at timestamptz =", "was text",
	"event text", "status text", "by text =", "detail text")

// Move lets things happen, one after the other, to a message whose row is locked, and adds to b what is to be written.
// *machine.Illegal where one of them means nothing: then nothing is added, and m is not to be used any more.
func (s *Store) Move(b *pgx.Batch, m *Message, list ...Change) error {
	steps := db.Columns{}
	for _, c := range list {
		step, err := s.happen(m, c)
		if err != nil {
			return err
		}
		if step != nil {
			steps.Add(step...)
		}
		s.tellOf(b, m, c)
	}
	b.Queue(`UPDATE postern.message
		SET was = $2, status = $3, steps = $4, cursor = $5, fence = $6, lease_until = $7, receiver = $8, due_at = $9,
			routed_at = $10, delivered_at = $11, acked_at = $12, ended_at = $13, updated_at = $14, error_code = $15,
			error = $16, jobs_open = $17, peer_message = $18, peer_steps = $19,
			peer_lines = coalesce($20::int[], '{}'), handed = $21, handed_at = $22
		WHERE message_id = $1`, m.ID, string(m.was), string(m.Status), m.Steps, m.Cursor, m.Fence, m.LeaseUntil,
		db.Nullable(m.Receiver), m.Due, m.RoutedAt, m.DeliveredAt, m.AckedAt, m.EndedAt, m.UpdatedAt, m.Code, m.Error,
		m.JobsOpen, m.PeerMessage, m.PeerSteps, m.PeerLines, m.Handed, m.HandedAt)
	if len(steps.Cols) > 0 {
		stepInsert.Queue(b, steps)
	}
	if m.Carries && m.Status == message.Error {
		s.flows.FailAway(b, m.ID, m.Code, m.Error)
	}
	return nil
}

// Insert adds to b a message to which the first things happen in the commit that makes it; the first of them is its
// creation.
func (s *Store) Insert(b *pgx.Batch, m *Message, list ...Change) error {
	steps := db.Columns{}
	m.CreatedAt = list[0].Now
	for _, c := range list {
		step, err := s.happen(m, c)
		if err != nil {
			return err
		}
		steps.Add(step...)
		s.tellOf(b, m, c)
	}
	b.Queue(`INSERT INTO postern.message (message_id, context_id, target_id, peer, peer_message, to_context, to_actor,
			topic, actor, caller_key, ref, reply_to, type, format, body, jobs, jobs_open, result, timeout, timeout_ack,
			timeout_result, envelope, was, status, steps, cursor, due_at, created_at, routed_at, delivered_at, acked_at,
			ended_at, updated_at, body_hash, request_key, error_code, error, peer_steps, carries_job)
		VALUES ($1, nullif($2, 0), nullif($3, 0), $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15,
			$16::text::jsonb,
			$17, $18::text::jsonb, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35,
			$36, $37, $38, $39)`,
		m.ID, m.Context, m.Target, db.Nullable(m.Peer), m.PeerMessage, m.ToContext, db.Nullable(m.ToActor),
		db.Nullable(m.Topic), m.Actor, m.CallerKey, m.Ref, m.ReplyTo, m.Type, m.Format, m.Body, db.Raw(m.Jobs),
		m.JobsOpen,
		db.Raw(m.Result), seconds(m.Timeouts.Deliver), seconds(m.Timeouts.Ack), seconds(m.Timeouts.Result), m.Envelope,
		string(m.was), string(m.Status), m.Steps, m.Cursor, m.Due, m.CreatedAt, m.RoutedAt, m.DeliveredAt, m.AckedAt,
		m.EndedAt, m.UpdatedAt, m.hash, db.Nullable(m.key), m.Code, m.Error, m.PeerSteps, m.Carries)
	stepInsert.Queue(b, steps)
	return nil
}

// tellOf adds to b who is to hear of a change.
func (s *Store) tellOf(b *pgx.Batch, m *Message, c Change) {
	if c.On == message.OnDelivered && m.Target != 0 {
		s.tell(b, m, c.Now)
	}
}

func seconds(d time.Duration) int { return int(d / time.Second) }

// lateMost is how much is kept of a message that was said too late.
const lateMost = 100

// Late adds to b what was said of a message when it meant nothing any more: once for each event and fence, and no more
// than lateMost, since who says it chooses the fence. Its caller has the lock of the message, behind which none but
// this statement adds any, so that its count is that of the commit.
func (s *Store) Late(b *pgx.Batch, m *Message, on message.Event, fence int64, by string, body any, now time.Time) {
	text, err := json.Marshal(body)
	if err != nil {
		text = []byte("{}")
	}
	b.Queue(`INSERT INTO postern.message_late (message_id, event, fence, at, by, body)
		SELECT $1, $2, $3, $4, $5, $6::text::jsonb
		WHERE (SELECT count(*) FROM postern.message_late l WHERE l.message_id = $1) < $7
		ON CONFLICT DO NOTHING`, m.ID, string(on), fence, now, by, string(text), lateMost)
}

func none(id string) error {
	return fault.New(fault.NotFound, "not_found", "no message %q", fault.Clip(id))
}
