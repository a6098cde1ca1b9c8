package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// domainCounts is what a run of the load domains has to tell besides what is wrong.
type domainCounts struct {
	Intents   int `json:"intents"`
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	Calls     int `json:"calls_on_ledger"`
	Terms     int `json:"terms"` // times that a node began to coordinate
	Doubled   int `json:"messages_doubled"`
	Held      int `json:"messages_held_up"`
}

// intentRow is what the database of a node says of an intent of its own.
type intentRow struct {
	Side                          int
	UID, ID, State, Receipt, Text string
}

// domainEvidence is what is compared: what was posted, the rows of all nodes, and the ledger.
type domainEvidence struct {
	posts  []*intentPost
	rows   []intentRow
	events []event // of the ledger, in its order
	worth  map[string]int
}

// check compares them.
func (e *domainEvidence) check(say found) (n domainCounts) {
	rows := map[string][]intentRow{}
	known := map[string]intentRow{}
	for _, r := range e.rows {
		rows[r.UID] = append(rows[r.UID], r)
		known[r.ID] = r
	}
	at := e.checkLedger(known, say)
	n.Intents, n.Calls = len(e.posts), len(e.events)
	ended := map[string]intentRow{}
	for _, p := range e.posts {
		if len(rows[p.uid]) > 0 {
			ended[p.uid] = rows[p.uid][0]
		}
	}
	for _, p := range e.posts {
		checkIntent(p, rows[p.uid], say)
		r := ended[p.uid]
		switch on, there := at[r.ID]; {
		case r.Receipt == "success" && !there:
			say("what succeeded is on the ledger", "%s (%s) is not", p.uid, r.ID)
		case r.Receipt == "failure" && there:
			say("what failed is not on the ledger", "%s (%s) is: %s", p.uid, r.ID, r.Text)
		case p.needs != "" && there:
			if before, done := at[ended[p.needs].ID]; !done || before > on {
				say("no dependent before its producer", "%s is on the ledger, and %s is not, or behind it", p.uid,
					p.needs)
			}
		}
		switch r.Receipt {
		case "success":
			n.Succeeded++
		case "failure":
			n.Failed++
		}
	}
	if n.Intents > 0 && n.Succeeded == 0 {
		say("intents succeed", "none of %d has", n.Intents)
	}
	return n
}

// checkIntent: an intent that was acknowledged is at its node, once, as it was told.
func checkIntent(p *intentPost, rows []intentRow, say found) {
	switch {
	case p.bad != "":
		say("every answer is a success or retryable", "%s: %s", p.uid, p.bad)
	case p.id == "":
		say("every post is answered in the end", "%s, after %d tries", p.uid, p.tries)
	case len(rows) != 1:
		say("an intent has one receipt", "%s has %d rows", p.uid, len(rows))
	case rows[0].ID != p.id || rows[0].Side != p.side:
		say("an intent is what was posted", "%s was acknowledged as %s at %s, and is %v", p.uid, p.id,
			domainNodes[p.side], rows[0])
	}
}

// checkLedger looks at the ledger: it has each intent once, and each is one of a node. Each token is spent once, after it
// was made. The tokens that are left are worth as much as those that were minted. It returns where the call of each
// intent stands.
func (e *domainEvidence) checkLedger(known map[string]intentRow, say found) map[string]int {
	at, made, spent := map[string]int{}, map[string]int{}, map[string]int{}
	minted, left := 0, 0
	for i, ev := range e.events {
		kind, id, _ := strings.Cut(ev.To, ".")
		switch {
		case kind == "intent":
			if before, twice := at[id]; twice {
				say("no intent is on the ledger twice", "%s is there at %d and at %d", id, before, i)
			}
			r, there := known[id]
			if !there {
				say("an intent is what was posted", "intent %s is on the ledger, and no node has it", id)
			}
			if at[id] = i; strings.HasPrefix(r.UID, "mint-") {
				minted += mintedCoins * tokenWorth
			}
		case ev.Type == "require":
		case kind == "coin":
			made[id]++
			left += e.worth[id]
		case kind == "spent":
			spent[id]++
			left -= e.worth[id]
			if made[id] != 1 || spent[id] != 1 {
				say("a token is spent once", "%s was made %d times, and spent %d times", id, made[id], spent[id])
			}
		}
	}
	if left != minted {
		say("balances are conserved", "%d were minted, and %d are left", minted, left)
	}
	return at
}

