package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// row is what the database says of a transaction.
type row struct {
	id, uid, queue, state string
	queueID, position     int64
	n                     int
	ended                 time.Time // by the database's clock
}

var terminal = map[string]bool{"DONE": true, "FAILED": true, "UNRESOLVED": true, "CANCELLED": true}

// evidence is what is checked: the logs of client and worker, and the rows.
type evidence struct {
	posts []*post
	calls []call
	rows  []row
	quiet []quiet // in which nothing may be called
	late  []thaw  // in which a process that was frozen may call though its lease has ended

	unaware int // calls of processes that could not notice a restore

	exempt map[*thaw]map[string]bool // by it, the tokens and fences of calls that would be wrong of another
	later  map[string]bool           // callbacks that were tried, and have a time for their next try

	callers map[lease][]string // the processes that the rows name for a lease
	nonces  map[use]bool       // that the rows have, and whether an outcome does
	said    map[string]bool    // transactions that ended by an operator's word, who tells no nonce

	clocks    bool // the database's clock was moved: its times cannot be compared with the worker's
	unordered bool // ends may have been lost, or that clock went back: theirs do not show their order
}

// lease is that of a transaction.
type lease struct {
	uid   string
	fence int64
}

// use is that of a nonce of a sender, in an attempt of a transaction.
type use struct {
	uid, sender string
	attempt     int
	nonce       string
}

// read reads what the rows say of leases and nonces.
func (e *evidence) read(ctx context.Context, c *pgx.Conn) (err error) {
	if e.callers, err = readCallers(ctx, c); err == nil {
		e.nonces, err = readNonces(ctx, c)
	}
	return err
}

// found is where violations go, by the name of the invariant.
type found func(invariant, format string, args ...any)

// check compares the logs with the rows.
func (e *evidence) check(say found) {
	byUID := map[string]row{}
	for _, r := range e.rows {
		if _, twice := byUID[r.uid]; twice && r.uid != "" {
			say("one transaction per key", "%s has two", r.uid)
		}
		byUID[r.uid] = r
	}
	e.checkPosts(byUID, say)
	e.checkTokens(say)
	e.checkQuestions(say)
	e.checkExecuted(byUID, say)
	e.checkHashes(byUID, say)
	e.checkAccepted(byUID, say)
	e.checkOrder(say)
	e.checkNeeds(say)
	e.checkOneInFlight(say)
	e.checkFences(say)
	e.checkSenders(say)
	e.checkNonces(byUID, say)
	e.checkTold(byUID, say)
}

// checkPosts: what was acknowledged is there, once, as it was posted, under the id that was told; what was refused was
// not stored; everything ends as its worker says.
func (e *evidence) checkPosts(byUID map[string]row, say found) {
	for _, p := range e.posts {
		r, there := byUID[p.UID]
		if p.Bad != "" {
			say("every answer is a success or retryable", "%s: %s", p.UID, p.Bad)
			continue
		}
		if c := p.Clash; c != nil && (c.Status != 409 || c.Code != "idempotency_conflict" || c.ID != p.ID) {
			say("a key is one body's", "another body for %s, which is %s, was answered with %+v", p.UID, p.ID, *c)
		}
		if p.No != "" {
			say("unknown is never no", "%s: %s", p.UID, p.No)
		}
		switch {
		case p.Acked && !there:
			say("nothing acknowledged is lost", "%s is gone", p.UID)
		case p.Acked && r.id != p.ID && !p.Staged: // it was posted twice, and only the second is there
			say("nothing acknowledged is lost", "%s was acknowledged as %v, and is %v", p.UID, p.ID, r.id)
		case p.Acked && (r.n != p.N || r.queue != p.Queue):
			say("a transaction is what was posted", "%s: %+v, not %+v", p.UID, r, *p)
		case !p.Acked && !p.Left:
			say("every post is answered in the end", "%s, after %d tries", p.UID, p.Tries)
		}
		if want := map[bool]string{false: "DONE", true: "FAILED"}[p.Fails]; there && terminal[r.state] && r.state != want && p.On == "" {
			say("it ends as its worker says", "%s is %s, want %s", p.UID, r.state, want)
		}
	}
}

