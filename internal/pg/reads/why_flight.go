package reads

import (
	"fmt"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/sequencer"
)

// dispatching explains a head whose worker is being called, or whose outcome is unknown.
func (x *explain) dispatching() error {
	id := x.head.ID
	abandon := []Lever{leverOf(id, "abandon", "admin")}
	if x.q.Node != 0 {
		return x.inWorker(abandon)
	}
	if x.due == nil {
		return x.resuming("its node is gone", abandon)
	}
	need, err := x.needNode(!x.due.After(x.now))
	if err != nil {
		return err
	}
	said, at, err := x.lastAnswer(id)
	if err != nil {
		return err
	}
	levers := append(x.noStatus(said+x.said), abandon...)
	if said != "" {
		said = "the last answer was, at " + clockTime(at) + ": " + said
	}
	if g := x.gate(); g != nil {
		b := Blocker{
			Kind:   "status_unreachable",
			Object: g.object,
			Since:  x.troubled(),
			Detail: "the worker that has to be asked cannot be reached",
			Next:   &NextStep{*x.due, "it is asked again"},
			Levers: append([]Lever{x.worker()}, levers...),
		}
		if !strings.Contains(said, g.why) {
			b.Detail = pg.Because(b.Detail, g.why)
		}
		b.Detail = x.heard(pg.Because(b.Detail, said))
		x.add(b)
	} else {
		b := Blocker{
			Kind:   "outcome_unknown",
			Object: pg.TxPath(id),
			Since:  x.troubled(),
			Detail: fmt.Sprintf("what came of attempt %d is not known", x.q.Attempt),
			Next:   &NextStep{*x.due, "the worker is asked"},
			Levers: levers,
		}
		b.Detail = x.heard(pg.Because(b.Detail, said) + fmt.Sprintf(
			"; the worker is asked for token %s before anything is sent again", x.head.Token(x.q.Attempt)))
		x.add(b)
	}
	x.moving = !need
	return nil
}

// troubled is since when the head stands where it stands: since the first of its calls that came to nothing, where it
// has been sent again.
func (x *explain) troubled() time.Time {
	if x.q.Blocked.IsZero() || x.q.Blocked.After(x.since) {
		return x.since
	}
	return x.q.Blocked
}

// heard adds to a detail what the worker was heard to say when it was asked last, unless the detail has it.
func (x *explain) heard(detail string) string {
	if x.said == "" || strings.Contains(detail, x.said) {
		return detail
	}
	return detail + "; when it was asked last: " + x.said
}

// inWorker explains a head that a node has in hand.
func (x *explain) inWorker(abandon []Lever) error {
	id := x.head.ID
	var name string
	var alive, again bool
	err := x.s.Pool().QueryRow(x.ctx, `
		SELECT n.name,
			n.epoch = $2 AND n.dead_at IS NULL
				AND n.heartbeat_at + n.ttl >= coalesce($3::timestamptz, clock_timestamp()),
			EXISTS (SELECT FROM postern.attempt a
				WHERE (a.queue_id, a.seq, a.day, a.attempt) = ($4, $5, $6, $7) AND a.step <> 'late')
		FROM postern.node n
		WHERE n.node_id = $1`, x.q.Node, x.q.NodeEpoch, x.s.LeaseNow(), id.Queue, id.Seq, id.Day.Time(), x.q.Attempt).
		Scan(&name, &alive, &again)
	if err != nil && !db.IsNoRows(err) {
		return db.Known(err)
	}
	if !alive {
		return x.resuming(fmt.Sprintf("its node %s is gone", name), abandon)
	}
	x.moving = true
	b := Blocker{
		Kind:   "in_worker",
		Object: pg.TxPath(id),
		Since:  x.troubled(),
		Detail: fmt.Sprintf("attempt %d is with its worker, called by node %s under token %s",
			x.q.Attempt, name, x.head.Token(x.q.Attempt)),
		Levers: abandon,
	}
	if again {
		b.Detail += "; it was called, or asked, under this token before"
	}
	if x.d != nil && x.d.Timeouts.Dispatch > 0 {
		b.Next = &NextStep{x.since.Add(time.Duration(x.d.Timeouts.Dispatch)),
			"without an answer its outcome counts as unknown, and the worker is asked"}
	}
	x.add(b)
	return nil
}

