package work

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest"
)

// TestTheListenerOutlivesTheLimitOfSessionsThatRest listens where no notification comes, for longer than other sessions
// may rest. The limit of this test is shorter than the second between two questions to the server.
func TestTheListenerOutlivesTheLimitOfSessionsThatRest(t *testing.T) {
	t.Parallel()
	ctx, db := t.Context(), pgtest.New(t)
	resting, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	asked := resting.Query()
	asked.Set("idle_session_timeout", "300ms")
	resting.RawQuery = asked.Encode()
	var l *listener
	for end := time.Now().Add(soon); l == nil; { // of a process that stands still meanwhile the session is ended
		if l, err = listening(t, resting.String()); err != nil && time.Now().After(end) {
			t.Fatal(err)
		}
	}
	if err := l.Listen(ctx, insertTopic); err != nil {
		t.Fatal(err)
	}
	while, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if _, err := l.WaitForNotification(while); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("it waited until %v", err)
	}
	if _, err := db.Pool.Exec(ctx, `SELECT pg_notify('river.river_insert', '{"queue": "postern"}')`); err != nil {
		t.Fatal(err)
	}
	later, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := l.WaitForNotification(later); err != nil {
		t.Errorf("it does not hear any more: %v", err)
	}
}

// listening connects a listener.
func listening(t *testing.T, url string) (*listener, error) {
	pool, err := pg.Connect(t.Context(), url, 1)
	if err != nil {
		return nil, err
	}
	t.Cleanup(pool.Close)
	l := newListener(pool, riverSchema, []string{riverQueue})
	if err := l.Connect(t.Context()); err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l, nil
}

// TestForgedNotificationsAreWastedLooksAtMost listens as River does, while a role without rights notifies. Of what it
// forges only that a job was inserted is told, as often as River looks at most; and the last one is told in any case.
func TestForgedNotificationsAreWastedLooksAtMost(t *testing.T) {
	t.Parallel()
	ctx, db := t.Context(), pgtest.New(t)
	l := newListener(db.Pool, riverSchema, []string{riverQueue, "node_1"})
	err := l.Connect(ctx)
	for _, topic := range []string{"river_control", "river_insert", "river_leadership"} {
		err = errors.Join(err, l.Listen(ctx, topic))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close(context.Background()) }()

	forged := db.Stranger(t)
	batch := &pgx.Batch{}
	for i, n := range [][2]string{
		{"river_control", `{"action":"pause","queue":"*"}`},
		{"river_control", `{"action":"cancel","queue":"postern","job_id":1}`},
		{"river_leadership", `{"action":"request_resign"}`},
		{"river_leadership", `{"action":"resigned","leader_id":"x"}`},
		{"river_insert", `no JSON`},
		{"river_insert", `{"queue": "of nobody"}`},
	} {
		batch.Queue(`SELECT pg_notify($1, $2)`, "river."+n[0], n[1])
		batch.Queue(`SELECT pg_notify($1, $2)`, "river."+n[0], fmt.Sprint(n[1], i))
	}
	const flood = 3000
	for range flood {
		batch.Queue(`SELECT pg_notify('river.river_insert', '{"queue": "postern"}')`)
	}
	began := time.Now()
	sent := make(chan error, 1)
	go func() { // each statement is a commit: what one commit repeats is told once
		for _, q := range batch.QueuedQueries {
			if _, err := forged.Exec(ctx, q.SQL, q.Arguments...); err != nil {
				sent <- err
				return
			}
		}
		_, err := forged.Exec(ctx, `SELECT pg_notify('river.river_insert', '{"queue": "node_1"}')`)
		sent <- err
	}()
	told, done := 0, false
	for !done {
		soon, cancel := context.WithTimeout(ctx, time.Minute)
		n, err := l.WaitForNotification(soon)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		done = n.Payload == `{"queue": "node_1"}`
		if told++; n.Topic != "river_insert" || !done && n.Payload != `{"queue": "postern"}` {
			t.Fatalf("River was told %+v", n)
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if most := int(time.Since(began)/fetchCooldown) + 2; told < 2 || told > most {
		t.Errorf("%d of %d forged notifications were told, want 2 to %d", told, flood, most)
	}
	soon, cancel := context.WithTimeout(ctx, 10*fetchCooldown)
	defer cancel()
	for soon.Err() == nil { // the last of the flood may still be owed
		if n, err := l.WaitForNotification(soon); err == nil && n.Payload != `{"queue": "postern"}` {
			t.Errorf("told %+v afterwards", n)
		}
	}
	if err := l.Ping(ctx); err != nil {
		t.Errorf("the connection did not survive: %v", err)
	}
}
