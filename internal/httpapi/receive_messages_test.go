package httpapi_test

import "testing"

// A receive that waits, and whose message another session holds locked, rests between two looks.
func TestAReceiveRestsWhileItsMessageIsLocked(t *testing.T) {
	d := newDoor(t)
	d.store.Messages.Open = true
	d.want(201, "POST", "/messages", `{"to": {"context": "default"}, "message_type": "chat", "message": "x"}`)
	if n, err := d.store.Messages.Route(t.Context()); err != nil || n != 1 {
		t.Fatalf("%d messages are routed: %v", n, err)
	}
	pool := d.store.Pool()
	held, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := held.Exec(t.Context(), `SET LOCAL idle_in_transaction_session_timeout = 0`); err != nil {
		t.Fatal(err)
	}
	if _, err := held.Exec(t.Context(), `SELECT FROM postern.message FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	before := pool.Stat().AcquireCount()
	d.want(204, "POST", "/messages:receive?wait=1s", "")
	if n := pool.Stat().AcquireCount() - before; n > 40 {
		t.Errorf("it asked the database %d times in a second", n)
	}
	if err := held.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.want(200, "POST", "/messages:receive", "")
}
