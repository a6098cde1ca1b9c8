package messages

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/reads"
)

// explain gathers what is in the way of a message.
type explain struct {
	s *Store
	m *Message
	w *reads.Why
	r int32         // the context that asks
	b reads.Blocker // that of the message itself, which comes before those of others

	now, lease time.Time
	again      int    // how often it was delivered again, since its peer had lost it
	lost       bool   // it is on its way there again
	carrier    string // the transaction that carries it; "" for none
}

// WhyMessage explains a message: the next step that it waits for, since when, and which deadline runs; NotFound. It
// locks nothing: its answer was true a moment ago.
func (s *Store) WhyMessage(ctx context.Context, contextID int32, id uuid.UUID) (*reads.Why, error) {
	m, err := s.Get(ctx, contextID, id)
	if err != nil {
		return nil, err
	}
	x := &explain{s: s, m: m, w: &reads.Why{State: string(m.Status)}, r: contextID,
		b: reads.Blocker{Object: path(id)}}
	if err := x.load(ctx); err != nil {
		return nil, err
	}
	b := &x.b
	if (m.Context == contextID || m.Context == 0) && !m.Status.Ended() {
		b.Levers = []reads.Lever{{Method: "POST", Path: path(id) + "/cancel", Role: "admin"}}
	}
	if m.Due != nil {
		x.next(*m.Due, "it ends in error, since "+deadlineOf(m)+" is over")
	}
	switch {
	case m.Status.Ended():
		b.Kind, b.Since, b.Detail = "terminal", *m.EndedAt, "it has ended"
		if m.Code != "" {
			b.Detail = fmt.Sprintf("it has ended (%s): %s", m.Code, m.Error)
		}
	case m.DeliveredAt == nil, x.lost:
		err = x.undelivered(ctx)
	case m.Status == message.Dispatched:
		x.unacknowledged()
		err = x.asked(ctx)
	default:
		x.unanswered()
		err = x.asked(ctx)
	}
	if err != nil {
		return nil, err
	}
	x.w.Blockers = append([]reads.Blocker{*b}, x.w.Blockers...)
	if m.JobsOpen != nil && !m.Status.Ended() {
		if err := x.jobs(ctx); err != nil {
			return nil, err
		}
	}
	x.w.Summary = fmt.Sprintf("message %s is %s: %s", id, x.w.State, x.w.Blockers[len(x.w.Blockers)-1].Detail)
	return x.w, nil
}

func (x *explain) load(ctx context.Context) error {
	return db.Known(x.s.Db(ctx).QueryRow(ctx, `SELECT m.redelivered, m.redelivering, coalesce(m.peer_tx, ''),
			coalesce($2::timestamptz, clock_timestamp()), coalesce($3::timestamptz, clock_timestamp())
		FROM postern.message m
		WHERE m.message_id = $1`, x.m.ID, x.s.Clock(), x.s.LeaseNow()).
		Scan(&x.again, &x.lost, &x.carrier, &x.now, &x.lease))
}

// next says what happens by itself, and when, unless something else does before. Where the moment has come it is now.
func (x *explain) next(at time.Time, what string) {
	if at.Before(x.now) {
		at = x.now
	}
	if x.b.Next == nil || at.Before(x.b.Next.At) {
		x.b.Next = &reads.NextStep{At: at, What: what}
	}
}

// away says whether the message goes to a peer.
func (x *explain) away() bool { return x.m.Peer != "" && x.m.Context != 0 }

