package pg_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// nameless are constraints that need no sentence, each with its reason.
var nameless = map[string]string{
	"goose_db_version_pkey": "the migrations' own bookkeeping",
	"goose_lock_pkey":       "the migrations' own bookkeeping",
	"audit_pkey":            "its id is generated: nobody names one",
	"context_pkey":          "its id is generated: nobody names one",
	"dispatcher_pkey":       "its id is generated: nobody names one",
	"lane_pkey":             "its id is generated: nobody names one",
	"node_pkey":             "its id is generated: nobody names one",
	"pool_pkey":             "its id is generated: nobody names one",
	"runner_pkey":           "its id is generated: nobody names one",
	"processor_pkey":        "its id is generated: nobody names one",
	"domain_pkey":           "its id is generated: nobody names one",
	"channel_pkey":          "its id is generated: nobody names one",
	"source_pkey":           "its id is generated: nobody names one",
	"subscription_pkey":     "its id is generated: nobody names one",
	"tool_pkey":             "its id is generated: nobody names one",
	"sender_pkey":           "its id is generated: nobody names one",

	"batch_authorization_pkey": "its id is generated: nobody names one",
}

var automatic = regexp.MustCompile(`_(pkey|check\d*|excl|fkey)$`)

func TestEveryConstraintIsASentenceThatAPackageRegisters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	// of a partitioned table once; and what is violated like a constraint: unique indexes, rules in functions
	rows, err := w.S.Pool().Query(w.Ctx, `
		SELECT c.conname::text FROM pg_constraint c JOIN pg_class r ON r.oid = c.conrelid
		WHERE c.connamespace = 'postern'::regnamespace AND NOT r.relispartition
		UNION SELECT r.relname::text FROM pg_index i JOIN pg_class r ON r.oid = i.indexrelid
		WHERE i.indisunique AND r.relnamespace = 'postern'::regnamespace AND NOT r.relispartition
		UNION SELECT (regexp_matches(prosrc, $$broken\('\w+', '(\w+)'\)$$, 'g'))[1] FROM pg_proc WHERE pronamespace = 'postern'::regnamespace`)
	w.Must(err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	w.Must(err)
	have := map[string]bool{}
	for _, name := range names {
		have[name] = true
		if _, ok := db.Constraints()[name]; ok {
			continue
		}
		if nameless[name] == "" {
			t.Errorf("no package registers the constraint %s: db.Register", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(db.Constraints())) {
		if !have[name] {
			t.Errorf("a package registers %s, which is no constraint of the schema", name)
		}
		if automatic.MatchString(name) {
			t.Errorf("%s is a name that PostgreSQL made, and no sentence", name)
		}
	}
}

func TestASecondOutcomeIsNamedByItsSentence(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	w.Post("q", "T", "a", "b")
	l := w.Claim(w.Node("n"), pgworld.Everything())[0]
	w.Settle(w.Answer(l, pgworld.Done()))
	_, err := w.S.Settle(w.Ctx, []*pg.Answer{w.Answer(l, pgworld.Done())})
	if err == nil || fault.KindOf(err) != fault.Internal ||
		!strings.Contains(err.Error(), "one outcome per transaction") {
		t.Errorf("a second outcome: %v", err)
	}
}
