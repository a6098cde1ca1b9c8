package db

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
)

// Insertion is an INSERT of arrays, one per column. A column that is NULL in all rows is left out, which most
// are, and where all columns that are likely to be the same in all rows are, each of them is one value: an
// array costs as much to take apart as the column does to store. Of one row each column is a value. jsonb travels
// as text, since an array of text needs no escaping of our own.
type Insertion struct {
	table, suffix string
	names, types  []string
	likely        uint64   // columns that are likely to be the same in all rows, as bits
	texts         sync.Map // the columns that are there, as bits, and AllSame or OneRow -> SQL
}

// AllSame is the bit that says that likely columns are values, OneRow that all are.
const (
	AllSame = 1 << 63
	OneRow  = 1 << 62
)

// InsertMany makes an insertion into columns, each "name type", or "name type =" if it is likely to be the same
// in all rows; suffix comes behind its rows.
func InsertMany(table, suffix string, cols ...string) *Insertion {
	in := &Insertion{table: table, suffix: suffix}
	for i, c := range cols {
		name, typ, _ := strings.Cut(c, " ")
		if t, same := strings.CutSuffix(typ, " ="); same {
			typ, in.likely = t, in.likely|1<<i
		}
		in.names, in.types = append(in.names, name), append(in.types, typ)
	}
	return in
}

// Queue adds the INSERT of rows to b.
func (in *Insertion) Queue(b *pgx.Batch, rows Columns) {
	there := uint64(AllSame)
	if len(rows.Cols[0]) == 1 {
		there = OneRow
	}
	for i, col := range rows.Cols {
		if slices.ContainsFunc(col, func(v any) bool { return v != nil }) {
			there |= 1 << i
		}
		if there&OneRow == 0 && in.likely&(1<<i) != 0 && slices.ContainsFunc(col, func(v any) bool {
			return v != col[0]
		}) {
			there &^= AllSame
		}
	}
	args := make([]any, 0, len(rows.Cols))
	for i, col := range rows.Cols {
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
func (in *Insertion) value(there uint64, i int) bool {
	return there&OneRow != 0 || there&AllSame != 0 && in.likely&(1<<i) != 0
}

func (in *Insertion) text(there uint64) string {
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
	if there&OneRow == 0 {
		rows = fmt.Sprintf("SELECT %s FROM ROWS FROM (%s) n(%s)", strings.Join(reads, ", "),
			strings.Join(args, ", "), strings.Join(arrays, ", "))
	}
	return fmt.Sprintf("INSERT INTO postern.%s (%s) %s %s", in.table, strings.Join(names, ", "), rows, in.suffix)
}

// Columns turns rows into one array per column.
type Columns struct {
	N    int
	Cols [][]any
}

// Add adds a row: a value for each column, always in the same order.
func (c *Columns) Add(values ...any) {
	if c.Cols == nil {
		c.Cols = make([][]any, len(values))
		all := make([]any, len(values)*c.N)
		for i := range c.Cols {
			c.Cols[i] = all[i*c.N : i*c.N : (i+1)*c.N]
		}
	}
	for i, v := range values {
		c.Cols[i] = append(c.Cols[i], v)
	}
}

// Args are the arrays as arguments of a statement, followed by more.
func (c *Columns) Args(more ...any) []any {
	list := make([]any, 0, len(c.Cols)+len(more))
	for _, col := range c.Cols {
		list = append(list, col)
	}
	return append(list, more...)
}

// InState narrows a list to the rows of a state, in SQL: "" unless it is one of these states. The plan of a statement
// does not depend on its arguments, and so an index of few states is found only where the SQL names the state.
func InState(column, state string, states []string) string {
	if !slices.Contains(states, state) {
		return ""
	}
	return " AND " + column + " = '" + state + "'"
}

// Nullable is v as an argument of a statement: nil, which is NULL, for the zero value.
func Nullable[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}

// Optional is what p points to as an argument of a statement, or nil.
func Optional[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

// Raw is JSON as a jsonb column takes it: text, NULL where there is none.
func Raw(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return string(b)
}

// RawJSON is a value as a jsonb column takes it, NULL for nil.
func RawJSON[T any](v *T) any {
	if v == nil {
		return nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return Raw(b)
}