// unacknowledged says who is to acknowledge it.
func (x *explain) unacknowledged() {
	m, b := x.m, &x.b
	b.Kind, b.Since = "not_acknowledged", *m.DeliveredAt
	if x.away() {
		b.Detail = fmt.Sprintf("it stands in msg_in of context %s of peer %s, and is not acknowledged there",
			fault.Clip(m.ToContext), m.Peer)
		return
	}
	b.Detail = fmt.Sprintf("it stands in msg_in of context %s, and is not acknowledged", fault.Clip(m.ToContext))
	receivers := "any executor there"
	if m.ToActor != "" {
		receivers = fault.Clip(m.ToActor) + " alone"
	}
	switch {
	case m.LeaseUntil == nil:
		b.Detail += "; no receiver has been handed it: it is for " + receivers
	case m.LeaseUntil.After(x.lease):
		if b.Since = *m.DeliveredAt; m.HandedAt != nil { // nil: by an older version
			b.Since = *m.HandedAt
		}
		b.Detail += fmt.Sprintf("; %s was handed it, %s, until %s", m.Receiver, times(m.Handed), at(*m.LeaseUntil))
		x.next(*m.LeaseUntil, "it is for "+receivers+" again")
	default:
		b.Since = *m.LeaseUntil
		b.Detail += fmt.Sprintf("; it was handed out %s, and the last receiver, %s, had it until %s: it is for %s "+
			"again", times(m.Handed), m.Receiver, at(*m.LeaseUntil), receivers)
	}
}

// unanswered says who is to answer it.
func (x *explain) unanswered() {
	m, b := x.m, &x.b
	b.Kind, b.Since = "awaits_result", *m.AckedAt
	switch {
	case m.JobsOpen != nil && *m.JobsOpen == 0:
		b.Detail = "all of its jobs have ended: a node makes its result of their ends within a second"
	case m.JobsOpen != nil && x.r != m.Target:
		b.Detail = fmt.Sprintf("%d of its jobs have not ended: they are of context %s, and why says there what they "+
			"wait for", *m.JobsOpen, fault.Clip(m.ToContext))
	case m.JobsOpen != nil:
		b.Detail = fmt.Sprintf("%d of its jobs have not ended", *m.JobsOpen)
	case x.away():
		b.Detail = fmt.Sprintf("peer %s has acknowledged it, and has not answered it", m.Peer)
	default:
		b.Detail = fmt.Sprintf("%s has acknowledged it, and has not answered it", m.Receiver)
	}
}

// undelivered says why a message has not reached msg_in, or is not there any more.
func (x *explain) undelivered(ctx context.Context) error {
	m, b := x.m, &x.b
	b.Kind, b.Since = "undelivered", m.CreatedAt
	if m.RoutedAt == nil {
		if x.s.Quarantined(m.Context, "") {
			b.Detail = "its context is in quarantine: nothing goes out of it"
			return x.quarantined(ctx, "")
		}
		x.w.Moving = true
		b.Detail = "it waits for the look at the rights of its sender, which comes within a second while a node works"
		return nil
	}
	b.Since = *m.RoutedAt
	b.Detail = fmt.Sprintf("it is on its way to peer %s, which has not taken it", m.Peer)
	if x.lost {
		b.Since = m.UpdatedAt
		b.Detail = fmt.Sprintf("peer %s does not have it any more, as after a restore: it is on its way there again "+
			"(%d of at most %d)", m.Peer, x.again, lostMost)
	}
	if err := x.carried(ctx); err != nil {
		return err
	}
	return x.refused(ctx)
}

// carried adds what is in the way of the transaction that carries a message; without one, of the queue in which it is
// to be posted.
func (x *explain) carried(ctx context.Context) error {
	m := x.m
	var its *reads.Why
	id, err := outbox.ParseID(x.carrier)
	if err == nil {
		its, err = x.s.reads.Why(ctx, m.Context, id)
	} else {
		x.b.Detail += "; no transaction carries it yet: a node posts one within a second, if its queue has room"
		u := uncarried{Context: m.Context, Peer: m.Peer, Actor: m.Actor, Type: m.Type}
		if u.queue() == "" {
			return x.quarantined(ctx, outbox.PeerType(m.Peer))
		}
		its, err = x.s.reads.WhyQueue(ctx, m.Context, u.queue())
	}
	switch fault.KindOf(err) {
	case "":
	case fault.NotFound: // retention has dropped it, or the queue is empty

		return x.quarantined(ctx, outbox.PeerType(m.Peer))
	default:
		return err
	}
	x.w.Moving = its.Moving
	for _, b := range its.Blockers {
		b.Levers = slices.DeleteFunc(b.Levers, ofMessage)
		x.w.Blockers = append(x.w.Blockers, b)
	}
	return nil
}