// lastAnswer is what was heard last of a transaction, with its code, and when; "" if nothing was. That a node went
// away in a call is no answer.
func (x *explain) lastAnswer(id outbox.ID) (said string, at time.Time, err error) {
	var code, message string
	err = x.s.Pool().QueryRow(x.ctx, `
		SELECT coalesce(code, ''), coalesce(error, ''), answered_at
		FROM postern.attempt
		WHERE (queue_id, seq, day) = ($1, $2, $3) AND class IS NOT NULL AND step <> 'late'
			AND coalesce(code, '') NOT IN ($4, $5)
		ORDER BY attempt DESC, answered_at DESC
		LIMIT 1`, id.Queue, id.Seq, id.Day.Time(), sequencer.CodeNodeLost, sequencer.CodeHandedBack).
		Scan(&code, &message, &at)
	if db.IsNoRows(err) {
		return "", at, nil
	}
	return quoted(message, code), at, db.Known(err)
}

// unknown adds that the head is held, and the reason.
func (x *explain) unknown() (bool, error) {
	if x.q.Marks == 0 || x.q.Node != 0 || x.due != nil {
		return false, nil
	}
	id := x.head.ID
	b := Blocker{Kind: "outcome_unknown", Object: pg.TxPath(id)}
	for _, verb := range []string{"was-done", "was-not-done", "abandon"} {
		b.Levers = append(b.Levers, leverOf(id, verb, "admin"))
	}
	var reason string
	err := x.s.Pool().QueryRow(x.ctx, `
		SELECT reason, at
		FROM postern.mark
		WHERE (queue_id, seq, kind) = ($1, $2, 'unknown')`, id.Queue, id.Seq).
		Scan(&reason, &b.Since)
	if db.IsNoRows(err) {
		return false, nil
	}
	if err != nil {
		return false, db.Known(err)
	}
	said, at, err := x.lastAnswer(id)
	if err != nil {
		return false, err
	}
	b.Detail = pg.Because("held until somebody says what came of it", reason)
	if said != "" {
		b.Detail += fmt.Sprintf("; the last answer was, at %s: %s", clockTime(at), said)
	}
	x.add(b)
	return true, nil
}

func (x *explain) resuming(why string, levers []Lever) error {
	need, err := x.needNode(true)
	if err != nil {
		return err
	}
	x.add(Blocker{Kind: "resuming", Object: pg.TxPath(x.head.ID), Since: x.since, Levers: levers,
		Detail: fmt.Sprintf("%s: the next one asks the worker for token %s before it sends anything",
			why, x.head.Token(x.q.Attempt)),
		Lane: &LaneView{Kind: "resume", Name: "resume"}})
	x.moving = !need
	return nil
}

// inclusion explains what was accepted and is watched, until when it is, and what follows then.
func (x *explain) inclusion() error {
	need := x.live == 0
	if need {
		if err := x.noLiveNode(); err != nil {
			return err
		}
	}
	id := x.head.ID
	b := Blocker{
		Kind:   "inclusion_pending",
		Object: pg.TxPath(id),
		Since:  x.since,
		Detail: "accepted by its worker; not included yet",
		Levers: []Lever{leverOf(id, "abandon", "admin")},
	}
	if x.due != nil {
		b.Next = &NextStep{*x.due, "the worker is asked again"}
	}
	if x.d != nil {
		deadline := x.since.Add(time.Duration(x.d.Inclusion.Deadline))
		then := "it is retried as soon as the worker answers"
		if !x.d.Replaceable {
			then = "replaceable: false holds it for an operator"
		}
		switch {
		case x.d.Inclusion.Deadline <= 0:
			b.Detail += "; its worker is asked for as long as it takes (inclusion.deadline: 0)"
		case !deadline.After(x.now):
			b.Kind = "inclusion_overdue"
			b.Detail = "not included by " + clockTime(deadline) + ": " + then
		default:
			b.Detail += "; it is given up at " + clockTime(deadline) + ", and then " + then
		}
		if g := x.gate(); g != nil && b.Kind == "inclusion_pending" {
			b.Kind, b.Object = "status_unreachable", g.object
			b.Detail = pg.Because("the worker that has to be asked cannot be reached", g.why)
			b.Levers = append([]Lever{x.worker()}, b.Levers...)
		}
	}
	b.Detail = x.heard(b.Detail)
	x.add(b)
	x.moving = !need && b.Kind == "inclusion_pending"
	return nil
}