// checkTokens: a token is one transaction's and one sender's, and attempts do not go on behind the last.
func (e *evidence) checkTokens(say found) {
	fails := map[string]bool{}
	for _, p := range e.posts {
		fails[p.UID] = p.Fails
	}
	owner, sender := map[string]string{}, map[string]string{}
	for _, c := range e.calls {
		if c.asks() || c.Did == "told" {
			continue
		}
		if u, known := owner[c.Token]; known && u != c.UID {
			say("a token is one transaction's", "%s: %s and %s", c.Token, u, c.UID)
		}
		owner[c.Token] = c.UID
		if c.Did != "stale" {
			if s, known := sender[c.Token]; known && s != c.Sender {
				say("a token is one sender's", "%s: %s and %s", c.Token, s, c.Sender)
			}
			sender[c.Token] = c.Sender
		}
		if fails[c.UID] && c.Attempt > 2 {
			say("terminal is final", "%s may be retried once, and this is attempt %d", c.UID, c.Attempt)
		}
	}
}

// checkQuestions: a token that was called is called again only after its worker was asked about it, and knew nothing.
// The log has a call when it ends, and one that hung ends behind those that began later.
func (e *evidence) checkQuestions(say found) {
	last := map[string]call{}
	asked := map[string]call{}
	calls := slices.Clone(e.calls)
	slices.SortStableFunc(calls, func(a, b call) int { return a.At.Compare(b.At) })
	for _, c := range calls {
		switch c.Did {
		case "asked", "polled":
			asked[c.Token] = c
		case "told", "stale", "page":
		default:
			before, again := last[c.Token]
			a, was := asked[c.Token]
			switch {
			case !again:
			case !was || a.At.Before(before.At):
				say("asked before it is sent again", "%s of %s, at %s and %s", c.Token, c.UID, clock(before.At), clock(c.At))
			case a.Said != "unknown":
				say("asked before it is sent again", "%s of %s was %s when it was asked about, and was called again", c.Token, c.UID, a.Said)
			}
			last[c.Token] = c
		}
	}
}

func clock(t time.Time) string { return t.Format("15:04:05.000") }

// checkExecuted: a transaction is executed by one token; what is DONE was executed.
func (e *evidence) checkExecuted(byUID map[string]row, say found) {
	repeated := map[string]bool{}
	for _, p := range e.posts {
		repeated[p.UID] = p.Repeated
	}
	executed := map[string]bool{}
	for _, c := range e.calls {
		if c.Did == "done" || c.Did == "sent" {
			if executed[c.UID] && !repeated[c.UID] {
				say("executed once", "%s by two tokens, the second %s", c.UID, c.Token)
			}
			executed[c.UID] = true
		}
	}
	for uid, r := range byUID {
		if r.state == "DONE" && !executed[uid] && uid != "" {
			say("what is DONE was executed", "%s", uid)
		}
	}
}

// checkAccepted: of two posts to a queue, the one that was acknowledged before the other was sent for the first time
// comes first. One by SQL has its place once it is drained: it comes behind each post that was acknowledged before it,
// and before those by SQL that came later, while a post over HTTP may overtake it.
func (e *evidence) checkAccepted(byUID map[string]row, say found) {
	queues := map[string][]*post{}
	for _, p := range e.posts {
		if _, there := byUID[p.UID]; p.Queue != "" && p.Acked && !p.Repeated && there {
			queues[p.Queue] = append(queues[p.Queue], p)
		}
	}
	for queue, sent := range queues {
		acked := slices.Clone(sent)
		slices.SortFunc(acked, func(a, b *post) int { return a.AckedAt.Compare(b.AckedAt) })
		slices.SortFunc(sent, func(a, b *post) int { return a.At.Compare(b.At) })
		var last, lastHTTP *post // with the highest position among those that were acknowledged so far
		next := 0
		for _, b := range sent {
			for ; next < len(acked) && acked[next].AckedAt.Before(b.At); next++ {
				a := acked[next]
				last = laterOf(byUID, last, a)
				if !a.Staged {
					lastHTTP = laterOf(byUID, lastHTTP, a)
				}
			}
			before := lastHTTP
			if b.Staged {
				before = last
			}
			if before != nil && byUID[before.UID].position > byUID[b.UID].position {
				say("positions follow acceptance",
					"in %s %s (%d) was acknowledged at %s, before %s (%d) was posted at %s",
					queue, before.UID, byUID[before.UID].position, clock(before.AckedAt), b.UID, byUID[b.UID].position,
					clock(b.At))
			}
		}
	}
}

// laterOf returns which of two posts has the higher position.
func laterOf(byUID map[string]row, a, b *post) *post {
	if a != nil && byUID[a.UID].position > byUID[b.UID].position {
		return a
	}
	return b
}

