package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// stage posts as an application does whose tables are in the same database: postern.submit and a row of its own in one
// SQL transaction. What it returns is empty of a commit; "fail" where nothing was committed; "unknown"; or what is
// wrong.
func (c *client) stage(ctx context.Context, p *post) (what, bad string) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	conf, err := pgx.ParseConfig(c.database())
	if err != nil {
		return "fail", err.Error()
	}
	waited := true // for the standby, at the commit
	conf.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		waited = waited && !strings.Contains(n.Message, "synchronous replication")
	}
	db, err := pgx.ConnectConfig(ctx, conf)
	if err != nil {
		return "fail", ""
	}
	defer db.Close(context.WithoutCancel(ctx))
	tx, err := db.Begin(ctx)
	if err != nil {
		return "fail", ""
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	data, _ := json.Marshal(map[string]any{"N": p.N, "Fail": p.Fails})
	args := []any{p.Queue, p.Type, data, p.UID, nil}
	if p.Fails {
		args[4] = 1
	}
	for _, one := range []struct {
		sql  string
		args []any
	}{
		{`SELECT postern.submit(nullif($1, ''), $2, $3, uid => $4, max_retries => $5, context => 'default')`, args},
		{`INSERT INTO chaos.note (text) VALUES ($1)`, []any{p.UID}},
	} {
		if _, err := tx.Exec(ctx, one.sql, one.args...); err != nil {
			return "fail", refusal(err)
		}
	}
	if err := tx.Commit(ctx); err != nil || !waited {
		return "unknown", ""
	}
	return "", ""
}

// tryStaged stages a post once, and says whether that was its last try.
func (c *client) tryStaged(ctx context.Context, p *post, try int) (over bool) {
	what, bad := c.stage(ctx, p)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case bad != "":
		p.Bad = bad
	case what == "unknown":
		p.Unknown++
	case what == "":
		what, p.Acked, p.AckedAt = "ok", true, time.Now()
		c.acks = append(c.acks, p.AckedAt)
	}
	c.lines.Encode(entry{At: time.Now(), UID: p.UID, Try: try, What: what, Code: bad})
	return p.Acked || p.Bad != ""
}

// refusal is the text of an error that the same statement would meet again, "" of one that a repetition may get past.
func refusal(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Severity == "ERROR" &&
		(strings.HasPrefix(e.Code, "22") || strings.HasPrefix(e.Code, "23") || strings.HasPrefix(e.Code, "P0")) {
		return fmt.Sprintf("%s %s", e.Code, e.Message)
	}
	return ""
}

// checkStaged: a transaction that an application posted in an SQL transaction of its own is there if, and only if,
// what the application wrote there is.
func checkStaged(ctx context.Context, c *pgx.Conn, posts []*post, say found) error {
	const invariant = "what is staged shares its transaction's fate"
	rows, err := c.Query(ctx, `SELECT coalesce(n.text, t.uid), n.text IS NOT NULL
		FROM (SELECT DISTINCT text FROM chaos.note WHERE text <> 'held') n
		FULL JOIN (SELECT uid FROM postern.task UNION SELECT uid FROM postern.outbox) t ON t.uid = n.text
		WHERE n.text IS NULL OR t.uid IS NULL`)
	if err != nil {
		return err
	}
	staged := map[string]bool{}
	for _, p := range posts {
		staged[p.UID] = p.Staged
	}
	var uid string
	var wrote bool
	_, err = pgx.ForEachRow(rows, []any{&uid, &wrote}, func() error {
		switch {
		case wrote:
			say(invariant, "%s was committed by the application, and is not there", uid)
		case staged[uid]:
			say(invariant, "%s is there, and the application committed nothing", uid)
		}
		return nil
	})
	return err
}