// judgeDomain reads what all nodes and the ledger say, and compares.
func (w *world) judgeDomain(ctx context.Context, out *result, say found) error {
	d := w.domain
	e := &domainEvidence{posts: d.posts, worth: map[string]int{}}
	n := domainCounts{}
	for i, at := range d.sides {
		c, err := pgx.Connect(ctx, at.pg.url())
		if err != nil {
			return err
		}
		defer c.Close(ctx)
		rows, err := c.Query(ctx, `SELECT $1::int, coalesce(uid, ''), intent_id::text, state, coalesce(receipt, ''),
				text
			FROM postern.coord_intent`, i)
		if err != nil {
			return err
		}
		list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[intentRow])
		if err != nil {
			return err
		}
		e.rows = append(e.rows, list...)
		terms := 0
		if err := c.QueryRow(ctx, `SELECT count(*) FROM postern.coord_step
			WHERE machine = 'coordinator' AND state = 'Active'`).Scan(&terms); err != nil {
			return err
		}
		n.Terms += terms
		if err := w.judgeSide(ctx, c, i, out, say); err != nil {
			return err
		}
	}
	d.tokens.mu.Lock()
	err := d.tokens.follow(ctx)
	for id, c := range d.tokens.coins {
		e.worth[id] = c.Worth
	}
	e.events = d.tokens.events
	d.tokens.mu.Unlock()
	if err != nil {
		return err
	}
	counts := e.check(say)
	counts.Terms = n.Terms
	for _, way := range d.lines {
		counts.Doubled, counts.Held = counts.Doubled+way.doubled, counts.Held+way.held
	}
	for _, p := range d.posts {
		out.Unknown += p.unknown
	}
	out.Domain = &counts
	out.Recovery = recoveries(out.times, out.late)
	return nil
}

// judgeOther says what is wrong at another installation than the first under any load, and adds what it has to tell.
func (w *world) judgeOther(ctx context.Context, c *pgx.Conn, at *world, name string, out *result, say found) error {
	if err := checkSQL(ctx, c, say); err != nil {
		return err
	}
	url := fmt.Sprintf("DATABASE_URL=postgres://postern@127.0.0.1:%d/postern?sslmode=disable", at.pg.port)
	if _, err := w.postern(url, "verify"); err != nil {
		out.Verify += name + ": " + err.Error()
	}
	for invariant, list := range at.wrong {
		for _, text := range list {
			say(invariant, "%s: %s", name, text)
		}
	}
	for _, text := range at.troubles {
		out.Troubles = append(out.Troubles, name+": "+text)
	}
	for kind, times := range at.times {
		out.times[kind] = append(out.times[kind], times...)
	}
	for kind, n := range at.late {
		out.late[kind] += n
	}
	out.Storms += at.storms
	out.ended(at)
	at.checkLogs(say)
	return nil
}

// judgeSide says what is wrong at one node under any load, and what stands still there, with its reason.
func (w *world) judgeSide(ctx context.Context, c *pgx.Conn, i int, out *result, say found) error {
	at, name := w.domain.sides[i], domainNodes[i]
	open, err := listOf(ctx, c, openIntentsSQL+` LIMIT 20`)
	if err != nil {
		return err
	}
	for _, what := range open {
		_, id, _ := strings.Cut(what, "(")
		id, _, _ = strings.Cut(id, ")")
		why, err := at.client.ask(ctx, "GET", "/domains/tok/intents/"+id+"/why", "")
		if err != nil {
			why = []byte(err.Error())
		}
		out.Stalled = append(out.Stalled, fmt.Sprintf("%s: %s: %.500s", name, what, why))
	}
	for _, what := range rowsOpen(ctx, c) {
		out.Stalled = append(out.Stalled, name+": "+what)
	}
	if i == 0 {
		return nil // the rest is asked of the first one under any load
	}
	return w.judgeOther(ctx, c, at, name, out, say)
}
