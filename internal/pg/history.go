package pg

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// writeHistory inserts what is never changed afterwards: outcomes, attempts, deliveries, marks. A second
// outcome of a transaction is refused by its key and fails the whole SQL transaction.
func (e *effects) writeHistory(b *pgx.Batch) {
	if n := len(e.outcomes); n > 0 {
		c := columns{n: n}
		for _, o := range e.outcomes {
			c.add(o.ID.Queue, o.ID.Seq, o.ID.Day.Time(), o.Context, string(o.Was), string(o.State), raw(o.Result), nullable(o.Class),
				nullable(o.Code), nullable(o.Error), nullable(o.Attempt), o.Retries, nullable(o.Fence), nullable(o.Sender), nullable(o.Node),
				nullable(o.Fee), nullable(o.Nonce), nullable(o.Hash), nullable(o.Height), nullable(o.StartedAt), nullable(o.SubmittedAt),
				nullable(o.RetriedAt), e.now)
		}
		outcomeInsert.queue(b, c)
	}
	if n := len(e.attempts); n > 0 {
		c := columns{n: n}
		for _, a := range e.attempts {
			at := a.At
			if at.IsZero() {
				at = e.now
			}
			c.add(a.ID.Queue, a.ID.Seq, a.ID.Day.Time(), a.Attempt, a.Fence, a.Step, nullable(a.Sender), nullable(a.Node), nullable(a.Fee),
				nullable(a.Nonce), nullable(a.Hash), raw(a.Data), nullable(a.Class), nullable(a.Code), nullable(a.Error),
				nullable(a.NothingDone), nullable(a.StartedAt), at)
		}
		attemptInsert.queue(b, c)
	}
	if n := len(e.lost); n > 0 {
		c := columns{n: n}
		for _, l := range e.lost {
			c.add(l.Queue, l.Seq, l.From.Time(), l.To.Time(), l.Attempt, l.Fence, nullable(l.Sender), nullable(l.Node), nullable(l.Fee),
				l.Code, l.Text, nullable(l.StartedAt))
		}
		b.Queue(lostInsert, c.args(e.now)...)
	}
	if n := len(e.deliveries); n > 0 {
		c := columns{n: n}
		for _, d := range e.deliveries {
			c.add(d.ID.Queue, d.ID.Seq, d.ID.Day.Time(), d.Context, d.Event, e.now, e.now)
		}
		deliveryInsert.queue(b, c)
	}
	if n := len(e.marks); n > 0 {
		c := columns{n: n}
		for _, m := range e.marks {
			c.add(m.Queue, m.Seq, m.Kind, m.Reason, m.Actor, e.now)
		}
		markInsert.queue(b, c)
	}
	if n := len(e.unmarks); n > 0 {
		c := columns{n: n}
		for _, m := range e.unmarks {
			c.add(m.Queue, m.Seq, m.Kind)
		}
		b.Queue(`DELETE FROM postern.mark m USING ROWS FROM (unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::text[])) n(queue_id, seq, kind)
			WHERE (m.queue_id, m.seq, m.kind) = (n.queue_id, n.seq, n.kind)`, c.args()...)
	}
	if n := len(e.depends); n > 0 {
		c := columns{n: n}
		for _, d := range e.depends {
			c.add(d.Who.Queue, d.Who.Seq, d.Who.Day.Time(), d.On.Queue, d.On.Seq, d.On.Day.Time(), d.On.Salt)
		}
		dependencyInsert.queue(b, c)
	}
	if n := len(e.ripples); n > 0 {
		c := columns{n: n}
		for _, id := range e.ripples {
			c.add(id.Queue, id.Seq, id.Day.Time(), e.now)
		}
		rippleInsert.queue(b, c)
	}
	for _, r := range e.redrives {
		b.Queue(`INSERT INTO postern.redrive (queue_id, seq, new_id, at) VALUES ($1, $2, $3::text::uuid, $4)`, r.Of.Queue, r.Of.Seq, r.New.String(), e.now)
	}
}

