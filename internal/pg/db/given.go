package db

import (
	"fmt"
	"strings"
)

// Rowwise is a statement about rows that are its arguments, as two texts: for many, each column is an array; for one,
// each is a plain value. On an idle machine a commit has one row, and to take arrays apart, and to join what comes of
// them, takes PostgreSQL as long as all else that such a statement does.
type Rowwise struct{ Many, One string }

// ForRows makes both texts of what stands once.
func ForRows(text func(one bool) string) Rowwise { return Rowwise{text(false), text(true)} }

// Of is the text for n rows.
func (r Rowwise) Of(n int) string {
	if n == 1 {
		return r.One
	}
	return r.Many
}

// Given is the item n of a FROM: rows that are the arguments from $first on, one for each column "name type". One row
// is a SELECT without FROM, and the plan keeps nothing of it: where a column is read stands the value itself.
func Given(one bool, first int, cols ...string) string {
	var names, reads []string
	for i, c := range cols {
		name, typ, _ := strings.Cut(c, " ")
		names = append(names, name)
		if one {
			reads = append(reads, fmt.Sprintf("$%d::%s AS %s", first+i, typ, name))
		} else {
			reads = append(reads, fmt.Sprintf("unnest($%d::%s[])", first+i, typ))
		}
	}
	if one {
		return "(SELECT " + strings.Join(reads, ", ") + ") n"
	}
	return "ROWS FROM (" + strings.Join(reads, ", ") + ") n(" + strings.Join(names, ", ") + ")"
}

// Argument is a column of rows as an argument of a rowwise: the list or, of one row, its value.
func Argument[T any](list []T) any {
	if len(list) == 1 {
		return list[0]
	}
	return list
}
