package main

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// pairCounts is what a run of the load peers has to tell besides what is wrong.
type pairCounts struct {
	Away     int `json:"jobs_away"`
	Letters  int `json:"messages"`
	Received int `json:"received"` // with those that were handed out again
	Replied  int `json:"replied"`
	Again    int `json:"delivered_again"` // since they were lost there
	Late     int `json:"late_words"`
	Doubled  int `json:"calls_doubled"`
	Held     int `json:"calls_held_up"`
}

// letterRow is what a database says of a chat or a mail: at the first installation with its reply, at the second with
// the id that it has at the first.
type letterRow struct {
	ID, Key, Text, Status, Reply string
	Results                      int
	At                           *time.Time // when it ended at the first, nil: it has not; when it came to the second
}

// farJob is what the second installation says of a job that a message brought.
type farJob struct {
	ID, Message, Status, Nonce string
	Tries                      []flowTry
	At                         time.Time // when the message came
}

// pairEvidence is what is compared of two installations.
type pairEvidence struct {
	letters   []*letter
	actors    []*actor
	near, far []letterRow // those of far in the order in which they came
	jobs      []flowJob   // of the first
	farJobs   []farJob
	gaps      gaps            // of what went on in one, the other installation may have lost, or repeated, what is known here
	strange   map[string]bool // jobs of the second that a restore may have left there, or begun again, by its id
}

// check compares them, and joins to each job that went away what ran there.
func (e *pairEvidence) check(say found) (n pairCounts) {
	e.checkLetters(say)
	e.checkOrder(say)
	brought, sent := map[string][]farJob{}, map[string]bool{}
	for _, j := range e.jobs {
		for _, t := range j.tries {
			sent[t.ID] = true
		}
	}
	e.strange = map[string]bool{}
	for _, j := range e.farJobs {
		brought[j.Message] = append(brought[j.Message], j)
		if !sent[j.Message] && e.gaps.at(false).meet(j.At, j.At) { // the first has forgotten that it sent it
			e.strange[j.ID] = true
		}
	}
	for i := range e.jobs {
		j := &e.jobs[i]
		if j.peer == "" {
			continue
		}
		n.Away++
		e.checkAway(j, brought, say)
	}
	n.Letters = len(e.letters)
	return n
}

// checkLetters: each message that was acknowledged is at both ends, once, and has its reply.
func (e *pairEvidence) checkLetters(say found) {
	near, far := map[string][]letterRow{}, map[string][]letterRow{}
	for _, r := range e.near {
		near[r.Text] = append(near[r.Text], r)
	}
	for _, r := range e.far {
		far[r.Text] = append(far[r.Text], r)
	}
	for _, l := range e.letters {
		text := l.text()
		switch n, f := near[text], far[text]; {
		case l.id == "":
			say("every post is answered in the end", "message %s, after %d tries: %s", text, l.tries, l.bad)
		case len(n) == 0 || len(f) == 0 && !e.forgotten(n[0]):
			say("no message is lost", "message %s has %d rows where it comes from, and %d where it goes", text, len(n),
				len(f))
		case len(n) > 1 || len(f) > 1:
			say("no message is processed twice", "message %s has %d rows where it comes from, and %d where it goes", text,
				len(n), len(f))
		case n[0].ID != l.id:
			say("a message is what was posted", "%s was acknowledged as %s, and is %s", text, l.id, n[0].ID)
		case n[0].Status != "processed" || len(f) > 0 && f[0].Status != "processed" || n[0].Reply != reply(text) ||
			n[0].Results != 1:
			say("a message has its reply", "message %s (%s) is %s, with %d replies: %q; there it is %v", text, l.id,
				n[0].Status, n[0].Results, n[0].Reply, f)
		}
	}
}

// forgotten says whether the second installation may have lost a message for good: it has ended at the first, which does
// not send it again, by what the second did before it was put back.
func (e *pairEvidence) forgotten(near letterRow) bool {
	return near.At != nil && e.gaps.at(true).meet(*near.At, *near.At)
}

// checkOrder: what one actor wrote comes in the order in which it wrote it, but for what was on its way when a store was
// put back, and may have been sent again.
func (e *pairEvidence) checkOrder(say found) {
	last, from := map[string]int{}, map[string]time.Time{}
	for _, l := range e.letters {
		from[l.text()] = l.from
	}
	for _, r := range e.far {
		who, number, _ := strings.Cut(r.Text, "/")
		n, _ := strconv.Atoi(number)
		if r.At == nil || !e.gaps.meet(from[r.Text], *r.At) {
			if before, known := last[who]; known && n < before {
				say("messages of one caller keep their order", "%s came behind %s/%d", r.Text, who, before)
			}
			last[who] = n
		}
		if i, _ := strconv.Atoi(who); i >= len(e.actors) || e.actors[i].public() != r.Key {
			say("a message is of its actor", "%s is of %s", r.Text, r.Key)
		}
	}
}

