package internal_test

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// forbidden is SQL that only one engine has, or that breaks behind a pooler, after a failover, or on a
// distributed engine (architecture, 7).
var forbidden = []struct {
	pattern *regexp.Regexp
	reason  string
}{
	{regexp.MustCompile(`(?i)\b(xmin|xmax|ctid)\b`), "system columns exist in PostgreSQL's own storage only"},
	{regexp.MustCompile(`(?i)\bpg_(try_)?advisory_lock(_shared)?\s*\(`),
		"a session lock is lost or kept by a pooler: lock a row, or use the _xact_ form"},
	{regexp.MustCompile(`(?i)\bUNLOGGED\b`), "an unlogged table is empty after a crash"},
	{regexp.MustCompile(`(?i)\bORDER\s+BY\s+random\s*\(`), "sorts the whole table; draw outside"},
}

var comments = regexp.MustCompile(`(?s)--[^\n]*|/\*.*?\*/`)

// lint says what is wrong with a piece of SQL, comments aside.
func lint(sql string) []string {
	sql = comments.ReplaceAllString(sql, " ")
	var faults []string
	for _, f := range forbidden {
		if hit := f.pattern.FindString(sql); hit != "" {
			faults = append(faults, strconv.Quote(hit)+": "+f.reason)
		}
	}
	return faults
}

// Linted are all SQL files, and the string literals of all Go code but tests and internal/pgtest, which
// clones databases on one machine and never runs in production.
func TestOurSQLRunsOnAnyPostgreSQL(t *testing.T) {
	walk(t, func(p string, text []byte) {
		if path.Ext(p) != ".sql" {
			return
		}
		for _, fault := range lint(string(text)) {
			t.Errorf("%s: %s", p, fault)
		}
	})
	for _, f := range goFiles(t) {
		if f.test() || strings.HasPrefix(f.pkg, "internal/pgtest") {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				text, _ := strconv.Unquote(lit.Value)
				for _, fault := range lint(text) {
					t.Errorf("%s: %s", f.path, fault)
				}
			}
			return true
		})
	}
}

func TestTheLintKnowsWhatItForbids(t *testing.T) {
	for sql, bad := range map[string]bool{
		"SELECT xmin FROM queue":                                     true,
		"DELETE FROM t WHERE CTID IN (SELECT 1)":                     true,
		"SELECT pg_advisory_lock(1)":                                 true,
		"SELECT pg_try_advisory_lock (1)":                            true,
		"SELECT pg_advisory_xact_lock(1)":                            false,
		"create unlogged table t ()":                                 true,
		"SELECT 1 ORDER  BY\n random()":                              true,
		"SELECT 1 -- no ctid here, nor /* UNLOGGED\n":                false,
		"/* ORDER BY random() is\n what we never do */ SELECT 1":     false,
		"SELECT max_minutes, intended FROM t ORDER BY random_column": false,
	} {
		if got := lint(sql); (len(got) > 0) != bad {
			t.Errorf("%q: %v, want a fault: %v", sql, got, bad)
		}
	}
}