// checkOrder: in a queue, transactions are executed in the order of their positions.
func (e *evidence) checkOrder(say found) {
	repeated := map[string]bool{}
	for _, p := range e.posts {
		repeated[p.UID] = p.Repeated
	}
	first := map[string]int{}
	for i, c := range e.calls {
		if _, known := first[c.UID]; !known && (c.Did == "done" || c.Did == "sent") && !repeated[c.UID] {
			first[c.UID] = i
		}
	}
	rows := append([]row(nil), e.rows...)
	sort.SliceStable(rows, func(i, j int) bool {
		return rows[i].queue < rows[j].queue || rows[i].queue == rows[j].queue && rows[i].position < rows[j].position
	})
	var last row // the one before that was executed
	for _, b := range rows {
		bt, did := first[b.uid]
		if b.queue == "" || !did {
			continue
		}
		if at := first[last.uid]; last.queue == b.queue && bt < at {
			say("order of a queue", "%s: %s (%d) before %s (%d)", b.queue, b.uid, b.position, last.uid, last.position)
		}
		last = b
	}
}

// checkNeeds: a transaction that depends on another one is called behind the end of the call that executed that, and
// behind the answer that its hash is included.
func (e *evidence) checkNeeds(say found) {
	fates := e.fates()
	ended, first := map[string]time.Time{}, map[string]time.Time{}
	for _, c := range e.begun() {
		if first[c.UID].IsZero() {
			first[c.UID] = c.At
		}
		if (c.Did == "done" || c.Did == "sent") && ended[c.UID].IsZero() {
			if ended[c.UID] = c.Done; c.Did == "sent" && !e.said[c.UID] {
				ended[c.UID] = fates[c.Token]
			}
		}
	}
	repeated := map[string]bool{}
	for _, p := range e.posts {
		repeated[p.UID] = p.Repeated
	}
	for _, p := range e.posts {
		at := first[p.UID]
		if p.On == "" || !p.Acked || at.IsZero() || p.Repeated || repeated[p.On] {
			continue
		}
		if end := ended[p.On]; end.IsZero() || at.Before(end) {
			say("what depends on another one waits for it",
				"%s was called at %s, and %s, which it needs, was executed at %s", p.UID, clock(at), p.On, clock(end))
		}
	}
}

// givenUp is when a call is: see configure.
const givenUp = 5 * time.Second

// checkOneInFlight: of two transactions of a queue that were executed, the call of one began behind the end of that of
// the other.
func (e *evidence) checkOneInFlight(say found) {
	repeated := map[string]bool{}
	for _, p := range e.posts {
		repeated[p.UID] = p.Repeated
	}
	inQueue := map[string]call{}
	for _, c := range e.begun() {
		if !c.executed() || repeated[c.UID] {
			continue
		}
		if before, some := inQueue[c.Queue]; some && c.Queue != "" && before.UID != c.UID && c.At.Before(before.Done) {
			say("one of a queue is under way", "in %s %s began at %s, and %s ended at %s", c.Queue, c.UID, clock(c.At),
				before.UID, clock(before.Done))
		}
		if c.Done.After(inQueue[c.Queue].Done) {
			inQueue[c.Queue] = c
		}
	}
}

// begun lists the calls for transactions in the order in which they began: the log has each when it ends.
func (e *evidence) begun() []call {
	calls := slices.DeleteFunc(slices.Clone(e.calls), func(c call) bool { return c.Did == "told" || c.asks() })
	slices.SortStableFunc(calls, func(a, b call) int { return a.At.Compare(b.At) })
	return calls
}

// isLate says whether a process that was frozen may have made this call too late, and counts it then. Where no row
// names the process of a call, each may be it.
func (e *evidence) isLate(c call) bool {
	callers := e.callers[lease{c.UID, c.Fence}]
	for i := range e.late {
		t := &e.late[i]
		if c.At.After(t.from) && c.At.Before(t.to) && (len(callers) == 0 || slices.Contains(callers, t.process)) {
			if e.exempt == nil {
				e.exempt = map[*thaw]map[string]bool{}
			}
			if e.exempt[t] == nil {
				e.exempt[t] = map[string]bool{}
			}
			e.exempt[t][fmt.Sprint(c.Token, " under ", c.Fence)] = true
			return true
		}
	}
	return false
}

// lateAtMost is how many calls a process may make too late once it goes on: those that had looked at the lease, and had
// not reached their worker, when it was stopped.
const lateAtMost = 4