// ofMessage says whether a lever of a transaction is refused, since a message has it in its place.
func ofMessage(l reads.Lever) bool {
	verb := l.Path[strings.LastIndex(l.Path, "/")+1:]
	return strings.HasPrefix(l.Path, "/transactions/") &&
		slices.Contains([]string{"cancel", "abandon", "redrive"}, verb)
}

// asked adds why a peer that has a message is not asked about it.
func (x *explain) asked(ctx context.Context) error {
	if !x.away() {
		return nil
	}
	if err := x.quarantined(ctx, outbox.PeerType(x.m.Peer)); err != nil {
		return err
	}
	return x.refused(ctx)
}

// quarantined adds the quarantines that hold what goes to a peer.
func (x *explain) quarantined(ctx context.Context, typ string) error {
	if !x.s.Quarantined(x.m.Context, typ) {
		return nil
	}
	scopes, err := x.s.QuarantineScopes(ctx)
	if err != nil {
		return err
	}
	here := x.s.ContextByID(x.m.Context)
	for _, v := range scopes {
		if v.Context != "" && (here == nil || here.Name != v.Context) || v.Type != "" && v.Type != typ {
			continue
		}
		x.w.Blockers = append(x.w.Blockers, reads.Blocker{Kind: "quarantined", Object: v.Object(), Since: v.EnteredAt,
			Detail: pg.Because(fmt.Sprintf("%s is in quarantine: nothing of it leaves", v.Quarantine), v.Reason),
			Levers: []reads.Lever{reads.NewLever("GET", "system admin", "quarantine")}})
	}
	return nil
}

// refused adds that the peer takes no calls, or is not there any more.
func (x *explain) refused(ctx context.Context) error {
	name := x.m.Peer
	b := reads.Blocker{Kind: "peer_refused", Object: "/peers/" + name}
	p, err := x.s.installations.Peer(ctx, x.m.Context, name)
	switch {
	case fault.KindOf(err) == fault.NotFound:
		b.Since = x.b.Since
		b.Detail = fmt.Sprintf("peer %s was removed: PUT /peers/%s has it delivered", name, name)
	case err != nil:
		return err
	case p.URL == "":
		b.Since = x.b.Since
		b.Detail = fmt.Sprintf("peer %s has no url: nothing is sent to it, and it is asked about nothing. "+
			"PUT /peers/%s with its url has it go on", name, name)
	case p.RefusedAt == nil:
		return nil
	default:
		b.Since = *p.RefusedAt
		b.Detail = fmt.Sprintf("peer %s takes no calls (%s): %s", name, p.RefusedCode, p.Refused)
		b.Levers = []reads.Lever{reads.NewLever("POST", "admin", "peers", name, "check")}
	}
	x.w.Blockers = append(x.w.Blockers, b)
	return nil
}

// at is a moment as a detail says it, and times how often something was done.
func at(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func deadlineOf(m *Message) string {
	switch {
	case m.Status == message.Acknowledged:
		return message.CodeTimeoutResult
	case m.DeliveredAt != nil:
		return message.CodeTimeoutAck
	}
	return message.CodeTimeout
}

// jobs adds what the first job waits for that has not ended. The jobs are of the context that the message is for, and
// so is all that they wait for: another context hears no more than whether something moves.
func (x *explain) jobs(ctx context.Context) error {
	list, err := x.s.flows.JobsOfMessage(ctx, x.m.ID)
	if err != nil {
		return err
	}
	for _, j := range list {
		if j.Status.Ended() {
			continue
		}
		of, err := x.s.flows.WhyJob(ctx, x.m.Target, j.ID)
		if err != nil {
			return err
		}
		x.w.Moving = x.w.Moving || of.Moving
		if x.r == x.m.Target {
			x.w.Blockers = append(x.w.Blockers, of.Blockers...)
		}
		return nil
	}
	x.w.Moving = true
	return nil
}
