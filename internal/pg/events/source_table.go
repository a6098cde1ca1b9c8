package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/session"
)

// A page of a table takes at most so long, and has at most so many bytes: a row more, if one row is more.
const (
	tableTimeout = 20 * time.Second
	tableBytes   = 4 << 20
)

// TablePage reads the rows of a source's table that come after its cursor (S1.1), in a transaction that can write
// nothing. dial reaches databases that are not ours; nil: none is reached.
//
// A cursor column that is a sequence, or a time, is given to a row before the row becomes visible, so that a lower
// value may appear after a higher one has been read. Therefore nothing is read beyond a value that was not yet there
// one settle time ago: a writer of a lower one had begun before, and has committed since, or takes longer than the
// settle time allows. The clock is that of the database where the table is.
func (s *Store) TablePage(ctx context.Context, l *SourceLease, dial pgconn.DialFunc) (page leader.Page, trouble *leader.Trouble) {
	at, trouble := leader.ReadTableCursor(l.Cursor)
	if trouble != nil {
		return page, trouble
	}
	ctx, cancel := context.WithTimeout(ctx, tableTimeout)
	defer cancel()
	begin := s.Pool().BeginTx
	if l.URL == "" {
		if err := l.Table.AllowedBy(s.SourceSchemas); err != nil { // it was, when the source was made
			return page, &leader.Trouble{Text: err.Error()}
		}
	} else {
		conn, err := connectTable(ctx, l.URL, dial)
		if err != nil {
			return page, tableTrouble(err)
		}
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		begin = conn.BeginTx
	}
	tx, err := begin(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return page, tableTrouble(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	r := &tableRead{tx: tx, source: l.Source.Source, table: pgx.Identifier(l.Table.Relation()).Sanitize(), at: at, schemas: s.SourceSchemas}
	if page, err = r.page(ctx, s.Clock()); err != nil {
		return leader.Page{}, tableTrouble(err)
	}
	return page, nil
}

// connectTable connects to a database that is not ours.
func connectTable(ctx context.Context, text string, dial pgconn.DialFunc) (*pgx.Conn, error) {
	if dial == nil {
		return nil, &leader.Trouble{Text: "this node reaches no databases but its own"}
	}
	conn, err := session.ConnectOther(ctx, text, dial)
	if f := (*fault.Error)(nil); errors.As(err, &f) {
		return nil, &leader.Trouble{Text: f.Detail}
	}
	return conn, err
}

// tableTrouble says whether asking again may help (S1.3): after an error of the network, the load or a restart, but not
// after an error in the query.
func tableTrouble(err error) *leader.Trouble {
	var known *leader.Trouble
	var said *pgconn.PgError
	switch {
	case errors.As(err, &known):
		return known
	case !errors.As(err, &said):
		return &leader.Trouble{Retryable: true, Text: "the database does not answer: " + fault.Clip(err.Error())}
	}
	retry := said.Code == "55P03"
	for _, class := range []string{"08", "40", "53", "57", "58", "XX"} {
		retry = retry || strings.HasPrefix(said.Code, class)
	}
	return &leader.Trouble{Retryable: retry, Text: fmt.Sprintf("SQLSTATE %s: %s", said.Code, fault.Clip(said.Message))}
}

// tableRead is one look at a table. Its SQL is put together of names that the catalog of that database knows, quoted,
// and of values that are arguments.
type tableRead struct {
	tx     pgx.Tx
	source leader.Source
	table  string
	at     leader.TableCursor

	schemas []string // that may be read in a database of Postern's

	types                map[string]string // of its columns
	key, cursor, payload string            // expressions
	args                 []any             // of the statement that is put together
}

func (r *tableRead) page(ctx context.Context, virtual any) (page leader.Page, err error) {
	var now time.Time
	var ours bool
	// Values go to and fro as text: it must read back as what it was, whatever the database is set to.
	if err := r.tx.QueryRow(ctx, `SELECT coalesce($1::timestamptz, clock_timestamp()), set_config('statement_timeout', $2::text, true)
			|| set_config('datestyle', 'ISO, YMD', true) || set_config('timezone', 'UTC', true) || set_config('intervalstyle', 'postgres', true)
			|| set_config('extra_float_digits', '3', true), to_regnamespace('postern') IS NOT NULL`, virtual, fmt.Sprint(tableTimeout.Milliseconds())).
		Scan(&now, new(string), &ours); err != nil {
		return page, err
	}
	if ours { // also where a URL leads back to it, for which the password file of the nodes may know a role of Postern's
		if err := r.source.Table.AllowedBy(r.schemas); err != nil {
			return page, &leader.Trouble{Text: err.Error()}
		}
	}
	if err := r.columns(ctx); err != nil {
		return page, err
	}
	settle := r.source.Table.SettleTime()
	if settle == 0 {
		r.at.Seen, r.at.Since = nil, nil
	} else {
		if r.at.Seen == nil { // nothing is known to settle
			return r.mark(ctx, page, now)
		}
		if now.Before(r.at.Since.Add(settle)) {
			return page, nil
		}
	}
	if page, err = r.rows(ctx); err != nil || page.More {
		return page, err
	}
	if settle > 0 {
		return r.mark(ctx, page, now)
	}
	return page, nil
}

// columns asks the catalog for the columns that the source names: whether they exist, and their types. A type modifier
// of -1 names them without a length, for which a cursor would be cut or rounded: with none at all, the catalog says
// character and bit, which as types of a cast have the length 1.
func (r *tableRead) columns(ctx context.Context) error {
	t := r.source.Table
	in := t.Relation()
	r.types = map[string]string{}
	rows, err := r.tx.Query(ctx, `SELECT a.attname::text, pg_catalog.format_type(a.atttypid, -1)
		FROM pg_catalog.pg_class c
		JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
		WHERE n.nspname = $1::text AND c.relname = $2::text AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND a.attnum > 0 AND NOT a.attisdropped`, in[0], in[1])
	if err != nil {
		return err
	}
	var name, kind string
	if _, err := pgx.ForEachRow(rows, []any{&name, &kind}, func() error { r.types[name] = kind; return nil }); err != nil {
		return err
	}
	if len(r.types) == 0 {
		return &leader.Trouble{Text: fmt.Sprintf("there is no table or view %s", r.table)}
	}
	for _, column := range []string{t.Key, t.Cursor, t.Payload} {
		if column != "" && r.types[column] == "" {
			return &leader.Trouble{Text: fmt.Sprintf("%s has no column %q", r.table, column)}
		}
	}
	r.key, r.cursor = "t."+pgx.Identifier{t.Key}.Sanitize(), "t."+pgx.Identifier{t.Cursor}.Sanitize()
	switch payload := "t." + (pgx.Identifier{t.Payload}).Sanitize(); r.types[t.Payload] {
	case "":
		r.payload = "to_jsonb(t)::text"
	case "json", "jsonb", "text", "character varying":
		r.payload = payload + "::text"
	default:
		r.payload = "to_jsonb(" + payload + ")::text"
	}
	return nil
}

// after is the condition of what comes after the cursor, with its arguments alone.
func (r *tableRead) after() string {
	t := r.source.Table
	r.args = nil
	switch {
	case r.at.Key != nil:
		at, key := r.arg(*r.at.At, t.Cursor), r.arg(*r.at.Key, t.Key)
		return fmt.Sprintf("%[1]s >= %[3]s AND (%[1]s > %[3]s OR %[2]s > %[4]s OR %[2]s IS NULL)", r.cursor, r.key, at, key)
	case r.at.At != nil:
		return r.cursor + " > " + r.arg(*r.at.At, t.Cursor)
	}
	return r.cursor + " IS NOT NULL"
}

// arg is a value as an argument of a column's type.
func (r *tableRead) arg(value, column string) string {
	r.args = append(r.args, value)
	return fmt.Sprintf("$%d::text::%s", len(r.args), r.types[column])
}

// rows reads a page; More says that it stopped before the end.
func (r *tableRead) rows(ctx context.Context) (page leader.Page, err error) {
	which := r.after()
	if r.at.Seen != nil {
		which += " AND " + r.cursor + " <= " + r.arg(*r.at.Seen, r.source.Table.Cursor)
	}
	rows, err := r.tx.Query(ctx, fmt.Sprintf(`SELECT p.key, p.cursor, coalesce(octet_length(p.payload), 0), CASE WHEN octet_length(p.payload) <= %d THEN p.payload ELSE '' END
		FROM (SELECT %s::text AS key, %s::text AS cursor, %s AS payload FROM %s t WHERE %s ORDER BY %s, %s LIMIT %d) p`,
		leader.MaxEvent, r.key, r.cursor, r.payload, r.table, which, r.cursor, r.key, r.source.PageSize), r.args...)
	if err != nil {
		return page, err
	}
	defer rows.Close()
	sum := 0
	for rows.Next() {
		if sum > tableBytes {
			page.More = true
			break
		}
		var key *string // without one, it is the last of those with its cursor
		var at, payload string
		var size int
		if err := rows.Scan(&key, &at, &size, &payload); err != nil {
			return page, err
		}
		sum += len(payload)
		page.Items = append(page.Items, r.source.Row(key, at, payload, size))
		r.at.At, r.at.Key = &at, key
	}
	rows.Close()
	page.More = page.More || len(page.Items) == r.source.PageSize
	if r.at.At != nil {
		page.Cursor, err = json.Marshal(r.at)
	}
	return page, errors.Join(rows.Err(), err)
}

// mark notes the highest value that is there now, beyond those that were read: lower ones are read when they have
// settled.
func (r *tableRead) mark(ctx context.Context, page leader.Page, now time.Time) (leader.Page, error) {
	r.at.Seen, r.at.Since = nil, nil
	var seen string
	err := r.tx.QueryRow(ctx, fmt.Sprintf(`SELECT %s::text FROM %s t WHERE %s ORDER BY %s DESC LIMIT 1`, r.cursor, r.table, r.after(), r.cursor), r.args...).Scan(&seen)
	switch {
	case err == nil:
		r.at.Seen, r.at.Since = &seen, &now
	case !db.IsNoRows(err):
		return page, err
	}
	if r.at.At != nil || r.at.Seen != nil {
		page.Cursor, err = json.Marshal(r.at)
		return page, err
	}
	return page, nil
}