// checkLate: a process that wakes up calls only what it was about to. It returns how many calls were late.
func (e *evidence) checkLate(say found) (n, most int) {
	for t, calls := range e.exempt {
		n, most = n+len(calls), max(most, len(calls))
		if len(calls) > lateAtMost {
			say("what wakes up calls no more than it had begun",
				"%s made %d calls too late behind %s: %.300s", t.process,
				len(calls), clock(t.from), strings.Join(slices.Sorted(maps.Keys(calls)), ", "))
		}
	}
	return n, most
}

// checkFences: fences never fall but in a call that is late; and nothing leaves while the store is in quarantine, not
// even a callback.
func (e *evidence) checkFences(say found) {
	for _, c := range e.calls {
		for _, q := range e.quiet {
			if c.asks() {
				break
			}
			wrong, excused := q.wrong(c.At, c.Fence, e.callers[lease{c.UID, c.Fence}])
			if excused {
				e.unaware++
			}
			if wrong {
				say("nothing leaves a store that lost something", "%s %s of %s under %d was called at %s by %v; restored at %s",
					c.Did, c.Token, c.UID, c.Fence, clock(c.At), e.callers[lease{c.UID, c.Fence}], clock(q.restored))
			}
		}
	}
	fences := map[string]call{}
	for _, c := range e.begun() {
		line := c.Queue
		if line == "" {
			line = c.UID
		}
		switch before := fences[line]; {
		case c.Fence >= before.Fence:
			fences[line] = c
		case !e.isLate(c):
			say("fences never fall", "in %s %d (%s) came after %d (%s)", line, c.Fence, c.UID, before.Fence, before.UID)
		}
	}
}

// checkSenders: the calls of a sender do not overlap. A late one may, and so may what comes behind one that was given
// up, since it took too long or its worker misbehaved: such a transaction waits without its sender.
func (e *evidence) checkSenders(say found) {
	busy := map[string]call{}
	for _, c := range e.begun() {
		if c.Sender == "" || c.Did == "stale" || c.Did == "page" {
			continue
		}
		if before, some := busy[c.Sender]; some && c.At.Before(before.Done) && c.UID != before.UID &&
			!e.isLate(c) && !e.isLate(before) {
			say("a sender serves one queue at a time", "%s is called for %s at %s, and for %s until %s", c.Sender,
				c.UID, clock(c.At), before.UID, clock(before.Done))
		}
		if c.Mode == "" && c.Done.Sub(c.At) < givenUp && c.Done.After(busy[c.Sender].Done) {
			busy[c.Sender] = c
		}
	}
}

// checkNonces: a nonce under which a transaction was executed is in its outcome, since the worker says it whenever it
// says how that went; and no row has another. A worker counts those of a sender from 1, so that the outcomes have no gap.
// Of what is posted again behind a restore they have the last alone. A call that a restore has taken back leaves no trace
// of its sender: what the worker says of it afterwards by its token is kept without one.
func (e *evidence) checkNonces(byUID map[string]row, say found) {
	const invariant = "a nonce is kept as it was told"
	again := map[string]bool{}
	for _, p := range e.posts {
		again[p.UID] = p.Repeated
	}
	told := map[use]bool{} // of any attempt
	for _, c := range e.calls {
		if c.Nonce == 0 {
			continue
		}
		u := use{c.UID, c.Sender, c.Attempt, fmt.Sprint(c.Nonce)}
		nobodys := u
		nobodys.sender = ""
		kept := e.nonces[u] || e.nonces[nobodys] && e.takenBack(c)
		if terminal[byUID[c.UID].state] && !kept && !again[c.UID] && !e.said[c.UID] {
			say(invariant, "attempt %d of %s was executed under nonce %s of %s, and its outcome does not have it", c.Attempt,
				c.UID, u.nonce, c.Sender)
		}
		u.attempt, nobodys.attempt = 0, 0
		told[u], told[nobodys] = true, true
	}
	for u := range e.nonces {
		any := u
		if any.attempt = 0; !told[any] {
			say(invariant, "a row of %s has nonce %s of %s, under which nothing of it was executed", u.uid, u.nonce, u.sender)
		}
	}
}

// takenBack says whether a restore came behind a call.
func (e *evidence) takenBack(c call) bool {
	return slices.ContainsFunc(e.quiet, func(q quiet) bool { return c.At.Before(q.restored) })
}