// checkAway: of the tries of a job that went away, the one that has finished was executed as one job there, with its
// result.
func (e *pairEvidence) checkAway(j *flowJob, brought map[string][]farJob, say found) {
	const invariant = "a job that goes away has one job there"
	good := 0
	own := j.tries
	j.tries = nil
	for _, t := range own {
		there := brought[t.ID]
		if t.State == "Finished" {
			good++
			if t.Nonce != j.nonce {
				say(invariant, "job %d of %s has the result %q, and its try %q", j.ref, j.flow, j.nonce, t.Nonce)
			}
		}
		same := len(there) == 1 && there[0].Status == "finished" && there[0].Nonce == j.nonce
		if e.gaps.meet(t.OfferedAt, orZero(t.EndedAt)) && !same {
			for _, f := range there {
				e.strange[f.ID] = true
			}
			if t.State == "Finished" { // what it ran as is not known any more
				j.script, j.tries = anyJob, own
			}
			continue
		}
		if len(there) != 1 {
			say(invariant, "job %d of %s (%s): try %s is %s, and has %d jobs there", j.ref, j.flow, j.id, t.ID,
				t.State, len(there))
			continue
		}
		if t.State == "Finished" {
			j.script = there[0].ID
			j.tries = there[0].Tries
			if f := there[0]; f.Status != "finished" || f.Nonce != j.nonce {
				say(invariant, "job %d of %s has the result %q, and %s %q there", j.ref, j.flow, j.nonce, f.Status, f.Nonce)
			}
		}
	}
	if good != 1 {
		say("a job has one recorded result", "job %d of %s is %s, and %d of its tries have finished", j.ref, j.flow,
			j.status, good)
	}
}

// orZero is a time that may not have come.
func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// openPairSQL lists what is open of messages.
const openPairSQL = `SELECT format('message %s of type %s is %s', message_id, type, status) AS what
	FROM postern.message WHERE ended_at IS NULL`

// judgePair reads what both installations say, and compares. It returns the jobs of the second that a restore may have
// left there, or begun again.
func (w *world) judgePair(ctx context.Context, near *pgx.Conn, jobs []flowJob, out *result,
	say found) (strange map[string]bool, err error) {
	p := w.pair
	far, err := pgx.Connect(ctx, p.far.pg.url())
	if err != nil {
		return nil, err
	}
	defer far.Close(ctx)
	e := &pairEvidence{letters: p.letters, actors: p.actors, jobs: jobs, gaps: p.gaps}
	if e.near, e.far, err = readLetters(ctx, near, far); err != nil {
		return nil, err
	}
	if e.farJobs, err = readFarJobs(ctx, far); err != nil {
		return nil, err
	}
	n := e.check(say)
	n.Received, n.Replied, n.Doubled, n.Held = p.received, p.replied, p.line.doubled, p.line.held
	for _, l := range p.letters {
		out.Unknown += l.unknown
	}
	if err := near.QueryRow(ctx, `SELECT (SELECT coalesce(sum(redelivered), 0) FROM postern.message),
		(SELECT count(*) FROM postern.message_late)`).Scan(&n.Again, &n.Late); err != nil {
		return nil, err
	}
	out.Pair = &n
	for name, c := range map[string]*pgx.Conn{"": near, "far: ": far} {
		open, err := listOf(ctx, c, openPairSQL+` LIMIT 50`)
		if err != nil {
			return nil, err
		}
		if c == far {
			more, err := listOf(ctx, c, openSQL+` LIMIT 50`)
			if err != nil {
				return nil, err
			}
			open = slices.Concat(open, more, rowsOpen(ctx, c))
		}
		for _, what := range open {
			out.Stalled = append(out.Stalled, name+what)
		}
	}
	err = w.judgeOther(ctx, far, p.far, "far", out, say)
	out.Recovery = recoveries(out.times, out.late)
	return e.strange, err
}

// listOf reads texts.
func listOf(ctx context.Context, c *pgx.Conn, sql string) ([]string, error) {
	rows, err := c.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func readLetters(ctx context.Context, near, far *pgx.Conn) (here, there []letterRow, err error) {
	rows, err := near.Query(ctx, `SELECT m.message_id::text, '', m.body, m.status, coalesce(max(r.body), ''),
			count(r.message_id)::int, m.ended_at
		FROM postern.message m
		LEFT JOIN postern.message r ON r.reply_to = m.message_id
		WHERE m.type IN ('chat', 'mail') AND m.peer = 'far' AND m.context_id IS NOT NULL
		GROUP BY m.message_id`)
	if err != nil {
		return nil, nil, err
	}
	if here, err = pgx.CollectRows(rows, pgx.RowToStructByPos[letterRow]); err != nil {
		return nil, nil, err
	}
	rows, err = far.Query(ctx, `SELECT m.peer_message::text, encode(m.caller_key, 'base64'), m.body, m.status, '', 0, m.created_at
		FROM postern.message m
		WHERE m.type IN ('chat', 'mail') AND m.context_id IS NULL
		ORDER BY m.created_at, m.message_id`)
	if err != nil {
		return nil, nil, err
	}
	there, err = pgx.CollectRows(rows, pgx.RowToStructByPos[letterRow])
	return here, there, err
}

func readFarJobs(ctx context.Context, far *pgx.Conn) ([]farJob, error) {
	rows, err := far.Query(ctx, `SELECT j.job_id::text, m.peer_message::text, j.status,
			coalesce(j.result ->> 'nonce', ''), `+triesSQL+`, m.created_at
		FROM postern.job j JOIN postern.message m ON m.message_id = j.message_id`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[farJob])
}

// breakPair is a run: as breakFlows, with messages beside the flows. What is posted has to be acknowledged in the time
// that everything may take to end; what was posted is received until it has.
func (w *world) breakPair(ctx context.Context, o options) (*result, error) {
	life, end := context.WithCancel(ctx)
	defer end()
	posts, enough := context.WithCancel(ctx)
	defer enough()
	writing, stop := context.WithCancel(ctx)
	written := w.pair.run(writing, posts, life, w.client)
	healed := func() (time.Time, <-chan struct{}) {
		stop()
		time.AfterFunc(o.settle, enough)
		return time.Now(), written
	}
	return w.breakFlows(ctx, o, healed)
}