var (
	outcomeInsert = insertMany("outcome", "", "queue_id bigint", "seq bigint", "day date =", "context_id int =", "was text =", "state text =",
		"result jsonb", "error_class text", "error_code text", "error text", "attempt int =", "retries int =", "fence bigint",
		"sender_id int", "node_id bigint =", "fee text", "nonce text", "hash text", "block_height text", "started_at timestamptz",
		"submitted_at timestamptz", "retried_at timestamptz", "done_at timestamptz =")
	// the same answer recorded twice (a resend after a lost commit) is one attempt
	attemptInsert = insertMany("attempt", "ON CONFLICT DO NOTHING", "queue_id bigint", "seq bigint", "day date", "attempt int", "fence bigint",
		"step text", "sender_id int", "node_id bigint", "fee text", "nonce text", "hash text", "data jsonb", "class text",
		"code text", "error text", "nothing_done boolean", "started_at timestamptz", "answered_at timestamptz")
	lostInsert = `INSERT INTO postern.attempt (queue_id, seq, day, attempt, fence, step, sender_id, node_id, fee, class, code, error, started_at, answered_at)
		SELECT n.queue_id, n.seq, t.day, n.attempt, n.fence, 'unknown', n.sender_id, n.node_id, n.fee, 'ambiguous', n.code, n.error, n.started_at, $13
		FROM ROWS FROM (unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::date[]), unnest($4::date[]), unnest($5::int[]), unnest($6::bigint[]),
			unnest($7::int[]), unnest($8::bigint[]), unnest($9::text[]), unnest($10::text[]), unnest($11::text[]), unnest($12::timestamptz[]))
			n(queue_id, seq, first_day, last_day, attempt, fence, sender_id, node_id, fee, code, error, started_at)
		JOIN postern.task t ON t.queue_id = n.queue_id AND t.seq = n.seq AND t.day BETWEEN n.first_day AND n.last_day
		ON CONFLICT DO NOTHING`
	deliveryInsert = insertMany("delivery", "", "queue_id bigint", "seq bigint", "day date", "context_id int", "event text",
		"at timestamptz", "next_at timestamptz")
	markInsert       = insertMany("mark", "ON CONFLICT DO NOTHING", "queue_id bigint", "seq bigint", "kind text", "reason text", "actor text", "at timestamptz")
	dependencyInsert = insertMany("dependency", "ON CONFLICT DO NOTHING", "queue_id bigint", "seq bigint", "day date", "on_queue bigint", "on_seq bigint", "on_day date", "on_salt int")
	rippleInsert     = insertMany("ripple", "ON CONFLICT DO NOTHING", "queue_id bigint", "seq bigint", "day date", "at timestamptz")
	taskInsert       = insertMany("task", "", "queue_id bigint", "seq bigint", "day date =", "context_id int =", "uid text", "actor text",
		"type text", "data jsonb", "max_retries int", "not_before timestamptz", "sender_id int", "tags jsonb", "traceparent text",
		"redrive_of uuid", "moved_from uuid", "callback jsonb", "created_at timestamptz =")
	keyInsert = insertMany("idempotency", "", "context_id int", "key text", "queue_id bigint", "seq bigint", "day date", "body_hash bytea")
)

// insertion is an INSERT of arrays, one per column. A column that is NULL in all rows is left out, which most
// are, and where all columns that are likely to be the same in all rows are, each of them is one value: an
// array costs as much to take apart as the column does to store. Of one row each column is a value. jsonb travels
// as text, since an array of text needs no escaping of our own.
type insertion struct {
	table, suffix string
	names, types  []string
	likely        uint64   // columns that are likely to be the same in all rows, as bits
	texts         sync.Map // the columns that are there, as bits, and allSame or oneRow -> SQL
}

// allSame is the bit that says that likely columns are values, oneRow that all are.
const (
	allSame = 1 << 63
	oneRow  = 1 << 62
)