// blocked explains a head that waits by itself, since its last call came to nothing: with what was answered,
// since when that is so, and when it is tried again.
func (x *explain) blocked() error {
	id := x.head.ID
	said, at, err := x.lastAnswer(id)
	if err != nil {
		return err
	}
	if said != "" {
		said = "at " + clockTime(at) + " it was answered: " + said
	}
	var code string
	var certain, doubted bool
	err = x.s.Pool().QueryRow(x.ctx, `
		SELECT coalesce(code, ''), coalesce(nothing_done, false), coalesce(NOT nothing_done, false)
		FROM postern.attempt
		WHERE (queue_id, seq, day, attempt) = ($1, $2, $3, $4) AND step <> 'late'
		ORDER BY answered_at DESC
		LIMIT 1`, id.Queue, id.Seq, id.Day.Time(), x.q.Attempt).Scan(&code, &certain, &doubted)
	if err != nil && !db.IsNoRows(err) {
		return db.Known(err)
	}
	detail := "nothing was done, and it cannot be now"
	if !certain && (doubted || !refusal(code)) {
		detail = "its calls came to nothing, and the same token goes out again"
	}
	x.add(Blocker{
		Kind:   "queue_blocked",
		Object: pg.TxPath(id),
		Since:  x.q.Blocked,
		Detail: pg.Because(detail, said),
		Next:   &NextStep{x.q.NotBefore, "it is tried again"},
		Levers: []Lever{leverOf(id, "retry", "admin"), x.worker(), leverOf(id, "cancel", "executor")},
	})
	return x.dispatcherHolds()
}

// refusal says whether a code is that of an answer before anything was done, also where it is another's: 401, 403,
// 404, 429 and their like, or a page.
func refusal(code string) bool {
	return code == "" || code == "answer_html" || code == "http_501" ||
		strings.HasPrefix(code, "http_4") && code != "http_409"
}

// delay explains what failed and goes out again.
func (x *explain) delay() error {
	id := x.head.ID
	b := Blocker{
		Kind:   "retry_delay",
		Object: pg.TxPath(id),
		Since:  x.since,
		Detail: fmt.Sprintf("attempt %d failed", x.q.Attempt),
		Levers: []Lever{leverOf(id, "retry", "admin"), leverOf(id, "cancel", "executor")},
	}
	said, _, err := x.lastAnswer(id)
	if err != nil {
		return err
	}
	b.Detail = x.heard(pg.Because(b.Detail, said))
	var cancelling bool
	var account, firstFee string
	if err := x.s.Pool().QueryRow(x.ctx, `
		SELECT EXISTS (SELECT FROM postern.mark WHERE (queue_id, seq, kind) = ($1, $2, 'cancelling')),
			coalesce((SELECT account FROM postern.sender WHERE sender_id = $3), ''),
			coalesce((SELECT fee FROM postern.attempt
				WHERE (queue_id, seq, day) = ($1, $2, $4) AND fee <> '' AND step <> 'late'
				ORDER BY attempt, answered_at LIMIT 1), '')`, id.Queue, id.Seq, x.q.Sender, id.Day.Time()).
		Scan(&cancelling, &account, &firstFee); err != nil {
		return db.Known(err)
	}
	at := x.q.NotBefore
	if at.IsZero() && x.due != nil {
		at = *x.due
	}
	next := &NextStep{at, fmt.Sprintf("attempt %d", x.q.Attempt+1)}
	switch {
	case account != "":
		next.What += " by sender " + account
	case x.d != nil && x.d.PoolID != 0:
		next.What += " by another sender, since its own was taken back"
	}
	if x.d != nil {
		prev := x.q.Fee
		if prev == "" {
			prev = x.d.Fee.Initial
		}
		if fee := sequencer.Fee(x.d.Fee, firstFee, prev); fee != "" {
			next.What += " with fee " + fee
		}
	}
	if cancelling {
		next.What = "the worker is asked whether an earlier attempt got through; if none did it is CANCELLED"
		b.Detail += "; somebody wants it cancelled"
		b.Levers = []Lever{leverOf(id, "abandon", "admin")}
	}
	if !at.IsZero() {
		b.Next = next
	}
	if _, err := x.needNode(!at.IsZero() && !at.After(x.now)); err != nil {
		return err
	}
	x.add(b)
	return nil
}
