// Package migrations holds the only DDL of Postern: plain SQL in files that goose reads, one change each, numbered.
// River's own migrations take the numbers 00002 to 00009 and are not files; see internal/pg.
package migrations

import "embed"

// FS holds the SQL files of this directory.
//
//go:embed *.sql
var FS embed.FS
