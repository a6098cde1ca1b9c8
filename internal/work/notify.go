package work

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/postern-dev/postern/internal/pg/watch"
)

// driver is River's for pgx, but that it listens as we do: River's own listener waits for a notification as others wait
// for an answer, so that the watch of the pool would end it, and asks only every five seconds whether the server is
// there.
type driver struct {
	*riverpgxv5.Driver
	pool *pgxpool.Pool
}

func (d driver) GetListener(params *riverdriver.GetListenenerParams) riverdriver.Listener {
	return &listener{pool: d.pool, schema: params.Schema}
}

// listener is a connection that listens for River. It is not one of its pool any more.
type listener struct {
	pool   *pgxpool.Pool
	schema string

	mu   sync.Mutex
	conn *pgx.Conn
}

// Connect takes a connection out of the pool.
func (l *listener) Connect(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		return errors.New("it is connected already")
	}
	c, err := l.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	l.conn = c.Hijack()
	return nil
}

// Close closes the connection, if there is one.
func (l *listener) Close(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return nil
	}
	err := l.conn.Close(ctx)
	l.conn = nil
	return err
}

func (l *listener) Listen(ctx context.Context, topic string) error {
	return l.exec(ctx, "LISTEN "+l.channel(topic))
}

func (l *listener) Unlisten(ctx context.Context, topic string) error {
	return l.exec(ctx, "UNLISTEN "+l.channel(topic))
}

func (l *listener) channel(topic string) string {
	return pgx.Identifier{l.prefix() + topic}.Sanitize()
}

func (l *listener) prefix() string { return l.schema + "." }

func (l *listener) exec(ctx context.Context, sql string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.conn.Exec(ctx, sql)
	return err
}

// Ping asks whether the server is there.
func (l *listener) Ping(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn.Ping(ctx)
}

// Schema is where River's tables are; ours names it always.
func (l *listener) Schema() string { return l.schema }

// SetAfterConnectExec is for River's own tests.
func (l *listener) SetAfterConnectExec(string) {}

// WaitForNotification waits for the next notification, or for the end of ctx, which the connection survives.
func (l *listener) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := watch.Notification(ctx, l.conn)
	if err != nil {
		return nil, err
	}
	return &riverdriver.Notification{Topic: strings.TrimPrefix(n.Channel, l.prefix()), Payload: n.Payload}, nil
}
