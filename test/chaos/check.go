package main

import (
	"context"
	"fmt"
	"sort"

	"github.com/jackc/pgx/v5"
)

// row is what the database says of a transaction.
type row struct {
	id, uid, queue, state string
	position              int64
	n                     int
}

var terminal = map[string]bool{"DONE": true, "FAILED": true, "UNRESOLVED": true, "CANCELLED": true}

// check compares the logs of client and worker with the database, and returns what is wrong, by invariant.
func check(ctx context.Context, url string, posts []*post, calls []call) (violations map[string][]string, stalled []string, err error) {
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	defer c.Close(ctx)
	rows, err := readRows(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	violations = map[string][]string{}
	say := func(invariant, format string, args ...any) {
		violations[invariant] = append(violations[invariant], fmt.Sprintf(format, args...))
	}
	byUID := map[string]row{}
	for _, r := range rows {
		if _, twice := byUID[r.uid]; twice {
			say("one transaction per key", "%s has two", r.uid)
		}
		byUID[r.uid] = r
		if !terminal[r.state] {
			stalled = append(stalled, fmt.Sprintf("%s in %s is %s", r.uid, r.queue, r.state))
		}
	}
	checkPosts(posts, byUID, say)
	checkCalls(calls, byUID, say)
	checkOrder(rows, calls, say)
	return violations, stalled, nil
}

func readRows(ctx context.Context, c *pgx.Conn) (list []row, err error) {
	rows, err := c.Query(ctx, `SELECT t.id::text, t.uid, coalesce(t.queue, ''), t.state, t.position, coalesce((b.data ->> 'N')::int, -1)
		FROM postern.transactions t JOIN postern.bodies b USING (id) ORDER BY t.queue, t.position`)
	if err != nil {
		return nil, err
	}
	var r row
	_, err = pgx.ForEachRow(rows, []any{&r.id, &r.uid, &r.queue, &r.state, &r.position, &r.n}, func() error {
		list = append(list, r)
		return nil
	})
	return list, err
}

// checkPosts: what was acknowledged is there, once, as it was posted, under the id that was told.
func checkPosts(posts []*post, byUID map[string]row, say func(string, string, ...any)) {
	for _, p := range posts {
		r, there := byUID[p.UID]
		switch {
		case p.Bad != "":
			say("every answer is a success or retryable", "%s: %s", p.UID, p.Bad)
		case p.Acked && !there:
			say("nothing acknowledged is lost", "%s is gone", p.UID)
		case p.Acked && (r.id != p.ID || r.n != p.N || r.queue != p.Queue):
			say("a transaction is what was posted", "%s: %+v, not %+v", p.UID, r, *p)
		case !p.Acked && p.Bad == "":
			say("every post is answered in the end", "%s, after %d tries", p.UID, p.Tries)
		}
	}
}

// checkCalls: a token is one transaction's, one sender's, and executed once; what is DONE was executed.
func checkCalls(calls []call, byUID map[string]row, say func(string, string, ...any)) {
	owner, sender, executed := map[string]string{}, map[string]string{}, map[string]bool{}
	for _, c := range calls {
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
		if c.Did == "done" || c.Did == "sent" {
			if executed[c.UID] {
				say("executed once", "%s by two tokens, the second %s", c.UID, c.Token)
			}
			executed[c.UID] = true
		}
	}
	for uid, r := range byUID {
		if r.state == "DONE" && !executed[uid] {
			say("what is DONE was executed", "%s", uid)
		}
	}
}

// checkOrder: in a queue, transactions are executed in the order of their positions.
func checkOrder(rows []row, calls []call, say func(string, string, ...any)) {
	first := map[string]int{}
	for i, c := range calls {
		if _, known := first[c.UID]; !known && (c.Did == "done" || c.Did == "sent") {
			first[c.UID] = i
		}
	}
	sort.SliceStable(rows, func(i, j int) bool {
		return rows[i].queue < rows[j].queue || rows[i].queue == rows[j].queue && rows[i].position < rows[j].position
	})
	for i := 1; i < len(rows); i++ {
		a, b := rows[i-1], rows[i]
		at, did := first[a.uid]
		bt, also := first[b.uid]
		if a.queue == b.queue && did && also && bt < at {
			say("order of a queue", "%s: %s (%d) before %s (%d)", a.queue, b.uid, b.position, a.uid, a.position)
		}
	}
}