// insertMany makes an insertion into columns, each "name type", or "name type =" if it is likely to be the same
// in all rows; suffix comes behind its rows.
func insertMany(table, suffix string, cols ...string) *insertion {
	in := &insertion{table: table, suffix: suffix}
	for i, c := range cols {
		name, typ, _ := strings.Cut(c, " ")
		if t, same := strings.CutSuffix(typ, " ="); same {
			typ, in.likely = t, in.likely|1<<i
		}
		in.names, in.types = append(in.names, name), append(in.types, typ)
	}
	return in
}

// queue adds the INSERT of rows to b.
func (in *insertion) queue(b *pgx.Batch, rows columns) {
	there := uint64(allSame)
	if len(rows.cols[0]) == 1 {
		there = oneRow
	}
	for i, col := range rows.cols {
		if slices.ContainsFunc(col, func(v any) bool { return v != nil }) {
			there |= 1 << i
		}
		if there&oneRow == 0 && in.likely&(1<<i) != 0 && slices.ContainsFunc(col, func(v any) bool { return v != col[0] }) {
			there &^= allSame
		}
	}
	args := make([]any, 0, len(rows.cols))
	for i, col := range rows.cols {
		switch {
		case there&(1<<i) == 0:
		case in.value(there, i):
			args = append(args, col[0])
		default:
			args = append(args, col)
		}
	}
	text, ok := in.texts.Load(there)
	if !ok {
		text, _ = in.texts.LoadOrStore(there, in.text(there))
	}
	b.Queue(text.(string), args...)
}

// value says whether a column is one value for all rows.
func (in *insertion) value(there uint64, i int) bool {
	return there&oneRow != 0 || there&allSame != 0 && in.likely&(1<<i) != 0
}

func (in *insertion) text(there uint64) string {
	var names, arrays, args, reads []string
	n := 0
	for i, name := range in.names {
		if there&(1<<i) == 0 {
			continue
		}
		n++
		names = append(names, name)
		typ, cast := in.types[i], ""
		if typ == "jsonb" || typ == "uuid" {
			typ, cast = "text", "::"+typ
		}
		if in.value(there, i) {
			reads = append(reads, fmt.Sprintf("$%d::%s%s", n, typ, cast))
			continue
		}
		arrays, reads = append(arrays, name), append(reads, "n."+name+cast)
		args = append(args, fmt.Sprintf("unnest($%d::%s[])", n, typ))
	}
	rows := fmt.Sprintf("VALUES (%s)", strings.Join(reads, ", "))
	if there&oneRow == 0 {
		rows = fmt.Sprintf("SELECT %s FROM ROWS FROM (%s) n(%s)", strings.Join(reads, ", "), strings.Join(args, ", "), strings.Join(arrays, ", "))
	}
	return fmt.Sprintf("INSERT INTO postern.%s (%s) %s %s", in.table, strings.Join(names, ", "), rows, in.suffix)
}

// columns turns rows into one array per column.
type columns struct {
	n    int
	cols [][]any
}

func (c *columns) add(values ...any) {
	if c.cols == nil {
		c.cols = make([][]any, len(values))
		all := make([]any, len(values)*c.n)
		for i := range c.cols {
			c.cols[i] = all[i*c.n : i*c.n : (i+1)*c.n]
		}
	}
	for i, v := range values {
		c.cols[i] = append(c.cols[i], v)
	}
}

// rawJSON is a value as a jsonb column takes it, NULL for nil.
func rawJSON[T any](v *T) any {
	if v == nil {
		return nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return raw(b)
}

// args are the arrays as arguments of a statement, followed by more.
func (c *columns) args(more ...any) []any {
	list := make([]any, 0, len(c.cols)+len(more))
	for _, col := range c.cols {
		list = append(list, col)
	}
	return append(list, more...)
}

// optional is what p points to as an argument of a statement, or nil.
func optional[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

func raw(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return string(b)
}

// later returns now, or a microsecond after before: a queue's entered_at rises, as the key of its ready
// row must never be one that it had earlier.
func later(now, before time.Time) time.Time {
	now = now.Truncate(time.Microsecond)
	if !now.After(before) {
		return before.Add(time.Microsecond)
	}
	return now
}
