package labels

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Thing is something that can be applied: its kind and name, and the context in which it lies.
type Thing struct {
	Context int32
	Kind    string
	Name    string
}

// Apply runs fn under a context in which all that the store does is one commit. One apply of the installation comes
// behind the other: each locks the row of the context system first, in a mode that lets rows refer to it, so that
// the second sees what the first has committed. fn runs again where the database breaks off, a deadlock with other
// work for instance, so it begins anew each time; an error by which the database refuses comes as it is. In a dry
// run nothing is committed.
func (s *Store) Apply(ctx context.Context, fn func(context.Context) error) error {
	lock := func(_ *db.Txn, b *pgx.Batch) {
		b.Queue(`SELECT FROM postern.context WHERE name = $1 FOR NO KEY UPDATE`, pg.System)
	}
	for try := 1; ; try++ {
		err := s.DB.Together(ctx, lock, fn)
		if err == nil {
			return s.Reconfigured(ctx)
		}
		broken := fault.CodeOf(err) == "broken"
		if cause := fault.As(err).Err; broken && cause != nil && !passing(cause) {
			return cause
		}
		again := broken || fault.CodeOf(err) == "precondition_failed"
		if !again || try == db.Attempts || ctx.Err() != nil {
			return err
		}
	}
}

// Name keeps that a label of a context names these things. A row that is there already is not written.
func (s *Store) Name(ctx context.Context, contextID int32, label string, things []Thing) error {
	of, kinds, names := columns(things)
	_, err := s.Exec(ctx, `INSERT INTO postern.applied (context_id, label, of_context, kind, name)
		SELECT $1, $2, n.of_context, n.kind, n.name
		FROM ROWS FROM (unnest($3::int[]), unnest($4::text[]), unnest($5::text[])) n(of_context, kind, name)
		WHERE NOT EXISTS (SELECT FROM postern.applied a
			WHERE (a.context_id, a.label, a.of_context, a.kind, a.name) = ($1, $2, n.of_context, n.kind, n.name))
		ON CONFLICT DO NOTHING`, contextID, label, of, kinds, names)
	return err
}

// Forget forgets that a label of a context names these things.
func (s *Store) Forget(ctx context.Context, contextID int32, label string, things []Thing) error {
	of, kinds, names := columns(things)
	_, err := s.Exec(ctx, `DELETE FROM postern.applied a
		USING ROWS FROM (unnest($3::int[]), unnest($4::text[]), unnest($5::text[])) n(of_context, kind, name)
		WHERE (a.context_id, a.label, a.of_context, a.kind, a.name) = ($1, $2, n.of_context, n.kind, n.name)`,
		contextID, label, of, kinds, names)
	return err
}

func columns(things []Thing) (of []int32, kinds, names []string) {
	for _, v := range things {
		of, kinds, names = append(of, v.Context), append(kinds, v.Kind), append(names, v.Name)
	}
	return of, kinds, names
}

// Named lists what a label of a context names, and of each thing whether another label names it, too.
func (s *Store) Named(ctx context.Context, contextID int32, label string) (map[Thing]bool, error) {
	rows, err := s.Db(ctx).Query(ctx, `SELECT a.of_context, a.kind, a.name, EXISTS (SELECT FROM postern.applied o
			WHERE (o.of_context, o.kind, o.name) = (a.of_context, a.kind, a.name)
				AND (o.context_id, o.label) <> (a.context_id, a.label))
		FROM postern.applied a
		WHERE a.context_id = $1 AND a.label = $2`, contextID, label)
	if err != nil {
		return nil, db.Known(err)
	}
	all := map[Thing]bool{}
	var v Thing
	var shared bool
	_, err = pgx.ForEachRow(rows, []any{&v.Context, &v.Kind, &v.Name, &shared}, func() error {
		all[v] = shared
		return nil
	})
	return all, db.Known(err)
}

// passing says whether an error is one that may not come again.
func passing(err error) bool {
	kind := fault.KindOf(err)
	return kind == fault.Internal || kind == fault.Retry
}
