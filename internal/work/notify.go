package work

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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
	pool   *pgxpool.Pool
	queues []string
}

func (d driver) GetListener(params *riverdriver.GetListenenerParams) riverdriver.Listener {
	return newListener(d.pool, params.Schema, d.queues)
}

// listener is a connection that listens for River. It is not one of its pool any more.
//
// Every role that may connect to the database may notify on every channel, so that a notification is a reason to look,
// and nothing else. The listener listens for inserted jobs alone. It does not listen for what pauses
// queues, cancels jobs or makes a leader resign: Postern does none of these, and River's looks every few seconds find a
// job that is cancelled, or a leader that has gone. It tells River no more often than River looks at most.
type listener struct {
	pool   *pgxpool.Pool
	schema string

	mu   sync.Mutex
	conn *pgx.Conn
	news map[string]*news // by payload
}

// news is what is known of one payload.
type news struct {
	told time.Time // to River, the last time
	owed bool      // it came again since
}

// insertTopic is the topic of jobs that are inserted.
const insertTopic = "river_insert"

// newListener makes a listener for jobs that are inserted into queues.
func newListener(pool *pgxpool.Pool, schema string, queues []string) *listener {
	l := &listener{pool: pool, schema: schema, news: map[string]*news{}}
	for _, q := range queues {
		l.news[fmt.Sprintf(`{"queue": %q}`, q)] = &news{} // as River writes it
	}
	return l
}

// restsFor is how long the server leaves the session of a listener open to which no statement comes. The other sessions
// of a process end sooner, and are opened anew when they are needed. River opens a listener again only after a pause,
// which grows with each end up to a minute: a process that stood still for a while would hear nothing meanwhile.
const restsFor = `SET idle_session_timeout = '10min'`

// Connect takes a connection out of the pool, and has it rest for longer than those of the pool.
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
	if _, err := c.Exec(ctx, restsFor); err != nil {
		c.Release()
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

// Listen listens to a topic, if it is that of inserted jobs.
func (l *listener) Listen(ctx context.Context, topic string) error {
	if topic != insertTopic {
		return nil
	}
	return l.exec(ctx, "LISTEN "+l.channel(topic))
}

// Unlisten ends what Listen began.
func (l *listener) Unlisten(ctx context.Context, topic string) error {
	if topic != insertTopic {
		return nil
	}
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

// WaitForNotification waits until River is to look for jobs of a queue, or for the end of ctx, which the connection
// survives. A notification that comes sooner than fetchCooldown after the same one was told is told then, once.
func (l *listener) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		payload, wait := l.owed(time.Now())
		if payload != "" {
			return &riverdriver.Notification{Topic: insertTopic, Payload: payload}, nil
		}
		n, err := l.next(ctx, wait)
		if err != nil {
			return nil, err
		}
		if n == nil || n.Channel != l.prefix()+insertTopic {
			continue
		}
		if known := l.news[n.Payload]; known != nil {
			known.owed = true
		}
	}
}

// owed returns a payload that River is to be told now, or how long it is until there is one; 0 if none is owed.
func (l *listener) owed(now time.Time) (payload string, wait time.Duration) {
	for p, n := range l.news {
		left := n.told.Add(fetchCooldown).Sub(now)
		switch {
		case n.owed && left <= 0:
			n.owed, n.told = false, now
			return p, 0
		case n.owed && (wait == 0 || left < wait):
			wait = left
		}
	}
	return "", wait
}

// next returns the next notification, or none once wait is over, unless that is 0.
func (l *listener) next(ctx context.Context, wait time.Duration) (*pgconn.Notification, error) {
	if wait == 0 {
		return watch.Notification(ctx, l.conn)
	}
	soon, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	n, err := watch.Notification(soon, l.conn)
	if err != nil && soon.Err() != nil && ctx.Err() == nil && !l.conn.IsClosed() {
		return nil, nil
	}
	return n, err
}
