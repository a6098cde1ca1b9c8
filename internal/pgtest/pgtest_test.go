package pgtest

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg/migrate"
)

func TestMain(m *testing.M) { Main(m) }

func TestEveryTestHasAMigratedDatabaseOfItsOwn(t *testing.T) {
	for i := range 6 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			db := New(t)
			if err := migrate.Check(ctx, db.Pool); err != nil {
				t.Fatal(err)
			}
			// Where two tests shared a database, the second would fail here.
			if _, err := db.Pool.Exec(ctx, "CREATE TABLE mine (a int)"); err != nil {
				t.Fatal(err)
			}
			var name string
			if err := db.NewPool(t, 1).QueryRow(ctx, "SELECT current_database()").Scan(&name); err != nil ||
				name != db.Name {
				t.Fatalf("connected to %q, want %q (%v)", name, db.Name, err)
			}
		})
	}
}

func TestADatabaseIsDroppedEvenWhileSomebodyIsConnected(t *testing.T) {
	ctx := context.Background()
	var name string
	var conn *pgx.Conn
	t.Run("inner", func(t *testing.T) {
		db := New(t)
		name = db.Name
		var err error
		if conn, err = pgx.Connect(ctx, db.URL); err != nil {
			t.Fatal(err)
		}
	})
	if err := conn.Ping(ctx); err == nil {
		t.Error("a connection outlived its database")
	}
	var there bool
	if err := New(t).Pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)",
		name).Scan(&there); err != nil || there {
		t.Fatalf("%s is still there: %v (%v)", name, there, err)
	}
}

func TestTheTemplateIsMadeOnceAndCannotBeConnectedTo(t *testing.T) {
	ctx := context.Background()
	db := New(t)
	s, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	oid := func() (id uint32, open bool) {
		err := db.Pool.QueryRow(ctx,
			"SELECT oid, datallowconn FROM pg_database WHERE datname = $1", s.template).Scan(&id, &open)
		if err != nil {
			t.Fatal(err)
		}
		return id, open
	}
	before, open := oid()
	if open {
		t.Errorf("%s allows connections: a test could change what all others begin with", s.template)
	}
	if err := s.makeTemplate(ctx); err != nil {
		t.Fatal(err)
	}
	if after, _ := oid(); after != before {
		t.Errorf("the template was made anew although it was whole")
	}
}

func TestNamesOfDatabasesFitAndDiffer(t *testing.T) {
	long := databaseName("TestÄ/with a very long name that goes on and on until no identifier could ever hold it")
	if len(long) > 63 {
		t.Errorf("%q has %d bytes, an identifier holds 63", long, len(long))
	}
	if other := databaseName("a"); other == databaseName("a") {
		t.Errorf("two tests of the same name both got %s", other)
	}
}

func BenchmarkNew(b *testing.B) {
	s, err := shared()
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	for b.Loop() {
		name := databaseName(b.Name())
		if err := s.clone(ctx, name); err != nil {
			b.Fatal(err)
		}
		if err := s.exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			b.Fatal(err)
		}
	}
}
