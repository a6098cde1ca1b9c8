package migrate

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverNumbers gives each migration of River its number in ours. When River brings another, it takes the next number
// that no migration has yet: goose refuses one that would slip in below what is applied already.
var riverNumbers = map[int]int64{1: 2, 2: 3, 3: 4, 4: 5, 5: 6, 6: 7, 7: 8, 8: 9}

// riverLineColumn is River's version from which river_migration has the column line.
const riverLineColumn = 5

// riverMigrator is River's own list of migrations. It has no connection: goose runs them, since River's migrator wants
// pgx where goose gives database/sql.
func riverMigrator() (*rivermigrate.Migrator[pgx.Tx], error) {
	return rivermigrate.New(riverpgxv5.New(nil), &rivermigrate.Config{
		Schema: "river", Logger: slog.New(slog.DiscardHandler)})
}

// riverMigrations returns one goose migration per version of River.
func riverMigrations() ([]*goose.Migration, error) {
	m, err := riverMigrator()
	if err != nil {
		return nil, err
	}
	var all []*goose.Migration
	for _, v := range m.AllVersions() {
		number, ok := riverNumbers[v.Version]
		if !ok {
			return nil, fmt.Errorf("River's migration %d (%s) has no number: add it to riverNumbers", v.Version, v.Name)
		}
		all = append(all, goose.NewGoMigration(number,
			&goose.GoFunc{RunTx: riverStep(v.SQLUp, riverInsert(v.Version))},
			&goose.GoFunc{RunTx: riverStep(v.SQLDown, riverDelete(v.Version))}))
	}
	return all, nil
}

// riverStep runs a migration of River in the schema river, then notes it where River looks for it.
func riverStep(ddl, note string) func(context.Context, *sql.Tx) error {
	ddl = strings.ReplaceAll(ddl, "/* TEMPLATE: schema */", "river.")
	return func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, ddl); err != nil {
			return err
		}
		if note == "" {
			return nil
		}
		_, err := tx.ExecContext(ctx, note)
		return err
	}
}

// riverInsert is the statement that notes a version as applied.
func riverInsert(version int) string {
	if version < riverLineColumn {
		return fmt.Sprintf("INSERT INTO river.river_migration (version) VALUES (%d)", version)
	}
	return fmt.Sprintf("INSERT INTO river.river_migration (line, version) VALUES ('main', %d)", version)
}

// riverDelete is the statement that forgets a version. The first takes its table with it; the fifth has just taken
// the column line away.
func riverDelete(version int) string {
	switch {
	case version == 1:
		return ""
	case version <= riverLineColumn:
		return fmt.Sprintf("DELETE FROM river.river_migration WHERE version = %d", version)
	}
	return fmt.Sprintf("DELETE FROM river.river_migration WHERE line = 'main' AND version = %d", version)
}
